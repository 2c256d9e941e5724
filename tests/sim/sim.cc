#include "tests/sim/sim.h"

#include <memory>
#include <vector>

#include "tests/sim/client.h"
#include "tests/sim/coordinator.h"
#include "tests/sim/worker.h"
#include "tests/sim/world.h"

namespace tessera::sim {
namespace {

constexpr absl::Duration kFaults = absl::Seconds(300);
constexpr absl::Duration kSettling = absl::Seconds(200);
constexpr absl::Duration kProbing = absl::Seconds(60);
constexpr int kWorkers = 3, kExecutors = 2, kClients = 3;
constexpr int32_t kDevices = 2;  // of an executor

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : world_(seed), coordinator_(&world_) {
    fleet_.is_live = [this](uint64_t id) {
      return coordinator_.state().order.live().count(id) > 0;
    };
    for (int w = 0; w < kWorkers; ++w)
      workers_.push_back(std::make_unique<Worker>(&world_, &fleet_, &coordinator_,
                                                  absl::StrCat("w", w), kExecutors, kDevices));
    for (int c = 0; c < kClients; ++c)
      clients_.push_back(
          std::make_unique<Client>(&world_, &coordinator_, absl::StrCat("tenant", c)));
    Break();
  }

  Outcome Run() {
    const absl::Time start = world_.now();
    world_.RunUntil(start + kFaults);
    healed_ = true;
    for (const auto& client : clients_) client->Stop();
    world_.RunUntil(start + kFaults + kSettling);
    CheckSettled();
    for (const auto& client : clients_) client->Probe();
    world_.RunUntil(start + kFaults + kSettling + kProbing);
    Outcome out;
    for (const auto& client : clients_) {
      if (!client->probed()) world_.Violate("after the faults a probe has no answer");
      out.operations += client->operations();
    }
    out.violation = world_.violation();
    out.transcript = world_.Transcript();
    out.hash = world_.hash();
    out.faults = world_.counts();
    return out;
  }

 private:
  void CheckSettled() {
    if (coordinator_.num_open() != 0)
      world_.Violate(coordinator_.num_open(), " requests have no answer");
    for (uint64_t id : coordinator_.state().order.live())
      world_.Violate("operation ", id, " has not ended");
    for (uint64_t id : coordinator_.state().order.lingering())
      world_.Violate("operation ", id, " has ended, and an executor has not left it");
  }

  Worker& AnyWorker() { return *workers_[world_.random().Below(kWorkers)]; }
  Executor& AnyExecutor(Worker& worker) {
    return *worker.executors()[world_.random().Below(kExecutors)];
  }

  // Something breaks about every ten seconds.
  void Break() {
    Random& random = world_.random();
    world_.After(random.Within(absl::Seconds(1), absl::Seconds(18)), [this] { Break(); });
    if (healed_ || world_.now() == absl::UnixEpoch()) return;
    Worker& worker = AnyWorker();
    Executor& executor = AnyExecutor(worker);
    switch (random.Below(6)) {
      case 0:
      case 1:
        world_.Count("an executor dies");
        return worker.Crash(executor, "killed by signal 9");
      case 2:
        world_.Count("an executor freezes");
        world_.Log(executor.Name(), " freezes");
        return executor.FreezeFor(random.Within(absl::Milliseconds(50), absl::Seconds(20)));
      case 3:
        world_.Count("a network is cut");
        return worker.Cut();
      case 4:
        world_.Count("the coordinator is suspended");
        return coordinator_.PauseFor(random.Within(absl::Milliseconds(100), absl::Seconds(12)));
      case 5:
        world_.Count("two executors die at once");
        for (const auto& each : worker.executors()) worker.Crash(*each, "out of memory");
        return;
    }
  }

  World world_;
  Coordinator coordinator_;
  Fleet fleet_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Client>> clients_;
  bool healed_ = false;
};

}  // namespace

Outcome RunSeed(uint64_t seed) { return Simulation(seed).Run(); }

}  // namespace tessera::sim
