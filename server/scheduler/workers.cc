// Workers and executors: come, report, go, come back.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {
namespace {

std::string ExecutorName(const std::string& worker, int32_t index) {
  return absl::StrCat(worker, "/", index);
}

}  // namespace

// Whoever has a name keeps it while it gives signs of life: two that took it from each other would
// lose each other's arrays for ever.
absl::Status Machine::CheckName(const api::Registration& r) const {
  const auto it = s_.workers.find(r.worker);
  if (it == s_.workers.end() || it->second.session == 0) return absl::OkStatus();
  return MakeError(
      ErrorKind::kAlreadyExists,
      absl::StrCat("registration: a worker named ", r.worker, " is connected, from host ",
                   it->second.host, "; choose another --name, or stop that one first"));
}

absl::Status Machine::CheckRegistration(const api::Registration& r) const {
  const bool room = std::any_of(s_.workers.begin(), s_.workers.end(), [](const auto& known) {
    return known.second.session == 0 && !known.first.empty();
  });
  if (s_.workers.count(r.worker) == 0 && !room &&
      static_cast<int64_t>(s_.workers.size()) >= s_.config.workers_max)
    return MakeError(ErrorKind::kLimitExceeded,
                     absl::StrCat("registration: ", s_.workers.size(),
                                  " workers are known, at most ", s_.config.workers_max, " are"));
  if (r.opset < ir::kOpset)
    return MakeError(ErrorKind::kUnknownOp,
                     absl::StrCat("registration: worker ", r.worker, " runs op set ", r.opset,
                                  ", this coordinator needs ", ir::kOpset, "; upgrade the worker"));
  for (const api::ExecutorInfo& info : r.executors) {
    const auto it = s_.executors.find(ExecutorName(r.worker, info.index));
    if (it == s_.executors.end()) continue;
    const api::ExecutorInfo& was = it->second.info;
    if (was.incarnation == 0) continue;  // of an earlier life: what was there is gone
    if (info.incarnation == was.incarnation)
      return MakeError(
          ErrorKind::kValueError,
          absl::StrCat("registration: executor ", it->first, " comes with incarnation ",
                       info.incarnation, " again; start it anew with another one"));
    if (info.num_devices != was.num_devices || info.device_kind != was.device_kind)
      return MakeError(
          ErrorKind::kValueError,
          absl::StrCat("registration: executor ", it->first, " comes with ", info.num_devices, " ",
                       info.device_kind, " devices, it had ", was.num_devices, " ", was.device_kind,
                       "; give the worker another name"));
  }
  return absl::OkStatus();
}

void Machine::On(const WorkerRegistered& e) {
  const api::Registration& r = e.registration;
  absl::Status taken = CheckName(r);
  if (taken.ok()) taken = CheckRegistration(r);
  if (!taken.ok()) {
    Tell("worker refused",
         {{"worker", r.worker}, {"host", r.host}, {"session", absl::StrCat(e.session)}}, taken);
    effects_.emplace_back(DropWorker{e.session, taken});
    return;
  }
  if (s_.workers.count(r.worker) == 0 &&
      static_cast<int64_t>(s_.workers.size()) >= s_.config.workers_max) {
    // The one that was heard of longest ago gives way.
    const std::string* oldest = nullptr;
    for (const auto& [name, known] : s_.workers)
      if (known.session == 0 && !name.empty() &&
          (oldest == nullptr || known.last_seen < s_.workers.at(*oldest).last_seen))
        oldest = &name;
    if (oldest != nullptr) Forget(std::string(*oldest));
  }
  Worker& w = s_.workers[r.worker];
  w.session = e.session;
  effects_.emplace_back(AcceptWorker{e.session});
  w.last_seen = now_;
  w.host = r.host;
  w.host_memory_bytes = r.host_memory_bytes;
  w.lost_reason.clear();
  s_.registrations[e.session] = r.worker;
  Arm(now_ + s_.config.lease, kLeaseTimer, e.session);
  Log(absl::StrCat("worker ", r.worker, " registered"));
  for (const api::ExecutorInfo& info : r.executors) Up(r.worker, r.host, e.session, info);
  ShareMemory(r.host);
  Retry();
}

