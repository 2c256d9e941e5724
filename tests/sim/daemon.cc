// Runs the real daemon's rules against models of processes and of the network. The effects start
// and kill executors (executor.cc) and send messages to the coordinator (coordinator.cc). Faults
// come from sim.cc.
#include "tests/sim/daemon.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/status.h"

namespace tessera::sim {
namespace {

// No two processes may have the same incarnation.
constexpr uint64_t kIncarnationsOfLife = 1'000;
constexpr size_t kIdleWaiting = 4;  // number of messages under way beyond which a link is not idle

}  // namespace

Daemon::Daemon(World* world, Fleet* fleet, Coordinator* coordinator, std::string name,
               int executors, int32_t devices)
    : world_(world),
      fleet_(fleet),
      coordinator_(coordinator),
      name_(std::move(name)),
      path_(world) {
  for (int i = 0; i < executors; ++i)
    executors_.push_back(
        std::make_unique<Executor>(world, fleet, coordinator, &path_, name_, i, devices));
  Start();
}

void Daemon::Start() {
  ++life_;
  alive_ = true;
  timer_ = absl::InfiniteFuture();
  daemon::Config config;
  config.incarnations.assign(executors_.size(), life_ * kIncarnationsOfLife);
  state_ = daemon::Begin(config);
  Post(daemon::Tick{});
}

// ---- Faults. ------------------------------------------------------------------------------------

void Daemon::Disturb(absl::Duration time) {
  disturbed_until_ = std::max(disturbed_until_, world_->now() + time);
  for (const auto& executor : executors_)
    fleet_->checker->Disturb(executor->name(), executor->incarnation(), disturbed_until_);
}

void Daemon::Kill(bool farewell) {
  if (!alive_) return;
  world_->Log(name_,
              farewell ? " dies, and its executors say farewell" : " dies, with its executors");
  for (const auto& executor : executors_)
    fleet_->checker->Excuse(executor->name(), executor->incarnation());
  alive_ = false;
  waiting_.clear();
  for (const auto& executor : executors_) {
    // A frozen process would go on when it is not frozen any more. It is killed, because there is
    // one process of each executor here.
    if (farewell && executor->silence() == absl::ZeroDuration()) {
      executor->OutliveDaemon();
    } else {
      executor->Die();
    }
  }
  if (const auto uplink = std::exchange(uplink_, nullptr))
    uplink->stream().EndFromBelow(absl::CancelledError("the daemon is gone"));
  world_->After(world_->random().Within(absl::Milliseconds(200), absl::Seconds(3)),
                [this] { Start(); });
}

void Daemon::PauseFor(absl::Duration time) {
  paused_until_ = std::max(paused_until_, world_->now() + time);
  world_->After(time, [this] {
    if (world_->now() < paused_until_) return;
    for (const daemon::Event& event : std::exchange(waiting_, {})) Post(event);
    ArmTimer();
  });
}

void Daemon::Crash(Executor& executor, const std::string& why) {
  if (!executor.alive()) return;
  world_->Log(executor.name(), " dies: ", why);
  const int32_t index = executor.Info().index;
  const uint64_t incarnation = executor.incarnation(), running = executor.running_launch();
  fleet_->checker->Excuse(executor.name(), incarnation);
  executor.Die();
  PostFrom(index, incarnation, daemon::SocketEnded{index});
  PostFrom(index, incarnation, daemon::ChildEnded{index, {true, why, -1}, {running, "", false}});
}

// ---- Events. ------------------------------------------------------------------------------------

void Daemon::Post(daemon::Event event) {
  if (!alive_) return;
  if (world_->now() < paused_until_) return waiting_.push_back(std::move(event));
  Step(event);
}

void Daemon::PostFrom(int32_t executor, uint64_t incarnation, daemon::Event event) {
  if (alive_ && state_.executors.at(executor).incarnation == incarnation) Post(std::move(event));
}

// An event that an effect causes waits until the effects of the current step are applied.
void Daemon::Step(const daemon::Event& event) {
  events_.push_back(event);
  if (std::exchange(stepping_, true)) return;
  while (!events_.empty()) {
    const daemon::Event next = std::move(events_.front());
    events_.pop_front();
    for (const daemon::Effect& effect : daemon::Step(state_, next, world_->now()))
      std::visit([this](const auto& e) { Apply(e); }, effect);
  }
  stepping_ = false;
}

void Daemon::ArmTimer() {
  if (timer_ == absl::InfiniteFuture()) return;
  world_->After(timer_ - world_->now(), [this, life = life_, timer = timer_] {
    if (life != life_ || timer != timer_ || world_->now() < paused_until_) return;
    timer_ = absl::InfiniteFuture();
    const bool idle = uplink_ == nullptr || uplink_->stream().num_waiting_up() <= kIdleWaiting;
    Post(daemon::Tick{idle});
  });
}

void Daemon::Apply(const daemon::SetTimer& e) {
  timer_ = e.when;
  ArmTimer();
}

// ---- Processes. ---------------------------------------------------------------------------------

void Daemon::Apply(const daemon::StartChild& e) {
  const int32_t x = e.executor;
  if (world_->now() < disturbed_until_)
    fleet_->checker->Disturb(executors_.at(x)->name(), e.incarnation, disturbed_until_);
  world_->After(absl::Milliseconds(2), [this, life = life_, x, incarnation = e.incarnation] {
    if (life != life_ || !alive_) return;
    if (world_->random().OneIn(40))
      return PostFrom(x, incarnation, daemon::SpawnFailed{x, "no memory"});
    executors_.at(x)->Start(incarnation);
    PostFrom(x, incarnation, daemon::ChildStarted{x});
    world_->After(world_->random().Within(absl::Milliseconds(20), absl::Milliseconds(400)),
                  [this, life, x, incarnation] {
                    const Executor& executor = *executors_.at(x);
                    if (life != life_ || !executor.alive() || executor.incarnation() != incarnation)
                      return;
                    PostFrom(x, incarnation, daemon::ChildMessage{x, executor.Info()});
                  });
  });
}

void Daemon::Apply(const daemon::KillChild& e) {
  // If the grace of the outage is over, the checker must not expect the coordinator to find the
  // process, even if a coordinator that is back hears of its end before the daemon does.
  const auto& verdict = state_.executors.at(e.executor).verdict;
  if (verdict && verdict->reason.find("coordinator was away") != std::string::npos)
    fleet_->checker->Excuse(executors_.at(e.executor)->name(), e.incarnation);
  const int32_t x = e.executor;
  world_->After(
      world_->random().Within(absl::Milliseconds(1), absl::Milliseconds(20)),
      [this, life = life_, x, incarnation = e.incarnation] {
        Executor& executor = *executors_.at(x);
        if (life != life_ || !executor.alive() || executor.incarnation() != incarnation) return;
        const uint64_t running = executor.running_launch();
        if (fleet_->checker->IsExcused(executor.name(), incarnation))
          fleet_->checker->Excuse(executor.name(), incarnation);
        executor.Die();
        PostFrom(x, incarnation,
                 daemon::ChildEnded{x, {true, "killed by signal 9", -1}, {running, "", false}});
      });
}

void Daemon::Apply(const daemon::PingChild& e) {
  Executor& executor = *executors_.at(e.executor);
  if (!executor.alive() || executor.incarnation() != e.incarnation) return;
  executor.Ping([this, life = life_, e] {
    if (life == life_) PostFrom(e.executor, e.incarnation, daemon::ChildPonged{e.executor});
  });
}

void Daemon::Apply(const daemon::WelcomeChild& e) {
  Executor& executor = *executors_.at(e.executor);
  if (executor.alive() && executor.incarnation() == e.incarnation) executor.Welcome(e.welcome);
}

void Daemon::Apply(const daemon::ChildLost& e) {
  world_->Log(name_, " has lost executor ", e.executor, "#", e.incarnation, ": ", e.loss.reason);
}

// ---- The coordinator. ---------------------------------------------------------------------------

// Registers with the coordinator. The callbacks do nothing once the daemon has opened another link
// or was started again.
void Daemon::Apply(const daemon::Connect& e) {
  api::Registration registration;
  registration.worker = name_;
  registration.host = "host-" + name_;
  registration.executors = e.executors;
  const uint64_t link = ++last_link_;
  const auto is_current = [this, life = life_, link] {
    return life == life_ && link == last_link_;
  };
  DaemonCallbacks callbacks;
  callbacks.on_welcome = [this, is_current](const api::Welcome& welcome) {
    if (!is_current()) return;
    world_->Log(name_, " is welcome, epoch ", welcome.epoch);
    Post(daemon::Welcomed{welcome});
  };
  callbacks.on_kill = [this, is_current](uint64_t epoch, int32_t executor, uint64_t incarnation,
                                         const std::string& reason, bool if_told) {
    if (!is_current()) return;
    Post(daemon::KillRequested{epoch, executor, incarnation, reason, if_told,
                               executors_.at(executor)->told_for()});
  };
  uplink_ = coordinator_->Register(
      &path_, registration, callbacks, [this, is_current](const absl::Status& why) {
        if (!is_current()) return;
        world_->Log(name_, "'s link ended: ", std::string(why.message()));
        Post(daemon::LinkEnded{why});
      });
}

void Daemon::Apply(const daemon::CancelLink&) {
  if (uplink_ != nullptr) uplink_->stream().EndFromBelow(absl::CancelledError("given up"));
}

void Daemon::Apply(const daemon::SendReport& e) {
  if (uplink_ != nullptr) uplink_->Send(e.epoch, e.report);
}

void Daemon::Apply(const daemon::SendHeartbeat& e) {
  if (uplink_ == nullptr) return;
  api::Heartbeat beat;
  for (size_t x = 0; x < executors_.size(); ++x) {
    const Executor& executor = *executors_[x];
    beat.executors.push_back({.executor = static_cast<int32_t>(x),
                              .progress_age = executor.silence(),
                              .silence = e.silence.at(x),
                              .launch = executor.running_launch()});
  }
  uplink_->Send(e.epoch, {0, 0, std::move(beat)});
}

void Daemon::Apply(const daemon::Refused& e) {
  world_->Violate(name_, " is refused for good: ", std::string(e.why.message()));
}

}  // namespace tessera::sim
