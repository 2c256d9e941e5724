// Saves arrays to a file. Each executor that holds a distinct shard writes one part into a common
// temporary file, and the executor with part 0 completes the file (worker/files/task.h).
#include <map>

#include "ir/api/placement.h"
#include "server/scheduler/files.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {

std::vector<std::vector<int>> Machine::OrdinalsToSave(const Save& save,
                                                      const std::vector<uint64_t>& arrays) const {
  std::vector<std::vector<int>> ordinals;
  size_t next = 0;  // index into save.ordinals
  for (uint64_t id : arrays) {
    const ArrayRecord& a = catalogue_.array(id);
    const std::vector<int> distinct =
        api::OrdinalsOfDistinctShards(a.spec->placement, a.spec->shape);
    std::vector<int>& of_array = ordinals.emplace_back();
    const std::vector<int> sources = SourcesOf(a);
    for (const int k : distinct)
      of_array.push_back(next < save.ordinals.size() ? save.ordinals[next++] : sources[k]);
  }
  return ordinals;
}

// Returns an error unless the executors that would write parts of one file share the directory of
// --files-dir. An executor whose directory is unknown passes the check.
absl::Status Machine::CheckFilesDirectories(const std::vector<uint64_t>& arrays) const {
  const Executor* first = nullptr;
  const std::vector<std::vector<int>> ordinals = OrdinalsToSave(Save{}, arrays);
  for (size_t i = 0; i < arrays.size(); ++i) {
    const api::ArraySpec& spec = *catalogue_.array(arrays[i]).spec;
    for (int k : ordinals[i]) {
      const Executor& x = cluster_.ExecutorOf(spec.placement.devices[k]);
      if (!x.alive()) continue;  // The loss of its arrays fails the save.
      if (!x.info.files) return NoFilesDirectoryError("save", x);
      if (first == nullptr) first = &x;
      const std::string &a = first->info.files_folder, &b = x.info.files_folder;
      if (a.empty() || b.empty() || a == b) continue;
      return Error(ErrorKind::kFilesDisabled, "save: the arrays lie on workers ", first->worker,
                   " and ", x.worker,
                   ", which have different folders of files; start both with the same shared "
                   "folder as --files-dir, or save arrays of one worker at a time");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Save> Machine::CheckSave(const SaveArrays& e, std::vector<uint64_t>* args) {
  TESSERA_ASSIGN_OR_RETURN(const api::FileFormat format, api::CheckFilePath(e.path));
  // The path with the tenant's directory in front must be valid too.
  Save work{PathOf(e.caller, e.path), e.overwrite};
  TESSERA_RETURN_IF_ERROR(api::CheckFilePath(work.path).status());
  for (const api::ArrayToSave& named : e.arrays) {
    TESSERA_ASSIGN_OR_RETURN(const ArrayRecord* array,
                             FindArray(e.caller, named.array, Access::kRead));
    TESSERA_RETURN_IF_ERROR(ErrorOf(named.array, *array));
    if (const api::Placement& placement = array->spec->placement; api::IsPendingSum(placement))
      return Error(
          ErrorKind::kValueError, "save: array ", named.array, " is ", placement.spec.ToString(),
          ": its shards are terms of a sum. Reshard it to a spec without unreduced axes first");
    const bool named_in_file = format == api::FileFormat::kSafetensors;
    work.arrays.push_back(
        {named_in_file ? named.name : "", array->spec->dtype, array->spec->shape});
    args->push_back(named.array);
  }
  TESSERA_RETURN_IF_ERROR(api::CheckFileArrays(format, work.arrays));
  TESSERA_RETURN_IF_ERROR(CheckFilesDirectories(*args));
  TESSERA_RETURN_IF_ERROR(CheckQueue("save"));
  return work;
}

absl::StatusOr<api::Operation> Machine::On(const SaveArrays& e) {
  TESSERA_ASSIGN_OR_RETURN(const uint64_t session, FindSession(e.caller, 0, Access::kChange));
  Operation op;
  TESSERA_ASSIGN_OR_RETURN(Save work, CheckSave(e, &op.args));
  op.name = "save";
  op.kind = api::OperationKind::kSave;
  op.session = session;
  const std::string path = work.path;
  op.work = std::move(work);
  const uint64_t id = NewOperation(std::move(op), /*results=*/{});
  Log("operation ", id, " accepted: save to ", path);
  TryStart(id);
  Remember(e, id);
  return Describe(order_.operation(id));
}

std::vector<std::string> Machine::ExecutorsFor(const Save& save, const Operation& op) const {
  std::vector<int64_t> devices;
  const std::vector<std::vector<int>> ordinals = OrdinalsToSave(save, op.args);
  for (size_t i = 0; i < op.args.size(); ++i)
    for (int k : ordinals[i])
      devices.push_back(catalogue_.array(op.args[i]).spec->placement.devices[k]);
  return cluster_.ExecutorsOf(devices);
}

// Sends each executor its part of the save, and records which devices write which shards. The
// number of parts and their order are the same when a part is sent again, because the parts meet in
// one temporary file.
void Machine::SendWork(const Save& work, Operation& op, const std::vector<std::string>& executors,
                       const std::string& only) {
  std::map<std::string, std::vector<api::FileShard>> shards;
  const std::vector<std::vector<int>> ordinals = OrdinalsToSave(work, op.args);
  if (only.empty()) {
    std::vector<int>& chosen = std::get<Save>(op.work).ordinals;
    chosen.clear();
    for (const std::vector<int>& of_array : ordinals)
      chosen.insert(chosen.end(), of_array.begin(), of_array.end());
  }
  for (size_t i = 0; i < op.args.size(); ++i) {
    const api::ArraySpec& spec = *catalogue_.array(op.args[i]).spec;
    for (int k : ordinals[i]) {
      const Device& device = cluster_.device(spec.placement.devices[k]);
      shards[device.executor].push_back(FileShardOf(spec, i, op.args[i], k, device.local_index));
    }
  }
  api::SaveShards save;
  save.launch = op.id;
  save.sequence = op.known_sequence();
  save.path = work.path;
  // The token names the temporary file, and is the same for all parts whenever they are sent.
  // Without --state-dir a later life may assign the same id, so the token contains the time as
  // well.
  save.token = absl::StrCat(op.id, "-", absl::ToUnixMillis(op.created + op.wall_ahead));
  save.overwrite = work.overwrite;
  save.parts = static_cast<int32_t>(executors.size());
  save.arrays = work.arrays;
  save.timeout = kFileTimeout;
  for (const std::string& name : executors) {
    save.shards = shards[name];
    // The command waits until the operation is durable. Otherwise a coordinator that restarts could
    // forget the operation, and a repeated call would save again, over what was saved.
    if (only.empty() || name == only) Send(cluster_.executor(name), save, /*when_durable=*/true);
    ++save.part;
  }
}

}  // namespace tessera::server::scheduler
