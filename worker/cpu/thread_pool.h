// Threads for parallel loops: kernels over many elements, matmuls of many rows.
//
// The backend owns the pool, one per process. Thread-safe: helpers work on the calls of Run one
// after the other. A thread that waits spins for some 100 us before it sleeps. A caller spins for
// the pieces that helpers have begun. Helpers spin for the next call of Run, as long as calls come
// at such short intervals. The helpers and one caller together are as many threads as the process
// has cores.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "base/spinner.h"

namespace tessera::worker {

class ThreadPool {
 public:
  // Starts `helpers` threads.
  explicit ThreadPool(int helpers);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  // Calls `work` for every piece 0 <= i < pieces, on this thread and on helpers that are idle.
  // Returns when all these calls have ended.
  void Run(int64_t pieces, absl::FunctionRef<void(int64_t)> work) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Job {
    absl::FunctionRef<void(int64_t)> work;
    int64_t pieces;
    // The next piece to run; guarded by the pool's lock.
    int64_t next = 0;
    // The number of pieces that have ended; written under the pool's lock.
    std::atomic<int64_t> num_ended{0};
  };

  // Runs pieces of `job` until none is left. Unlocks during each piece.
  void RunPieces(Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RunHelper() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  std::deque<Job*> jobs_ ABSL_GUARDED_BY(mu_);  // jobs with pieces left
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // The number of calls of Run and the destructor; written under mu_.
  std::atomic<int64_t> num_calls_{0};
  // This member is the last one, because the threads use the members above.
  std::vector<std::thread> threads_;
};

}  // namespace tessera::worker
