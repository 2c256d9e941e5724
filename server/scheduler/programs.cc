// Executables: planned once, loaded on the executors of their devices, and dropped if there are too
// many. A Compile finds or plans its executable and waits until all executors have compiled it.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/words.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {
namespace {

// Places a new executable on the devices, and describes these devices for the planner.
void SetDevices(const Cluster& cluster, const std::vector<int64_t>& devices, Executable* x,
                core::ClusterSnapshot* snapshot) {
  x->devices = devices;
  for (int64_t d : devices) {
    const Executor& e = cluster.ExecutorOf(d);
    snapshot->devices.push_back({.id = d,
                                 .kind = e.info.device_kind,
                                 .host = e.host,
                                 .executor = e.name,
                                 .memory_bytes = e.memory_bytes,
                                 .flops_per_s = e.info.flops_per_second,
                                 .bytes_per_s = e.info.memory_bytes_per_second,
                                 .in_executor = e.in_executor,
                                 .between_executors = e.between_executors});
    const auto member = std::find(x->members.begin(), x->members.end(), e.name);
    const auto index = static_cast<int32_t>(member - x->members.begin());
    if (member == x->members.end()) x->members.push_back(e.name);
    x->coordinates.push_back({index, cluster.device(d).local_index});
  }
}

}  // namespace

// Checks the requested devices, or chooses some if none are requested. All devices of a mesh must
// be of one kind, since one device program runs on all of them.
absl::StatusOr<std::vector<int64_t>> Machine::ChooseDevices(const char* what, const ir::Mesh& mesh,
                                                            const std::vector<int64_t>& devices,
                                                            bool cordoned) const {
  const int64_t n = mesh.num_devices();
  if (!devices.empty()) {
    if (static_cast<int64_t>(devices.size()) != n)
      return Error(ErrorKind::kValueError, what, ": ",
                   Pluralize(static_cast<int64_t>(devices.size()), "device"), " for mesh ",
                   mesh.ToString(), ", which has ", Pluralize(n, "device"));
    TESSERA_RETURN_IF_ERROR(Annotate(cluster_.CheckDevicesExist(devices), what));
    std::set<int64_t> distinct;
    const std::string& kind = cluster_.ExecutorOf(devices[0]).info.device_kind;
    for (int64_t d : devices) {
      if (!distinct.insert(d).second)
        return Error(ErrorKind::kValueError, what, ": device ", d, " is given twice");
      if (const std::string& other = cluster_.ExecutorOf(d).info.device_kind; other != kind)
        return Error(ErrorKind::kValueError, what, ": devices of kinds ", kind, " and ", other,
                     " in one mesh; choose one kind");
    }
    return devices;
  }
  // Chooses the kind with the most healthy devices, and of that kind the smallest ids. Lost devices
  // are chosen only if there are too few healthy ones, since they may come back.
  std::map<std::string, std::vector<int64_t>> healthy, all;
  int64_t left_out = 0;
  for (int64_t d = 0; d < cluster_.num_ids(); ++d) {
    if (!cluster_.DeviceExists(d)) continue;
    const Executor& x = cluster_.ExecutorOf(d);
    if (!cordoned && cluster_.IsCordoned(d)) {
      ++left_out;
      continue;
    }
    all[x.info.device_kind].push_back(d);
    if (x.alive() && Responsive(x)) healthy[x.info.device_kind].push_back(d);
  }
  for (const auto* pool : {&healthy, &all}) {
    const std::vector<int64_t>* best = nullptr;
    for (const auto& [kind, devices] : *pool)
      if (best == nullptr || devices.size() > best->size()) best = &devices;
    if (best != nullptr && static_cast<int64_t>(best->size()) >= n)
      return std::vector<int64_t>(best->begin(), best->begin() + n);
  }
  return Error(ErrorKind::kNotEnoughDevices, what, ": mesh ", mesh.ToString(), " needs ", n,
               " devices of one kind; the cluster has ", cluster_.num_devices(),
               left_out == 0 ? "" : absl::StrCat(" (", left_out, " cordoned)"),
               "; use a smaller mesh or add workers");
}

