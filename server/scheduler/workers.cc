// Workers and executors: registration, reports and loss. The driver passes registrations, reports
// and broken connections as events. Reports about arrays, programs and operations are handled in
// the files for these.
#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "server/scheduler/machine.h"
#include "server/scheduler/replicas.h"

namespace tessera::server::scheduler {
namespace {

// Fails every operation on the lost executor, and returns these operations. The one that was
// running comes first, because its error is the cause of the errors of the others.
std::vector<uint64_t> FailOperations(Machine& m, const std::string& executor, uint64_t running,
                                     const std::string& op_text, const std::string& who) {
  Order& order = m.state().order;
  std::vector<uint64_t> affected;
  for (uint64_t id : order.live())
    if (order.operation(id).outstanding.count(executor) > 0) affected.push_back(id);
  for (uint64_t id : IdSet(order.lingering())) {
    Operation& op = order.operation(id);
    if (!op.inputs_gone && op.outstanding.count(executor) > 0) {
      op.inputs_gone = true;
      m.MarkChanged(op);
    }
    m.RecordExecutorLeft(op, executor);
  }
  if (running != 0)
    std::stable_partition(affected.begin(), affected.end(),
                          [&](uint64_t id) { return id == running; });
  for (uint64_t id : affected) {
    Operation& op = order.operation(id);
    op.inputs_gone = true;
    m.RecordExecutorLeft(op, executor);
    std::string message = absl::StrCat("operation ", id, " (", op.name, "): ", who);
    if (id == running) {
      absl::StrAppend(&message, "; it was running this operation");
      if (!op_text.empty()) absl::StrAppend(&message, ", op ", op_text);
    }
    absl::StrAppend(&message, "; run it again from inputs that still exist");
    m.Fail(id, MakeError(ErrorKind::kWorkerLost, std::move(message)));
  }
  return affected;
}

}  // namespace

// Refuses the name of a connected worker. If two workers took a name from each other in turns, all
// arrays would be lost each time.
absl::Status Machine::CheckNotConnected(const api::Registration& r) const {
  auto* const it = cluster_.FindWorker(r.worker);
  if (it == nullptr || it->registration_id == 0) return absl::OkStatus();
  return Error(ErrorKind::kAlreadyExists, "registration: a worker named ", r.worker,
               " is connected, from host ", it->host,
               "; choose another --name, or stop that one first");
}

bool Machine::MayForget(const Worker& worker) const {
  return worker.registration_id == 0 && !cluster_.AnyAway(worker);
}

absl::Status Machine::CheckRegistration(const api::Registration& r) const {
  const bool may_forget_one = std::any_of(
      cluster_.workers().begin(), cluster_.workers().end(),
      [this](const auto& known) { return !known.first.empty() && MayForget(known.second); });
  if (cluster_.FindWorker(r.worker) == nullptr && !may_forget_one &&
      static_cast<int64_t>(cluster_.workers().size()) >= s_.config.workers_max)
    return Error(ErrorKind::kLimitExceeded, "registration: ", cluster_.workers().size(),
                 " workers are known, at most ", s_.config.workers_max, " are accepted");
  if (r.opset < ir::kOpset)
    return Error(ErrorKind::kUnknownOp, "registration: worker ", r.worker, " runs op set ", r.opset,
                 ", this coordinator needs ", ir::kOpset, "; upgrade the worker");
  for (const api::ExecutorInfo& info : r.executors) {
    auto* const it = cluster_.FindExecutor(ExecutorName(r.worker, info.index));
    if (it == nullptr) continue;
    const api::ExecutorInfo& was = it->info;
    if (was.incarnation == 0) continue;  // restored from an earlier life; it has no state to lose
    if (info.num_devices != was.num_devices || info.device_kind != was.device_kind)
      return Error(ErrorKind::kValueError, "registration: executor ", it->name, " comes with ",
                   info.num_devices, " ", info.device_kind, " devices, it had ", was.num_devices,
                   " ", was.device_kind, "; give the worker another name");
  }
  return absl::OkStatus();
}

// Registers a worker. If the registration is refused, the connection is dropped and nothing else
// changes. Otherwise the worker learns which of its processes are adopted. Executors without state
// are up at once. Adopted executors follow once their inventory has come (Adopt).
void Machine::On(const WorkerRegistered& e) {
  const api::Registration& r = e.registration;
  absl::Status checked = CheckNotConnected(r);
  if (checked.ok()) checked = CheckRegistration(r);
  if (!checked.ok()) {
    LogIncident(
        "worker refused",
        {{"worker", r.worker}, {"host", r.host}, {"session", absl::StrCat(e.registration_id)}},
        checked);
    effects_.emplace_back(DropWorker{e.registration_id, checked});
    return;
  }
  if (cluster_.FindWorker(r.worker) == nullptr &&
      static_cast<int64_t>(cluster_.workers().size()) >= s_.config.workers_max) {
    // Forgets the lost worker that was seen longest ago, to make room.
    const std::string* oldest = nullptr;
    for (const auto& [name, known] : cluster_.workers())
      if (!name.empty() && MayForget(known) &&
          (oldest == nullptr || known.last_seen < cluster_.worker(*oldest).last_seen))
        oldest = &name;
    if (oldest != nullptr) Forget(std::string(*oldest));
  }
  Worker& w = cluster_.Connect(r.worker, e.registration_id);
  // The worker sends nothing before it hears that it is accepted, and it hears that now.
  w.last_seen = now_ + s_.lag;
  w.host = r.host;
  w.host_memory_bytes = r.host_memory_bytes;
  w.build = r.build;
  MarkChanged(core::RowKind::kWorker, r.worker);
  AcceptWorker accept{e.registration_id, {}};
  w.executors_not_adopted = 0;
  for (const api::ExecutorInfo& info : r.executors) {
    if (!info.has_state) continue;
    if (MayAdopt(ExecutorName(r.worker, info.index), info)) {
      accept.adopted.push_back({info.index, info.incarnation});
    } else {
      ++w.executors_not_adopted;
    }
  }
  effects_.emplace_back(std::move(accept));
  if (w.executors_not_adopted > 0) {
    Note(core::ExecutorsNotAdopted{r.worker, w.executors_not_adopted});
    LogIncident("executors not adopted",
                {{"worker", r.worker},
                 {"host", r.host},
                 {"executors", absl::StrCat(w.executors_not_adopted)},
                 {"why", "this coordinator does not know what they hold; they are replaced"}});
  }
  Arm(w.last_seen + s_.config.lease, kLeaseTimer, e.registration_id);
  Log("worker ", r.worker, " registered");
  // An executor that was known and comes without state has not heard of an earlier acceptance, so
  // no command has reached it, and it counts as back with nothing. An executor that comes with
  // state is there once it has said what it holds (Adopt). If it is not adopted, its worker starts
  // another process in its place.
  for (const api::ExecutorInfo& info : r.executors) {
    if (info.has_state) continue;
    const std::string name = ExecutorName(r.worker, info.index);
    if (MayAdopt(name, info)) {
      Adopt(cluster_.executor(name), {});
    } else {
      RegisterExecutor(r.worker, r.host, info);
    }
  }
  cluster_.ShareMemory(r.host);
  RetryBlocked();
}

void Machine::RegisterExecutor(const std::string& worker, const std::string& host,
                               const api::ExecutorInfo& info) {
  const std::string name = ExecutorName(worker, info.index);
  // Forgets an executor of an earlier life that had other devices.
  if (auto* const known = cluster_.FindExecutor(name);
      known != nullptr && known->info.incarnation == 0 &&
      (known->info.num_devices != info.num_devices || known->info.device_kind != info.device_kind))
    ForgetExecutor(name);
  if (auto* const known = cluster_.FindExecutor(name); known != nullptr && known->away)
    LoseExecutor(name, "another process took its place while it was away", 0, "");
  const bool added = cluster_.RegisterExecutor(worker, host, info);
  MarkChanged(core::RowKind::kExecutor, name);
  if (!added) RestartCompileTimeouts(name);
}

std::string Machine::SilenceOf(const Executor& x) const {
  if (!x.alive() || x.last_heartbeat.silence <= absl::ZeroDuration()) return "";
  return absl::StrCat(
      "it has not answered its worker for ",
      absl::FormatDuration(absl::Trunc(x.last_heartbeat.silence, absl::Milliseconds(100))));
}

std::string Machine::NameWithSilence(const std::string& executor) const {
  const std::string silence = SilenceOf(cluster_.executor(executor));
  return absl::StrCat("executor ", executor,
                      silence.empty() ? "" : absl::StrCat(" (", silence, ")"));
}

void Machine::MarkOverdue(const std::string& executor, const std::string& who) {
  Executor& x = cluster_.executor(executor);
  if (!x.alive()) return;
  x.overdue_for = who;
  KillIfOverdue(x);
}

void Machine::MarkLoadersOverdue(const Executable& executable, const std::string& who) {
  if (executable.state != ExecutableState::kPlanned) return;
  for (const std::string& member : executable.members)
    if (executable.loaded_on.count(member) == 0) MarkOverdue(member, who);
}

bool Machine::MayKillForSilence(const Executor& x) {
  if (Responsive(x)) return false;
  if (x.last_heartbeat.silence >= s_.config.outage_grace) return true;
  const std::vector<ArrayTable::Entry> arrays = ArraysOn(x);
  return std::none_of(arrays.begin(), arrays.end(), [&](const ArrayTable::Entry& entry) {
    const ArrayRecord& a = *entry.record;
    return a.error.ok() && a.tenant != core::kSystemTenant && IsHeldBy(a, x);
  });
}

void Machine::KillIfOverdue(Executor& x) {
  if (x.overdue_for.empty() || !MayKillForSilence(x)) return;
  std::string reason = absl::StrCat("killed: it does not answer its worker, and ", x.overdue_for,
                                    " has waited for it in vain");
  x.overdue_for.clear();
  Log("executor ", x.name, " ", reason);
  Send(x, api::KillExecutor{std::move(reason)});
}

void Machine::On(const DeleteWorker& e) {
  auto* const it = cluster_.FindWorker(e.worker);
  if (it == nullptr || e.worker.empty()) return Answer(e.request, NoWorkerError(e.worker));
  if (it->registration_id != 0)
    return Answer(e.request, Error(ErrorKind::kValueError, "worker ", e.worker,
                                   " is connected; drain it and stop it first"));
  Answer(e.request, WorkerInfoWithArrays(e.worker));
  Forget(e.worker);
}

void Machine::Forget(const std::string& worker) {
  AnswerDrains(worker);
  const std::vector<std::string> executors = cluster_.worker(worker).executors;
  for (const std::string& name : executors) ForgetExecutor(name);
  cluster_.RemoveWorker(worker);
  MarkChanged(core::RowKind::kWorker, worker);
  Log("worker ", worker, " deleted");
  RetryHeld();
}

// Removes an executor that will not come back. The executables that have it as a member, the
// operations that would run on it and the arrays that would be made on it fail first. Arrays that
// others hold stay, although their placements name devices that do not exist any more. The ids of
// these devices stay assigned, because ids are never reused.
void Machine::ForgetExecutor(const std::string& name) {
  // Operations that were sent to an executor that is away still wait for it.
  if (cluster_.executor(name).away) LoseExecutor(name, "its worker was deleted", 0, "");
  const Executor x = cluster_.executor(name);
  const absl::Status gone = Error(ErrorKind::kWorkerLost, "executor ", name, " of worker ",
                                  x.worker, " is lost (its worker was deleted)");
  std::vector<uint64_t> executables, operations;
  for (const auto& [id, executable] : catalogue_.executables())
    if (std::find(executable.members.begin(), executable.members.end(), name) !=
        executable.members.end())
      executables.push_back(id);
  for (uint64_t id : executables) FailExecutable(id, gone);
  for (uint64_t id : order_.live()) {
    const std::vector<std::string> on = ExecutorsOf(order_.operation(id));
    if (std::find(on.begin(), on.end(), name) != on.end()) operations.push_back(id);
  }
  for (uint64_t id : operations) Fail(id, gone);
  const std::vector<ArrayTable::Entry> arrays = ArraysOn(x);
  const absl::Status lost = Error(ErrorKind::kWorkerLost, "lost with its shards on executor ", name,
                                  " of worker ", x.worker, ", which was deleted; make it again");
  // An array that is ready has lost its shards on this executor before (LoseExecutor), and others
  // have them.
  std::vector<uint64_t> unmade;
  for (const auto& [id, record] : arrays)
    if (record->state == ArrayState::kPlanned) unmade.push_back(id);
  for (uint64_t id : unmade) LoseArray(id, lost);
  for (const auto& [id, record] : arrays)
    if (auto* const a = catalogue_.FindArray(id); a != nullptr) {
      for (int32_t d = 0; d < x.info.num_devices; ++d) a->holders.erase(x.first_device + d);
      MarkChanged(id, *a);
    }
  cluster_.RemoveExecutor(name);
  MarkChanged(core::RowKind::kExecutor, name);
  MarkChanged(core::RowKind::kExecutor, "");  // the row with the number of assigned ids
}

void Machine::RetryBlocked() {
  for (uint64_t op : IdSet(order_.blocked())) TryStart(op);
  std::vector<uint64_t> creates;
  std::vector<std::pair<uint64_t, uint64_t>> reads;  // request, array
  std::set<uint64_t> executables;
  for (const auto& [request, w] : s_.waiters) {
    if (std::holds_alternative<CreateWait>(w.wait)) creates.push_back(request);
    if (const auto* wait = std::get_if<ReadWait>(&w.wait);
        wait != nullptr && wait->executor.empty())
      if (const ArrayRecord* a = catalogue_.FindArray(wait->array);
          a != nullptr && a->state == ArrayState::kReady)
        reads.emplace_back(request, wait->array);
    if (const auto* wait = std::get_if<CompileWait>(&w.wait)) executables.insert(wait->executable);
  }
  for (const auto& [request, array] : reads) TrySendRead(request, catalogue_.array(array));
  for (uint64_t request : creates) {
    const CreateWait wait = *WaitOf<CreateWait>(request);
    if (TryCreate(wait.call, wait.session)) EndWait(request);
  }
  for (uint64_t id : executables)
    if (catalogue_.executable(id).state == ExecutableState::kPlanned) LoadWhereAlive(id);
}

void Machine::OnLeaseTimer(uint64_t registration_id) {
  const std::string* const known = cluster_.WorkerOf(registration_id);
  if (known == nullptr) return;
  const std::string worker = *known;
  const absl::Time ends = cluster_.worker(worker).last_seen + s_.config.lease;
  if (ends > now_) return Arm(ends, kLeaseTimer, registration_id);
  const std::string why = absl::StrCat("it was silent for ", absl::FormatDuration(s_.config.lease));
  Note(core::LeaseExpired{worker});
  effects_.emplace_back(DropWorker{registration_id, Error(ErrorKind::kWorkerLost, "worker ", worker,
                                                          " is away: ", why, "; register anew")});
  BeginAway(worker, why);
}

void Machine::On(const WorkerGone& e) {
  const std::string* const known = cluster_.WorkerOf(e.registration_id);
  if (known == nullptr) return;
  const std::string worker = *known;
  BeginAway(worker, e.why.ok() ? "its connection ended" : std::string(e.why.message()));
}

void Machine::On(const ExecutorGone& e) {
  const std::string* const worker = cluster_.WorkerOf(e.registration_id);
  if (worker == nullptr) return;
  Executor* const x = cluster_.FindExecutor(ExecutorName(*worker, e.executor));
  if (x == nullptr || x->info.incarnation != e.incarnation ||
      x->last_registration_id != e.registration_id)
    return;
  x->attachment = e.attachment;
  if (x->alive()) BeginAway(*x, e.why.ok() ? "its connection ended" : std::string(e.why.message()));
}

void Machine::LoseWorker(const std::string& worker, const std::string& reason) {
  const Worker& w = cluster_.worker(worker);
  const uint64_t registration_id = w.registration_id;
  // Marks all executors of the worker as lost first, so that no command is sent to one of them.
  const std::vector<std::string> lost = cluster_.Disconnect(worker, reason);
  Log("worker ", worker, " lost");
  LogIncident("worker lost", {{"worker", worker},
                              {"host", w.host},
                              {"session", absl::StrCat(registration_id)},
                              {"why", reason}});
  cluster_.ShareMemory(w.host);
  for (const std::string& name : lost) LoseExecutor(name, reason, 0, "");
}

std::vector<ArrayTable::Entry> Machine::ArraysOn(const Executor& x) {
  if (x.info.num_devices == 1) return catalogue_.ArraysOn(x.first_device);
  std::vector<ArrayTable::Entry> arrays;
  for (int32_t d = 0; d < x.info.num_devices; ++d) {
    const std::vector<ArrayTable::Entry>& on = catalogue_.ArraysOn(x.first_device + d);
    arrays.insert(arrays.end(), on.begin(), on.end());
  }
  const auto less = [](const auto& a, const auto& b) { return a.id < b.id; };
  const auto same = [](const auto& a, const auto& b) { return a.id == b.id; };
  std::sort(arrays.begin(), arrays.end(), less);
  arrays.erase(std::unique(arrays.begin(), arrays.end(), same), arrays.end());
  return arrays;
}

bool Machine::IsHeldBy(const ArrayRecord& a, const Executor& x) {
  const auto last = a.holders.lower_bound(x.first_device + x.info.num_devices);
  for (auto holder = a.holders.lower_bound(x.first_device); holder != last; ++holder)
    if (holder->second == x.info.incarnation) return true;
  return false;
}

// Handles the loss of an executor's process: operations on it fail, arrays of which it alone had a
// shard are lost, communicators close, and compiled programs are forgotten. Arrays that nothing
// uses are marked in the first pass. The others are failed afterwards, because that may remove
// records from the list that the pass walks over.
void Machine::LoseExecutor(const std::string& name, const std::string& reason, uint64_t launch,
                           const std::string& op_text) {
  Executor& x = cluster_.executor(name);
  const uint64_t incarnation = x.info.incarnation;
  x.registration_id = 0;
  x.lost_reason = reason;
  cluster_.EndAway(x);
  MarkChanged(core::RowKind::kExecutor, name);
  const std::string who = absl::StrCat("worker ", x.worker, ": executor ", name, " (incarnation ",
                                       incarnation, ") was lost: ", reason);
  std::vector<uint64_t> inspections;
  for (const auto& [request, w] : s_.waiters)
    if (const auto* wait = std::get_if<InspectWait>(&w.wait); wait && wait->executor == name)
      inspections.push_back(request);
  EndWaits(inspections, Error(ErrorKind::kWorkerLost, "files: ", who, "; retry"));
  x.running.clear();
  const std::vector<uint64_t> affected = FailOperations(*this, name, launch, op_text, who);
  LossErrors errors(
      Error(ErrorKind::kWorkerLost, "lost with its shards on ", who, "; make it again"),
      absl::StrCat(" of ", who, "; make it again"));
  std::vector<int64_t> devices(x.info.num_devices);
  std::iota(devices.begin(), devices.end(), x.first_device);
  int64_t num_lost = 0;
  std::vector<uint64_t> kept;                           // arrays of which others have every shard
  std::vector<std::pair<uint64_t, absl::Status>> used;  // lost arrays that something uses
  for (const auto& [id, record] : ArraysOn(x)) {
    ArrayRecord& a = *record;
    if (!a.error.ok() || !IsHeldBy(a, x)) continue;
    const absl::Status lost = DropHolders(id, a, devices, errors);
    if (lost.ok()) {
      kept.push_back(id);
      continue;
    }
    ++num_lost;
    if (a.waiters.empty() && a.readers.empty() && !a.deleted) {
      MarkFailed(id, a, lost, ArrayState::kLost);
    } else {
      used.emplace_back(id, lost);
    }
  }
  if (num_lost > 0) Note(core::ArraysLost{num_lost});
  LogIncident("executor lost", {{"executor", name},
                                {"worker", x.worker},
                                {"incarnation", absl::StrCat(incarnation)},
                                {"operation", absl::StrCat(launch)},
                                {"op", op_text},
                                {"operations_lost", absl::StrCat(affected.size())},
                                {"arrays_lost", absl::StrCat(num_lost)},
                                {"arrays_kept", absl::StrCat(kept.size())},
                                {"why", reason}});
  for (const auto& [id, lost] : used) LoseArray(id, lost);
  for (uint64_t id : kept) UseOtherHolders(id, name);
  for (const auto& [generation, members] : order_.CloseCommunicatorsWith(name, incarnation))
    CloseCommunicator(generation, members);
  // Operations whose programs it had compiled, or was compiling, wait for the executor from now on.
  for (uint64_t op : catalogue_.MarkUnloaded(name)) TryStart(op);
  RestartCompileTimeouts(name);
  // From now on, operations that were held by a drain wait for the executor to come back, and this
  // wait has a timeout.
  if (!order_.held().empty()) RetryHeld();
}

void Machine::OnProcessEnd(const Executor* x, uint64_t incarnation, const std::string& reason,
                           uint64_t launch, const std::string& op) {
  if (x == nullptr || (!x->alive() && !x->away) || x->info.incarnation != incarnation) return;
  LoseExecutor(std::string(x->name), reason, launch, op);
}

// Passes a report to the HandleReport function for its type. Every report is a sign of life of the
// worker. A report of an incarnation other than the executor's current one is ignored. So is a
// report from before the executor came back, if its inventory contains the same fact. The end of a
// process counts even if its worker's connection has ended.
void Machine::On(const WorkerReported& e) {
  if (const auto* farewell = std::get_if<api::ExecutorFarewell>(&e.report.body))
    return OnProcessEnd(cluster_.FindExecutorOf(e.registration_id, e.report.executor),
                        e.report.incarnation, farewell->reason, 0, "");
  const std::string* const known = cluster_.WorkerOf(e.registration_id);
  if (known == nullptr) return;
  const std::string worker = *known;
  absl::Time& last_seen = cluster_.worker(worker).last_seen;
  last_seen = std::max(last_seen, now_);
  if (const auto* beat = std::get_if<api::Heartbeat>(&e.report.body))
    return HandleReport(worker, *beat);
  if (const auto* ready = std::get_if<api::ExecutorReady>(&e.report.body))
    return HandleReport(worker, e.registration_id, *ready);
  Executor* const x = cluster_.FindExecutor(ExecutorName(worker, e.report.executor));
  if (const auto* lost = std::get_if<api::ExecutorLost>(&e.report.body))
    return OnProcessEnd(x, e.report.incarnation, lost->reason, lost->launch, lost->op);
  if (const auto* inventory = std::get_if<api::ExecutorInventory>(&e.report.body)) {
    if (x != nullptr && x->away && x->info.incarnation == e.report.incarnation)
      Adopt(*x, *inventory);
    return;
  }
  // Reports of an earlier incarnation are ignored.
  if (x == nullptr || !x->alive() || x->info.incarnation != e.report.incarnation) return;
  // The inventory of an executor that came back contains what was written or loaded before, unless
  // they are gone since.
  const auto* const written = std::get_if<api::BufferWritten>(&e.report.body);
  const auto* const loaded = std::get_if<api::ProgramLoaded>(&e.report.body);
  if (e.report.number != 0 && e.report.number <= x->last_report_before_return &&
      ((written != nullptr && written->status.ok()) || (loaded != nullptr && loaded->status.ok())))
    return;
  std::visit(
      [&](const auto& report) {
        using Body = std::decay_t<decltype(report)>;
        if constexpr (!std::is_same_v<Body, api::Heartbeat> &&
                      !std::is_same_v<Body, api::ExecutorReady> &&
                      !std::is_same_v<Body, api::ExecutorLost> &&
                      !std::is_same_v<Body, api::ExecutorFarewell> &&
                      !std::is_same_v<Body, api::ExecutorInventory>)
          HandleReport(*x, report);
      },
      e.report.body);
}

void Machine::HandleReport(const std::string& worker, const api::Heartbeat& beat) {
  for (const api::Heartbeat::Executor& seen : beat.executors) {
    auto* const it = cluster_.FindExecutor(ExecutorName(worker, seen.executor));
    if (it == nullptr) continue;
    Executor& x = *it;
    // A fault may have ended the executor.
    RecordFault(x, seen.fault);
    if (!x.alive()) continue;
    x.progress_age = seen.progress_age;
    const bool was_responsive = Responsive(x);
    x.last_heartbeat = seen;
    if (was_responsive && !Responsive(x)) {
      LogIncident("executor away", {{"executor", x.name},
                                    {"worker", x.worker},
                                    {"incarnation", absl::StrCat(x.info.incarnation)},
                                    {"why", SilenceOf(x)}});
      AnswerFailFastWaits();
    }
    if (seen.silence <= absl::ZeroDuration()) x.overdue_for.clear();
    KillIfOverdue(x);
  }
}

void Machine::HandleReport(const std::string& worker, uint64_t registration_id,
                           const api::ExecutorReady& ready) {
  api::Registration one{.worker = worker, .host = "", .executors = {ready.info}};
  if (absl::Status s = CheckRegistration(one); !s.ok()) {
    LogIncident("worker refused", {{"worker", worker}, {"session", absl::StrCat(registration_id)}},
                s);
    effects_.emplace_back(DropWorker{registration_id, s});
    return LoseWorker(worker, std::string(s.message()));
  }
  const std::string name = ExecutorName(worker, ready.info.index);
  auto* const was = cluster_.FindExecutor(name);
  if (was != nullptr && was->alive()) LoseExecutor(name, "another process took its place", 0, "");
  const std::string host = cluster_.worker(worker).host;
  RegisterExecutor(worker, host, ready.info);
  cluster_.ShareMemory(host);
  RetryBlocked();
}

void Machine::HandleReport(Executor& x, const api::LaunchDone& done) {
  KeepInlined(x, done);
  for (const api::LinkSpeed& link : done.links)
    (link.between_executors ? x.between_executors : x.in_executor) = {link.bytes_per_second,
                                                                      link.latency_seconds};
  if (auto* const op = order_.Find(done.launch); op != nullptr) {
    op->run_longest = std::max(op->run_longest, done.run_time);
    op->run_total += done.run_time * x.info.num_devices;
    ++x.launches_succeeded;
    const Executable* const program = ExecutableOf(*op);
    if (program != nullptr && program->plan != nullptr && !program->plan->collectives.empty())
      ++x.collective_launches_succeeded;
  }
  HandleLaunchEnd(x, done.launch, absl::OkStatus());
}

void Machine::HandleReport(Executor& x, const api::LaunchFailed& failed) {
  HandleLaunchEnd(
      x, failed.launch,
      failed.status.ok() ? absl::InternalError("the executor gave no reason") : failed.status,
      failed.inputs_kept);
}

void Machine::HandleReport(Executor& x, const api::BufferRead& read) {
  const auto* wait = WaitOf<ReadWait>(read.request);
  if (wait == nullptr || wait->executor != x.name) return;
  EndWait(read.request);
  Answer(read.request, read.value);
}

// A communicator that could not be opened is only logged: the executor fails the launches that use
// it.
void Machine::HandleReport(Executor& x, const api::CommunicatorReady& ready) {
  if (ready.status.ok()) return;
  LogIncident(
      "communicator not opened",
      {{"executor", x.name}, {"worker", x.worker}, {"generation", absl::StrCat(ready.generation)}},
      ready.status);
}

}  // namespace tessera::server::scheduler
