// The helper threads of the CPU backend. program_run.cc and sort.cc call Run for each step that is
// worth several threads. Threads spin before they sleep, since the steps of a program follow each
// other faster than a thread wakes up.
#include "worker/cpu/thread_pool.h"

#include <algorithm>

namespace tessera::worker {

ThreadPool::ThreadPool(int helpers) {
  for (int i = 0; i < helpers; ++i) threads_.emplace_back([this] { RunHelper(); });
}

ThreadPool::~ThreadPool() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    ++num_calls_;
  }
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::RunPieces(Job* job) {
  while (job->next < job->pieces) {
    const int64_t piece = job->next++;
    if (job->next == job->pieces) jobs_.erase(std::find(jobs_.begin(), jobs_.end(), job));
    mu_.Unlock();
    job->work(piece);
    mu_.Lock();
    ++job->num_ended;
  }
}

void ThreadPool::Run(int64_t pieces, absl::FunctionRef<void(int64_t)> work) {
  if (pieces <= 1 || threads_.empty()) {
    for (int64_t i = 0; i < pieces; ++i) work(i);
    return;
  }
  Job job{work, pieces};
  absl::MutexLock lock(&mu_);
  jobs_.push_back(&job);
  ++num_calls_;
  RunPieces(&job);
  const auto all_ended = [&job] {
    return job.num_ended.load(std::memory_order_relaxed) == job.pieces;
  };
  if (!all_ended()) {
    mu_.Unlock();
    SpinUntil(all_ended);
    mu_.Lock();
  }
  mu_.Await(absl::Condition(&all_ended));
}

void ThreadPool::RunHelper() {
  absl::MutexLock lock(&mu_);
  const auto is_needed = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || !jobs_.empty();
  };
  Spinner spinner;
  while (true) {
    if (!is_needed()) {
      const int64_t before = num_calls_.load();
      mu_.Unlock();
      spinner.Until([&] { return num_calls_.load() != before; });
      mu_.Lock();
    }
    mu_.Await(absl::Condition(&is_needed));
    if (stopping_) return;
    RunPieces(jobs_.front());
  }
}

}  // namespace tessera::worker