absl::StatusOr<uint64_t> Machine::NewExecutable(const api::CompileRequest& request,
                                                const std::string& tenant) {
  if (catalogue_.num_plans() >= s_.config.plans_bound)
    return Error(ErrorKind::kQueueFull, "compile: ", catalogue_.num_plans(),
                 " programs are being planned, at most ", s_.config.plans_bound,
                 " at a time; retry");
  const uint64_t id = NewId(tenant);
  Executable& x = catalogue_.AddExecutable(id);
  x.tenant = tenant;
  x.plan_only = request.plan_only;
  x.absent_device_memory_bytes = request.device_memory_bytes;
  x.name = request.name.empty() ? request.program.entry->name : request.name;
  return id;
}

MakePlan Machine::PlanRequestFor(const api::CompileRequest& request, uint64_t executable) const {
  MakePlan plan;
  plan.executable = executable;
  plan.request.program = request.program;
  plan.request.name = catalogue_.executable(executable).name;
  plan.request.tenant = catalogue_.executable(executable).tenant;
  return plan;
}

absl::StatusOr<uint64_t> Machine::PlanForAbsent(const api::CompileRequest& request,
                                                const std::string& tenant) {
  TESSERA_ASSIGN_OR_RETURN(const uint64_t id, NewExecutable(request, tenant));
  MakePlan plan = PlanRequestFor(request, id);
  plan.request.cluster.absent_device_memory_bytes = request.device_memory_bytes;
  effects_.emplace_back(std::move(plan));
  DropOldExecutables();
  return id;
}

// Returns the executable for this program on the chosen devices, and requests a plan only if there
// is none. Calls for the same program thus share one plan. A cordoned worker takes no new program,
// but still runs those that it has.
absl::StatusOr<uint64_t> Machine::FindOrPlan(const api::CompileRequest& request,
                                             const std::string& key, const std::string& tenant,
                                             bool cordoned) {
  const ir::Mesh& mesh = request.program.mesh();
  // The key contains the tenant, so that the time of a compile does not reveal what other tenants
  // run.
  const auto key_on = [&](const std::vector<int64_t>& devices) {
    return absl::StrCat(tenant, "|", key, "@", absl::StrJoin(devices, ","));
  };
  absl::StatusOr<std::vector<int64_t>> chosen =
      ChooseDevices("compile", mesh, request.devices, cordoned);
  if (!chosen.ok() && !cordoned) {
    // A cordoned worker still takes a program that is compiled on it already.
    absl::StatusOr<std::vector<int64_t>> before =
        ChooseDevices("compile", mesh, request.devices, /*cordoned=*/true);
    if (before.ok() && catalogue_.ExecutableIdOf(key_on(*before)) != 0) chosen = std::move(before);
  }
  if (absl::IsFailedPrecondition(chosen.status()) && request.plan_only && request.devices.empty())
    return Error(ErrorKind::kNotEnoughDevices, chosen.status().message(),
                 ", or give the memory of absent devices to plan for them (device_memory_bytes, "
                 "--device-memory)");
  TESSERA_RETURN_IF_ERROR(chosen);
  const std::vector<int64_t>& devices = *chosen;
  const std::string full_key = key_on(devices);
  if (const uint64_t id = catalogue_.ExecutableIdOf(full_key); id != 0) {
    Executable& known = catalogue_.executable(id);
    if (!request.plan_only || known.state == ExecutableState::kPlanned) {
      catalogue_.Touch(known);
      // Canaries are not counted, because their hits would hide the misses of users' programs.
      if (tenant != core::kSystemTenant)
        Note(core::CacheLookup{known.state == ExecutableState::kPlanned
                                   ? core::CacheLookup::kHit
                                   : core::CacheLookup::kCoalesced});
      return id;
    }
  }
  if (!cordoned)
    for (int64_t d : devices)
      if (const Executor& x = cluster_.ExecutorOf(d); cluster_.IsCordoned(x)) {
        const std::string why = CordonReasonOf(x);
        return Error(ErrorKind::kNotEnoughDevices, "compile: device ", d, " of worker ", x.worker,
                     " is cordoned and takes no new programs", why.empty() ? "" : ": ", why,
                     "; choose others");
      }
  TESSERA_ASSIGN_OR_RETURN(const uint64_t id, NewExecutable(request, tenant));
  if (tenant != core::kSystemTenant) Note(core::CacheLookup{core::CacheLookup::kMiss});
  Executable& x = catalogue_.executable(id);
  catalogue_.SetKey(id, full_key);
  MakePlan plan = PlanRequestFor(request, id);
  SetDevices(cluster_, devices, &x, &plan.request.cluster);
  effects_.emplace_back(std::move(plan));
  DropOldExecutables();
  return id;
}

