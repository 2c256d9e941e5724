// A worker's daemon. It runs the rules of the real one (worker/daemon/core.h), which start,
// question and kill the models of its executors and register with the coordinator.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/coordinator.h"
#include "tests/sim/executor.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"
#include "worker/daemon/core.h"

namespace tessera::sim {

namespace daemon = worker::daemon;

class Daemon {
 public:
  Daemon(World* world, Fleet* fleet, Coordinator* coordinator, std::string name, int executors,
         int32_t devices);

  const std::string& name() const { return name_; }
  Path& path() { return path_; }
  std::vector<std::unique_ptr<Executor>>& executors() { return executors_; }

  // ---- Faults. ----
  // The daemon's process dies, and the executors die with it. With `farewell`, the executors say
  // farewell before they end. A new daemon is started.
  void Kill(bool farewell);
  void PauseFor(absl::Duration time);
  // The executor's process dies, and the daemon notices it.
  void Crash(Executor& executor, const std::string& why);
  // The executors of the worker are cut off or suspended for this time, and so are those that are
  // started within it.
  void Disturb(absl::Duration time);

 private:
  void Start();
  void Post(daemon::Event event);
  void Step(const daemon::Event& event);
  void ArmTimer();
  void Apply(const daemon::StartChild& e);
  void Apply(const daemon::KillChild& e);
  void Apply(const daemon::CloseChildInput&) {}  // A daemon is never stopped.
  void Apply(const daemon::PingChild& e);
  void Apply(const daemon::WelcomeChild& e);
  void Apply(const daemon::Connect& e);
  void Apply(const daemon::CancelLink&);
  void Apply(const daemon::SendReport& e);
  void Apply(const daemon::SendHeartbeat& e);
  void Apply(const daemon::ChildLost& e);
  void Apply(const daemon::Registered&) {}
  void Apply(const daemon::KillPostponed&) { world_->Count("a kill is postponed"); }
  void Apply(const daemon::RefusedStale&) { world_->Count("a stale coordinator is refused"); }
  void Apply(const daemon::Refused& e);
  void Apply(const daemon::SetTimer& e);
  void Apply(const daemon::Stopped&) {}
  // Posts the event of an executor, if this process of the daemon and this process of the executor
  // still run.
  void PostFrom(int32_t executor, uint64_t incarnation, daemon::Event event);

  World* const world_;
  Fleet* const fleet_;
  Coordinator* const coordinator_;
  const std::string name_;
  Path path_;
  std::vector<std::unique_ptr<Executor>> executors_;
  uint64_t life_ = 0;
  bool alive_ = false;
  daemon::State state_;
  absl::Time timer_ = absl::InfiniteFuture();
  absl::Time disturbed_until_ = absl::InfinitePast();
  absl::Time paused_until_ = absl::InfinitePast();
  std::deque<daemon::Event> events_;
  bool stepping_ = false;
  std::vector<daemon::Event> waiting_;  // events that came while the daemon was paused
  uint64_t last_link_ = 0;
  std::shared_ptr<Uplink> uplink_;
};

}  // namespace tessera::sim
