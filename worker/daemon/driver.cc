// Runs the daemon's state machine. The threads of WorkerDaemon (worker/rpc/worker_daemon.cc) post
// events: those of supervisors, of gRPC, and the driver's own timer. The thread that finds no
// runner processes all events, so that no thread ever waits for another one's step.
#include "worker/daemon/driver.h"

#include <utility>

#include "base/clock.h"
#include "base/thread_name.h"

namespace tessera::worker::daemon {

Driver::Driver(const Config& config, std::function<void(const Effect&)> apply,
               std::function<bool()> link_idle)
    : apply_(std::move(apply)),
      link_idle_(std::move(link_idle)),
      state_(Begin(config)),
      ready_(config.incarnations.size()) {
  thread_ = std::thread([this] { RunTimer(); });
}

void Driver::Post(Event event) {
  {
    absl::MutexLock lock(&mu_);
    events_.push_back({SteadyNow(), std::move(event)});
    if (std::exchange(has_runner_, true)) return;
  }
  ProcessEvents();
}

void Driver::End() {
  if (!thread_.joinable()) return;
  Post(Stop{});
  {
    absl::MutexLock lock(&mu_);
    const auto ended = [this]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopped_ && !has_runner_; };
    mu_.Await(absl::Condition(&ended));
    timer_changed_.Signal();
  }
  thread_.join();
}

bool Driver::ready(int32_t executor) {
  absl::MutexLock lock(&mu_);
  return ready_[executor];
}

void Driver::ProcessEvents() {
  while (true) {
    PostedEvent next;
    {
      absl::MutexLock lock(&mu_);
      if (events_.empty()) {
        has_runner_ = false;
        return;
      }
      next = std::move(events_.front());
      events_.pop_front();
    }
    const std::vector<Effect> effects = Step(state_, next.event, next.posted_at);
    {
      absl::MutexLock lock(&mu_);
      for (size_t e = 0; e < ready_.size(); ++e) ready_[e] = state_.executors[e].info.has_value();
    }
    for (const Effect& effect : effects) ApplyEffect(effect);
  }
}

void Driver::ApplyEffect(const Effect& effect) {
  if (const auto* timer = std::get_if<SetTimer>(&effect)) {
    absl::MutexLock lock(&mu_);
    next_tick_at_ = timer->when;
    timer_changed_.Signal();
  } else if (std::holds_alternative<Stopped>(effect)) {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
  } else {
    apply_(effect);
  }
}

void Driver::RunTimer() {
  NameThread("daemon");
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      while (!stopped_ && SteadyNow() < next_tick_at_)
        timer_changed_.WaitWithTimeout(&mu_, next_tick_at_ - SteadyNow());
      if (stopped_) return;
      next_tick_at_ = absl::InfiniteFuture();
    }
    Post(Tick{link_idle_()});
  }
}

}  // namespace tessera::worker::daemon
