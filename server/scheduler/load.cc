// Loads arrays from a file in two steps: the handler of LoadArrays asks an executor to look at the
// file, and when the executor's report comes (files.cc), StartLoad makes the operation.
#include <algorithm>
#include <map>

#include "ir/api/placement.h"
#include "server/scheduler/files.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {

// Checks a load and asks an executor to look at the file. The operation cannot be made yet, because
// the arrays' types are in the file.
void Machine::On(const LoadArrays& e) {
  const absl::Status checked = [&]() -> absl::Status {
    TESSERA_RETURN_IF_ERROR(api::CheckFilePath(e.path).status());
    TESSERA_RETURN_IF_ERROR(api::CheckFilePath(PathOf(e.caller, e.path)).status());
    TESSERA_RETURN_IF_ERROR(FindSession(e.caller, e.session, Access::kChange).status());
    if (e.arrays.empty() || e.arrays.size() > api::kMaxArraysPerFile)
      return Error(ErrorKind::kValueError, "load: ", e.arrays.size(), " arrays; expected 1 to ",
                   api::kMaxArraysPerFile);
    for (const api::ArrayToLoad& a : e.arrays)
      TESSERA_RETURN_IF_ERROR(Annotate(cluster_.CheckDevicesExist(a.placement.devices), "load"));
    if (e.arrays[0].placement.devices.empty())
      return MakeError(ErrorKind::kValueError, "load: a placement has no devices");
    return absl::OkStatus();
  }();
  if (!checked.ok()) return Answer(e.request, checked);
  for (const api::ArrayToLoad& a : e.arrays) {
    for (const int64_t d : a.placement.devices) {
      const Executor& x = cluster_.ExecutorOf(d);
      if (x.alive() && !x.info.files) return Answer(e.request, NoFilesDirectoryError("load", x));
    }
  }
  const Executor& x = cluster_.ExecutorOf(e.arrays[0].placement.devices[0]);
  if (!x.alive())
    return Answer(e.request, Error(ErrorKind::kWorkerLost, "load: executor ", x.name, " of worker ",
                                   x.worker, " is lost; retry"));
  // The file's contents determine the types of the arrays.
  SendInspectFile(e.request, x, PathOf(e.caller, e.path), std::make_shared<const LoadArrays>(e));
}

// Starts the load, now that the contents of the file are known. Sessions, devices and bounds are
// checked again, because they may have changed while the executor looked at the file.
absl::StatusOr<PendingArrays> Machine::StartLoad(const LoadArrays& e,
                                                 const api::FileInspected& report) {
  TESSERA_RETURN_IF_ERROR(report.arrays.status());
  TESSERA_ASSIGN_OR_RETURN(const uint64_t session,
                           FindSession(e.caller, e.session, Access::kChange));
  Load work{PathOf(e.caller, e.path)};
  std::vector<SpecRef> specs;
  for (const api::ArrayToLoad& wanted : e.arrays) {
    const auto found =
        std::find_if(report.arrays->begin(), report.arrays->end(),
                     [&](const api::FileArrayInfo& a) { return a.name == wanted.name; });
    if (found == report.arrays->end())
      return Error(ErrorKind::kFileNotFound, "load: ", e.path, " holds no array '", wanted.name,
                   "'");
    TESSERA_RETURN_IF_ERROR(api::CheckPlacement(wanted.placement, found->shape));
    // The worker of the devices may have been deleted while the executor looked at the file.
    TESSERA_RETURN_IF_ERROR(Annotate(cluster_.CheckDevicesExist(wanted.placement.devices), "load"));
    work.arrays.push_back(*found);
    specs.push_back(std::make_shared<const api::ArraySpec>(
        api::ArraySpec{found->dtype, found->shape, wanted.placement}));
  }
  TESSERA_RETURN_IF_ERROR(CheckQueue("load"));
  TESSERA_RETURN_IF_ERROR(CheckRoomForArrays("load", static_cast<int64_t>(specs.size())));
  Operation op;
  op.name = "load";
  op.kind = api::OperationKind::kLoad;
  op.session = session;
  const std::string path = work.path;
  op.work = std::move(work);
  const uint64_t id = NewOperation(std::move(op), specs);
  Log("operation ", id, " accepted: load from ", path);
  TryStart(id);
  const Operation& started = order_.operation(id);
  Remember(e, id, started.results);
  PendingArrays pending{Describe(order_.operation(id)), {}};
  for (uint64_t r : started.results) pending.arrays.push_back(ArrayInfoOf(r));
  return pending;
}

std::vector<std::string> Machine::ExecutorsFor(const Load&, const Operation& op) const {
  std::vector<int64_t> devices;
  for (uint64_t id : op.results) {
    const std::vector<int64_t>& placed_on = catalogue_.array(id).spec->placement.devices;
    devices.insert(devices.end(), placed_on.begin(), placed_on.end());
  }
  return cluster_.ExecutorsOf(devices);
}

void Machine::SendWork(const Load& work, Operation& op, const std::vector<std::string>& executors,
                       const std::string& only) {
  std::map<std::string, std::vector<api::FileShard>> shards;
  for (size_t i = 0; i < op.results.size(); ++i) {
    if (only.empty() && !BeginWrites(op.results[i])) continue;
    const api::ArraySpec& spec = *catalogue_.array(op.results[i]).spec;
    for (size_t k = 0; k < spec.placement.devices.size(); ++k) {
      const Device& device = cluster_.device(spec.placement.devices[k]);
      shards[device.executor].push_back(
          FileShardOf(spec, i, op.results[i], static_cast<int>(k), device.local_index));
    }
  }
  api::LoadShards load;
  load.launch = op.id;
  load.path = work.path;
  load.arrays = work.arrays;
  load.timeout = kFileTimeout;
  for (const std::string& name : executors) {
    load.shards = shards[name];
    if (only.empty() || name == only) Send(cluster_.executor(name), load);
  }
}

}  // namespace tessera::server::scheduler
