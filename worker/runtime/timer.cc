// One thread that calls functions when they are due. The executor uses it for the deadlines of
// launches, and the embedded worker for its heartbeats.
#include "worker/runtime/timer.h"

#include "base/clock.h"
#include "base/thread_name.h"

namespace tessera::worker {

Timer::Timer() : thread_([this] { Run(); }) {}

Timer::~Timer() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

Timer::Id Timer::CallAt(absl::Time time, std::function<void()> f) {
  absl::MutexLock lock(&mu_);
  const Id id(time, next_number_++);
  pending_.emplace(id, std::move(f));
  changed_.SignalAll();
  return id;
}

void Timer::Cancel(const Id& id) {
  absl::MutexLock lock(&mu_);
  pending_.erase(id);
  while (running_number_ == id.second) changed_.Wait(&mu_);
}

void Timer::Run() {
  NameThread("timer");
  mu_.Lock();
  while (!stopping_) {
    if (pending_.empty()) {
      changed_.Wait(&mu_);
      continue;
    }
    const auto next = pending_.begin();
    if (next->first.first > SteadyNow()) {
      changed_.WaitWithTimeout(&mu_, next->first.first - SteadyNow());
      continue;
    }
    const std::function<void()> f = std::move(next->second);
    running_number_ = next->first.second;
    pending_.erase(next);
    mu_.Unlock();
    f();
    mu_.Lock();
    running_number_ = 0;
    changed_.SignalAll();
  }
  mu_.Unlock();
}

}  // namespace tessera::worker
