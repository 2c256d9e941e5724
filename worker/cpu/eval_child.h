// Evaluates long host steps in child processes, so that a cancellation can end a call that nothing
// can interrupt, such as one of LAPACK. It kills the child, and costs no array.
//
// A child is a binary of ours that calls RunEvalChild. It is a jailed process (base/jail.h), with
// one more descriptor: memory that it shares with its parent, through which operands and results
// go. A call writes its operands there and reads its results back. The bits are those of an
// evaluation in the parent, because the child runs the same evaluator, with the same libraries, on
// the same number of threads. Reference: docs/decisions/0038.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "ir/eval/eval.h"
#include "worker/runtime/long_steps.h"
#include "worker/runtime/timer.h"

namespace tessera::worker {

struct EvalChildOptions {
  std::string binary;
  std::vector<std::string> args;  // the arguments before the number of threads
  int num_threads = 1;            // threads of each child
  // How long a child waits for another call before it ends.
  absl::Duration idle_time = absl::Seconds(30);
};

// A pool of children. A call takes an idle child of its tenant or starts one, so there are as many
// busy children as calls, and each device of an executor makes one call at a time. At most kIdleMax
// idle children are kept, each for idle_time and with at most kKeptBytesMax of shared memory, whose
// pages the next call then finds. A child serves one tenant. Thread-safe.
class EvalChildren final : public LongSteps {
 public:
  static constexpr size_t kIdleMax = 4;
  static constexpr int64_t kKeptBytesMax = int64_t{128} << 20;

  explicit EvalChildren(EvalChildOptions options);
  ~EvalChildren() override;

  // Besides the errors of the op and of a cancellation, returns OUT_OF_MEMORY if the child could
  // not get its memory or was killed, DEADLINE_EXCEEDED after a day, and INTERNAL if the child did
  // not start or ended in another way. Only the call fails, and the next call starts another child.
  absl::Status Evaluate(const ir::FunctionRef& function, const RunContext& context,
                        absl::Span<const absl::Span<const std::byte>> in,
                        absl::Span<const absl::Span<std::byte>> out) override
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Child;
  struct Idle {
    std::string tenant;
    std::unique_ptr<Child> child;
    absl::Time until;
  };
  absl::StatusOr<std::unique_ptr<Child>> Take(std::string_view tenant) ABSL_LOCKS_EXCLUDED(mu_);
  void Release(std::string_view tenant, std::unique_ptr<Child> child) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the children that have been idle for idle_time, and returns to the timer if others are
  // left.
  void EndIdle() ABSL_LOCKS_EXCLUDED(mu_);

  const EvalChildOptions options_;
  absl::Mutex mu_;
  std::vector<Idle> idle_ ABSL_GUARDED_BY(mu_);  // the least recently used first
  bool timer_is_set_ ABSL_GUARDED_BY(mu_) = false;
  // Made when the first child becomes idle. The last member, because its thread uses the others.
  std::unique_ptr<Timer> timer_ ABSL_GUARDED_BY(mu_);
};

// The first of the two arguments of a binary of ours that should call RunEvalChild with the second.
inline constexpr char kEvalChildFlag[] = "--eval-child";
// The main function of a child. `num_threads` is a number, the threads that it evaluates with.
// Returns the exit status.
int RunEvalChild(std::string_view num_threads);
// The child's side of the calls. Used by one thread.
class EvalServer {
 public:
  // `memory_fd` is borrowed.
  EvalServer(int memory_fd, ir::EvalOptions options)
      : memory_fd_(memory_fd), options_(std::move(options)) {}
  EvalServer(const EvalServer&) = delete;
  EvalServer& operator=(const EvalServer&) = delete;
  ~EvalServer();
  // Returns the reply to a request, which may be any bytes. An empty reply says that the results
  // are in the shared memory.
  std::string Answer(std::string_view request);

 private:
  absl::Status Evaluate(std::string_view request);
  // Maps the first `bytes` bytes of the shared memory, unless they are mapped already.
  absl::Status Map(int64_t bytes);

  const int memory_fd_;
  const ir::EvalOptions options_;
  // The mapping, which is kept for the next request.
  std::byte* memory_ = nullptr;
  int64_t mapped_bytes_ = 0;
};

}  // namespace tessera::worker
