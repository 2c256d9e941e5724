// Requests about devices, workers and named meshes, and the cordons and drains of operators.
#include <algorithm>

#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {
namespace {

constexpr size_t kReasonMax = 256;

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

}  // namespace

// ---- Devices. -----------------------------------------------------------------------------------
absl::StatusOr<Page<api::Device>> Machine::On(const ListDevices& e) {
  Page<api::Device> page;
  const auto count = cluster_.num_ids();
  const int64_t size = e.page.size <= 0 ? count : e.page.size;
  const int64_t first = std::clamp<int64_t>(e.page.after, -1, count) + 1;
  int64_t id = first;
  for (; id < count && static_cast<int64_t>(page.items.size()) < size; ++id) {
    if (!cluster_.DeviceExists(id)) continue;
    const Executor& x = cluster_.ExecutorOf(id);
    const bool healthy = x.alive() && Responsive(x);
    const bool cordoned = cluster_.IsCordoned(x);
    page.items.push_back({.id = id,
                          .kind = x.info.device_kind,
                          .worker = x.worker,
                          .host = x.host,
                          .executor = x.name,
                          .healthy = healthy,
                          .reason = healthy     ? cordoned ? CordonReasonOf(x) : ""
                                    : x.alive() ? SilenceOf(x)
                                    : x.away    ? absl::StrCat("away: ", x.lost_reason)
                                                : x.lost_reason,
                          .memory_bytes = x.memory_bytes,
                          .cordoned = cordoned,
                          .unresponsive = x.alive() && !healthy,
                          .away = x.away,
                          .gpu = x.alive() ? x.last_heartbeat.gpu : std::nullopt});
  }
  page.has_more = id < count;
  return page;
}

absl::StatusOr<std::vector<ExecutorPlace>> Machine::On(const GetTopology&) {
  std::vector<ExecutorPlace> places;
  for (const auto& [name, x] : cluster_.executors()) {
    if (name.empty()) continue;
    ExecutorPlace place{name,        x.host,         x.info.device_kind,
                        {},          x.memory_bytes, x.alive() && Responsive(x),
                        x.info.files};
    for (int32_t d = 0; d < x.info.num_devices; ++d) place.devices.push_back(x.first_device + d);
    places.push_back(std::move(place));
  }
  return places;
}

std::string Machine::CordonReasonOf(const Executor& x) const {
  const Worker& worker = cluster_.worker(x.worker);
  return worker.cordoned ? worker.cordon_reason : x.fault;
}

// ---- Workers. -----------------------------------------------------------------------------------
absl::Status Machine::NoWorkerError(const std::string& name) {
  return Error(ErrorKind::kWorkerNotFound, "worker '", name, "' does not exist; list the workers");
}

int64_t Machine::OperationsOn(const Worker& worker) const {
  int64_t count = 0;
  for (const IdSet* operations : {&order_.live(), &order_.lingering()})
    for (uint64_t id : *operations) {
      const auto& outstanding = order_.operation(id).outstanding;
      count += std::any_of(worker.executors.begin(), worker.executors.end(),
                           [&](const std::string& name) { return outstanding.count(name) > 0; });
    }
  return count;
}

// Describes a worker for operators. Absence and silence count more than a cordon, because they say
// that the worker cannot be reached; the reason then names both.
WorkerInfo Machine::WorkerInfoWithoutArrays(const std::string& name, const Worker& worker) const {
  WorkerInfo info;
  info.name = name;
  info.host = worker.host;
  info.build = worker.build;
  info.executors_not_adopted = worker.executors_not_adopted;
  if (worker.registration_id != 0)
    info.protocol = ChooseProtocol(name, ThisBuild(), worker.build).value_or(kProtocolMin);
  for (const std::string& executor : worker.executors) {
    const Executor& x = cluster_.executor(executor);
    for (int32_t d = 0; d < x.info.num_devices; ++d) info.devices.push_back(x.first_device + d);
    if (x.alive()) info.data_endpoints.push_back(x.info.data_endpoint);
  }
  info.operations = OperationsOn(worker);
  const absl::Duration age = std::max(now_ - worker.last_seen, absl::ZeroDuration());
  if (worker.registration_id != 0) info.heartbeat_age = age;
  const bool suspect = age > 2 * s_.config.heartbeat;
  std::string cordoned;
  if (worker.cordoned) {
    const bool draining = cluster_.IsDraining(name);
    info.state = draining ? WorkerState::kDraining : WorkerState::kCordoned;
    cordoned = absl::StrCat(draining ? "draining" : "cordoned",
                            worker.cordon_reason.empty() ? "" : ": ", worker.cordon_reason);
  }
  if (worker.registration_id == 0) {
    const bool away = cluster_.AnyAway(worker);
    info.state = away ? WorkerState::kSuspect : WorkerState::kLost;
    info.reason = worker.lost_reason;
    if (away)
      absl::StrAppend(&info.reason, "; it may come back with its arrays within ",
                      absl::FormatDuration(s_.config.outage_grace));
  } else if (suspect) {
    info.state = WorkerState::kSuspect;
    info.reason = absl::StrCat("silent for ", absl::FormatDuration(age), "; away after ",
                               absl::FormatDuration(s_.config.lease));
  } else {
    for (const std::string& executor : worker.executors) {
      const Executor& x = cluster_.executor(executor);
      if (!x.alive() || Responsive(x)) continue;
      info.state = WorkerState::kSuspect;
      info.reason = absl::StrCat("executor ", executor, ": ", SilenceOf(x));
      break;
    }
  }
  if (!info.reason.empty() && !cordoned.empty()) absl::StrAppend(&info.reason, "; ");
  absl::StrAppend(&info.reason, cordoned);
  for (const std::string& executor : worker.executors) {
    const Executor& x = cluster_.executor(executor);
    if (x.has_fault())
      absl::StrAppend(&info.reason, info.reason.empty() ? "" : "; ", "device ", x.first_device,
                      " is cordoned: ", x.fault);
  }
  return info;
}

