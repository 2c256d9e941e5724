// The promises that a run must keep, and the table of what the run has covered.
//
// The checker knows what the faults have done to the machines. It compares this with the effects of
// the scheduler and with the answers that clients get. The promises:
// - A process ceases to hold a shard of an array only if it died, or was cut off for the outage
//   grace. An array is lost only if no process holds some shard of it any more.
// - A change that was acknowledged to a client is still there after a restart.
// - An operation ends once and stays ended.
// - No id is given twice.
// - A launch runs once.
// - The coordinator counts a worker as away only if the worker was silent.
// - An executor that said farewell counts as gone at once. After a pause of the coordinator, one
//   that is away has the whole outage grace to come back.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/scheduler/effects.h"
#include "server/scheduler/events.h"
#include "server/scheduler/state.h"
#include "tests/sim/fault.h"
#include "tests/sim/world.h"

namespace tessera::sim {

namespace scheduler = server::scheduler;

// The coordinator's configuration that the promises depend on.
inline constexpr int64_t kOperationsKept = 400;
inline constexpr absl::Duration kOutageGrace = absl::Seconds(20);
inline constexpr absl::Duration kSessionLease = absl::Seconds(15);
// If a fault makes the coordinator count an executor as lost, the coordinator does so within this
// time after the fault has ended. The time is longer than kOutageGrace.
inline constexpr absl::Duration kCountedAsLostWithin = absl::Seconds(30);

class Checker {
 public:
  // Coverage counts steps by the kind of their event. There are kEvents kinds of the scheduler's
  // events; a report of a worker is counted by the kind of the report instead.
  static constexpr size_t kEvents = std::variant_size_v<scheduler::Event>;
  static constexpr size_t kReports = std::variant_size_v<api::ReportBody>;
  using Coverage = std::array<std::array<int64_t, kFaultKinds>, kEvents + kReports>;
  // Returns "" for the kind of event that is counted by the kinds of its reports.
  static std::string EventName(size_t kind);

  explicit Checker(World* world) : world_(world) {}

  // ---- The machines. ----
  void OnFault(FaultKind kind, absl::Duration time);
  // Until this time the executor's process is cut off or suspended, or is coming back from that.
  // Only once such times, one after the other, are as long as the outage grace may the process be
  // counted as lost.
  void Disturb(const std::string& executor, uint64_t incarnation, absl::Time until);
  // Until this time, the executor's process may be counted as lost, because it may be killed. Calls
  // for the same process add up: the latest time counts. InfiniteFuture means that the process has
  // died.
  void Excuse(const std::string& executor, uint64_t incarnation,
              absl::Time until = absl::InfiniteFuture());
  bool IsExcused(const std::string& executor, uint64_t incarnation) const;
  // Until this time the worker may be silent, because it is cut off, suspended or starting.
  void ExcuseSilence(const std::string& worker, absl::Time until);
  // For this time the coordinator hears nothing. So it may notice a silence later by this time, and
  // the excuses for silences last longer by it.
  void CoordinatorIsDeaf(absl::Duration time);
  // The coordinator is paused until this time.
  void OnCoordinatorPaused(absl::Time until) { coordinator_paused_until_ = until; }
  // The process of an executor begins a launch.
  void OnLaunchBegin(uint64_t launch, const std::string& executor, uint64_t incarnation);

  // ---- The coordinator. ----
  void BeforeStep(const scheduler::Event& event, const scheduler::State& state);
  void OnStep(const scheduler::Event& event, const std::vector<scheduler::Effect>& effects,
              const scheduler::State& state);

  // The coordinator takes a worker to be away, because it has heard nothing from the worker.
  void OnCountedAsAway(const std::string& worker);

