// Compilation in child processes. If the compiler crashes or hangs, one program fails and no array
// is lost.
//
// A child is a binary of ours that calls RunCompileChild. It is a jailed process (base/jail.h),
// which is started when it is first needed and serves one request after the other. If it crashes or
// is killed, the next request starts another one.
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
  std::string target;  // name of the target (host_target.h, device_code.h)
  int64_t memory_bytes_max = int64_t{4} << 30;
};

// One compile child. Thread-safe; requests wait for one another.
class CompileChild {
 public:
  explicit CompileChild(CompileChildOptions options);

  // Compiles the kernels to one image for the target. For a host target there must be one kernel,
  // which is compiled to an object. Errors name `label`: COMPILE_TIMEOUT at the deadline, and
  // INTERNAL if the compiler failed or ended. If the process has ended, the next call starts
  // another process.
  absl::StatusOr<std::string> Compile(absl::Span<const Kernel> kernels, const std::string& label,
                                      absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Compiles the kernel or loop of kernels with this text, for a host target.
  absl::StatusOr<std::string> CompileText(const std::string& text, const std::string& label,
                                          absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::string target_;
  absl::Mutex mu_;
  JailedProcess process_ ABSL_GUARDED_BY(mu_);
};

// A pool of compile children for one target, one child for each concurrent compilation. Each child
// serves one tenant, and a few idle children are kept. Thread-safe.
class CompileChildren {
 public:
  explicit CompileChildren(CompileChildOptions options) : options_(std::move(options)) {}

  // Returns a child for the caller's exclusive use until Release. The caller must release it for
  // the same tenant.
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
  // The idle children, the least recently used first.
  std::vector<Idle> idle_ ABSL_GUARDED_BY(mu_);
};

// The only argument of a binary of ours that should call RunCompileChild.
inline constexpr char kCompileChildFlag[] = "--compile-child";
// Compiles kernels to the image of a target other than the host's.
using CompileImageFn = absl::StatusOr<std::string> (*)(absl::string_view target,
                                                       absl::Span<const Kernel> kernels);
// The main function of a child. It serves the socket with descriptor 3 until the socket closes.
// `compile_image` compiles for targets other than the host's, and may be null. Returns the exit
// status.
int RunCompileChild(CompileImageFn compile_image);

}  // namespace tessera::worker::codegen
