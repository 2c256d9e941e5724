// Builds the cluster, injects the faults at their times, and checks at the end that everything has
// settled. main.cc and sim_test.cc call Run or RunSeed for each seed; main.cc calls Shrink for a
// seed that fails.
#include "tests/sim/sim.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/sim/client.h"
#include "tests/sim/coordinator.h"
#include "tests/sim/daemon.h"
#include "tests/sim/world.h"

namespace tessera::sim {
namespace {

constexpr absl::Duration kSettling = absl::Seconds(150);
constexpr int64_t kOperationsMin = 1000;
constexpr absl::Duration kExtension = absl::Seconds(10);
constexpr int kExtensionsMax = 30;
constexpr absl::Duration kAuditing = absl::Seconds(60);
constexpr absl::Duration kProbing = absl::Seconds(60);
constexpr int kWorkers = 3, kExecutors = 2, kClients = 3;
constexpr int32_t kDevices = 2;  // per executor
// At the end, a call must have been answered if it is older than this. The answers to younger calls
// are on their way.
constexpr absl::Duration kUnanswered = absl::Seconds(20);
// The shortest freeze after which an executor may be killed because an operation waits for it.
constexpr absl::Duration kMayBeLost = absl::Seconds(1);
// The time within which both ends of a broken connection learn that it broke.
constexpr absl::Duration kCutOff = absl::Seconds(6);
// How long the effects of a fault last after the fault.
constexpr absl::Duration kAftermath = absl::Seconds(3);

class Simulation {
 public:
  Simulation(uint64_t seed, const std::vector<Fault>& faults, size_t lines)
      : world_(seed, lines), checker_(&world_), coordinator_(&world_, &checker_) {
    fleet_.checker = &checker_;
    fleet_.is_live = [this](uint64_t id) { return IsLive(id); };
    for (int w = 0; w < kWorkers; ++w)
      workers_.push_back(std::make_unique<Daemon>(&world_, &fleet_, &coordinator_,
                                                  absl::StrCat("w", w), kExecutors, kDevices));
    for (int c = 0; c < kClients; ++c)
      clients_.push_back(std::make_unique<Client>(&world_, &coordinator_, &checker_, c));
    for (const Fault& fault : faults) world_.After(fault.at, [this, fault] { Inject(fault); });
  }

  Outcome Run() {
    RunFor(kFaultTime);
    // If faults have held up many operations, the clients go on for longer.
    for (int more = 0; more < kExtensionsMax && checker_.num_accepted() < kOperationsMin; ++more)
      RunFor(kExtension);
    for (const auto& client : clients_) client->Stop();
    RunFor(kSettling);
    for (const auto& client : clients_) client->Audit();
    RunFor(kAuditing);
    CheckSettled();
    for (const auto& client : clients_) client->Probe();
    RunFor(kProbing);
    for (const auto& client : clients_)
      if (!client->probed()) world_.Violate("after the faults a probe has no answer");
    Outcome out;
    out.operations = checker_.num_accepted();
    out.violation = world_.violation();
    out.transcript = world_.Transcript();
    out.hash = world_.hash();
    out.time = world_.now() - absl::UnixEpoch();
    out.counts = world_.counts();
    out.coverage = checker_.coverage();
    return out;
  }

 private:
  void RunFor(absl::Duration time) { world_.RunUntil(world_.now() + time); }

  bool IsLive(uint64_t id) {
    Process* const process = coordinator_.current();
    return process != nullptr && process->state().order.live().count(id) > 0;
  }

  void CheckSettled() {
    Process* const process = coordinator_.current();
    if (process == nullptr) return world_.Violate("no coordinator serves");
    const scheduler::State& state = process->state();
    for (const auto& client : clients_)
      if (const int64_t open = client->NumOpenFor(kUnanswered); open > 0)
        world_.Violate(open, " calls have no answer");
    for (uint64_t id : checker_.open_operations())
      world_.Violate("operation ", id, " was accepted and has not been seen to end");
    for (uint64_t id : state.order.live()) world_.Violate("operation ", id, " has not ended");
    for (uint64_t id : state.order.lingering())
      world_.Violate("operation ", id, " has ended, and an executor has not left it");
    if (state.ownership.num_leased() > kClients)
      world_.Violate(state.ownership.num_leased(), " sessions are left, of ", kClients, " clients");
    for (const auto& worker : workers_)
      for (const auto& executor : worker->executors())
        for (uint64_t array : executor->Arrays())
          if (state.catalogue.arrays().count(array) == 0)
            world_.Violate(executor->name(), " holds array ", array, ", which nobody has");
    for (const auto& [id, array] : state.catalogue.arrays())
      if (array.state == scheduler::ArrayState::kReady && array.error.ok())
        for (const auto& [device, incarnation] : array.holders)
          if (!Holds(state.cluster.ExecutorOf(device).name, incarnation, id))
            world_.Violate("array ", id, " is ready, and its executor does not have it");
  }

