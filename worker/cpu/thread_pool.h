// Threads for parallel loops: kernels over many elements, matmuls of many rows.
//
// Owned by the backend; one per process. Thread-safe: helpers work on the calls of Run one after
// the other. A thread that waits spins for some 100 us before it sleeps: a caller for the pieces
// that helpers have begun, and helpers for the next call, while those come as often. With their
// caller they are as many threads as the process has cores.
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

  // Calls `work` for every piece 0 <= i < pieces, here and on helpers that are idle; returns when
  // all have ended.
  void Run(int64_t pieces, absl::FunctionRef<void(int64_t)> work) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Job {
    absl::FunctionRef<void(int64_t)> work;
    int64_t pieces;
    int64_t next = 0;               // guarded by the pool's lock
    std::atomic<int64_t> ended{0};  // written under the pool's lock
  };

  // Runs pieces of `job` until none is left; unlocks during each.
  void RunPieces(Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RunHelper() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  std::deque<Job*> jobs_ ABSL_GUARDED_BY(mu_);  // jobs with pieces left
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<int64_t> calls_{0};     // of Run and the destructor; written under mu_
  std::vector<std::thread> threads_;  // Last: they use the members above.
};

}  // namespace tessera::worker
