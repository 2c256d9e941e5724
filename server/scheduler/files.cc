// Operations that write arrays to files and make arrays of files. The executors do the work
// (worker/files); here it gets its place in the order, and who does which part.
#include "ir/api/files.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/api/placement.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {
namespace {

// For one file: disks may be slow.
constexpr absl::Duration kFileTimeout = absl::Hours(1);

api::FileShard ShardOf(const api::ArraySpec& spec, size_t index, uint64_t array, int ordinal,
                       int32_t device) {
  return {static_cast<int32_t>(index), array, device,
          api::BlockStarts(spec.placement, spec.shape, ordinal),
          api::LocalShape(spec.placement, spec.shape)};
}

absl::Status NoFolder(const char* what, const Executor& x) {
  return MakeError(ErrorKind::kFilesDisabled,
                   absl::StrCat(what, ": worker ", x.worker,
                                " has no folder of files; start it with --files-dir, a folder that "
                                "all workers share"));
}

}  // namespace

// The parts of one file are written by several executors: into one folder, or not at all.
absl::Status Machine::CheckFolders(const std::vector<uint64_t>& arrays) const {
  const Executor* first = nullptr;
  for (uint64_t id : arrays) {
    const api::ArraySpec& spec = s_.arrays.at(id).spec;
    for (int k : api::DistinctBlocks(spec.placement, spec.shape)) {
      const Executor& x = s_.executors.at(s_.devices[spec.placement.devices[k]].executor);
      if (!x.alive()) continue;  // The array's own error says more.
      if (!x.info.files) return NoFolder("save", x);
      if (first == nullptr) first = &x;
      const std::string &a = first->info.files_folder, &b = x.info.files_folder;
      if (a.empty() || b.empty() || a == b) continue;
      return MakeError(
          ErrorKind::kFilesDisabled,
          absl::StrCat("save: the arrays lie on workers ", first->worker, " and ", x.worker,
                       ", whose folders of files are not the same; start both with "
                       "--files-dir of a folder that they share, or save what lies on "
                       "one of them"));
    }
  }
  return absl::OkStatus();
}

std::string Machine::PathOf(const core::Caller& caller, const std::string& path) const {
  return s_.config.tenant_folders ? absl::StrCat(caller.tenant, "/", path) : path;
}

absl::StatusOr<FileWork> Machine::CheckSave(const SaveArrays& e, std::vector<uint64_t>* args) {
  TESSERA_ASSIGN_OR_RETURN(const api::FileFormat format, api::CheckFilePath(e.path));
  FileWork work;
  work.path = PathOf(e.caller, e.path);
  work.overwrite = e.overwrite;
  TESSERA_RETURN_IF_ERROR(api::CheckFilePath(work.path).status());
  for (const api::NamedArray& named : e.arrays) {
    TESSERA_ASSIGN_OR_RETURN(const ArrayRecord* array,
                             FindArray(e.caller, named.array, Access::kRead));
    TESSERA_RETURN_IF_ERROR(array->error);
    const bool named_in_file = format == api::FileFormat::kSafetensors;
    work.arrays.push_back({named_in_file ? named.name : "", array->spec.dtype, array->spec.shape});
    args->push_back(named.array);
  }
  TESSERA_RETURN_IF_ERROR(api::CheckFileArrays(format, work.arrays));
  TESSERA_RETURN_IF_ERROR(CheckFolders(*args));
  if (static_cast<int64_t>(s_.live.size()) >= s_.config.queue_bound)
    return MakeError(ErrorKind::kQueueFull,
                     absl::StrCat("save: ", s_.live.size(), " operations have not ended, at most ",
                                  s_.config.queue_bound, " are accepted; wait and retry"));
  return work;
}

void Machine::On(const SaveArrays& e) {
  const auto session = FindSession(e.caller, 0, Access::kChange);
  if (!session.ok()) return Answer(e.request, session.status());
  Operation op;
  absl::StatusOr<FileWork> work = CheckSave(e, &op.args);
  if (!work.ok()) return Answer(e.request, work.status());
  op.name = "save";
  op.kind = api::OperationKind::kSave;
  op.session = *session;
  op.file = std::make_shared<const FileWork>(*std::move(work));
  const uint64_t id = NewOperation(std::move(op), {});
  Log(absl::StrCat("operation ", id, " accepted: save to ", s_.operations.at(id).file->path));
  TryStart(id);
  Answer(e.request, Describe(s_.operations.at(id)));
}