void Machine::Up(const std::string& worker, const std::string& host, uint64_t session,
                 const api::ExecutorInfo& info) {
  const std::string name = ExecutorName(worker, info.index);
  // One of an earlier life that had other devices than this one.
  if (const auto known = s_.executors.find(name);
      known != s_.executors.end() && known->second.info.incarnation == 0 &&
      (known->second.info.num_devices != info.num_devices ||
       known->second.info.device_kind != info.device_kind))
    ForgetExecutor(name);
  auto [it, added] = s_.executors.try_emplace(name);
  Executor& x = it->second;
  if (added) {
    x.name = name;
    x.worker = worker;
    x.first_device = static_cast<int64_t>(s_.devices.size());
    for (int32_t d = 0; d < info.num_devices; ++d) s_.devices.push_back({name, d});
    s_.workers.at(worker).executors.push_back(name);
    keep_ = true;
  }
  x.host = host;
  x.session = session;
  x.info = info;
  x.lost_reason.clear();
  x.seen = {};
  x.missed_by.clear();
  if (!added) RestartLoadWaits(name);
}

std::string Machine::SilenceOf(const Executor& x) const {
  if (!x.alive() || x.seen.silence <= absl::ZeroDuration()) return "";
  return absl::StrCat("it has not answered its worker for ",
                      absl::FormatDuration(absl::Trunc(x.seen.silence, absl::Milliseconds(100))));
}

std::string Machine::NotInTime(const std::string& executor) const {
  const std::string silence = SilenceOf(s_.executors.at(executor));
  return absl::StrCat("executor ", executor,
                      silence.empty() ? "" : absl::StrCat(" (", silence, ")"));
}

void Machine::Miss(const std::string& executor, const std::string& who) {
  Executor& x = s_.executors.at(executor);
  if (!x.alive()) return;
  x.missed_by = who;
  KillIfMissed(x);
}

void Machine::MissThoseThatLoad(const Executable& executable, const std::string& who) {
  if (executable.state != ExecutableState::kPlanned) return;
  for (const std::string& member : executable.members)
    if (executable.loaded.count(member) == 0) Miss(member, who);
}

void Machine::KillIfMissed(Executor& x) {
  if (x.missed_by.empty() || Responsive(x)) return;
  std::string reason = absl::StrCat("killed: it does not answer its worker, and ", x.missed_by,
                                    " has waited for it in vain");
  x.missed_by.clear();
  Log(absl::StrCat("executor ", x.name, " ", reason));
  Send(x, api::KillExecutor{std::move(reason)});
}

void Machine::Restore(const std::vector<core::KnownExecutor>& executors) {
  constexpr char kAway[] = "it has not come back since the coordinator restarted";
  for (const core::KnownExecutor& known : executors) {
    const std::string name = ExecutorName(known.worker, known.index);
    Worker& w = s_.workers[known.worker];
    w.last_seen = absl::InfinitePast();
    w.lost_reason = kAway;
    w.executors.push_back(name);
    Executor& x = s_.executors[name];
    x.name = name;
    x.worker = known.worker;
    x.first_device = known.first_device;
    x.lost_reason = kAway;
    x.info.index = known.index;
    x.info.device_kind = known.device_kind;
    x.info.num_devices = known.num_devices;
    while (static_cast<int64_t>(s_.devices.size()) < known.first_device) DeleteDevice({});
    for (int32_t d = 0; d < known.num_devices; ++d) s_.devices.push_back({name, d});
  }
}

