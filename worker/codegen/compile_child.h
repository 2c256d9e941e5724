// Compilation in child processes: a compiler crash or hang fails one program and loses no array.
//
// A child is a binary of ours that calls RunCompileChild: a jailed process (base/jail.h). It is
// started when it is first needed, serves one request after the other, and is replaced after it
// crashed or was killed.
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
#include "base/jail.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

struct CompileChildOptions {
  std::string binary;
  std::vector<std::string> args;
  std::string target;  // by name
  int64_t memory_bytes_max = int64_t{4} << 30;
};

// One such process. Thread-safe; requests wait for one another.
class CompileChild {
 public:
  explicit CompileChild(CompileChildOptions options);

  // Compiles the kernels to one image for the target; for the host's targets one kernel, to an
  // object. Errors name `label`: COMPILE_TIMEOUT at the deadline; INTERNAL if the compiler failed
  // or ended. The next call starts another process if this one has ended.
  absl::StatusOr<std::string> Compile(absl::Span<const Kernel> kernels, const std::string& label,
                                      absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Compiles the kernel, or the loop of kernels, of which this is the text, for a host's target.
  absl::StatusOr<std::string> CompileText(const std::string& text, const std::string& label,
                                          absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::string target_;
  absl::Mutex mu_;
  JailedProcess process_ ABSL_GUARDED_BY(mu_);
};

// A pool of compile children for one target: one for each concurrent compilation. Each serves one
// tenant; a few idle ones are kept. Thread-safe.
class CompileChildren {
 public:
  explicit CompileChildren(CompileChildOptions options) : options_(std::move(options)) {}

  // Returns a child for the caller's exclusive use until Release, for the same tenant.
  std::unique_ptr<CompileChild> Take(const std::string& tenant) ABSL_LOCKS_EXCLUDED(mu_);
  void Release(const std::string& tenant, std::unique_ptr<CompileChild> child)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const CompileChildOptions options_;
  absl::Mutex mu_;
  struct Idle {
    std::string tenant;
    std::unique_ptr<CompileChild> child;
  };
  std::vector<Idle> idle_ ABSL_GUARDED_BY(mu_);  // the one that was used least lately first
};

// A binary of ours that gets this as its only argument calls RunCompileChild.
inline constexpr char kCompileChildFlag[] = "--compile-child";
// Compiles kernels to the image of a target other than the host's.
using CompileImageFn = absl::StatusOr<std::string> (*)(absl::string_view target,
                                                       absl::Span<const Kernel> kernels);
// The main function of a child: serves the socket with descriptor 3 until it closes. `others`,
// which may be null, compiles for other targets than the host's. Returns the exit status.
int RunCompileChild(CompileImageFn others);

}  // namespace tessera::worker::codegen
