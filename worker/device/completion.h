// A thread that polls events for the end of a device's work. CUDA's stream callbacks are no
// alternative, since they do not report work that ended in an error.
//
// Work is added to queues. The work of one queue ends in order, so only its oldest is polled.
// Thread-safe. The thread calls a PollFn without a lock, and a PollFn must not block. The thread
// polls every few microseconds while work ends, and less often while none does.
#pragma once
#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::worker::device {

// Returns true once the work has ended and its waiters have been notified. It is called until then.
using PollFn = absl::AnyInvocable<bool(absl::Time now)>;

class CompletionPoller {
 public:
  explicit CompletionPoller(int num_queues);
  CompletionPoller(const CompletionPoller&) = delete;
  CompletionPoller& operator=(const CompletionPoller&) = delete;
  // Drops unfinished work without notifying its waiters.
  ~CompletionPoller();

  void Add(int queue, PollFn work) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run();
  // Polls the oldest work of each queue. Returns whether any work has ended.
  bool PollAll();

  absl::Mutex mu_;
  std::vector<std::deque<PollFn>> queues_ ABSL_GUARDED_BY(mu_);
  int64_t num_unfinished_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::CondVar changed_;
  // This member is the last one, because the thread uses the members above.
  std::thread thread_;
};

}  // namespace tessera::worker::device