void Machine::DeleteDevice(std::optional<int64_t> device) {
  if (s_.devices_deleted++ == 0) {
    s_.workers[""].lost_reason = s_.executors[""].lost_reason = "its worker was deleted";
  }
  if (device) {
    s_.devices[*device] = {"", 0};
  } else {
    s_.devices.push_back({"", 0});
  }
}

std::vector<core::KnownExecutor> Machine::KnownExecutors() const {
  std::vector<core::KnownExecutor> known;
  for (const auto& [name, x] : s_.executors)
    if (!name.empty())
      known.push_back({.worker = x.worker,
                       .device_kind = x.info.device_kind,
                       .index = x.info.index,
                       .num_devices = x.info.num_devices,
                       .first_device = x.first_device});
  std::sort(known.begin(), known.end(),
            [](const auto& a, const auto& b) { return a.first_device < b.first_device; });
  return known;
}

void Machine::On(const DeleteWorker& e) {
  const auto it = s_.workers.find(e.worker);
  if (it == s_.workers.end() || e.worker.empty()) return Answer(e.request, NoWorker(e.worker));
  if (it->second.session != 0)
    return Answer(e.request, MakeError(ErrorKind::kValueError,
                                       absl::StrCat("worker ", e.worker,
                                                    " is connected; drain it and stop it first")));
  AnswerWorker(e.request, e.worker);
  Forget(e.worker);
}

void Machine::Forget(const std::string& worker) {
  // Whoever waits for its drain has waited long enough.
  const std::set<uint64_t> drains = s_.workers.at(worker).drains;
  for (uint64_t request : drains) {
    EndWait(request);
    AnswerWorker(request, worker);
  }
  const std::vector<std::string> executors = s_.workers.at(worker).executors;
  for (const std::string& name : executors) ForgetExecutor(name);
  s_.draining.erase(worker);
  s_.workers.erase(worker);
  Log(absl::StrCat("worker ", worker, " deleted"));
  RetryHeld();
}

void Machine::ForgetExecutor(const std::string& name) {
  const Executor x = s_.executors.at(name);
  TESSERA_CHECK(!x.alive()) << name;
  const absl::Status gone =
      MakeError(ErrorKind::kWorkerLost, absl::StrCat("executor ", name, " of worker ", x.worker,
                                                     " is lost (its worker was deleted)"));
  std::vector<uint64_t> executables, operations, arrays;
  for (const auto& [id, executable] : s_.executables)
    if (std::find(executable.members.begin(), executable.members.end(), name) !=
        executable.members.end())
      executables.push_back(id);
  for (uint64_t id : executables) ExecutableFailed(id, gone);
  for (uint64_t id : s_.live) {
    const std::vector<std::string> on = ExecutorsOf(s_.operations.at(id));
    if (std::find(on.begin(), on.end(), name) != on.end()) operations.push_back(id);
  }
  for (uint64_t id : operations) Fail(id, gone);
  const auto is_its = [&x](int64_t d) {
    return d >= x.first_device && d < x.first_device + x.info.num_devices;
  };
  for (const auto& [id, a] : s_.arrays)
    if (std::any_of(a.spec.placement.devices.begin(), a.spec.placement.devices.end(), is_its))
      arrays.push_back(id);
  for (uint64_t id : arrays) ArrayFailed(id, gone, ArrayState::kLost);
  for (uint64_t id : arrays)
    if (const auto a = s_.arrays.find(id); a != s_.arrays.end())
      for (int32_t d = 0; d < x.info.num_devices; ++d) a->second.holders.erase(x.first_device + d);
  for (int32_t d = 0; d < x.info.num_devices; ++d) DeleteDevice(x.first_device + d);
  std::vector<std::string>& siblings = s_.workers.at(x.worker).executors;
  siblings.erase(std::remove(siblings.begin(), siblings.end(), name), siblings.end());
  s_.executors.erase(name);
  keep_ = true;
}

