// One device's dispatch stream: a thread that runs tasks in the order in which they were pushed.
// Another thread may claim an idle stream and run a task in its place, or take the one that waits.
//
// The queue of launches is bounded by its user, who checks depth() before pushing a launch to
// every stream; other tasks (deletes) are small and always admitted. Push is thread-safe. The
// destructor drops the tasks that have not begun and waits for a running one, which its owner must
// have cancelled.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace tessera::worker {

class Stream {
 public:
  // `name`: of the thread.
  explicit Stream(std::string name = "stream");
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  // `anywhere`: RunOnly may take it.
  void Push(std::function<void()> task, bool anywhere = false) ABSL_LOCKS_EXCLUDED(mu_);
  // Claims the stream for this thread, if no task is queued or running: later tasks run after
  // Release, which must follow. Returns false if the stream is busy.
  bool Claim() ABSL_LOCKS_EXCLUDED(mu_);
  void Release() ABSL_LOCKS_EXCLUDED(mu_);
  // Claims the stream, runs the task on this thread, and releases it; false if it is busy.
  bool RunIfIdle(absl::FunctionRef<void()> task) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs the task that is queued on this thread, if it is alone, nothing runs, and it may run
  // anywhere; else does nothing.
  void RunOnly() ABSL_LOCKS_EXCLUDED(mu_);
  // The number of queued and running tasks.
  int64_t depth() const { return depth_.load(std::memory_order_relaxed); }
  // Waits until it is idle; returns false at the `deadline`.
  bool Drain(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run();

  const std::string name_;
  mutable absl::Mutex mu_;
  struct Task {
    std::function<void()> run;
    bool anywhere;
  };
  // After each change of their sum. A task that is taken from the queue and runs changes nothing.
  void SetDepth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    depth_.store(static_cast<int64_t>(queue_.size()) + (busy_ ? 1 : 0), std::memory_order_relaxed);
  }
  std::deque<Task> queue_ ABSL_GUARDED_BY(mu_);
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<int64_t> depth_ = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // The thread has something to do. No Condition, which every unlock would evaluate.
  absl::CondVar due_;
  std::thread thread_;  // Last, because it uses the members above.
};

}  // namespace tessera::worker
