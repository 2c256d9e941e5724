// Checks the promises of a run (checker.h). process.cc shows it each step of the scheduler, the
// clients report the answers that they got, and sim.cc says what each fault may cause. The first
// broken promise ends the run.
#include "tests/sim/checker.h"

#include <algorithm>
#include <iterator>
#include <variant>

#include "base/status.h"
#include "server/scheduler/replicas.h"

namespace tessera::sim {
namespace {

// The names are in the order of scheduler::Event. The kind with the name "", a report of a worker,
// is counted by the kind of the report.
constexpr const char* kEventNames[] = {"open session",
                                       "get session",
                                       "list sessions",
                                       "close session",
                                       "hold session",
                                       "drop hold",
                                       "reshard",
                                       "describe file",
                                       "list devices",
                                       "list workers",
                                       "get worker",
                                       "get topology",
                                       "cordon",
                                       "drain",
                                       "delete worker",
                                       "create mesh",
                                       "get mesh",
                                       "list meshes",
                                       "delete mesh",
                                       "upload program",
                                       "keep program",
                                       "get program",
                                       "list programs",
                                       "delete program",
                                       "compile",
                                       "execute",
                                       "create array",
                                       "describe upload",
                                       "write",
                                       "read",
                                       "describe array",
                                       "list arrays",
                                       "wait array",
                                       "save",
                                       "load",
                                       "delete",
                                       "wait operation",
                                       "cancel",
                                       "list operations",
                                       "explain pending",
                                       "read telemetry",
                                       "planned",
                                       "worker registered",
                                       "worker gone",
                                       "executor gone",
                                       "",
                                       "restore",
                                       "tick"};
static_assert(std::size(kEventNames) == Checker::kEvents);
// The names are in the order of api::ReportBody.
constexpr const char* kReportNames[] = {"heartbeat",      "communicator ready", "program loaded",
                                        "launch done",    "launch failed",      "buffer written",
                                        "buffer read",    "executor lost",      "executor ready",
                                        "file inspected", "inventory",          "farewell"};
constexpr size_t kInventoryReport = std::size(kReportNames) - 2;
static_assert(std::size(kReportNames) == Checker::kReports);

}  // namespace

std::string Checker::EventName(size_t kind) {
  return kind < kEvents ? kEventNames[kind] : kReportNames[kind - kEvents];
}

void Checker::OnFault(FaultKind kind, absl::Duration time) {
  absl::Time& until = active_until_[static_cast<size_t>(kind)];
  until = std::max(until, world_->now() + time);
  clock_stepped_ |= kind == FaultKind::kClockAhead || kind == FaultKind::kClockBack;
}

void Checker::Excuse(const std::string& executor, uint64_t incarnation, absl::Time until) {
  absl::Time& excused =
      excused_.try_emplace({executor, incarnation}, absl::InfinitePast()).first->second;
  excused = std::max(excused, until);
}

void Checker::Disturb(const std::string& executor, uint64_t incarnation, absl::Time until) {
  Disturbance& d = disturbed_[{executor, incarnation}];
  if (d.until < world_->now()) d.since = world_->now();
  d.until = std::max(d.until, until);
}

bool Checker::IsExcused(const std::string& executor, uint64_t incarnation) const {
  const auto excused = excused_.find({executor, incarnation});
  if (excused != excused_.end() && excused->second >= world_->now()) return true;
  const auto disturbed = disturbed_.find({executor, incarnation});
  return disturbed != disturbed_.end() &&
         disturbed->second.until - disturbed->second.since >= kOutageGrace &&
         disturbed->second.until + kCountedAsLostWithin >= world_->now();
}

void Checker::ExcuseSilence(const std::string& worker, absl::Time until) {
  absl::Time& silent =
      silence_excused_until_.try_emplace(worker, absl::InfinitePast()).first->second;
  // While the coordinator is deaf it hears nothing, and a silence counts for it only afterwards.
  silent = std::max(silent, until + std::max(deaf_until_ - world_->now(), absl::ZeroDuration()));
}

void Checker::CoordinatorIsDeaf(absl::Duration time) {
  for (auto& [worker, until] : silence_excused_until_)
    if (until >= world_->now()) until += time;
  deaf_until_ = std::max(deaf_until_, world_->now() + time);
}

void Checker::OnCountedAsAway(const std::string& worker) {
  const auto excused = silence_excused_until_.find(worker);
  if (excused == silence_excused_until_.end() || excused->second < world_->now())
    world_->Violate("worker ", worker, " is taken for away, and it was not silent");
}

void Checker::OnLaunchBegin(uint64_t launch, const std::string& executor, uint64_t incarnation) {
  if (!begun_launches_.emplace(launch, executor, incarnation).second)
    world_->Violate(executor, " runs launch ", launch, " twice");
}

void Checker::BeforeStep(const scheduler::Event& event, const scheduler::State& state) {
  before_ = {};
  const auto* reported = std::get_if<scheduler::WorkerReported>(&event);
  const bool is_farewell =
      reported != nullptr && std::holds_alternative<api::ExecutorFarewell>(reported->report.body);
  for (const auto& [name, x] : state.cluster.executors()) {
    if (x.away) before_.away.emplace(name, x.info.incarnation);
    if (is_farewell && (x.alive() || x.away) &&
        x.last_registration_id == reported->registration_id &&
        x.info.index == reported->report.executor &&
        x.info.incarnation == reported->report.incarnation)
      before_.farewell = {name, x.info.incarnation};
  }
  const auto* deletion = std::get_if<scheduler::DeleteWorker>(&event);
  if (deletion == nullptr) return;
  const auto worker = state.cluster.workers().find(deletion->worker);
  if (worker == state.cluster.workers().end() || worker->second.registration_id != 0) return;
  // If a worker is deleted while it is away, the shards that it holds are given up with it.
  for (const std::string& executor : worker->second.executors)
    Excuse(executor, state.cluster.executor(executor).info.incarnation,
           world_->now() + kCountedAsLostWithin);
}

// Counts the step for the coverage, and checks its commands and the rows that it commits. After a
// restart, what the checker knows of arrays is what the restored state says.
void Checker::OnStep(const scheduler::Event& event, const std::vector<scheduler::Effect>& effects,
                     const scheduler::State& state) {
  // A restart may undo a donation, and the loss of a holder.
  if (const auto* restored = std::get_if<scheduler::Restore>(&event)) {
    for (const scheduler::RowChange& row : restored->rows)
      if (const auto* array = std::get_if<scheduler::ArrayRecord>(&row.record);
          array != nullptr && array->donated_to == 0)
        donated_.erase(row.key.id);
    arrays_.clear();
    coordinator_paused_until_ = absl::InfinitePast();  // this is another process
    for (const auto& [id, array] : state.catalogue.arrays()) arrays_[id] = FactsOf(array, state);
  }
  const auto* reported = std::get_if<scheduler::WorkerReported>(&event);
  const size_t kind = reported != nullptr ? kEvents + reported->report.body.index() : event.index();
  for (size_t fault = 0; fault < kFaultKinds; ++fault)
    if (world_->now() < active_until_[fault]) ++coverage_[kind][fault];
  // An inventory shows which commands an executor lacks. They are sent again even over a failed
  // communicator or to a draining worker, so they are not checked.
  const bool is_new = kind != kEvents + kInventoryReport;
  for (const scheduler::Effect& effect : effects)
    if (const auto* send = std::get_if<scheduler::SendCommand>(&effect); send != nullptr && is_new)
      CheckSend(*send, state);
  if (!is_new) CheckAdopted(*reported, state);
  CheckGone(event, state);
  for (const scheduler::Effect& effect : effects)
    if (const auto* commit = std::get_if<scheduler::Commit>(&effect))
      for (const scheduler::RowChange& row : commit->rows) CheckRow(row, state);
}

// No operation may begin over a communicator in which a launch has failed, or on a worker that
// drains.
void Checker::CheckKill(const scheduler::SendCommand& send, const scheduler::State& state) {
  for (const auto& [name, x] : state.cluster.executors()) {
    if (x.registration_id != send.registration_id || x.info.index != send.executor ||
        x.info.incarnation != send.incarnation)
      continue;
    if (x.last_heartbeat.silence >= kOutageGrace) return;
    for (const uint64_t id : state.order.lingering()) {
      const auto& outstanding = state.order.operations().at(id).outstanding;
      if (const auto at = outstanding.find(name);
          at != outstanding.end() && at->second == send.incarnation)
        return;
    }
    for (const auto& [id, array] : state.catalogue.arrays()) {
      if (array.state != scheduler::ArrayState::kReady || array.deleted) continue;
      for (const auto& [device, incarnation] : array.holders)
        if (state.cluster.ExecutorOf(device).name == name && incarnation == send.incarnation)
          return world_->Violate("executor ", name, " is killed after a silence of ",
                                 absl::FormatDuration(x.last_heartbeat.silence),
                                 ", though it holds array ", id);
    }
  }
}

void Checker::CheckSend(const scheduler::SendCommand& send, const scheduler::State& state) {
  if (std::holds_alternative<api::KillExecutor>(send.command)) CheckKill(send, state);
  if (const auto* launch = std::get_if<api::Launch>(&send.command);
      launch != nullptr && failed_communicators_.count(launch->generation) > 0)
    world_->Violate("launch ", launch->launch, " is over communicator ", launch->generation,
                    ", over which another has failed");
  if (state.cluster.draining().empty() || !(std::holds_alternative<api::Launch>(send.command) ||
                                            std::holds_alternative<api::Transfer>(send.command) ||
                                            std::holds_alternative<api::SaveShards>(send.command)))
    return;
  for (const auto& [name, worker] : state.cluster.workers())
    if (worker.registration_id == send.registration_id && worker.draining)
      world_->Violate("something begins on worker ", name, ", which drains");
}

// If the coordinator takes an array to be ready on an executor that has come back, the executor's
// inventory must contain it.
void Checker::CheckAdopted(const scheduler::WorkerReported& event, const scheduler::State& state) {
  const auto& inventory = std::get<api::ExecutorInventory>(event.report.body);
  for (const auto& [id, array] : state.catalogue.arrays()) {
    if (array.state != scheduler::ArrayState::kReady || array.deleted) continue;
    for (const auto& [device, incarnation] : array.holders) {
      const scheduler::Executor& x = state.cluster.ExecutorOf(device);
      if (x.registration_id != event.registration_id || x.info.index != event.report.executor ||
          x.info.incarnation != event.report.incarnation || incarnation != x.info.incarnation)
        continue;
      const std::vector<uint64_t>& ready = inventory.devices.at(device - x.first_device).ready;
      if (!std::binary_search(ready.begin(), ready.end(), id))
        world_->Violate("array ", id, " is ready on ", x.name, ", which came back without it");
    }
  }
}

void Checker::CheckGone(const scheduler::Event& event, const scheduler::State& state) {
  const auto& executors = state.cluster.executors();
  if (const auto x = executors.find(before_.farewell.first);
      x != executors.end() && x->second.info.incarnation == before_.farewell.second &&
      (x->second.alive() || x->second.away))
    world_->Violate("executor ", x->first, " said farewell, and does not count as gone");
  if (!std::holds_alternative<scheduler::Tick>(event)) return;
  const absl::Duration since_pause = world_->now() - coordinator_paused_until_;
  for (const auto& [name, incarnation] : before_.away) {
    const auto x = executors.find(name);
    if (x == executors.end() || x->second.info.incarnation != incarnation) continue;
    if (!x->second.alive() && !x->second.away && since_pause < kOutageGrace)
      world_->Violate("executor ", name, " is given up ", absl::FormatDuration(since_pause),
                      " after a pause of the coordinator");
  }
}

Checker::KnownArray Checker::FactsOf(const scheduler::ArrayRecord& record,
                                     const scheduler::State& state) {
  KnownArray array;
  for (const auto& [device, incarnation] : record.holders)
    array.holders[static_cast<int64_t>(device)] = {
        state.cluster.device(static_cast<int64_t>(device)).executor, incarnation};
  return array;
}

// Compares an array's row with the row before it. A process that is no holder any more must be
// excused. An array that is lost now must lack a shard.
void Checker::CheckHolders(uint64_t id, const scheduler::ArrayRecord& record,
                           const KnownArray& before, const scheduler::State& state) {
  const bool is_lost = record.state == scheduler::ArrayState::kLost;
  if (!record.error.ok() && !is_lost) return;
  bool any_excused = false;
  const KnownArray now = FactsOf(record, state);
  for (const auto& [device, process] : before.holders) {
    if (now.holders.count(device) > 0) continue;
    any_excused = true;
    if (!IsExcused(process.first, process.second))
      world_->Violate("array ", id, " is no longer on ", process.first,
                      ", which has not died: ", std::string(record.error.message()));
  }
  if (!is_lost || !lost_arrays_.insert(id).second) return;
  if (!any_excused || scheduler::MissingShards(record).empty())
    world_->Violate("array ", id, " is lost, and every shard of it has a holder: ",
                    std::string(record.error.message()));
}

// Checks the change of an array's row. Arrays whose deletion has begun do not count, and neither do
// arrays that a run has consumed. The function also notes which arrays are donated and which
// communicators have failed, for later checks.
void Checker::CheckRow(const scheduler::RowChange& row, const scheduler::State& state) {
  if (const auto* op = std::get_if<scheduler::Operation>(&row.record);
      op != nullptr && op->generation != 0 && !op->error.ok())
    failed_communicators_.insert(op->generation);
  if (row.key.kind != server::core::RowKind::kArray) return;
  const auto* array = std::get_if<scheduler::ArrayRecord>(&row.record);
  const bool donated = array != nullptr && array->donated_to != 0;
  // A donated array never comes back, because the run that consumes it waits for the disk. If the
  // run has failed before it consumed the array, the array goes with its session.
  const auto donee = donated_.find(row.key.id);
  bool consumed = array == nullptr && donee != donated_.end();
  if (consumed) {
    const auto op = state.order.operations().find(donee->second);
    consumed =
        op == state.order.operations().end() || op->second.error.ok() || op->second.inputs_gone;
  }
  if (array == nullptr ? !consumed : array->deleted && !donated) deleted_arrays_.insert(row.key.id);
  if (donated) donated_[row.key.id] = array->donated_to;
  if (array != nullptr && !donated) donated_.erase(row.key.id);
  if (array == nullptr) {
    arrays_.erase(row.key.id);
    if (consumed) consumed_arrays_.insert(row.key.id);
    return;
  }
  KnownArray& before = arrays_[row.key.id];
  if (deleted_arrays_.count(row.key.id) == 0 && consumed_arrays_.count(row.key.id) == 0)
    CheckHolders(row.key.id, *array, before, state);
  before = FactsOf(*array, state);
}

void Checker::OnAcknowledged(const char* what, uint64_t id) {
  if (!given_ids_.emplace(what, id).second) world_->Violate(what, " ", id, " is given twice");
}

void Checker::OnAccepted(uint64_t operation) {
  OnAcknowledged("operation", operation);
  operations_[operation].number = ++num_accepted_;
  open_operations_.insert(operation);
}

void Checker::OnEnded(uint64_t operation, api::OperationState state, const absl::Status& error) {
  if (state < api::OperationState::kDone) return;
  Operation& op = operations_[operation];
  const std::string text(ReasonOf(error));
  open_operations_.erase(operation);
  if (op.state >= api::OperationState::kDone && (op.state != state || op.error != text))
    return world_->Violate("operation ", operation, " ended with state ",
                           static_cast<int>(op.state), " (", op.error, "), and now has state ",
                           static_cast<int>(state), " (", text, ")");
  op.state = state;
  op.error = text;
  const ErrorKind kind = error.ok() ? ErrorKind::kCancelled : KindOf(error);
  if (kind == ErrorKind::kArrayDeleted || kind == ErrorKind::kArrayNotFound ||
      kind == ErrorKind::kInternal)
    world_->Violate("operation ", operation, " ended with ", std::string(error.message()));
  if (op.gave_back && state == api::OperationState::kDone)
    world_->Violate("operation ", operation, " succeeded, and has not consumed its arguments");
}

void Checker::OnGivenBack(uint64_t operation) {
  Operation& op = operations_[operation];
  op.gave_back = true;
  if (op.state == api::OperationState::kDone)
    world_->Violate("operation ", operation, " succeeded, and has not consumed its arguments");
}

void Checker::OnOwned(const std::string& tenant, uint64_t array) {
  constexpr size_t kOwnedMax = 32;
  if (owned_.size() == kOwnedMax) owned_.erase(owned_.begin());
  owned_.emplace_back(tenant, array);
}

uint64_t Checker::ArrayOfAnotherTenant(const std::string& tenant, Random& random) const {
  if (owned_.empty()) return 0;
  const auto& [owner, array] = owned_[random.Below(static_cast<int64_t>(owned_.size()))];
  return owner == tenant ? 0 : array;
}

void Checker::OnForgotten(uint64_t operation) {
  // The coordinator keeps kOperationsKept records, but not every record is an accepted operation.
  // Copies of the arguments of an operation have records of their own: at most two when it is
  // accepted, and two more each time that executors lose shards of them. So have operations whose
  // acknowledgement was lost.
  constexpr int64_t kRecordsOfEach = 8;
  open_operations_.erase(operation);
  const auto op = operations_.find(operation);
  // After a restart, records are in the order of the wall clock.
  if (clock_stepped_) return;
  if (op == operations_.end() ||
      kRecordsOfEach * (num_accepted_ - op->second.number) < kOperationsKept)
    world_->Violate("operation ", operation, " was accepted and is unknown");
}

bool Checker::IsDone(uint64_t operation) const {
  const auto op = operations_.find(operation);
  return op != operations_.end() && op->second.state == api::OperationState::kDone;
}

}  // namespace tessera::sim