void Machine::On(const LoadArrays& e) {
  const absl::Status checked = [&]() -> absl::Status {
    TESSERA_RETURN_IF_ERROR(api::CheckFilePath(e.path).status());
    TESSERA_RETURN_IF_ERROR(api::CheckFilePath(PathOf(e.caller, e.path)).status());
    TESSERA_RETURN_IF_ERROR(FindSession(e.caller, e.session, Access::kChange).status());
    if (e.arrays.empty() || e.arrays.size() > api::kFileArraysMax)
      return MakeError(
          ErrorKind::kValueError,
          absl::StrCat("load: ", e.arrays.size(), " arrays; expected 1 to ", api::kFileArraysMax));
    for (const api::PlacedName& a : e.arrays)
      TESSERA_RETURN_IF_ERROR(Annotate(CheckDevices(a.placement.devices), "load"));
    if (e.arrays[0].placement.devices.empty())
      return MakeError(ErrorKind::kValueError, "load: a placement has no devices");
    return absl::OkStatus();
  }();
  if (!checked.ok()) return Answer(e.request, checked);
  for (const api::PlacedName& a : e.arrays) {
    for (const int64_t d : a.placement.devices) {
      const Executor& x = ExecutorOf(d);
      if (x.alive() && !x.info.files) return Answer(e.request, NoFolder("load", x));
    }
  }
  const Executor& x = ExecutorOf(e.arrays[0].placement.devices[0]);
  if (!x.alive())
    return Answer(e.request, MakeError(ErrorKind::kWorkerLost,
                                       absl::StrCat("load: executor ", x.name, " of worker ",
                                                    x.worker, " is lost; retry")));
  // What the file holds says what the arrays are.
  AskForFile(e.request, x, PathOf(e.caller, e.path), std::make_shared<const LoadArrays>(e));
}

void Machine::AskForFile(uint64_t request, const Executor& executor, const std::string& path,
                         std::shared_ptr<const LoadArrays> load) {
  Send(executor, api::InspectFile{request, path});
  Waiter w;
  w.kind = Waiter::kInspect;
  w.executor = executor.name;
  w.until = now_ + s_.config.result_wait_max;
  w.load = std::move(load);
  Wait(request, std::move(w));
}

void Machine::On(const DescribeFile& e) {
  const std::string path = PathOf(e.caller, e.path);
  absl::Status checked = api::CheckFilePath(e.path).status();
  if (checked.ok()) checked = api::CheckFilePath(path).status();
  if (!checked.ok()) return Answer(e.request, checked);
  const Executor* able = nullptr;
  bool alive = false;
  for (const auto& [name, x] : s_.executors) {
    alive = alive || x.alive();
    if (able == nullptr && x.alive() && x.info.files) able = &x;
  }
  if (able != nullptr) return AskForFile(e.request, *able, path, nullptr);
  Answer(e.request,
         alive ? MakeError(ErrorKind::kFilesDisabled,
                           "files: no worker has a folder of files; start them with --files-dir")
               : MakeError(ErrorKind::kWorkerLost,
                           "files: no worker is there to look at the file; retry"));
}

void Machine::Inspected(const Executor& executor, const api::FileInspected& report) {
  const auto waiter = s_.waiters.find(report.request);
  if (waiter == s_.waiters.end() || waiter->second.kind != Waiter::kInspect ||
      waiter->second.executor != executor.name)
    return;
  const std::shared_ptr<const LoadArrays> load = EndWait(report.request).load;
  if (load == nullptr) {
    if (!report.arrays.ok()) return Answer(report.request, report.arrays.status());
    return Answer(report.request, *report.arrays);
  }
  absl::StatusOr<Making> making = StartLoad(*load, report);
  if (making.ok()) {
    Answer(report.request, *std::move(making));
  } else {
    Answer(report.request, making.status());
  }
}

