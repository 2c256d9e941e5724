// The thread on which a client makes the calls of runs that have ended (make_calls.h), in the order
// of the runs. The client owns it. Thread-safe.
#pragma once
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tessera::pjrt {

class CallQueue {
 public:
  CallQueue() = default;
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;
  // Waits for the job that runs, and drops the jobs that have not begun.
  ~CallQueue();

  // Adds a job, which makes the calls of one run. The job runs after all earlier jobs.
  void Push(std::function<void()> job) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void RunThread() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // started by the first Push
};

}  // namespace tessera::pjrt