void Machine::CountArrays(std::vector<WorkerInfo>& workers) {
  for (WorkerInfo& info : workers) {
    std::set<uint64_t> several;  // arrays of a worker with several executors
    const std::vector<std::string>& executors = cluster_.worker(info.name).executors;
    for (const std::string& name : executors) {
      const Executor& x = cluster_.executor(name);
      if (!x.alive()) continue;
      for (const auto& [id, record] : ArraysOn(x)) {
        const ArrayRecord& a = *record;
        // Arrays of canaries are not counted.
        if (a.freed || a.tenant == core::kSystemTenant || !IsHeldBy(a, x)) continue;
        info.arrays += executors.size() == 1 || several.insert(id).second;
      }
    }
  }
}

absl::StatusOr<Page<WorkerInfo>> Machine::On(const ListWorkers& e) {
  Page<WorkerInfo> page;
  const auto size = static_cast<size_t>(PageSize(e.page.size));
  const std::map<std::string, Worker>& workers = cluster_.workers();
  auto it = workers.upper_bound(e.page.after);
  for (; it != workers.end() && page.items.size() < size; ++it)
    page.items.push_back(WorkerInfoWithoutArrays(it->first, it->second));
  page.has_more = it != workers.end();
  CountArrays(page.items);
  return page;
}

absl::StatusOr<WorkerInfo> Machine::On(const GetWorker& e) {
  if (cluster_.FindWorker(e.worker) == nullptr) return NoWorkerError(e.worker);
  return WorkerInfoWithArrays(e.worker);
}

WorkerInfo Machine::WorkerInfoWithArrays(const std::string& worker) {
  std::vector<WorkerInfo> one = {WorkerInfoWithoutArrays(worker, cluster_.worker(worker))};
  CountArrays(one);
  return std::move(one[0]);
}

void Machine::AnswerDrains(const std::string& worker) {
  EndWaits(cluster_.worker(worker).drains, WorkerInfoWithArrays(worker));
}

absl::StatusOr<WorkerInfo> Machine::On(const Cordon& e) {
  Worker* const worker = cluster_.FindWorker(e.worker);
  if (worker == nullptr) return NoWorkerError(e.worker);
  worker->cordoned = e.on;
  worker->cordon_reason = e.on ? e.reason.substr(0, kReasonMax) : "";
  MarkChanged(core::RowKind::kWorker, e.worker);
  Log("worker ", e.worker, e.on ? " cordoned" : " uncordoned");
  if (!e.on) AcceptFaults(*worker);
  if (!e.on && cluster_.EndDrain(e.worker)) {
    AnswerDrains(e.worker);
    RetryHeld();
  }
  return WorkerInfoWithArrays(e.worker);
}

// Lets the devices of the worker that have reported a fault take programs again.
void Machine::AcceptFaults(const Worker& worker) {
  for (const std::string& name : worker.executors) {
    Executor& x = cluster_.executor(name);
    if (!x.has_fault()) continue;
    x.fault_accepted = true;
    MarkChanged(core::RowKind::kExecutor, name);
  }
}

void Machine::RecordFault(Executor& x, const std::string& fault) {
  const std::string kept = fault.substr(0, kReasonMax);
  if (kept.empty() || x.fault == kept) return;
  x.fault = kept;
  x.fault_accepted = false;
  MarkChanged(core::RowKind::kExecutor, x.name);
  Log("executor ", x.name, " has a fault");
  LogIncident("device cordoned", {{"executor", x.name},
                                  {"worker", x.worker},
                                  {"device", absl::StrCat(x.first_device)},
                                  {"why", x.fault}});
}