void Machine::ShareMemory(const std::string& host) {
  double offered = 0;
  int64_t there = 0;  // the least that a worker says; 0: none says
  std::vector<Executor*> executors;
  std::set<std::string> workers;
  for (auto& [name, x] : s_.executors) {
    if (!x.alive() || x.host != host) continue;
    x.memory_bytes = x.info.memory_bytes;
    if (x.info.device_kind != "cpu") continue;  // has its own
    executors.push_back(&x);
    workers.insert(x.worker);
    offered += static_cast<double>(x.info.memory_bytes) * x.info.num_devices;
    const int64_t says = s_.workers.at(x.worker).host_memory_bytes;
    if (says > 0) there = there == 0 ? says : std::min(there, says);
  }
  // One alone offers what it was told to.
  if (workers.size() < 2 || there == 0 || offered <= static_cast<double>(there)) return;
  for (Executor* x : executors)
    x->memory_bytes = static_cast<int64_t>(static_cast<double>(x->info.memory_bytes) *
                                           (static_cast<double>(there) / offered));
}

std::string Machine::FirstLost(const std::vector<std::string>& executors) const {
  for (const std::string& name : executors)
    if (const Executor& x = s_.executors.at(name); !x.alive())
      return absl::StrCat("executor ", name, " of worker ", x.worker, " is lost (", x.lost_reason,
                          ")");
  return "";
}

void Machine::Retry() {
  const std::set<uint64_t> blocked = s_.blocked_on_executors;
  for (uint64_t op : blocked) TryStart(op);
  std::vector<uint64_t> creates;
  std::set<uint64_t> executables;
  for (const auto& [request, w] : s_.waiters) {
    if (w.kind == Waiter::kCreate) creates.push_back(request);
    if (w.kind == Waiter::kCompile) executables.insert(w.id);
  }
  for (uint64_t request : creates) {
    Waiter w = s_.waiters.at(request);
    if (TryCreate(request, w.id, w.spec)) EndWait(request);
  }
  for (uint64_t id : executables)
    if (s_.executables.at(id).state == ExecutableState::kPlanned) LoadWhereAlive(id);
}

void Machine::On(const WorkerGone& e) {
  const auto it = s_.registrations.find(e.session);
  if (it == s_.registrations.end()) return;
  const std::string worker = it->second;
  LoseWorker(worker, e.why.ok() ? "its connection ended" : std::string(e.why.message()));
}

void Machine::LoseWorker(const std::string& worker, const std::string& reason) {
  Worker& w = s_.workers.at(worker);
  const uint64_t session = w.session;
  for (const std::string& name : w.executors)
    if (s_.executors.at(name).session == session) s_.executors.at(name).lost_reason = reason;
  // All of them first, so that no command goes to a sibling that is gone as well.
  std::vector<std::string> lost;
  for (const std::string& name : w.executors)
    if (Executor& x = s_.executors.at(name); x.session == session && x.alive()) {
      x.session = 0;
      lost.push_back(name);
    }
  w.session = 0;
  w.lost_reason = reason;
  s_.registrations.erase(session);
  Log(absl::StrCat("worker ", worker, " lost"));
  Tell("worker lost",
       {{"worker", worker}, {"host", w.host}, {"session", absl::StrCat(session)}, {"why", reason}});
  ShareMemory(w.host);
  for (const std::string& name : lost) Lose(name, reason, 0, "");
}

