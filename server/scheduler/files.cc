// The parts that saves and loads share: paths, and looking at a file. DescribeFile and LoadArrays
// both send InspectFile to an executor; its FileInspected report answers a DescribeFile, and starts
// the operation of a LoadArrays (load.cc).
#include "server/scheduler/files.h"

#include "ir/api/placement.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {

api::FileShard FileShardOf(const api::ArraySpec& spec, size_t index, uint64_t array, int ordinal,
                           int32_t device) {
  return {static_cast<int32_t>(index), array, device,
          api::ShardStarts(spec.placement, spec.shape, ordinal),
          api::LocalShape(spec.placement, spec.shape)};
}

absl::Status NoFilesDirectoryError(const char* what, const Executor& x) {
  return Error(ErrorKind::kFilesDisabled, what, ": worker ", x.worker,
               " has no folder of files; start it with --files-dir, a folder that "
               "all workers share");
}

std::string Machine::PathOf(const core::Caller& caller, const std::string& path) const {
  return s_.config.tenant_folders ? absl::StrCat(caller.tenant, "/", path) : path;
}

void Machine::SendInspectFile(uint64_t request, const Executor& executor, const std::string& path,
                              std::shared_ptr<const LoadArrays> load) {
  Send(executor, api::InspectFile{request, path});
  BeginWait(request, now_ + s_.config.result_wait_max, InspectWait{executor.name, std::move(load)});
}

void Machine::AnswerTimeout(const InspectWait& wait, uint64_t request) {
  AnswerAndLogTimeout(request,
                      Error(ErrorKind::kDeadlineExceeded, "files: ", NameWithSilence(wait.executor),
                            " did not look at the file in time; retry"));
  MarkOverdue(wait.executor, "a look at a file");
}

void Machine::On(const DescribeFile& e) {
  const std::string path = PathOf(e.caller, e.path);
  absl::Status checked = api::CheckFilePath(e.path).status();
  if (checked.ok()) checked = api::CheckFilePath(path).status();
  if (!checked.ok()) return Answer(e.request, checked);
  const Executor* able = nullptr;
  bool alive = false;
  for (const auto& [name, x] : cluster_.executors()) {
    alive = alive || x.alive();
    if (able == nullptr && x.alive() && x.info.files) able = &x;
  }
  if (able != nullptr) return SendInspectFile(e.request, *able, path, nullptr);
  Answer(e.request,
         alive ? MakeError(ErrorKind::kFilesDisabled,
                           "files: no worker has a folder of files; start them with --files-dir")
               : MakeError(ErrorKind::kWorkerLost,
                           "files: no worker is there to look at the file; retry"));
}

void Machine::HandleReport(Executor& executor, const api::FileInspected& report) {
  const auto* wait = WaitOf<InspectWait>(report.request);
  if (wait == nullptr || wait->executor != executor.name) return;
  const std::shared_ptr<const LoadArrays> load = wait->load;
  EndWait(report.request);
  if (load == nullptr) return Answer(report.request, report.arrays);
  // Another copy of the call may have come while the executor looked at the file.
  if (AnswerIfRepeated(*load)) return;
  Answer(report.request, StartLoad(*load, report));
}

}  // namespace tessera::server::scheduler
