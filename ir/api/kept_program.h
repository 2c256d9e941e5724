// The program of an executable, from which the executable is compiled again when the service does
// not know it any more: the service keeps only the executables that were used last, and a
// coordinator without a state folder forgets all of them when it restarts.
//
// Shared by an executable of the client and by its runs that are not accepted yet. Thread-safe.
// Reference: docs/decisions/0040-executables-come-back.md.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ir/api/service.h"

namespace tessera::api {

class KeptProgram {
 public:
  using CompileFn = std::function<absl::StatusOr<CompileReply>(const CompileRequest&)>;

  // `reply` is the reply to `request`, which has made the executable.
  KeptProgram(CompileRequest request, const CompileReply& reply);
  KeptProgram(const KeptProgram&) = delete;
  KeptProgram& operator=(const KeptProgram&) = delete;

  // Returns the present id of the executable.
  uint64_t executable() const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the executable that takes the place of `lost`, which the service does not know.
  // Compiles the program by `compile`, unless another thread has done so already or is doing so.
  // Waits at most until `deadline`, by SteadyNow(). Errors: the error of the compilation;
  // PROGRAM_NOT_FOUND if the arguments or results of the new executable lie elsewhere than before.
  absl::StatusOr<uint64_t> Replace(uint64_t lost, const CompileFn& compile, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the error of a run whose executable was lost again: `lost` took the place of `first`.
  absl::Status LostAgainError(uint64_t first, uint64_t lost) const;

 private:
  // A compilation under way. The threads that need it share its outcome.
  struct Attempt {
    bool done = false;
    absl::StatusOr<uint64_t> executable = absl::UnknownError("not compiled yet");
  };
  absl::StatusOr<uint64_t> CompileAgain(uint64_t lost, const CompileFn& compile,
                                        absl::Time deadline) const;

  const CompileRequest request_;
  // The arguments and results of the first executable. Arrays are placed by them.
  const std::vector<ArraySpec> in_, out_;
  mutable absl::Mutex mu_;
  uint64_t executable_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Attempt> attempt_ ABSL_GUARDED_BY(mu_);  // null if none is under way
};

}  // namespace tessera::api