void Machine::Lose(const std::string& name, const std::string& reason, uint64_t launch,
                   const std::string& op_text) {
  Executor& x = s_.executors.at(name);
  const uint64_t incarnation = x.info.incarnation;
  x.session = 0;
  x.lost_reason = reason;
  const std::string who = absl::StrCat("worker ", x.worker, ": executor ", name, " (incarnation ",
                                       incarnation, ") was lost: ", reason);
  // Who waits for it to look at a file.
  std::vector<uint64_t> asked;
  for (const auto& [request, w] : s_.waiters)
    if (w.kind == Waiter::kInspect && w.executor == name) asked.push_back(request);
  for (uint64_t request : asked) {
    EndWait(request);
    Answer(request, MakeError(ErrorKind::kWorkerLost, absl::StrCat("files: ", who, "; retry")));
  }
  // Everything that took part, the launch that ran first: its error is the cause of the others'.
  x.running.clear();
  std::vector<uint64_t> hit;
  for (uint64_t id : s_.live)
    if (s_.operations.at(id).outstanding.count(name) > 0) hit.push_back(id);
  const std::set<uint64_t> lingering = s_.lingering;
  for (uint64_t id : lingering) {
    Operation& op = s_.operations.at(id);
    op.inputs_gone = op.inputs_gone || op.outstanding.count(name) > 0;
    Left(op, name);
  }
  if (launch != 0)
    std::stable_partition(hit.begin(), hit.end(), [&](uint64_t id) { return id == launch; });
  for (uint64_t id : hit) {
    Operation& op = s_.operations.at(id);
    op.inputs_gone = true;
    Left(op, name);
    std::string message = absl::StrCat("operation ", id, " (", op.name, "): ", who);
    if (id == launch) {
      absl::StrAppend(&message, "; it was running this operation");
      if (!op_text.empty()) absl::StrAppend(&message, ", op ", op_text);
    }
    absl::StrAppend(&message, "; run it again from inputs that still exist");
    Fail(id, MakeError(ErrorKind::kWorkerLost, std::move(message)));
  }
  std::vector<uint64_t> arrays;
  for (const auto& [id, a] : s_.arrays) {
    if (!a.error.ok()) continue;
    for (int64_t d = x.first_device; d < x.first_device + x.info.num_devices; ++d)
      if (const auto h = a.holders.find(d); h != a.holders.end() && h->second == incarnation) {
        arrays.push_back(id);
        break;
      }
  }
  if (!arrays.empty()) Note(core::ArraysLost{static_cast<int64_t>(arrays.size())});
  Tell("executor lost", {{"executor", name},
                         {"worker", x.worker},
                         {"incarnation", absl::StrCat(incarnation)},
                         {"operation", absl::StrCat(launch)},
                         {"op", op_text},
                         {"operations_lost", absl::StrCat(hit.size())},
                         {"arrays_lost", absl::StrCat(arrays.size())},
                         {"why", reason}});
  for (uint64_t id : arrays)
    ArrayFailed(
        id,
        MakeError(ErrorKind::kWorkerLost, absl::StrCat("array ", id, " is lost with its shards on ",
                                                       who, "; make it again")),
        ArrayState::kLost);
  for (auto it = s_.communicators.begin(); it != s_.communicators.end();) {
    const bool member = std::find(it->first.begin(), it->first.end(),
                                  std::pair(name, incarnation)) != it->first.end();
    if (!member) {
      ++it;
      continue;
    }
    for (const auto& [other, of] : it->first) {
      const Executor& peer = s_.executors.at(other);
      if (peer.alive() && peer.info.incarnation == of)
        Send(peer, api::CloseCommunicator{it->second.generation});
    }
    it = s_.communicators.erase(it);
  }
  std::vector<uint64_t> loading;  // They wait for the executor from now on.
  for (auto& [id, executable] : s_.executables) {
    executable.loaded.erase(name);
    if (executable.sent.erase(name) == 0) continue;
    loading.insert(loading.end(), executable.operations.begin(), executable.operations.end());
  }
  for (uint64_t op : loading) TryStart(op);
  RestartLoadWaits(name);
  // What a drain holds back waits for the executor from now on, and not for ever.
  if (!s_.held.empty()) RetryHeld();
}

