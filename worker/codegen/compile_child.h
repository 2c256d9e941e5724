// Compilation in child processes: a compiler crash or hang fails one program and loses no array.
//
// A child is a binary of ours that calls RunCompileChild; it is started when it is first needed,
// serves one request after the other, and is replaced after it crashed or was killed. It limits its
// own memory and processor time, needs no rights, knows no secrets (no environment, no descriptors
// but its socket), and ends when its parent is gone, also in the middle of its work.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

struct CompileChildOptions {
  std::string binary;
  std::vector<std::string> args;
  std::string target;  // by name
  int64_t memory_bytes_max = int64_t{4} << 30;
};

// One such process. Any thread; requests wait for one another.
class CompileChild {
 public:
  explicit CompileChild(CompileChildOptions options);
  ~CompileChild();

  // The kernels as one image for the target; for the host's targets one kernel, as an object.
  // Naming `label`: COMPILE_TIMEOUT if it was not done at the deadline; INTERNAL if the child
  // ended, with how. The next call starts another.
  absl::StatusOr<std::string> Compile(absl::Span<const Kernel> kernels, const std::string& label,
                                      absl::Time deadline);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// A pool of compile children for one target: one for each concurrent compilation, of which one is
// kept when all have ended. Any thread.
class CompileChildren {
 public:
  explicit CompileChildren(CompileChildOptions options) : options_(std::move(options)) {}

  // A child for the caller's exclusive use, until GiveBack.
  std::unique_ptr<CompileChild> Take() ABSL_LOCKS_EXCLUDED(mu_);
  void GiveBack(std::unique_ptr<CompileChild> child) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const CompileChildOptions options_;
  absl::Mutex mu_;
  std::unique_ptr<CompileChild> idle_ ABSL_GUARDED_BY(mu_);  // null: none
};

// The only argument with which one of our binaries is started as a compile child.
inline constexpr char kCompileChildFlag[] = "--compile-child";
// Kernels to the image of a target that is not the host's.
using CompileImageFn = absl::StatusOr<std::string> (*)(absl::string_view target,
                                                       absl::Span<const Kernel> kernels);
// The child's main, after exec: serves the socket that is descriptor 3 until it closes. `others`
// compiles for targets that are not the host's; null: there are none. Returns the exit status.
int RunCompileChild(CompileImageFn others);

}  // namespace tessera::worker::codegen
