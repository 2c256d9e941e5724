// A thread pool that runs small tasks first.
//
// One thread is reserved for small tasks, so that a small task waits for small tasks only.
// Among the tasks that a thread may take, the smallest goes first, and of equals the oldest; but a
// task that has waited longer than `max_wait` goes before all younger ones, so that none starves.
//
// Push is thread-safe and never blocks; its callers bound the number of waiting tasks. The
// destructor drops tasks that have not begun and waits for those that have.
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
    int threads = 0;                    // at least 2 are started; 0: DefaultThreads()
    int64_t small_task_max_size = 256;  // the size of a program is its number of ops
    absl::Duration max_wait = absl::Seconds(10);
  };

  explicit SizedPool(const Options& options);
  SizedPool(const SizedPool&) = delete;
  SizedPool& operator=(const SizedPool&) = delete;
  ~SizedPool();

  void Push(int64_t size, std::function<void()> task) ABSL_LOCKS_EXCLUDED(mu_);
  int threads() const { return static_cast<int>(threads_.size()); }

  // As many as there are cores for this process, from 2 to 8.
  static int DefaultThreads();

 private:
  struct Task {
    int64_t size = 0;
    absl::Time enqueued_at;
    std::function<void()> run;
  };
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  bool IsLarge(const Task& task) const { return task.size > options_.small_task_max_size; }
  // The next task for an idle thread; end() if there is none.
  std::deque<Task>::iterator Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether one more large task leaves a thread for small ones.
  bool RoomForLarge() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return large_running_ + 1 < num_threads_;
  }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  const Options options_;
  const int num_threads_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  int large_running_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Task> waiting_ ABSL_GUARDED_BY(mu_);  // oldest first
  std::vector<std::thread> threads_;               // last, as they use the other members
};

}  // namespace tessera