// Resolves the named mesh, finds or requests the plan, and lets the request wait. A request for the
// plan alone is answered as soon as the plan is there. Others wait until every executor has
// compiled the program, within the caller's timeout.
void Machine::On(const Compile& e) {
  api::CompileRequest request = e.body;
  if (!request.mesh.empty()) {
    const auto mesh = FindMesh(e.caller, request.mesh);
    if (!mesh.ok()) return Answer(e.request, mesh.status());
    if (!request.devices.empty() || !(*mesh)->mesh.SameShape(request.program.mesh()))
      return Answer(e.request,
                    MakeError(ErrorKind::kValueError,
                              request.devices.empty()
                                  ? absl::StrCat("compile: the program is for mesh ",
                                                 request.program.mesh().ToString(), ", mesh '",
                                                 request.mesh, "' is ", (*mesh)->mesh.ToString())
                                  : "compile: a mesh and devices are given; give one of them"));
    request.devices = (*mesh)->devices;
  }
  // A request for an explanation does not fail because of a cordoned worker: the explanation says
  // that the worker is cordoned.
  const bool cordoned = request.plan_only && request.explain;
  auto id = request.device_memory_bytes > 0 ? PlanForAbsent(request, e.caller.tenant)
                                            : FindOrPlan(request, e.key, e.caller.tenant, cordoned);
  if (!id.ok()) return Answer(e.request, id.status());
  if (request.plan_only && catalogue_.executable(*id).state == ExecutableState::kPlanned) {
    const Executable& x = catalogue_.executable(*id);
    core::CompileReply reply = ReplyOf(x, request.explain);
    reply.executable = 0;
    reply.pending = PendingReasonsOn(x.devices, /*compiled=*/true);
    return Answer(e.request, std::move(reply));
  }
  const absl::Time latest = now_ + request.timeout;
  BeginWait(e.request, std::min(now_ + CompileTimeout(catalogue_.executable(*id)), latest),
            CompileWait{*id, latest, e.body.explain});
  if (catalogue_.executable(*id).state == ExecutableState::kPlanned) {
    LoadWhereAlive(*id);
    AnswerCompileWaitsIfLoaded(*id);
  }
}

void Machine::SetPlan(uint64_t id, Executable& x, std::shared_ptr<const core::Plan> made) {
  x.plan = std::move(made);
  const core::Plan& plan = *x.plan;
  x.state = ExecutableState::kPlanned;
  x.reply.executable = id;
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
  for (const api::ArraySpec& spec : x.reply.out)
    x.result_specs.push_back(std::make_shared<const api::ArraySpec>(spec));
  x.reply.devices = x.devices;
}

void Machine::RestoreExecutable(uint64_t id, Executable record) {
  if (!cluster_.CheckDevicesExist(record.devices).ok() || record.plan == nullptr)
    return LogIncident("record of the store dropped",
                       {{"executable", absl::StrCat(id)}, {"why", "its devices do not exist"}});
  Executable x;
  x.key = record.key;
  x.name = record.name;
  x.tenant = record.tenant;
  core::ClusterSnapshot unused;
  SetDevices(cluster_, record.devices, &x, &unused);
  SetPlan(id, x, record.plan);
  catalogue_.RestoreExecutable(id, std::move(x));
}

