// One thread that polls events for the end of a device's work. (CUDA's stream callbacks would not
// report work that ended in an error.)
//
// Work is added to queues. That of one queue ends in order, so only its oldest is polled.
// Thread-safe. Poll is called on the thread, without a lock, and must not block. The thread polls
// every few microseconds at first, then more rarely.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::worker::device {

// Work whose end can be polled.
class Pollable {
 public:
  virtual ~Pollable() = default;
  // Returns true once the work has ended and its waiters are notified. Called until then.
  virtual bool Poll(absl::Time now) = 0;
};

class CompletionPoller {
 public:
  explicit CompletionPoller(int num_queues);
  CompletionPoller(const CompletionPoller&) = delete;
  CompletionPoller& operator=(const CompletionPoller&) = delete;
  // Drops unfinished work without notifying its waiters.
  ~CompletionPoller();

  void Add(int queue, std::unique_ptr<Pollable> work) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run();
  // Polls the oldest work of each queue; returns whether any has ended.
  bool PollAll();

  absl::Mutex mu_;
  std::vector<std::deque<std::unique_ptr<Pollable>>> queues_ ABSL_GUARDED_BY(mu_);
  int64_t num_unfinished_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::CondVar changed_;
  std::thread thread_;  // Last: it uses the members above.
};

}  // namespace tessera::worker::device
