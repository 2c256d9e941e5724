// Runs the tasks of the pool. The coordinator plans programs on such a pool, and workers compile on
// one, so that small programs do not wait behind large ones.
#include "base/sized_pool.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/host_limits.h"

namespace tessera {

int SizedPool::DefaultThreads() { return std::clamp(ProcessLimits().cores, 2, 8); }

SizedPool::SizedPool(const Options& options)
    : options_(options),
      num_threads_(options.threads == 0 ? DefaultThreads() : std::max(options.threads, 2)) {
  for (int i = 0; i < num_threads_; ++i) threads_.emplace_back([this] { Run(); });
}

SizedPool::~SizedPool() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void SizedPool::Push(int64_t size, std::function<void()> task) {
  absl::MutexLock lock(&mu_);
  waiting_.push_back({size, SteadyNow(), std::move(task)});
}

bool SizedPool::HasWork() const {
  if (waiting_.empty()) return false;
  return RoomForLarge() || std::any_of(waiting_.begin(), waiting_.end(),
                                       [this](const Task& task) { return !IsLarge(task); });
}

std::deque<SizedPool::Task>::iterator SizedPool::Next() {
  const bool large = RoomForLarge();
  const absl::Time overdue_before = SteadyNow() - options_.max_wait;
  auto next = waiting_.end();
  for (auto task = waiting_.begin(); task != waiting_.end(); ++task) {
    if (IsLarge(*task) && !large) continue;
    if (task->enqueued_at < overdue_before) return task;
    if (next == waiting_.end() || task->size < next->size) next = task;
  }
  return next;
}

void SizedPool::Run() {
  while (true) {
    std::function<void()> run;
    bool large = false;
    {
      absl::MutexLock lock(&mu_);
      const auto work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopping_ || HasWork(); };
      mu_.Await(absl::Condition(&work));
      if (stopping_) return;
      const auto next = Next();
      large = IsLarge(*next);
      run = std::move(next->run);
      waiting_.erase(next);
      large_running_ += large ? 1 : 0;
    }
    run();
    run = nullptr;  // Destroys the captures of the task before the thread counts as idle.
    absl::MutexLock lock(&mu_);
    large_running_ -= large ? 1 : 0;
  }
}

}  // namespace tessera