// Takes a finished plan. A plan that needs more memory than one of its devices has fails here: the
// planner bounds what a device needs, and the scheduler knows what each device has now. Otherwise
// the program goes to its executors, and the operations that waited for the plan are tried again.
void Machine::On(const Planned& e) {
  catalogue_.EndPlan();
  auto* const it = catalogue_.FindExecutable(e.executable);
  if (it == nullptr) return;
  Executable& x = *it;
  if (!e.plan.ok()) return FailExecutable(e.executable, e.plan.status());
  const core::Plan& plan = *e.plan;
  if (x.absent_device_memory_bytes > 0 && plan.memory_bound_bytes > x.absent_device_memory_bytes)
    return FailExecutable(e.executable,
                          Error(ErrorKind::kOutOfMemory, "compile: ", x.name, " needs up to ",
                                plan.memory_bound_bytes, " bytes on each device, which has ",
                                x.absent_device_memory_bytes,
                                "; shard it further, or plan for devices with more memory"));
  for (int64_t d : x.devices) {
    const int64_t memory = cluster_.ExecutorOf(d).memory_bytes;
    if (memory <= 0 || plan.memory_bound_bytes <= memory) continue;
    Note(core::PlanTooLarge{cluster_.ExecutorOf(d).info.device_kind});
    return FailExecutable(
        e.executable, Error(ErrorKind::kOutOfMemory, "compile: ", x.name, " needs up to ",
                            plan.memory_bound_bytes, " bytes on device ", d, ", which has ", memory,
                            "; shard it further"));
  }
  SetPlan(e.executable, x, std::make_shared<const core::Plan>(plan));
  if (!x.plan_only) MarkChanged(core::RowKind::kExecutable, e.executable, x.tenant);
  if (x.plan_only) return AnswerPlanOnly(e.executable);
  LoadWhereAlive(e.executable);
  AnswerCompileWaitsIfLoaded(e.executable);
  for (uint64_t op : IdSet(x.operations)) TryStart(op);
}

Requests* Machine::WaitersFor(const CompileWait& wait) {
  Executable* const x = catalogue_.FindExecutable(wait.executable);
  return x == nullptr ? nullptr : &x->waiters;
}

void Machine::AnswerTimeout(const CompileWait& wait, uint64_t request) {
  const Executable& x = catalogue_.executable(wait.executable);
  AnswerAndLogTimeout(
      request, NotLoadedError(x, "compile", /*callers_time_is_over=*/now_ >= wait.caller_deadline));
  MarkLoadersOverdue(x, absl::StrCat("a compile of ", x.name));
}

absl::Duration Machine::CompileTimeout(const Executable& x) const {
  for (const std::string& member : x.members)
    if (!cluster_.executor(member).alive()) return s_.config.recovery_wait;
  return s_.config.compile_timeout;
}

void Machine::RestartCompileTimeouts(const std::string& executor) {
  for (const auto& [id, x] : catalogue_.executables()) {
    if (x.waiters.empty() ||
        std::find(x.members.begin(), x.members.end(), executor) == x.members.end())
      continue;
    for (uint64_t request : x.waiters) {
      absl::Time& until = s_.waiters.at(request).until;
      Disarm(until, kRequestTimer, request);
      until = std::min(now_ + CompileTimeout(x), WaitOf<CompileWait>(request)->caller_deadline);
      Arm(until, kRequestTimer, request);
    }
  }
}

absl::Status Machine::NotLoadedError(const Executable& x, const std::string& what,
                                     bool callers_time_is_over) const {
  const std::string lost = cluster_.DescribeFirstLost(x.members);
  if (!lost.empty())
    return Error(ErrorKind::kWorkerLost, what, ": ", lost, ", and it was not back within ",
                 absl::FormatDuration(s_.config.recovery_wait), "; retry");
  std::string cause = absl::StrCat("the plan of ", x.name, " was not made within ");
  for (const std::string& member : x.members)
    if (x.state == ExecutableState::kPlanned && x.loaded_on.count(member) == 0) {
      cause = absl::StrCat(NameWithSilence(member), " did not compile ", x.name, " within ");
      break;
    }
  if (callers_time_is_over)
    return Error(ErrorKind::kDeadlineExceeded, what, ": ", cause,
                 "the time that its caller gave; retry");
  return Error(ErrorKind::kCompileTimeout, what, ": ", cause,
               absl::FormatDuration(s_.config.compile_timeout),
               " (compile_timeout_ms); the compilation goes on: retry, split the program, or "
               "raise the limit");
}

void Machine::SendLoad(uint64_t id, Executable& x, const Executor& executor) {
  uint64_t& sent = x.sent_to[executor.name];
  if (sent == executor.info.incarnation) return;
  sent = executor.info.incarnation;
  api::LoadProgram load;
  load.executable = id;
  load.name = x.name;
  load.tenant = x.tenant;
  load.program.entry = x.plan->device_program;
  load.coordinates = x.coordinates;
  load.self = static_cast<int32_t>(std::find(x.members.begin(), x.members.end(), executor.name) -
                                   x.members.begin());
  Send(executor, std::move(load));
}

