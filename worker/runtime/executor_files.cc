// Saves arrays to files and loads them from files, for the commands of the coordinator. The work
// runs on a thread for files, so that devices do not wait for disks.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "worker/files/folder.h"
#include "worker/files/task.h"
#include "worker/runtime/executor.h"
#include "worker/runtime/executor_state.h"

namespace tessera::worker {
namespace {

absl::Status WaitOrCancelled(CancelToken& cancel, absl::Duration duration) {
  if (duration > absl::ZeroDuration() && !cancel.cancelled()) {
    absl::Notification cancelled;
    const int64_t listener = cancel.AddListener([&cancelled] { cancelled.Notify(); });
    cancelled.WaitForNotificationWithTimeout(duration);
    cancel.RemoveListener(listener);
  }
  return cancel.status();
}

}  // namespace

void Executor::RunOnFiles(const LaunchRef& launch, std::function<absl::Status(LaunchState&)> work) {
  files_stream_->Push([this, launch, work = std::move(work)]() mutable {
    absl::Status status = StartClock(launch);
    if (status.ok()) status = work(*launch);
    work = nullptr;  // ends its references to arrays before the launch is reported
    // A launch that was cancelled after its last check has succeeded.
    if (!status.ok()) {
      launch->failed = true;
      Fail(*launch, status);
    }
    EndLaunch(launch, /*on_stream=*/false);
  });
}

void Executor::Handle(const api::SaveShards& command) {
  const LaunchRef launch = NewLaunch(command.launch, command.timeout);
  for (const api::FileShard& shard : command.shards) {
    const BufferId id{shard.array, shard.device};
    if (HasDevice(shard.device) && buffers_.IsKnown(id)) continue;
    return FailBeforeStart(launch,
                           MakeError(ErrorKind::kArrayNotFound,
                                     absl::StrCat("save: ", ToString(id), " is not on ", name_)));
  }
  auto sources = std::make_shared<std::map<BufferId, std::shared_ptr<RetainedBuffer>>>();
  for (const api::FileShard& shard : command.shards) {
    const BufferId id{shard.array, shard.device};
    sources->insert_or_assign(id, RetainedBuffer::Retain(buffers_, id));
  }
  RunOnFiles(launch, [this, command, sources](LaunchState& running) {
    files::Hooks hooks;
    hooks.bytes_of = [&](const api::FileShard& shard) -> absl::StatusOr<ir::Array> {
      TESSERA_ASSIGN_OR_RETURN(const DeviceBufferRef buffer,
                               sources->at({shard.array, shard.device})->Await(running.cancel));
      return backend_->ToHost(*buffer);
    };
    hooks.wait = [&](absl::Duration d) { return WaitOrCancelled(running.cancel, d); };
    return files::Save(files::FilesRoot(options_.files_dir), command, hooks);
  });
}

// Loads shards from a file. The arrays are expected at once, before the thread for files reaches
// the command, so that an inventory lists them and readers wait for them. A shard whose array was
// deleted meanwhile is skipped.
void Executor::Handle(const api::LoadShards& command) {
  const LaunchRef launch = NewLaunch(command.launch, command.timeout);
  // An inventory lists arrays that are still to be loaded, so that the coordinator can delete them.
  for (const api::FileShard& shard : command.shards) {
    const BufferId id{shard.array, shard.device};
    if (!HasDevice(shard.device)) continue;  // it fails when it is loaded
    const absl::Status status = buffers_.Expect(id);
    if (status.ok()) launch->expected_ids.push_back(id);
    if (!status.ok() && KindOf(status) != ErrorKind::kArrayDeleted)
      return FailBeforeStart(launch, status);
  }
  RunOnFiles(launch, [this, command](LaunchState& running) {
    files::Hooks hooks;
    Reservation reservation;
    hooks.reserve = [&](const api::FileShard& shard, int64_t bytes) -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(reservation, ReserveShard({shard.array, shard.device}, bytes));
      return absl::OkStatus();
    };
    hooks.store = [&](const api::FileShard& shard, ir::Array value) -> absl::Status {
      const BufferId id{shard.array, shard.device};
      const absl::Status status = WriteShard(id, std::move(value), std::move(reservation));
      if (status.ok())
        running.expected_ids.erase(
            std::remove(running.expected_ids.begin(), running.expected_ids.end(), id),
            running.expected_ids.end());
      // A shard of a deleted array is skipped, and the others are loaded.
      const bool deleted = !status.ok() && KindOf(status) == ErrorKind::kArrayDeleted;
      return deleted ? absl::OkStatus() : status;
    };
    hooks.wait = [&](absl::Duration d) { return WaitOrCancelled(running.cancel, d); };
    return files::Load(files::FilesRoot(options_.files_dir), command, hooks);
  });
}

void Executor::Handle(const api::InspectFile& command) {
  files_stream_->Push([this, command] {
    Report(api::FileInspected{command.request,
                              files::Inspect(files::FilesRoot(options_.files_dir), command.path)});
  });
}

}  // namespace tessera::worker