void Machine::On(const WorkerReported& e) {
  const auto session = s_.registrations.find(e.session);
  if (session == s_.registrations.end()) return;
  const std::string worker = session->second;
  s_.workers.at(worker).last_seen = now_;
  const api::Report& report = e.report;
  if (const auto* beat = std::get_if<api::Heartbeat>(&report.body)) {
    for (const api::Heartbeat::Executor& seen : beat->executors) {
      const auto it = s_.executors.find(ExecutorName(worker, seen.executor));
      if (it == s_.executors.end() || !it->second.alive()) continue;
      Executor& x = it->second;
      x.progress_age = seen.progress_age;
      x.seen = seen;
      if (seen.silence <= absl::ZeroDuration()) x.missed_by.clear();
      KillIfMissed(x);
    }
    return;
  }
  const std::string name = ExecutorName(worker, report.executor);
  if (const auto* ready = std::get_if<api::ExecutorReady>(&report.body)) {
    api::Registration one{.worker = worker, .host = "", .executors = {ready->info}};
    if (absl::Status s = CheckRegistration(one); !s.ok()) {
      Tell("worker refused", {{"worker", worker}, {"session", absl::StrCat(e.session)}}, s);
      effects_.emplace_back(DropWorker{e.session, s});
      return LoseWorker(worker, std::string(s.message()));
    }
    const std::string ready_name = ExecutorName(worker, ready->info.index);
    const auto was = s_.executors.find(ready_name);
    if (was != s_.executors.end() && was->second.alive())
      Lose(ready_name, "another process took its place", 0, "");
    const std::string host = was == s_.executors.end() ? "" : was->second.host;
    Up(worker, host, e.session, ready->info);
    ShareMemory(host);
    return Retry();
  }
  const auto it = s_.executors.find(name);
  if (it == s_.executors.end() || !it->second.alive() ||
      it->second.info.incarnation != report.incarnation)
    return;
  Executor& x = it->second;
  if (const auto* done = std::get_if<api::LaunchDone>(&report.body)) {
    KeepInlined(x, *done);
    if (const auto op = s_.operations.find(done->launch); op != s_.operations.end()) {
      op->second.run_longest = std::max(op->second.run_longest, done->run_time);
      op->second.run_total += done->run_time * x.info.num_devices;
      ++x.ended;
      const auto program = s_.executables.find(op->second.executable);
      if (program != s_.executables.end() && program->second.plan != nullptr &&
          !program->second.plan->collectives.empty())
        ++x.ended_collectives;
    }
    LaunchEnded(x, done->launch, absl::OkStatus());
  } else if (const auto* failed = std::get_if<api::LaunchFailed>(&report.body)) {
    LaunchEnded(
        x, failed->launch,
        failed->status.ok() ? absl::InternalError("the executor gave no reason") : failed->status,
        failed->inputs_kept);
  } else if (const auto* loaded = std::get_if<api::ProgramLoaded>(&report.body)) {
    Loaded(x, *loaded);
  } else if (const auto* written = std::get_if<api::BufferWritten>(&report.body)) {
    Written(x, *written);
  } else if (const auto* read = std::get_if<api::BufferRead>(&report.body)) {
    const auto waiter = s_.waiters.find(read->request);
    if (waiter == s_.waiters.end() || waiter->second.kind != Waiter::kShard ||
        waiter->second.executor != name)
      return;
    EndWait(read->request);
    if (read->value.ok()) {
      Answer(read->request, *read->value);
    } else {
      Answer(read->request, read->value.status());
    }
  } else if (const auto* inspected = std::get_if<api::FileInspected>(&report.body)) {
    Inspected(x, *inspected);
  } else if (const auto* lost = std::get_if<api::ExecutorLost>(&report.body)) {
    Lose(name, lost->reason, lost->launch, lost->op);
  } else if (const auto* ready = std::get_if<api::CommunicatorReady>(&report.body)) {
    // A communicator that cannot be built fails the launches that name it, on the executor.
    if (!ready->status.ok())
      Tell("communicator not opened",
           {{"executor", name},
            {"worker", x.worker},
            {"generation", absl::StrCat(ready->generation)}},
           ready->status);
  }
}

}  // namespace tessera::server::scheduler
