// A thread pool that runs small tasks first.
//
// One thread is reserved for small tasks, so that a small task only ever waits for other small
// tasks. Among the tasks that a thread may take, the smallest goes first; if several have the same
// size, the oldest of them goes first. But a task that has waited longer than `max_wait` goes
// before all younger tasks, so that no task starves.
//
// Push is thread-safe and never blocks. The callers of Push bound the number of waiting tasks. The
// destructor drops the tasks that have not begun and waits for the tasks that are running.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

class SizedPool {
 public:
  struct Options {
    int threads = 0;                    // number of threads, at least 2; 0 means DefaultThreads()
    int64_t small_task_max_size = 256;  // largest size of a small task (for a program: ops)
    absl::Duration max_wait = absl::Seconds(10);
  };

  explicit SizedPool(const Options& options);
  SizedPool(const SizedPool&) = delete;
  SizedPool& operator=(const SizedPool&) = delete;
  ~SizedPool();

  void Push(int64_t size, std::function<void()> task) ABSL_LOCKS_EXCLUDED(mu_);
  int threads() const { return static_cast<int>(threads_.size()); }

  // Returns the number of cores of this process, but at least 2 and at most 8.
  static int DefaultThreads();

 private:
  struct Task {
    int64_t size = 0;
    absl::Time enqueued_at;  // a time of SteadyNow()
    std::function<void()> run;
  };
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  bool IsLarge(const Task& task) const { return task.size > options_.small_task_max_size; }
  // Returns the next task for an idle thread, or end() if there is none.
  std::deque<Task>::iterator Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether a thread is left for small tasks if one more large task starts.
  bool RoomForLarge() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return large_running_ + 1 < num_threads_;
  }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  const Options options_;
  const int num_threads_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  int large_running_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Task> waiting_ ABSL_GUARDED_BY(mu_);  // the oldest task is first
  std::vector<std::thread> threads_;               // last member, as threads use the others
};

}  // namespace tessera