  // ---- What clients are told. ----
  // A new object was acknowledged; `what` is its kind, for example "array".
  void OnAcknowledged(const char* what, uint64_t id);
  void OnAccepted(uint64_t operation);
  // The operation was seen to have ended, in this state and with this error.
  void OnEnded(uint64_t operation, api::OperationState state, const absl::Status& error);
  // The coordinator has answered that it does not know the operation. The coordinator may have
  // dropped the operation's record only if enough operations came after it (kOperationsKept).
  void OnForgotten(uint64_t operation);
  // The client of the operation is gone, so no client will see how it ends.
  void OnAbandoned(uint64_t operation) { open_operations_.erase(operation); }
  // An argument that was donated to the operation is back.
  void OnGivenBack(uint64_t operation);
  // Returns whether the operation was seen to have succeeded.
  bool IsDone(uint64_t operation) const;
  const std::set<uint64_t>& open_operations() const { return open_operations_; }

  void OnOwned(const std::string& tenant, uint64_t array);
  // Returns an array of another tenant, or 0 if none is known.
  uint64_t ArrayOfAnotherTenant(const std::string& tenant, Random& random) const;

  int64_t num_accepted() const { return num_accepted_; }
  const Coverage& coverage() const { return coverage_; }

 private:
  // The facts of an array's last row that the next row is compared with.
  struct KnownArray {
    // Device id -> the process that holds the shard.
    std::map<int64_t, std::pair<std::string, uint64_t>> holders;
  };
  static KnownArray FactsOf(const scheduler::ArrayRecord& record, const scheduler::State& state);
  void CheckRow(const scheduler::RowChange& row, const scheduler::State& state);
  void CheckHolders(uint64_t id, const scheduler::ArrayRecord& record, const KnownArray& before,
                    const scheduler::State& state);
  void CheckSend(const scheduler::SendCommand& send, const scheduler::State& state);
  // An executor that holds arrays may be killed only if work that has ended is stuck on it, or if
  // it has been silent for the outage grace.
  void CheckKill(const scheduler::SendCommand& send, const scheduler::State& state);
  void CheckAdopted(const scheduler::WorkerReported& event, const scheduler::State& state);
  // Compares the executors with those before the step (before_): one that said farewell is gone,
  // and one that is given up for being away has had its time since the coordinator's last pause.
  void CheckGone(const scheduler::Event& event, const scheduler::State& state);

  World* const world_;
  std::array<absl::Time, kFaultKinds> active_until_ = {};
  Coverage coverage_ = {};
  bool clock_stepped_ = false;
  std::map<std::pair<std::string, uint64_t>, absl::Time> excused_;
  struct Disturbance {
    absl::Time since = absl::InfinitePast(), until = absl::InfinitePast();
  };
  std::map<std::pair<std::string, uint64_t>, Disturbance> disturbed_;
  std::map<std::string, absl::Time> silence_excused_until_;
  absl::Time deaf_until_ = absl::InfinitePast();  // until then the coordinator hears nothing
  absl::Time coordinator_paused_until_ = absl::InfinitePast();
  // Facts from before the step, which OnStep compares with those after it. Each executor is given
  // by its name and its incarnation.
  struct BeforeStepFacts {
    std::map<std::string, uint64_t> away;       // executors that are away
    std::pair<std::string, uint64_t> farewell;  // executor that says farewell; "" if none does
  } before_;
  std::set<std::tuple<uint64_t, std::string, uint64_t>> begun_launches_;
  std::map<uint64_t, KnownArray> arrays_;
  std::set<uint64_t> lost_arrays_;     // arrays that are lost
  std::set<uint64_t> deleted_arrays_;  // arrays whose deletion has begun; a restart may undo it
  // Arrays whose records have gone with the run that consumed them. The record is back after a
  // restart that does not know the end of the run.
  std::set<uint64_t> consumed_arrays_;
  std::map<uint64_t, uint64_t> donated_;  // array -> the operation that it was donated to
  std::set<uint64_t> failed_communicators_;
  std::set<std::pair<std::string, uint64_t>> given_ids_;
  int64_t num_accepted_ = 0;
  struct Operation {
    int64_t number = 0;  // position among the accepted operations
    api::OperationState state = api::OperationState::kPending;
    std::string error;
    bool gave_back = false;
  };
  std::map<uint64_t, Operation> operations_;
  std::vector<std::pair<std::string, uint64_t>> owned_;  // tenants and some of their newest arrays
  std::set<uint64_t> open_operations_;  // operations that have not been seen to end
};

}  // namespace tessera::sim