absl::StatusOr<Making> Machine::StartLoad(const LoadArrays& e, const api::FileInspected& report) {
  TESSERA_RETURN_IF_ERROR(report.arrays.status());
  TESSERA_ASSIGN_OR_RETURN(const uint64_t session,
                           FindSession(e.caller, e.session, Access::kChange));
  FileWork work;
  work.path = PathOf(e.caller, e.path);
  std::vector<api::ArraySpec> specs;
  for (const api::PlacedName& wanted : e.arrays) {
    const auto found = std::find_if(report.arrays->begin(), report.arrays->end(),
                                    [&](const api::FileArray& a) { return a.name == wanted.name; });
    if (found == report.arrays->end())
      return MakeError(ErrorKind::kFileNotFound,
                       absl::StrCat("load: ", e.path, " holds no array '", wanted.name, "'"));
    TESSERA_RETURN_IF_ERROR(api::CheckPlacement(wanted.placement, found->shape));
    work.arrays.push_back(*found);
    specs.push_back({found->dtype, found->shape, wanted.placement});
  }
  if (static_cast<int64_t>(s_.live.size()) >= s_.config.queue_bound)
    return MakeError(ErrorKind::kQueueFull,
                     absl::StrCat("load: ", s_.live.size(), " operations have not ended, at most ",
                                  s_.config.queue_bound, " are accepted; wait and retry"));
  if (static_cast<int64_t>(s_.arrays.size() + specs.size()) > s_.config.arrays_max)
    return MakeError(ErrorKind::kLimitExceeded,
                     absl::StrCat("load: ", s_.arrays.size(), " arrays exist, at most ",
                                  s_.config.arrays_max, " are kept; delete some"));
  Operation op;
  op.name = "load";
  op.kind = api::OperationKind::kLoad;
  op.session = session;
  op.file = std::make_shared<const FileWork>(std::move(work));
  const uint64_t id = NewOperation(std::move(op), std::move(specs));
  Log(absl::StrCat("operation ", id, " accepted: load from ", s_.operations.at(id).file->path));
  TryStart(id);
  const Operation& started = s_.operations.at(id);
  Making making{Describe(s_.operations.at(id)), {}};
  for (uint64_t r : started.results) making.arrays.push_back(Info(r));
  return making;
}

std::vector<std::string> Machine::ExecutorsOfFile(const Operation& op) {
  std::vector<std::string> executors;
  const auto add = [&](int64_t device) {
    const std::string& x = s_.devices[device].executor;
    if (std::find(executors.begin(), executors.end(), x) == executors.end()) executors.push_back(x);
  };
  for (uint64_t id : op.args) {
    const api::ArraySpec& spec = s_.arrays.at(id).spec;
    for (int k : api::DistinctBlocks(spec.placement, spec.shape)) add(spec.placement.devices[k]);
  }
  for (uint64_t id : op.results)
    for (int64_t d : s_.arrays.at(id).spec.placement.devices) add(d);
  return executors;
}

void Machine::SendSaves(Operation& op, const std::vector<std::string>& executors) {
  std::map<std::string, std::vector<api::FileShard>> shards;
  for (size_t i = 0; i < op.args.size(); ++i) {
    const api::ArraySpec& spec = s_.arrays.at(op.args[i]).spec;
    for (int k : api::DistinctBlocks(spec.placement, spec.shape)) {
      const Device& device = s_.devices[spec.placement.devices[k]];
      shards[device.executor].push_back(ShardOf(spec, i, op.args[i], k, device.local));
    }
  }
  api::SaveShards save;
  save.launch = op.id;
  save.sequence = op.sequence;
  save.path = op.file->path;
  // The same id comes again in another life of the coordinator.
  save.token = absl::StrCat(op.id, "-", absl::ToUnixNanos(now_));
  save.overwrite = op.file->overwrite;
  save.parts = static_cast<int32_t>(executors.size());
  save.arrays = op.file->arrays;
  save.timeout = kFileTimeout;
  for (const std::string& name : executors) {
    save.shards = shards[name];
    Send(s_.executors.at(name), save);
    ++save.part;
  }
}

void Machine::SendLoads(Operation& op, const std::vector<std::string>& executors) {
  std::map<std::string, std::vector<api::FileShard>> shards;
  for (size_t i = 0; i < op.results.size(); ++i) {
    const auto found = s_.arrays.find(op.results[i]);
    if (found == s_.arrays.end()) continue;
    ArrayRecord& a = found->second;
    // Written like an upload: those that use it wait until every shard is there.
    a.state = ArrayState::kWriting;
    a.unwritten.insert(a.spec.placement.devices.begin(), a.spec.placement.devices.end());
    HoldByCurrent(a);
    for (size_t k = 0; k < a.spec.placement.devices.size(); ++k) {
      const Device& device = s_.devices[a.spec.placement.devices[k]];
      shards[device.executor].push_back(
          ShardOf(a.spec, i, op.results[i], static_cast<int>(k), device.local));
    }
  }
  api::LoadShards load;
  load.launch = op.id;
  load.path = op.file->path;
  load.arrays = op.file->arrays;
  load.timeout = kFileTimeout;
  for (const std::string& name : executors) {
    load.shards = shards[name];
    Send(s_.executors.at(name), load);
  }
}

}  // namespace tessera::server::scheduler