  bool Holds(const std::string& executor, uint64_t incarnation, uint64_t array) const {
    for (const auto& worker : workers_)
      for (const auto& each : worker->executors())
        if (each->name() == executor && each->incarnation() == incarnation)
          return each->Arrays().count(array) > 0;
    return false;
  }

  // ---- Faults. ----
  void Inject(const Fault& fault) {
    world_.Log("FAULT ", ToString(fault));
    world_.Count(NameOf(fault.kind));
    checker_.OnFault(fault.kind, fault.duration + kAftermath);
    if (!InjectIntoCoordinator(fault) && !InjectIntoClient(fault)) InjectIntoWorker(fault);
  }

  // Injects a fault that strikes the coordinator, its disk or its clock. Returns false if the fault
  // is of another kind. The checker is told before the fault begins, so that it excuses the
  // effects.
  bool InjectIntoCoordinator(const Fault& fault) {
    switch (fault.kind) {
      case FaultKind::kCoordinatorPause:
        if (fault.pick % 3 == 0) {
          PauseWithWorker(*workers_[fault.pick / 3 % kWorkers], fault.duration);
        } else {
          PauseCoordinator(fault.duration);
        }
        return true;
      case FaultKind::kCoordinatorStarved:
        for (const auto& worker : workers_) worker->Disturb(fault.duration);
        checker_.CoordinatorIsDeaf(fault.duration);
        coordinator_.StarveFor(fault.duration);
        return true;
      case FaultKind::kCoordinatorKill:
        if (fault.pick % 4 > 0) {
          coordinator_.KillBeforeDurableFor(fault.duration, /*of_save=*/fault.pick % 4 == 3);
        } else {
          coordinator_.KillFor(fault.duration);
        }
        return true;
      case FaultKind::kCoordinatorLongOutage:
        coordinator_.KillFor(fault.duration);
        return true;
      case FaultKind::kCoordinatorReplaced:
        coordinator_.ReplaceFor(fault.duration);
        // Connections to the machine of the replaced process end.
        for (const auto& worker : workers_) worker->path().BreakStreams();
        return true;
      case FaultKind::kDiskSlow:
        if (fault.pick % 3 == 0) {
          coordinator_.disk().HangFor(fault.duration);
        } else {
          coordinator_.disk().SlowFor(fault.duration);
        }
        return true;
      case FaultKind::kDiskFull:
        coordinator_.disk().FillFor(fault.duration);
        return true;
      case FaultKind::kClockAhead:
        coordinator_.StepWallClock(absl::Hours(1));
        return true;
      case FaultKind::kClockBack:
        coordinator_.StepWallClock(-absl::Hours(1));
        return true;
      default:
        return false;
    }
  }

  bool InjectIntoClient(const Fault& fault) {
    Client& client = *clients_[fault.pick % kClients];
    switch (fault.kind) {
      case FaultKind::kSlowClientNetwork:
        client.path().SlowFor(fault.duration);
        return true;
      case FaultKind::kClientPartition:
        client.path().Block(/*up=*/true, /*down=*/true, fault.duration);
        return true;
      case FaultKind::kRepliesLost:
        client.LoseRepliesFor(fault.duration);
        return true;
      case FaultKind::kDuplicateCalls:
        client.DuplicateFor(fault.duration);
        return true;
      case FaultKind::kClientKill:
        client.Kill();
        return true;
      case FaultKind::kClientPause:
        client.PauseFor(fault.duration);
        return true;
      default:
        return false;
    }
  }