void Machine::On(const Drain& e) {
  Worker* const worker = cluster_.FindWorker(e.worker);
  if (worker == nullptr) return Answer(e.request, NoWorkerError(e.worker));
  if (!worker->cordoned || !e.reason.empty())
    worker->cordon_reason = e.reason.substr(0, kReasonMax);
  worker->cordoned = true;
  MarkChanged(core::RowKind::kWorker, e.worker);
  if (cluster_.Drain(e.worker)) Log(absl::StrCat("worker ", e.worker, " drains"));
  // Finish answers at once if nothing runs there.
  BeginWait(e.request,
            now_ + std::clamp(e.timeout, absl::ZeroDuration(), s_.config.result_wait_max),
            DrainWait{e.worker});
}

Requests* Machine::WaitersFor(const DrainWait& wait) {
  return &cluster_.worker(wait.worker).drains;
}

void Machine::AnswerTimeout(const DrainWait& wait, uint64_t request) {
  Answer(request, WorkerInfoWithArrays(wait.worker));
}

void Machine::AnswerFinishedDrains() {
  for (const std::string& name : cluster_.draining()) {
    const Worker& worker = cluster_.worker(name);
    if (!worker.drains.empty() && OperationsOn(worker) == 0) AnswerDrains(name);
  }
}

void Machine::RetryHeld() {
  for (uint64_t op : order_.TakeHeld()) TryStart(op);
}

// ---- Meshes. ------------------------------------------------------------------------------------
absl::StatusOr<const NamedMesh*> Machine::FindMesh(const core::Caller& caller,
                                                   const std::string& name) {
  const auto it = catalogue_.meshes().find({caller.tenant, name});
  if (it == catalogue_.meshes().end())
    return Error(ErrorKind::kMeshNotFound, "mesh '", name.substr(0, 64),
                 "' does not exist; create it, or list the meshes");
  return &it->second;
}

// Gives a mesh and its devices a name. A call with the name of an existing mesh succeeds if it
// describes the same mesh, and fails otherwise. With check_only nothing is stored.
absl::StatusOr<MeshInfo> Machine::On(const CreateMesh& e) {
  if (!IsName(e.name))
    return Error(ErrorKind::kValueError, "mesh: '", e.name.substr(0, 64),
                 "' is not a valid name; names are 1 to 63 lower-case "
                 "letters, digits, '-' and '_'");
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> devices,
                           ChooseDevices("mesh", e.mesh, e.devices, /*cordoned=*/false));
  const auto key = std::pair(e.caller.tenant, e.name);
  if (const auto it = catalogue_.meshes().find(key); it != catalogue_.meshes().end()) {
    const bool is_equal =
        it->second.mesh == e.mesh && (e.devices.empty() || it->second.devices == devices);
    if (!is_equal)
      return Error(ErrorKind::kAlreadyExists, "mesh '", e.name, "' exists already as ",
                   it->second.mesh.ToString(), "; choose another name");
    if (!e.check_only) Remember(e);
    return MeshInfo{e.name, e.caller.tenant, it->second.mesh, it->second.devices};
  }
  if (static_cast<int64_t>(catalogue_.meshes().size()) >= s_.config.meshes_max)
    return Error(ErrorKind::kLimitExceeded, "mesh: ", catalogue_.meshes().size(),
                 " meshes exist, at most ", s_.config.meshes_max, " are kept; delete some");
  MeshInfo info{e.name, e.caller.tenant, e.mesh, devices};
  if (!e.check_only) {
    catalogue_.AddMesh(key, {e.mesh, std::move(devices)});
    MarkChanged(core::RowKind::kMesh, NameInRow(key));
    Log("mesh ", e.name, " created");
    Remember(e);
  }
  return info;
}

absl::StatusOr<MeshInfo> Machine::On(const GetMesh& e) {
  TESSERA_ASSIGN_OR_RETURN(const NamedMesh* mesh, FindMesh(e.caller, e.name));
  return MeshInfo{e.name, e.caller.tenant, mesh->mesh, mesh->devices};
}

absl::StatusOr<Page<MeshInfo>> Machine::On(const ListMeshes& e) {
  Page<MeshInfo> page;
  const auto size = static_cast<size_t>(PageSize(e.page.size));
  const auto& meshes = catalogue_.meshes();
  auto it = meshes.upper_bound({e.caller.tenant, e.page.after});
  const auto ours = [&] { return it != meshes.end() && it->first.first == e.caller.tenant; };
  for (; ours() && page.items.size() < size; ++it)
    page.items.push_back({it->first.second, it->first.first, it->second.mesh, it->second.devices});
  page.has_more = ours();
  return page;
}

absl::StatusOr<std::monostate> Machine::On(const DeleteMesh& e) {
  TESSERA_RETURN_IF_ERROR(FindMesh(e.caller, e.name).status());
  catalogue_.RemoveMesh({e.caller.tenant, e.name});
  MarkChanged(core::RowKind::kMesh, NameInRow({e.caller.tenant, e.name}));
  Log("mesh ", e.name, " deleted");
  Remember(e);
  return std::monostate();
}

}  // namespace tessera::server::scheduler
