// The polling thread of the device backend: one instance watches launches and aborts, and one
// watches copies. Launch::Poll and Staging::Wait supply the work.
#include "worker/device/completion.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace tessera::worker::device {
namespace {

// The pause between polls. It is short while work ends, and grows to the maximum while none does.
constexpr absl::Duration kPauseMin = absl::Microseconds(5);
constexpr absl::Duration kPauseMax = absl::Microseconds(200);

}  // namespace

CompletionPoller::CompletionPoller(int num_queues)
    : queues_(num_queues), thread_([this] { Run(); }) {}

CompletionPoller::~CompletionPoller() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    changed_.Signal();
  }
  thread_.join();
}

void CompletionPoller::Add(int queue, PollFn work) {
  absl::MutexLock lock(&mu_);
  queues_[queue].push_back(std::move(work));
  if (num_unfinished_++ == 0) changed_.Signal();
}

void CompletionPoller::Run() {
  absl::Duration pause = kPauseMin;
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      while (num_unfinished_ == 0 && !stopping_) changed_.Wait(&mu_);
      if (stopping_) return;
    }
    if (PollAll()) {
      pause = kPauseMin;
      continue;
    }
    absl::MutexLock lock(&mu_);
    if (!stopping_) changed_.WaitWithTimeout(&mu_, pause);
    pause = std::min(pause * 1.25, kPauseMax);
  }
}

bool CompletionPoller::PollAll() {
  const absl::Time now = SteadyNow();
  bool ended = false;
  for (size_t queue = 0;; ++queue) {
    PollFn* oldest = nullptr;
    {
      absl::MutexLock lock(&mu_);
      if (queue == queues_.size()) return ended;
      if (!queues_[queue].empty()) oldest = &queues_[queue].front();
    }
    // Only this thread removes work from a queue, so the oldest stays.
    if (oldest == nullptr || !(*oldest)(now)) continue;
    ended = true;
    // The function is destroyed without the lock.
    PollFn done;
    absl::MutexLock lock(&mu_);
    done = std::move(queues_[queue].front());
    queues_[queue].pop_front();
    --num_unfinished_;
  }
}

}  // namespace tessera::worker::device