  // Injects a fault that strikes a worker or the network between workers. The checker excuses the
  // losses and silences that the fault may cause. A freeze that is shorter than kMayBeLost excuses
  // no loss.
  void InjectIntoWorker(const Fault& fault) {
    Daemon& worker = *workers_[fault.pick % kWorkers];
    checker_.ExcuseSilence(worker.name(), world_.now() + fault.duration + kCutOff);
    Executor& executor = *worker.executors()[fault.pick / kWorkers % kExecutors];
    switch (fault.kind) {
      case FaultKind::kSlowNetwork:
        worker.Disturb(fault.duration);
        return worker.path().SlowFor(fault.duration);
      case FaultKind::kConnectionReset:
        worker.Disturb(kCutOff);
        return worker.path().BreakStreams();
      case FaultKind::kStreamReset:
        checker_.Disturb(executor.name(), executor.incarnation(), world_.now() + kCutOff);
        return executor.ResetStream();
      case FaultKind::kPartition:
      case FaultKind::kPartitionUp:
      case FaultKind::kPartitionDown:
        worker.Disturb(fault.duration + kCutOff);
        return worker.path().Block(fault.kind != FaultKind::kPartitionDown,
                                   fault.kind != FaultKind::kPartitionUp, fault.duration);
      case FaultKind::kPeerPartition:
        return fleet_.Cut(worker.name(), workers_[(fault.pick + 1) % kWorkers]->name(),
                          world_.now() + fault.duration);
      case FaultKind::kWorkerKill:
        return worker.Kill(/*farewell=*/fault.pick / kWorkers % 3 != 0);
      case FaultKind::kExecutorKill:
        return worker.Crash(executor, "killed by signal 9");
      case FaultKind::kExecutorsKill:
        for (const auto& each : worker.executors()) worker.Crash(*each, "out of memory");
        return;
      case FaultKind::kExecutorFreeze:
        if (fault.duration >= kMayBeLost)
          checker_.Excuse(executor.name(), executor.incarnation(),
                          world_.now() + fault.duration + kCountedAsLostWithin);
        return executor.FreezeFor(fault.duration);
      case FaultKind::kDaemonPause:
        worker.Disturb(fault.duration + kCutOff);
        return worker.PauseFor(fault.duration);
      default:
        return;
    }
  }

  void PauseCoordinator(absl::Duration time) {
    checker_.CoordinatorIsDeaf(time);
    coordinator_.PauseFor(time);
  }
  // Pauses the coordinator for `time`, and the worker from some seconds before until the outage
  // grace after it has almost passed.
  void PauseWithWorker(Daemon& worker, absl::Duration time) {
    const absl::Duration before = absl::Seconds(5);
    const absl::Duration all = before + time + kOutageGrace - absl::Milliseconds(1500);
    checker_.ExcuseSilence(worker.name(), world_.now() + all + kCutOff);
    worker.Disturb(all + kCutOff);
    worker.PauseFor(all);
    world_.After(before, [this, time] { PauseCoordinator(time); });
  }

  World world_;
  Checker checker_;
  Coordinator coordinator_;
  Fleet fleet_;
  std::vector<std::unique_ptr<Daemon>> workers_;
  std::vector<std::unique_ptr<Client>> clients_;
};

}  // namespace

Outcome Run(uint64_t seed, const std::vector<Fault>& faults, size_t lines) {
  return Simulation(seed, faults, lines).Run();
}

Outcome RunSeed(uint64_t seed) { return Run(seed, FaultsOf(seed, kFaultTime)); }

namespace {

// Returns the violation without its numbers and details, for comparison.
std::string KindOf(const std::string& violation) {
  std::string kind;
  for (const char c : violation.substr(0, violation.find(':')))
    if (c < '0' || c > '9') kind += c;
  return kind;
}

}  // namespace

std::vector<Fault> Shrink(uint64_t seed, std::vector<Fault> faults) {
  const std::string kind = KindOf(Run(seed, faults).violation);
  // Leaves out groups of consecutive faults, where each group size is half the one before (Zeller
  // and Hildebrandt, 2002).
  for (size_t length = std::max<size_t>(1, faults.size() / 2); length > 0; length /= 2) {
    for (size_t at = 0; at < faults.size();) {
      std::vector<Fault> fewer = faults;
      const size_t end = std::min(at + length, faults.size());
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at),
                  fewer.begin() + static_cast<std::ptrdiff_t>(end));
      if (KindOf(Run(seed, fewer).violation) != kind) {
        at = end;
      } else {
        faults = std::move(fewer);
      }
    }
  }
  return faults;
}

}  // namespace tessera::sim