void Machine::LoadWhereAlive(uint64_t id) {
  Executable& x = catalogue_.executable(id);
  for (const std::string& member : x.members)
    if (const Executor& executor = cluster_.executor(member); executor.alive())
      SendLoad(id, x, executor);
}

bool Machine::IsLoaded(const Executable& x) const {
  return std::all_of(x.members.begin(), x.members.end(), [&](const std::string& member) {
    const Executor& executor = cluster_.executor(member);
    const auto it = x.loaded_on.find(member);
    return executor.alive() && it != x.loaded_on.end() && it->second == executor.info.incarnation;
  });
}

core::CompileReply Machine::ReplyOf(const Executable& x, bool explain) {
  core::CompileReply reply{x.reply};
  if (!explain) {
    reply.explain_text = reply.explain_json = "";
  } else {
    reply.predicted_seconds = x.plan->predicted_seconds;
    reply.last_run = x.last_run;
  }
  return reply;
}

void Machine::AnswerCompileWaits(const Executable& x) {
  for (uint64_t request : IdSet(x.waiters)) {
    core::CompileReply reply = ReplyOf(x, WaitOf<CompileWait>(request)->explain);
    EndWait(request);
    Answer(request, std::move(reply));
  }
}

void Machine::AnswerCompileWaitsIfLoaded(uint64_t id) {
  const Executable& x = catalogue_.executable(id);
  if (IsLoaded(x)) AnswerCompileWaits(x);
}

void Machine::AnswerPlanOnly(uint64_t id) {
  Executable& x = catalogue_.executable(id);
  x.reply.executable = 0;
  if (x.absent_device_memory_bytes == 0)
    x.reply.pending = PendingReasonsOn(x.devices, /*compiled=*/false);
  AnswerCompileWaits(x);
  DropExecutable(id);
}

void Machine::HandleReport(Executor& executor, const api::ProgramLoaded& report) {
  auto* const it = catalogue_.FindExecutable(report.executable);
  if (it == nullptr) return;
  if (!report.status.ok())
    return FailExecutable(
        report.executable,
        Annotate(report.status, absl::StrCat("compile: ", it->name, " on ", executor.name)));
  it->loaded_on[executor.name] = executor.info.incarnation;
  AnswerCompileWaitsIfLoaded(report.executable);
  for (uint64_t op : IdSet(it->operations)) TryStart(op);
}

void Machine::FailExecutable(uint64_t id, const absl::Status& error) {
  Executable& x = catalogue_.executable(id);
  // Errors of the program, or of a plan for absent devices, are not incidents of the cluster.
  const bool exceeds_absent = absl::IsResourceExhausted(error) && x.absent_device_memory_bytes > 0;
  if (!exceeds_absent && (absl::IsResourceExhausted(error) || absl::IsDeadlineExceeded(error) ||
                          absl::IsUnavailable(error) || absl::IsInternal(error)))
    LogIncident("program refused",
                {{"executable", absl::StrCat(id)}, {"program", x.name}, {"tenant", x.tenant}},
                error);
  EndWaits(x.waiters, error);
  for (uint64_t op : IdSet(x.operations)) Fail(op, error);
  // The next Compile plans the executable again.
  DropExecutable(id);
}

void Machine::DropExecutable(uint64_t id) {
  const Executable& x = catalogue_.executable(id);
  for (const auto& [name, incarnation] : x.sent_to) {
    const Executor& executor = cluster_.executor(name);
    if (executor.alive() && executor.info.incarnation == incarnation)
      Send(executor, api::UnloadPrograms{{id}});
  }
  MarkChanged(core::RowKind::kExecutable, id, x.tenant);
  catalogue_.RemoveExecutable(id);
}

void Machine::DropOldExecutables() {
  while (static_cast<int64_t>(catalogue_.executables().size()) > s_.config.executables_max) {
    const uint64_t oldest = catalogue_.OldestUnused();
    if (oldest == 0) return;  // All are in use; queue_bound and plans_bound limit their number.
    DropExecutable(oldest);
  }
}

}  // namespace tessera::server::scheduler
