// Executables: planned once, loaded where their devices are, dropped when there are too many.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {

absl::StatusOr<std::vector<int64_t>> Machine::ChooseDevices(
    const api::CompileRequest& request) const {
  const int64_t n = request.program.mesh().num_devices();
  if (!request.devices.empty()) {
    if (static_cast<int64_t>(request.devices.size()) != n)
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("compile: ", request.devices.size(), " devices for mesh ",
                                    request.program.mesh().ToString(), ", which has ", n));
    TESSERA_RETURN_IF_ERROR(Annotate(CheckDevices(request.devices), "compile"));
    std::set<int64_t> distinct;
    const std::string& kind =
        s_.executors.at(s_.devices[request.devices[0]].executor).info.device_kind;
    for (int64_t d : request.devices) {
      if (!distinct.insert(d).second)
        return MakeError(ErrorKind::kValueError,
                         absl::StrCat("compile: device ", d, " is given twice"));
      if (const std::string& other = s_.executors.at(s_.devices[d].executor).info.device_kind;
          other != kind)
        return MakeError(ErrorKind::kValueError,
                         absl::StrCat("compile: devices of kinds ", kind, " and ", other,
                                      " in one mesh; choose one kind"));
    }
    return request.devices;
  }
  // The kind with the most healthy devices, then the least ids; lost devices only when they are
  // needed, since they may come back.
  std::map<std::string, std::vector<int64_t>> healthy, all;
  for (size_t d = 0; d < s_.devices.size(); ++d) {
    const Executor& x = s_.executors.at(s_.devices[d].executor);
    all[x.info.device_kind].push_back(static_cast<int64_t>(d));
    if (x.alive()) healthy[x.info.device_kind].push_back(static_cast<int64_t>(d));
  }
  for (const auto* pool : {&healthy, &all}) {
    const std::vector<int64_t>* best = nullptr;
    for (const auto& [kind, devices] : *pool)
      if (best == nullptr || devices.size() > best->size()) best = &devices;
    if (best != nullptr && static_cast<int64_t>(best->size()) >= n)
      return std::vector<int64_t>(best->begin(), best->begin() + n);
  }
  return MakeError(ErrorKind::kNotEnoughDevices,
                   absl::StrCat("compile: mesh ", request.program.mesh().ToString(), " needs ", n,
                                " devices of one kind; the cluster has ", s_.devices.size(),
                                "; use a smaller mesh or add workers"));
}

absl::StatusOr<uint64_t> Machine::FindOrPlan(const api::CompileRequest& request,
                                             const std::string& key) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> devices, ChooseDevices(request));
  const std::string full_key = absl::StrCat(key, "@", absl::StrJoin(devices, ","));
  if (auto it = s_.executable_of.find(full_key); it != s_.executable_of.end()) {
    s_.executables.at(it->second).last_use = ++s_.uses;
    return it->second;
  }
  if (s_.plans >= s_.config.plans_bound)
    return MakeError(ErrorKind::kQueueFull,
                     absl::StrCat("compile: ", s_.plans, " programs are being planned, at most ",
                                  s_.config.plans_bound, " at a time; retry"));
  const uint64_t id = ++s_.last_id;
  Executable& x = s_.executables[id];
  x.key = full_key;
  x.name = request.name.empty() ? request.program.entry->name : request.name;
  x.devices = devices;
  x.last_use = ++s_.uses;
  s_.executable_of[full_key] = id;
  ++s_.plans;
  MakePlan plan;
  plan.executable = id;
  plan.request.program = request.program;
  plan.request.name = x.name;
  for (int64_t d : devices) {
    const Executor& e = ExecutorOf(d);
    plan.request.cluster.devices.push_back({.id = d,
                                            .kind = e.info.device_kind,
                                            .host = e.host,
                                            .executor = e.name,
                                            .memory_bytes = e.info.memory_bytes});
    auto [member, added] = std::pair(std::find(x.members.begin(), x.members.end(), e.name), false);
    if (member == x.members.end()) {
      x.members.push_back(e.name);
      member = x.members.end() - 1;
    }
    x.coordinates.push_back(
        {static_cast<int32_t>(member - x.members.begin()), s_.devices[d].local});
  }
  effects_.emplace_back(std::move(plan));
  DropOldExecutables();
  return id;
}

void Machine::On(const Compile& e) {
  auto id = FindOrPlan(e.body, e.key);
  if (!id.ok()) return Answer(e.request, id.status());
  Waiter w;
  w.kind = Waiter::kCompile;
  w.id = *id;
  w.until = now_ + LoadWait(s_.executables.at(*id));
  w.explain = e.body.explain;
  Wait(e.request, std::move(w));
  if (s_.executables.at(*id).state == ExecutableState::kPlanned) {
    LoadWhereAlive(*id);
    AnswerCompiled(*id);
  }
}

