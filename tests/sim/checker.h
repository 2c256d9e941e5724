// What must hold of a run, and what the run has covered.
//
// Knows what the faults have done to the machines, and holds what the scheduler says and what
// clients are told against that: an array is lost only if a holder of it died or was cut off; what
// was acknowledged is there after a restart, ends once and stays ended; no id is given twice; a
// launch runs once; a worker is away only if it was silent.
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

// What the coordinator is configured with.
inline constexpr int64_t kOperationsKept = 400;
inline constexpr absl::Duration kOutageGrace = absl::Seconds(20);
inline constexpr absl::Duration kSessionLease = absl::Seconds(15);
// After a fault that may make the coordinator count an executor as lost, it has: more than the
// grace.
inline constexpr absl::Duration kCountedAsLostWithin = absl::Seconds(30);

class Checker {
 public:
  // Kinds of events: of the scheduler's, with the reports of workers one by one.
  static constexpr size_t kEvents = std::variant_size_v<scheduler::Event>;
  static constexpr size_t kReports = std::variant_size_v<api::ReportBody>;
  using Coverage = std::array<std::array<int64_t, kFaultKinds>, kEvents + kReports>;
  // "" of the kind that counts as its reports.
  static std::string EventName(size_t kind);

  explicit Checker(World* world) : world_(world) {}

  // ---- The machines. ----
  void FaultIsOn(FaultKind kind, absl::Duration time);
  // The executor's process may be counted as lost, until then or if it ends before: it is cut off,
  // or suspended. InfiniteFuture: it has died.
  void Excuse(const std::string& executor, uint64_t incarnation,
              absl::Time until = absl::InfiniteFuture());
  bool IsExcused(const std::string& executor, uint64_t incarnation) const;
  // Until then the worker may be silent: it is cut off, suspended or starts.
  void ExcuseSilence(const std::string& worker, absl::Time until);
  // The coordinator hears of nothing for so long: it may count later what is excused now.
  void CoordinatorIsDeaf(absl::Duration time);
  // A process of an executor begins a launch.
  void Runs(uint64_t launch, const std::string& executor, uint64_t incarnation);

  // ---- The coordinator. ----
  void BeforeStep(const scheduler::Event& event, const scheduler::State& state);
  void OnStep(const scheduler::Event& event, const std::vector<scheduler::Effect>& effects,
              const scheduler::State& state);

  // It takes a worker for one that is away, as nothing is heard of it.
  void Silent(const std::string& worker);

  // ---- What clients are told. ----
  // `what`: "array", ...; a new one was acknowledged.
  void Gave(const char* what, uint64_t id);
  void Accepted(uint64_t operation);
  // The operation was seen to have ended so.
  void Ended(uint64_t operation, api::OperationState state, const absl::Status& error);
  // The operation is unknown: its record may have been dropped only if enough came after it.
  void Forgotten(uint64_t operation);
  // Its client is gone; nobody will see how it ends.
  void Abandoned(uint64_t operation) { open_.erase(operation); }
  // An argument that was donated to the operation is back.
  void GaveBack(uint64_t operation);
  // Whether it was seen to have succeeded.
  bool IsDone(uint64_t operation) const;
  const std::set<uint64_t>& open() const { return open_; }

  void Owns(const std::string& tenant, uint64_t array);
  // An array of another tenant; 0: none is known.
  uint64_t OfAnother(const std::string& tenant, Random& random) const;

  int64_t operations() const { return accepted_; }
  const Coverage& coverage() const { return coverage_; }

 private:
  void CheckRow(const scheduler::RowChange& row, const scheduler::State& state);
  void CheckSend(const scheduler::SendCommand& send, const scheduler::State& state);
  void CheckAdopted(const scheduler::WorkerReported& event, const scheduler::State& state);

  World* const world_;
  std::array<absl::Time, kFaultKinds> active_until_ = {};
  Coverage coverage_ = {};
  bool clock_stepped_ = false;
  std::map<std::pair<std::string, uint64_t>, absl::Time> excused_;
  std::map<std::string, absl::Time> silent_until_;
  absl::Time deaf_until_ = absl::InfinitePast();  // the coordinator
  std::set<std::tuple<uint64_t, std::string, uint64_t>> runs_;
  std::set<uint64_t> given_up_;  // arrays on the worker that the step at hand deletes
  std::set<uint64_t> lost_;      // arrays
  std::set<uint64_t> deleted_;   // arrays whose deletion has begun, which a restart may undo
  std::map<uint64_t, uint64_t> donated_;  // arrays, and to which operation
  std::set<uint64_t> failed_communicators_;
  std::set<std::pair<std::string, uint64_t>> given_;
  int64_t accepted_ = 0;
  struct Operation {
    int64_t number = 0;  // among those that were accepted
    api::OperationState state = api::OperationState::kPending;
    std::string error;
    bool gave_back = false;
  };
  std::map<uint64_t, Operation> operations_;
  std::vector<std::pair<std::string, uint64_t>> owned_;  // some of the last arrays, by tenant
  std::set<uint64_t> open_;  // operations that have not been seen to end
};

}  // namespace tessera::sim
