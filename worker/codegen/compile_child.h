// Compilation in a process of its own: what ends the compiler, or never ends, costs one kernel an
// error and no array.
//
// The child is a binary of ours that calls RunCompileChild; it is started when it is first needed,
// serves one request after the other, and is replaced after it crashed or was killed. It limits its
// own memory and processor time, needs no rights, and ends when its parent is gone. Any thread;
// requests wait for one another.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

struct CompileChildOptions {
  std::string binary;
  std::vector<std::string> args;
  std::string target;  // by name
  int64_t memory_bytes_max = int64_t{4} << 30;
  absl::Duration deadline = absl::Seconds(60);
};

class CompileChild {
 public:
  explicit CompileChild(CompileChildOptions options);
  ~CompileChild();

  // The kernels as one image for the target; for the host's targets one kernel, as an object.
  // kInternal, naming `label`, if the child ended or took longer than the deadline, with how; the
  // next call starts another.
  absl::StatusOr<std::string> Compile(absl::Span<const Kernel> kernels, const std::string& label);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// What a binary of ours is started with to be one; the only argument.
inline constexpr char kCompileChildFlag[] = "--compile-child";
// Kernels to the image of a target that is not the host's.
using CompileImageFn = absl::StatusOr<std::string> (*)(absl::string_view target,
                                                       absl::Span<const Kernel> kernels);
// The child's main, after exec: serves the socket that is descriptor 3 until it closes. `others`
// compiles for targets that are not the host's; null: there are none. Returns the exit status.
int RunCompileChild(CompileImageFn others);

}  // namespace tessera::worker::codegen
