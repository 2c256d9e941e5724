// Restores the state from the rows that earlier lives of the coordinator have committed, and takes
// back executors that were away.
//
// The executors of an earlier life are away. So are the executors of a worker that falls silent or
// whose connection ends, and an executor whose own connection ends. They stay away until they come
// back with what they hold, or until the grace is over. Meanwhile the arrays on them keep their
// state, the operations that they run go on, and operations that need them wait.
//
// Reference: docs/decisions/0011, 0013, 0037.
#include <algorithm>

#include "base/status_exception.h"
#include "server/scheduler/machine.h"
#include "server/scheduler/replicas.h"

namespace tessera::server::scheduler {
namespace {

// Returns the records of one type, with their keys.
template <class T>
std::vector<std::pair<const RowKey*, const T*>> Records(const std::vector<RowChange>& rows) {
  std::vector<std::pair<const RowKey*, const T*>> found;
  for (const RowChange& row : rows)
    if (const T* record = std::get_if<T>(&row.record)) found.emplace_back(&row.key, record);
  return found;
}

// Returns all arrays of which the executor has a shard, in whatever state.
std::set<uint64_t> ArraysIn(const api::ExecutorInventory& inventory) {
  std::set<uint64_t> arrays;
  for (const api::ExecutorInventory::Device& device : inventory.devices)
    for (const std::vector<uint64_t>* list : {&device.ready, &device.expected, &device.failed})
      arrays.insert(list->begin(), list->end());
  return arrays;
}

}  // namespace

// Rebuilds the state from the rows of the earlier life, before any other event. Records are
// restored before the records that refer to them: machines, sessions, executables, arrays,
// operations. Operations go on only when all records are there. Sessions live on for at least
// outage_grace, and answers for request_id_age, because clients may be reconnecting. Arrays whose
// operation is unknown fail at the end.
void Machine::On(const Restore& e) {
  RestoreCluster(e.rows);
  for (const auto& [key, record] : Records<Session>(e.rows)) {
    Session session = *record;
    if (!session.own) {
      session.lease_until = now_ + std::max(session.lease, s_.config.outage_grace);
      Arm(session.lease_until, kSessionTimer, key->id);
    }
    ownership_.RestoreSession(key->id, std::move(session));
  }
  for (const auto& [key, x] : Records<Executable>(e.rows)) RestoreExecutable(key->id, *x);
  for (const auto& [key, array] : Records<ArrayRecord>(e.rows)) RestoreArray(key->id, *array);
  for (const auto& [key, mesh] : Records<NamedMesh>(e.rows))
    catalogue_.AddMesh(OwnerAndName(key->name), *mesh);
  for (const auto& [key, program] : Records<UploadedProgram>(e.rows))
    s_.uploads.Restore(OwnerAndName(key->name), *program);
  std::vector<std::pair<const RowKey*, const Operation*>> operations = Records<Operation>(e.rows);
  std::stable_sort(operations.begin(), operations.end(), [](const auto& a, const auto& b) {
    return a.second->ended_at < b.second->ended_at;
  });
  for (const auto& [key, op] : operations) RestoreOperation(*op);
  std::set<uint64_t> results_of_live;
  for (uint64_t id : IdSet(order_.live())) {
    const std::vector<uint64_t>& results = order_.operation(id).results;
    results_of_live.insert(results.begin(), results.end());
    ResumeOperation(id);
  }
  for (const auto& [key, answer] : Records<AnswerRecord>(e.rows)) {
    AnswerRecord restored = *answer;
    restored.until = now_ + s_.config.request_id_age;
    s_.answers.Restore(key->id, std::move(restored));
  }
  std::vector<uint64_t> arrays;
  for (const auto& [id, array] : catalogue_.arrays())
    if (array.deleted || array.state == ArrayState::kPlanned ||
        array.state == ArrayState::kScheduled)
      arrays.push_back(id);
  for (uint64_t id : arrays) {
    if (ArrayRecord* const a = catalogue_.FindArray(id);
        results_of_live.count(id) == 0 &&
        (a->state == ArrayState::kPlanned || a->state == ArrayState::kScheduled))
      FailArray(id, Error(ErrorKind::kInternal, "array ", id, ": its operation is unknown"));
    TryFree(id);
  }
  if (cluster_.num_away() > 0) Arm(AwayUntil(), kAwayTimer, 0);
}

// Restores an array. Drops its record if a device that holds a shard does not exist.
// RestoreOperation adds the readers of the array, and executors say later which of its shards were
// written.
void Machine::RestoreArray(uint64_t id, ArrayRecord array) {
  const std::vector<int64_t>& devices = array.spec->placement.devices;
  const bool assigned = std::all_of(devices.begin(), devices.end(),
                                    [&](int64_t d) { return d >= 0 && d < cluster_.num_ids(); });
  // A device that has been deleted may be in the placement, but does not hold its shard.
  const bool held =
      std::all_of(array.holders.begin(), array.holders.end(), [&](const auto& holder) {
        return cluster_.DeviceExists(static_cast<int64_t>(holder.first));
      });
  if (!assigned || (!held && array.error.ok()))
    return LogIncident("record of the store dropped",
                       {{"array", absl::StrCat(id)}, {"why", "its devices do not exist"}});
  for (IdSet* set : {&array.unscheduled_readers, &array.readers, &array.waiters}) set->clear();
  array.unwritten.clear();
  array.freed = false;
  if (array.state == ArrayState::kWriting) {
    for (const auto& [device, incarnation] : array.holders)
      array.unwritten.insert(static_cast<int64_t>(device));
    // The tickets of the earlier life have expired. The client asks for new ones.
    array.upload_until = now_ + s_.config.ticket_lifetime;
    Arm(array.upload_until, kUploadTimer, id);
  }
  if (Session* const session = ownership_.FindSession(array.session);
      session != nullptr && !array.deleted)
    session->arrays.insert(id);
  catalogue_.AddArray(id, array.spec) = std::move(array);
}

// Restores an operation, and the references to it that rows do not contain: the readers of its
// arguments, its executable, its session and its timers. Times are shifted to the clock of this
// life. The communicator is restored as retired, because no launch of this life may use it.
void Machine::RestoreOperation(Operation op) {
  // Shift from the clock of the earlier life.
  const absl::Duration shift = op.wall_ahead - s_.wall_ahead;
  for (absl::Time* time : {&op.created, &op.started, &op.ended_at, &op.deadline}) *time += shift;
  op.wall_ahead = s_.wall_ahead;
  op.waiters.clear();
  op.kill_at = op.executors_until = op.verdict_until = absl::InfiniteFuture();
  op.started_in_commit = op.ended_in_commit = 0;
  op.executors_behind.clear();
  op.loading = false;
  if (Run* const run = op.run()) run->inlined.clear();
  if (op.generation != 0)
    order_.RestoreRetired(op.generation,
                          Order::Members(op.outstanding.begin(), op.outstanding.end()));
  if (op.uses_devices())
    for (const auto& [name, incarnation] : op.outstanding)
      if (Executor* const x = cluster_.FindExecutor(name);
          x != nullptr && x->away && x->info.incarnation == incarnation)
        x->running[op.sequence] = op.id;
  if (!op.ended()) {
    for (uint64_t a : op.args) {
      ArrayRecord* const array = catalogue_.FindArray(a);
      if (array == nullptr) continue;
      array->readers.insert(op.id);
      if (op.sequence == 0) array->unscheduled_readers.insert(op.id);
    }
    for (uint64_t r : op.results)
      if (ArrayRecord* const array = catalogue_.FindArray(r)) {
        // The result is read from a file and not uploaded.
        Disarm(array->upload_until, kUploadTimer, r);
        array->upload_until = absl::InfiniteFuture();
      }
    if (Executable* const x = ExecutableOf(op)) x->operations.insert(op.id);
    if (Session* const session = ownership_.FindSession(op.session))
      session->operations.insert(op.id);
    // The wall clock may have been set back meanwhile.
    op.deadline = std::min(op.deadline, now_ + op.time_allowed);
    Arm(op.deadline, kDeadlineTimer, op.id);
    if (!op.peer_error.ok()) {
      op.verdict_until = now_ + s_.config.verdict_wait;
      Arm(op.verdict_until, kVerdictTimer, op.id);
    }
  } else if (!op.outstanding.empty()) {
    RestartKillTimer(op);
  }
  order_.Restore(std::move(op));
}

// Lets an operation of an earlier life go on, or fails it. It fails if a record that it needs is
// missing, or if an executor that it was sent to is not away but lost. An operation that had not
// started is tried again. If the plan of its program is unknown, a reshard is planned anew and a
// run fails.
void Machine::ResumeOperation(uint64_t id) {
  Operation& op = order_.operation(id);
  const auto fail = [&](ErrorKind kind, const std::string& why) {
    Fail(id, Error(kind, "operation ", id, " (", op.name,
                   ") cannot go on after the restart of the coordinator: ", why, "; run it again"));
  };
  for (uint64_t a : op.args)
    if (catalogue_.FindArray(a) == nullptr)
      return fail(ErrorKind::kInternal, absl::StrCat("its argument array ", a, " is unknown"));
  for (uint64_t r : op.results)
    if (op.sequence == 0 && catalogue_.FindArray(r) == nullptr)
      return fail(ErrorKind::kInternal, absl::StrCat("its result array ", r, " is unknown"));
  for (const auto& [name, incarnation] : std::map<std::string, uint64_t>(op.outstanding)) {
    const Executor* const x = cluster_.FindExecutor(name);
    if (x != nullptr && x->away && x->info.incarnation == incarnation) continue;
    op.inputs_gone = true;
    op.outstanding.erase(name);
    fail(ErrorKind::kWorkerLost, absl::StrCat("executor ", name, " was lost"));
  }
  if (op.ended() || op.sequence != 0) return;
  if (op.run() != nullptr && ExecutableOf(op) == nullptr) {
    const absl::Status planned = op.kind == api::OperationKind::kReshard
                                     ? PlanReshard(op)
                                     : absl::NotFoundError("its program was not planned yet");
    if (!planned.ok()) return fail(ErrorKind::kWorkerLost, std::string(planned.message()));
  }
  TryStart(id);
}

void Machine::OnAwayTimer() {
  std::vector<std::pair<std::string, std::string>> lost;  // names and reasons
  for (const auto& [name, x] : cluster_.executors())
    if (x.away && x.away_until <= now_)
      lost.emplace_back(name, absl::StrCat(x.lost_reason, ", and it did not come back within ",
                                           absl::FormatDuration(s_.config.outage_grace)));
  for (const auto& [name, why] : lost) {
    KillUnheard(cluster_.executor(name));
    LoseExecutor(name, why, 0, "");
  }
}

// If the worker is back with the executor's process, but the process has not said what it holds,
// then the process hangs, and nothing else would end it. If the worker is not back, the process is
// ended when the worker comes back.
void Machine::KillUnheard(const Executor& x) {
  const uint64_t registration_id = cluster_.worker(x.worker).registration_id;
  if (registration_id == 0) return;
  std::string reason =
      absl::StrCat("killed: its worker is back, but the executor did not report its arrays within ",
                   absl::FormatDuration(s_.config.outage_grace));
  Log("executor ", x.name, " ", reason);
  effects_.emplace_back(SendCommand{registration_id, x.info.index, x.info.incarnation,
                                    api::KillExecutor{std::move(reason)}});
}

// Counts from the present and not from when the event of this step came: while the event waited,
// perhaps for a pause to end, nothing was heard of anybody.
absl::Time Machine::AwayUntil() const { return now_ + s_.lag + s_.config.outage_grace; }

void Machine::BeginAway(const std::string& worker, const std::string& reason) {
  const Worker& w = cluster_.worker(worker);
  const uint64_t registration_id = w.registration_id;
  const absl::Time until = AwayUntil();
  // Disconnects all executors of the worker first, so that no command is sent to one of them.
  const std::vector<std::string> away = cluster_.Disconnect(worker, reason);
  for (const std::string& name : away) cluster_.BeginAway(cluster_.executor(name), until);
  const bool is_away = cluster_.AnyAway(w);
  Log("worker ", worker, is_away ? " is away" : " is gone");
  LogIncident(is_away ? "worker away" : "worker gone",
              {{"worker", worker},
               {"host", w.host},
               {"session", absl::StrCat(registration_id)},
               {"lost_after",
                absl::FormatDuration(is_away ? s_.config.outage_grace : absl::ZeroDuration())},
               {"why", reason}});
  cluster_.ShareMemory(w.host);
  for (const std::string& name : away) SuspendWaits(name);
  if (away.empty()) return;
  AnswerFailFastWaits();
  Arm(until, kAwayTimer, registration_id);
}

void Machine::BeginAway(Executor& x, const std::string& reason) {
  const uint64_t registration_id = x.registration_id;
  const absl::Time until = AwayUntil();
  cluster_.DisconnectExecutor(x, reason);
  cluster_.BeginAway(x, until);
  Log("executor ", x.name, " is away");
  LogIncident("executor away", {{"executor", x.name},
                                {"worker", x.worker},
                                {"incarnation", absl::StrCat(x.info.incarnation)},
                                {"lost_after", absl::FormatDuration(s_.config.outage_grace)},
                                {"why", reason}});
  cluster_.ShareMemory(x.host);
  SuspendWaits(x.name);
  AnswerFailFastWaits();
  Arm(until, kAwayTimer, registration_id);
}

// While this process was paused, it heard nothing, and whoever wanted to come back may have been
// waiting for it. So nothing that it finds when it goes on counts against an executor.
void Machine::RestartGrace() {
  if (cluster_.num_away() == 0) return;
  const absl::Time until = AwayUntil();
  for (const auto& [name, known] : cluster_.executors())
    if (known.away) cluster_.BeginAway(cluster_.executor(name), until);
  Log("the coordinator was paused; the time to come back begins anew");
  Arm(until, kAwayTimer, 0);
}

// Ends the waits for writes and looks at files, because their commands may not have reached the
// executor. Reads are sent to another executor that has the shard, or again when the executor is
// back. The executor's inventory will say which launches have reached it.
void Machine::SuspendWaits(const std::string& name) {
  Executor& x = cluster_.executor(name);
  x.overdue_for.clear();
  std::vector<uint64_t> ended, reads;
  for (auto& [request, w] : s_.waiters) {
    if (auto* const read = std::get_if<ReadWait>(&w.wait);
        read != nullptr && read->executor == name) {
      read->executor.clear();
      reads.push_back(request);
    }
    const auto* const write = std::get_if<WriteWait>(&w.wait);
    const auto* const inspection = std::get_if<InspectWait>(&w.wait);
    if ((write != nullptr && write->executor == name) ||
        (inspection != nullptr && inspection->executor == name))
      ended.push_back(request);
  }
  EndWaits(ended, Error(ErrorKind::kWorkerLost, cluster_.DescribeFirstLost({name}), "; retry"));
  // A read that no other executor can answer waits for RetryBlocked.
  for (uint64_t request : reads)
    TrySendRead(request, catalogue_.array(WaitOf<ReadWait>(request)->array));
  for (uint64_t op : catalogue_.MarkUnloaded(name)) TryStart(op);
  RestartCompileTimeouts(name);
  if (!order_.held().empty()) RetryHeld();
}

bool Machine::MayAdopt(const std::string& executor, const api::ExecutorInfo& info) const {
  const Executor* const known = cluster_.FindExecutor(executor);
  return known != nullptr && known->away && known->info.incarnation == info.incarnation;
}

void Machine::Adopt(Executor& x, const api::ExecutorInventory& inventory) {
  cluster_.Adopt(x);
  x.returned_generations = inventory.generations;
  x.last_report_before_return = inventory.reports;
  x.last_sent_sequence = 0;
  for (uint64_t sequence : inventory.sequences)
    x.last_sent_sequence = std::max(x.last_sent_sequence, sequence);
  MarkChanged(core::RowKind::kExecutor, x.name);
  Log("executor ", x.name, " is back, with its arrays");
  cluster_.ShareMemory(x.host);
  AdoptPrograms(x, inventory);
  // No operation starts until all operations that the executor has started are known: an operation
  // that becomes ready now may be one that the executor has already.
  processing_due_ = true;
  AdoptOperations(x, inventory);
  AdoptArrays(x, inventory);
  processing_due_ = false;
  StartAndFailDue();
  RestartCompileTimeouts(x.name);
  RetryBlocked();
}

void Machine::AdoptPrograms(const Executor& x, const api::ExecutorInventory& inventory) {
  std::vector<uint64_t> unknown;
  for (const std::vector<uint64_t>* list : {&inventory.executables, &inventory.compiling})
    for (uint64_t id : *list) {
      Executable* const executable = catalogue_.FindExecutable(id);
      if (executable == nullptr || executable->state != ExecutableState::kPlanned) {
        unknown.push_back(id);
        continue;
      }
      executable->sent_to[x.name] = x.info.incarnation;
      if (list == &inventory.executables) executable->loaded_on[x.name] = x.info.incarnation;
    }
  if (!unknown.empty()) Send(x, api::UnloadPrograms{std::move(unknown)});
  // A Compile that came while the executor was away may have waited only for this executor.
  for (uint64_t id : inventory.executables)
    if (catalogue_.FindExecutable(id) != nullptr) AnswerCompileWaitsIfLoaded(id);
}

std::vector<Machine::StartedOperation> Machine::StartedOperations(
    const api::ExecutorInventory& inventory) {
  const auto at = [](const std::vector<uint64_t>& list, size_t i) {
    return i < list.size() ? list[i] : 0;
  };
  std::vector<StartedOperation> started;
  for (size_t i = 0; i < inventory.running.size(); ++i)
    started.push_back(
        {at(inventory.sequences, i), inventory.running[i], at(inventory.running_generations, i)});
  // Operations that have ended come before the others.
  for (uint64_t id : inventory.ended) started.push_back({0, id, 0});
  std::sort(started.begin(), started.end());
  return started;
}

// The record says that the operation has not started, but the executor has it, because the earlier
// life ended before the start was durable. The operation gets the place and the communicator that
// the executor names, so that all members of its gang agree. Executors that came back before
// without it are sent the operation now.
void Machine::AdoptStarted(const StartedOperation& started, const std::string& executor) {
  Operation& op = order_.operation(started.operation);
  const std::vector<std::string> executors = ExecutorsOf(op);
  if (std::find(executors.begin(), executors.end(), executor) == executors.end()) return;
  Unblock(op);
  order_.Unhold(op.id);
  order_.Place(op);
  op.sequence_reassigned = started.sequence == 0;
  if (!op.sequence_reassigned) op.sequence = started.sequence;
  op.state = api::OperationState::kRunning;
  op.started = now_;
  MarkChanged(op);
  std::vector<std::string> missing;
  Order::Members members;
  for (const std::string& name : executors) {
    Executor& x = cluster_.executor(name);
    // An executor that is back already did not list the operation.
    if (!x.away && name != executor) missing.push_back(name);
    op.outstanding[name] = x.info.incarnation;
    members.emplace_back(name, x.info.incarnation);
    if (op.uses_devices()) x.running[op.sequence] = op.id;
  }
  op.generation = started.generation;
  if (op.generation != 0) order_.RestoreRetired(op.generation, std::move(members));
  for (uint64_t a : op.args) catalogue_.array(a).unscheduled_readers.erase(op.id);
  FreeOriginals(op);
  for (uint64_t r : op.results)
    if (const ArrayRecord* a = catalogue_.FindArray(r)) {
      if (op.kind == api::OperationKind::kLoad) {
        BeginWrites(r);
      } else if (a->state == ArrayState::kPlanned) {
        SetArrayScheduled(r);
      }
    }
  for (const std::string& name : missing)
    if (!op.ended()) Resend(op.id, name);
}

void Machine::Resend(uint64_t id, const std::string& executor) {
  Operation& op = order_.operation(id);
  if (TryResend(op, executor)) return Log("operation ", id, " was sent to ", executor, " again");
  FailUnreached(id, executor);
}

void Machine::FailUnreached(uint64_t id, const std::string& executor) {
  Operation& op = order_.operation(id);
  RecordExecutorLeft(op, executor);
  Fail(id,
       Error(ErrorKind::kWorkerLost, "operation ", id, " (", op.name, ") did not reach executor ",
             executor, " before the connection was lost; run it again"));
}

// A transfer reads its argument wherever the shards are. An operation whose argument is lost may
// not have failed yet, because failures wait until all operations of the executor are known.
bool Machine::HasArguments(const Operation& op, const std::string& executor) const {
  if (op.run() != nullptr) return HasArguments(*op.run(), op, executor);
  if (std::holds_alternative<Transfer>(op.work)) {
    const ArrayRecord& a = catalogue_.array(op.args[0]);
    return HasAllHolders(a) || MissingShards(a).empty();
  }
  const auto* const save = std::get_if<Save>(&op.work);
  if (save == nullptr) return true;
  const std::vector<std::vector<int>> ordinals = OrdinalsToSave(*save, op.args);
  for (size_t i = 0; i < op.args.size(); ++i) {
    const ArrayRecord& a = catalogue_.array(op.args[i]);
    for (const int k : ordinals[i]) {
      const int64_t d = a.spec->placement.devices[k];
      if (cluster_.device(d).executor == executor && PresenceOn(a, d) == Presence::kNone)
        return false;
    }
  }
  return true;
}

// Sends the operation again to an executor that it did not reach. Returns false if that is not
// possible: a record or a shard of an argument is missing, its program is not planned yet, the
// process is another one than before, a later operation was already sent to it, or the communicator
// in which the other members wait is unknown.
bool Machine::TryResend(Operation& op, const std::string& executor) {
  const auto known = [this](uint64_t id) { return catalogue_.FindArray(id) != nullptr; };
  Executable* const program = op.run() == nullptr ? nullptr : ExecutableOf(op);
  if (op.run() != nullptr && (program == nullptr || program->state != ExecutableState::kPlanned))
    return false;
  if (!std::all_of(op.args.begin(), op.args.end(), known) ||
      !std::all_of(op.results.begin(), op.results.end(), known))
    return false;
  const std::vector<std::string> executors =
      std::visit([&](const auto& work) { return ExecutorsFor(work, op); }, op.work);
  if (std::find(executors.begin(), executors.end(), executor) == executors.end()) return false;
  if (!HasArguments(op, executor)) return false;
  Executor& x = cluster_.executor(executor);
  // If this process is not the one from before the outage, the operation was sent to a process that
  // is gone.
  if (!x.alive() || !x.adopted) return false;
  // If an executor got the operation after a later one, the members of gangs could wait for each
  // other in a circle.
  if (op.uses_devices()) {
    if (op.sequence < x.last_sent_sequence) return false;
    // An operation whose sequence number was reassigned was sent before all operations that keep
    // theirs.
    if (!op.sequence_reassigned) x.last_sent_sequence = op.sequence;
  }
  if (op.run() != nullptr && executors.size() > 1) {
    if (op.generation == 0) return false;  // The other members wait in an unknown communicator.
    if (std::find(x.returned_generations.begin(), x.returned_generations.end(), op.generation) ==
        x.returned_generations.end()) {
      SendConfiguration(op.generation, executors, executor);
      x.returned_generations.push_back(op.generation);
    }
  }
  // A reshard is planned anew after a restart, and its program may be on no executor yet.
  if (program != nullptr) SendLoad(op.run()->executable, *program, x);
  // The commands may wait for the disk, as they may have the first time.
  op.started_in_commit = NextCommit(op);
  std::visit([&](const auto& work) { SendWork(work, op, executors, executor); }, op.work);
  // Arrays that were freed meanwhile were deleted only on the executors that were there at the
  // time, so they are deleted on this one now.
  for (const std::vector<uint64_t>* arrays : {&op.args, &op.results})
    for (uint64_t a : *arrays)
      if (catalogue_.array(a).freed) deletes_[executor].push_back(a);
  return true;
}

// Compares the operations that the executor has with those that it should have. An operation that
// it has started without the coordinator's knowledge is adopted. If the executor lacks an operation
// that has not ended, the command was lost on the way and is sent again, in the order of the
// earlier life. If it lacks an operation that has ended, it has left that operation. If it has an
// operation that has ended or is unknown, the operation is cancelled there. Communicators come
// last, because the operations decide which ones are still in use.
void Machine::AdoptOperations(const Executor& x, const api::ExecutorInventory& inventory) {
  std::set<uint64_t> started_ids;
  for (const StartedOperation& started : StartedOperations(inventory)) {
    started_ids.insert(started.operation);
    if (const Operation* const op = order_.Find(started.operation);
        op != nullptr && !op->ended() && op->sequence == 0)
      AdoptStarted(started, x.name);
  }
  LoseMissingArrays(x, inventory);  // before anything that would read the lost arrays is sent again
  std::vector<uint64_t> left_operations;
  // Operations by their place in the order. Operations whose sequence number was reassigned come
  // first: they have ended on another executor, so they came before the operations that run here,
  // whatever number they were given since.
  std::map<std::pair<bool, uint64_t>, uint64_t> unreached;
  for (const IdSet* operations : {&order_.live(), &order_.lingering()})
    for (uint64_t id : *operations) {
      const Operation& op = order_.operation(id);
      const auto outstanding = op.outstanding.find(x.name);
      if (outstanding == op.outstanding.end() || outstanding->second != x.info.incarnation ||
          started_ids.count(id) > 0)
        continue;
      if (op.ended()) {
        left_operations.push_back(id);
      } else {
        unreached.emplace(std::pair(!op.sequence_reassigned, op.sequence), id);
      }
    }
  for (uint64_t id : left_operations) RecordExecutorLeft(order_.operation(id), x.name);
  std::set<uint64_t> present_arrays = ArraysIn(inventory);
  for (const auto& [place, id] : unreached) {
    const Operation& op = order_.operation(id);
    if (op.ended()) continue;
    // The arguments may be deleted, because the operation had ended in the earlier life and its end
    // was not durable.
    const bool readable = std::all_of(op.args.begin(), op.args.end(), [&](uint64_t arg) {
      const ArrayRecord* const a = catalogue_.FindArray(arg);
      return a == nullptr || !IsHeldBy(*a, x) || present_arrays.count(arg) > 0;
    });
    if (!readable) {
      FailUnreached(id, x.name);
      continue;
    }
    present_arrays.insert(op.results.begin(), op.results.end());
    Resend(id, x.name);
  }
  for (uint64_t id : inventory.running) {
    Operation* const op = order_.Find(id);
    if (op == nullptr || op->outstanding.count(x.name) == 0) {
      Send(x, api::CancelLaunch{
                  id, Error(ErrorKind::kCancelled, "operation ", id, " is not known any more")});
    } else if (op->ended()) {
      Send(x, api::CancelLaunch{id, op->error});
      if (IsBehind(*op, x)) op->executors_behind.insert(x.name);
      RestartKillTimer(*op);  // The executor is told now.
    }
  }
  // The executor's reports about these operations come next, so the time to leave them begins anew.
  for (uint64_t id : inventory.ended)
    if (Operation* const op = order_.Find(id);
        op != nullptr && op->ended() && op->outstanding.count(x.name) > 0)
      RestartKillTimer(*op);
  // An operation whose start was not durable has no deadline yet in this life.
  for (uint64_t id : started_ids)
    if (Operation* const op = order_.Find(id); op != nullptr && !op->outstanding.empty())
      StartRunDeadline(*op);
  if (!x.running.empty()) StartRunDeadline(order_.operation(x.running.begin()->second));
  // Closes communicators that no operation is known to use. While there is an operation whose
  // communicator is unknown, they stay open, because it may use one of them.
  const auto uses = [&](uint64_t id, uint64_t generation) {
    const Operation& op = order_.operation(id);
    return op.generation == generation ||
           (op.generation == 0 && op.run() != nullptr && op.outstanding.size() > 1);
  };
  const std::set<uint64_t> open = order_.FindCommunicatorsWith(x.name, x.info.incarnation);
  for (uint64_t generation : inventory.generations)
    if (open.count(generation) == 0 &&
        std::none_of(order_.live().begin(), order_.live().end(),
                     [&](uint64_t id) { return uses(id, generation); }))
      Send(x, api::CloseCommunicator{generation});
  // The executor has not heard of a communicator whose configuration was sent while it went away.
  // No later launch uses that communicator.
  for (uint64_t generation : open)
    if (std::find(x.returned_generations.begin(), x.returned_generations.end(), generation) ==
        x.returned_generations.end()) {
      order_.Retire(generation);
      CloseCommunicator(generation, order_.CloseRetiredIfUnused(generation));
    }
}

// Returns whether the array is an argument of an operation that may have failed before it began on
// the executor. The client gets such an argument back.
bool Machine::MayBeGivenBack(uint64_t id, const ArrayRecord& a,
                             const std::set<uint64_t>& started) const {
  const Operation* const donee = order_.Find(a.donated_to);
  return a.error.ok() && donee != nullptr && !donee->inputs_gone &&
         donee->state != api::OperationState::kDone && started.count(donee->id) == 0 &&
         ownership_.FindSession(a.session) != nullptr &&
         std::find(donee->args.begin(), donee->args.end(), id) != donee->args.end();
}

// Marks arrays as lost that the executor no longer has, unless other executors hold every shard.
// These are arrays that were ready, and results of operations that have started on the executor,
// since it has these results unless they were deleted. Operations that read an array from this
// executor fail.
void Machine::LoseMissingArrays(const Executor& x, const api::ExecutorInventory& inventory) {
  using Device = api::ExecutorInventory::Device;
  const auto is_listed = [&](int32_t d, const auto& list, uint64_t id) {
    return static_cast<size_t>(d) < inventory.devices.size() &&
           std::binary_search((inventory.devices[d].*list).begin(),
                              (inventory.devices[d].*list).end(), id);
  };
  std::set<uint64_t> started_ids, made_results;
  for (const StartedOperation& started : StartedOperations(inventory)) {
    started_ids.insert(started.operation);
    // Arrays that are being loaded may not be there yet.
    const bool has_ended =
        std::binary_search(inventory.ended.begin(), inventory.ended.end(), started.operation);
    if (const Operation* const op = order_.Find(started.operation);
        op != nullptr && (has_ended || op->kind != api::OperationKind::kLoad))
      made_results.insert(op->results.begin(), op->results.end());
  }
  // The executor has left these operations, and other executors have not.
  for (uint64_t id : order_.live()) {
    const Operation& op = order_.operation(id);
    if (op.sequence != 0 && op.outstanding.count(x.name) == 0)
      made_results.insert(op.results.begin(), op.results.end());
  }
  LossErrors errors(
      Error(ErrorKind::kWorkerLost, "lost: executor ", x.name,
            " came back without it; make it again"),
      absl::StrCat(": executor ", x.name, " came back without the array; make it again"));
  std::vector<std::pair<uint64_t, absl::Status>> changed;
  for (const auto& [id, record] : ArraysOn(x)) {
    ArrayRecord& a = *record;
    if (!IsNeeded(id, a) && !MayBeGivenBack(id, a, started_ids)) continue;
    std::vector<int64_t> lost;
    for (int32_t d = 0; d < x.info.num_devices; ++d) {
      if (!IsHeldOn(a, x, d) || is_listed(d, &Device::ready, id)) continue;
      const bool deleted = made_results.count(id) > 0 && !is_listed(d, &Device::expected, id) &&
                           !is_listed(d, &Device::failed, id);
      const bool scheduled = a.state == ArrayState::kScheduled || a.state == ArrayState::kWriting;
      if (a.state == ArrayState::kReady || (scheduled && deleted))
        lost.push_back(x.first_device + d);
    }
    if (!lost.empty()) changed.emplace_back(id, DropHolders(id, a, lost, errors));
  }
  for (const auto& [id, error] : changed) {
    if (!error.ok()) {
      LoseArray(id, error);
      continue;
    }
    // The transfers that are under way may read the shards that are gone.
    if (const ArrayRecord* const a = catalogue_.FindArray(id))
      for (uint64_t reader : IdSet(a->readers))
        if (const Operation* const op = order_.Find(reader);
            op != nullptr && op->sequence != 0 && std::holds_alternative<Transfer>(op->work))
          Fail(reader,
               Error(ErrorKind::kWorkerLost, "operation ", reader, " (", op->name, "): executor ",
                     x.name, " came back without array ", id, "; run it again"));
    UseOtherHolders(id, x.name);
  }
}

// Returns whether the shards of the array are needed. An array that is donated to an operation
// which has not begun is deleted, but needed.
bool Machine::IsNeeded(uint64_t id, const ArrayRecord& a) const {
  return a.error.ok() && (!a.deleted || !a.unscheduled_readers.empty() || IsKeptOriginal(id, a));
}

bool Machine::IsHeldOn(const ArrayRecord& a, const Executor& x, int32_t local_index) {
  const auto holder = a.holders.find(x.first_device + local_index);
  return holder != a.holders.end() && holder->second == x.info.incarnation;
}

void Machine::AdoptArrays(const Executor& x, const api::ExecutorInventory& inventory) {
  std::vector<uint64_t> unknown;
  for (uint64_t id : ArraysIn(inventory))
    // If the operation that makes the array ended before it was known to have started here, the
    // record of the array names no holder.
    if (const ArrayRecord* const a = catalogue_.FindArray(id);
        a == nullptr || a->freed || !IsHeldBy(*a, x))
      unknown.push_back(id);
  std::vector<uint64_t> written;
  for (size_t d = 0; d < inventory.devices.size(); ++d)
    for (uint64_t id : inventory.devices[d].ready)
      if (ArrayRecord* const a = catalogue_.FindArray(id);
          a != nullptr && a->state == ArrayState::kWriting && IsNeeded(id, *a) &&
          IsHeldOn(*a, x, static_cast<int32_t>(d)) &&
          a->unwritten.erase(x.first_device + static_cast<int64_t>(d)) > 0 && a->unwritten.empty())
        written.push_back(id);
  for (uint64_t id : written) SetArrayReady(id);
  if (!unknown.empty()) Send(x, api::DeleteBuffers{std::move(unknown)});
}

// Restores workers and executors from their rows. Cordons and drains outlast a restart; connections
// do not. Executors are restored in the order of their device ids, because ids are assigned without
// gaps. A record whose ids are taken is dropped and logged.
void Machine::RestoreCluster(const std::vector<RowChange>& rows) {
  for (const auto& [key, record] : Records<Worker>(rows)) {
    Worker worker;
    worker.host = record->host;
    worker.host_memory_bytes = record->host_memory_bytes;
    worker.cordoned = record->cordoned;
    worker.cordon_reason = record->cordon_reason;
    cluster_.RestoreWorker(key->name, std::move(worker));
    if (record->draining) cluster_.Drain(key->name);
  }
  std::vector<std::pair<const RowKey*, const Executor*>> executors = Records<Executor>(rows);
  std::stable_sort(executors.begin(), executors.end(), [](const auto& a, const auto& b) {
    return a.second->first_device < b.second->first_device;
  });
  for (const auto& [key, x] : executors) {
    if (key->name.empty()) {
      cluster_.RestoreIds(x->first_device);
    } else if (x->first_device >= cluster_.num_ids()) {
      Executor restored = *x;
      restored.running.clear();
      restored.last_sent_sequence = 0;
      restored.adopted = false;
      restored.last_report_before_return = 0;
      restored.last_heartbeat = {};
      restored.info.has_state = false;
      restored.overdue_for.clear();
      cluster_.RestoreExecutor(std::move(restored), AwayUntil());
    } else {
      LogIncident("record of the store dropped",
                  {{"executor", key->name}, {"why", "another executor has its devices"}});
    }
  }
}

}  // namespace tessera::server::scheduler