void Machine::On(const Planned& e) {
  --s_.plans;
  const auto it = s_.executables.find(e.executable);
  if (it == s_.executables.end()) return;
  Executable& x = it->second;
  if (!e.plan.ok()) return ExecutableFailed(e.executable, e.plan.status());
  const core::Plan& plan = *e.plan;
  for (int64_t d : x.devices) {
    const int64_t memory = ExecutorOf(d).info.memory_bytes;
    if (memory > 0 && plan.memory_bound_bytes > memory)
      return ExecutableFailed(
          e.executable, MakeError(ErrorKind::kOutOfMemory,
                                  absl::StrCat("compile: ", x.name, " needs up to ",
                                               plan.memory_bound_bytes, " bytes on device ", d,
                                               ", which has ", memory, "; shard it further")));
  }
  x.plan = std::make_shared<const core::Plan>(plan);
  x.state = ExecutableState::kPlanned;
  x.reply.executable = e.executable;
  x.reply.memory_bound_bytes = plan.memory_bound_bytes;
  x.reply.explain_text = plan.explain_text;
  x.reply.explain_json = plan.explain_json;
  auto specs = [&](const std::vector<core::PlanValue>& values) {
    std::vector<api::ArraySpec> out;
    for (const core::PlanValue& v : values)
      out.push_back({v.dtype, v.shape, {plan.mesh, v.spec, x.devices}});
    return out;
  };
  x.reply.in = specs(plan.in);
  x.reply.out = specs(plan.out);
  LoadWhereAlive(e.executable);
  AnswerCompiled(e.executable);
  const std::set<uint64_t> operations = x.operations;
  for (uint64_t op : operations) TryStart(op);
}

absl::Duration Machine::LoadWait(const Executable& x) const {
  for (const std::string& member : x.members)
    if (!s_.executors.at(member).alive()) return s_.config.recovery_wait;
  return s_.config.load_wait;
}

void Machine::RestartLoadWaits(const std::string& executor) {
  for (auto& [id, x] : s_.executables) {
    if (x.waiters.empty() ||
        std::find(x.members.begin(), x.members.end(), executor) == x.members.end())
      continue;
    for (uint64_t request : x.waiters) {
      Waiter& w = s_.waiters.at(request);
      Disarm(w.until, kRequestTimer, request);
      w.until = now_ + LoadWait(x);
      Arm(w.until, kRequestTimer, request);
    }
  }
}

std::string Machine::NotLoaded(const Executable& x) const {
  const std::string lost = FirstLost(x.members);
  if (!lost.empty())
    return absl::StrCat(lost, ", and it was not back within ",
                        absl::FormatDuration(s_.config.recovery_wait));
  for (const std::string& member : x.members)
    if (x.loaded.count(member) == 0)
      return absl::StrCat("executor ", member, " did not compile ", x.name, " within ",
                          absl::FormatDuration(s_.config.load_wait));
  return absl::StrCat("the plan of ", x.name, " was not made within ",
                      absl::FormatDuration(s_.config.load_wait));
}

void Machine::SendLoad(uint64_t id, Executable& x, const Executor& executor) {
  uint64_t& sent = x.sent[executor.name];
  if (sent == executor.info.incarnation) return;
  sent = executor.info.incarnation;
  api::LoadProgram load;
  load.executable = id;
  load.name = x.name;
  load.program.entry = x.plan->device_program;
  load.coordinates = x.coordinates;
  load.self = static_cast<int32_t>(std::find(x.members.begin(), x.members.end(), executor.name) -
                                   x.members.begin());
  Send(executor, std::move(load));
}

void Machine::LoadWhereAlive(uint64_t id) {
  Executable& x = s_.executables.at(id);
  for (const std::string& member : x.members)
    if (const Executor& executor = s_.executors.at(member); executor.alive())
      SendLoad(id, x, executor);
}

void Machine::AnswerCompiled(uint64_t id) {
  Executable& x = s_.executables.at(id);
  for (const std::string& member : x.members) {
    const Executor& executor = s_.executors.at(member);
    const auto it = x.loaded.find(member);
    if (!executor.alive() || it == x.loaded.end() || it->second != executor.info.incarnation)
      return;
  }
  const std::set<uint64_t> waiters = x.waiters;
  for (uint64_t request : waiters) {
    const Waiter w = EndWait(request);
    api::CompileReply reply = x.reply;
    if (!w.explain) reply.explain_text = reply.explain_json = "";
    Answer(request, std::move(reply));
  }
}

void Machine::Loaded(const Executor& executor, const api::ProgramLoaded& report) {
  const auto it = s_.executables.find(report.executable);
  if (it == s_.executables.end()) return;
  if (!report.status.ok())
    return ExecutableFailed(
        report.executable,
        Annotate(report.status, absl::StrCat("compile: ", it->second.name, " on ", executor.name)));
  it->second.loaded[executor.name] = executor.info.incarnation;
  AnswerCompiled(report.executable);
}

void Machine::ExecutableFailed(uint64_t id, const absl::Status& error) {
  Executable& x = s_.executables.at(id);
  const std::set<uint64_t> waiters = x.waiters;
  for (uint64_t request : waiters) {
    EndWait(request);
    Answer(request, error);
  }
  const std::set<uint64_t> operations = x.operations;
  for (uint64_t op : operations) Fail(op, error);
  // The next Compile plans it again.
  Unload(id);
}

void Machine::Unload(uint64_t id) {
  const Executable& x = s_.executables.at(id);
  for (const auto& [name, incarnation] : x.sent) {
    const Executor& executor = s_.executors.at(name);
    if (executor.alive() && executor.info.incarnation == incarnation)
      Send(executor, api::UnloadPrograms{{id}});
  }
  s_.executable_of.erase(x.key);
  s_.executables.erase(id);
}

void Machine::DropOldExecutables() {
  while (static_cast<int64_t>(s_.executables.size()) > s_.config.executables_max) {
    uint64_t oldest = 0, use = UINT64_MAX;
    for (const auto& [id, x] : s_.executables)
      if (x.state == ExecutableState::kPlanned && x.operations.empty() && x.waiters.empty() &&
          x.last_use < use) {
        oldest = id;
        use = x.last_use;
      }
    if (oldest == 0) return;  // All are in use, which queue_bound and plans_bound limit.
    Unload(oldest);
  }
}

}  // namespace tessera::server::scheduler
