// The dispatch stream of one device: a thread that runs tasks in the order in which they were
// pushed. Another thread may take the place of the stream's thread: it may claim an idle stream to
// run a task of its own, or run the only task that waits.
//
// The user of the stream bounds its queue of launches: it checks num_tasks() before it pushes a
// launch to every stream. Other tasks (deletes) are small and always admitted. Push is thread-safe.
// The destructor drops the tasks that have not begun. It waits for a running task, which the owner
// must have cancelled.
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
  // `name` is the name of the thread.
  explicit Stream(std::string name = "stream");
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  // If `runs_on_any_thread` is true, RunSoleWaitingTask may run the task on its caller's thread.
  void Push(std::function<void()> task, bool runs_on_any_thread = false) ABSL_LOCKS_EXCLUDED(mu_);
  // Claims the stream for this thread, if no task is queued or running. Later tasks run after
  // Release, which must follow. Returns false if the stream is busy.
  bool TryClaim() ABSL_LOCKS_EXCLUDED(mu_);
  void Release() ABSL_LOCKS_EXCLUDED(mu_);
  // Claims the stream, runs the task on this thread, and releases the stream. Does not run the
  // task, and returns false, if the stream is busy.
  bool RunIfIdle(absl::FunctionRef<void()> task) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs the queued task on this thread, if it is the only one and may run on any thread, and no
  // task runs. Otherwise does nothing.
  void RunSoleWaitingTask() ABSL_LOCKS_EXCLUDED(mu_);
  // The number of queued and running tasks.
  int64_t num_tasks() const { return num_tasks_.load(std::memory_order_relaxed); }
  // Waits until the stream is idle. Returns false at the `deadline`.
  bool Drain(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run();

  const std::string name_;
  mutable absl::Mutex mu_;
  struct Task {
    std::function<void()> run;
    bool runs_on_any_thread;
  };
  // Call after each change of the sum of queued and running tasks. A task that moves from the queue
  // into execution does not change the sum.
  void UpdateNumTasks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    num_tasks_.store(static_cast<int64_t>(queue_.size()) + (busy_ ? 1 : 0),
                     std::memory_order_relaxed);
  }
  std::deque<Task> queue_ ABSL_GUARDED_BY(mu_);
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<int64_t> num_tasks_ = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // Signalled when the thread has something to do. The thread waits on a CondVar and not on an
  // absl::Condition, because every unlock of mu_ would evaluate the condition.
  absl::CondVar work_available_;
  std::thread thread_;  // last, since it uses the members above
};

}  // namespace tessera::worker
