// Threads for parallel loops: kernels over many elements, matmuls of many rows.
//
// Owned by the backend; one per process. Any thread may call Run, also several at the same time:
// helpers take pieces of any of them. Callers run small work themselves.
#pragma once
#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

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
    int64_t next = 0;  // guarded by the pool's lock, as all below
    int64_t ended = 0;
  };

  // Runs pieces of `job` until none is left; unlocks during each.
  void Help(Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Serve() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  std::deque<Job*> open_ ABSL_GUARDED_BY(mu_);  // jobs with pieces left
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // Last: they start when everything else is there.
};

}  // namespace tessera::worker
