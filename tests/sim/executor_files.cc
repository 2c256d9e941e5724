// The work of an executor on files, by the rules of a real executor (worker/files/task.h). Each
// part of a save writes its shards into a draft. When all parts have done so, part 0 gives the
// draft its name.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "tests/sim/executor.h"

namespace tessera::sim {
namespace {

// The time for which a part waits for part 0 to begin.
constexpr absl::Duration kBeginTimeout = absl::Seconds(60);
constexpr absl::Duration kFirstPause = absl::Milliseconds(2), kLastPause = absl::Milliseconds(100);

absl::Status FileNotFoundError(const std::string& path) {
  return MakeError(ErrorKind::kFileNotFound, absl::StrCat(path, " is not there"));
}

std::string DraftKey(const api::SaveShards& c) { return absl::StrCat(c.path, " ", c.token); }

}  // namespace

void Executor::QueueFileWork(FileWork work) {
  memory_.file_work.push_back(std::move(work));
  if (memory_.file_work.size() == 1) WorkOnFile(kFirstPause);
}

void Executor::WorkOnFile(absl::Duration pause) {
  // Work on a disk takes time.
  const absl::Duration time =
      pause + world_->random().Within(absl::ZeroDuration(), absl::Milliseconds(10));
  Later(time, [this, pause] {
    const FileWork& work = memory_.file_work.front();
    const bool cancelled = work.launch != 0 && memory_.cancelled.count(work.launch) > 0;
    const std::optional<absl::Status> result =
        cancelled ? MakeError(ErrorKind::kCancelled, "cancelled") : work.continue_work();
    if (!result) return WorkOnFile(std::min(2 * pause, kLastPause));
    if (!result->ok() && work.fail) work.fail(*result);
    if (work.launch != 0 && result->ok()) {
      Report(api::LaunchDone{work.launch, absl::Milliseconds(1), {}});
    } else if (work.launch != 0) {
      Report(api::LaunchFailed{work.launch, *result, /*inputs_kept=*/true});
    }
    memory_.file_work.pop_front();
    if (!memory_.file_work.empty()) WorkOnFile(kFirstPause);
  });
}

// ---- Saves. -------------------------------------------------------------------------------------

std::shared_ptr<Executor::Buffer> Executor::Retain(const Key& key) {
  const Buffer& buffer = memory_.buffers.at(key);
  auto retained = std::make_shared<Buffer>(buffer);
  if (buffer.state == Buffer::kExpected) memory_.retained[key].push_back(retained);
  return retained;
}

// Begins a part of a save. Part 0 makes the draft, and the other parts wait until it is there. The
// values are retained when the command comes, because the arrays may be deleted before the part is
// written.
void Executor::On(const api::SaveShards& c) {
  memory_.unreported[c.launch] = {c.sequence, 0};
  std::vector<std::shared_ptr<Buffer>> sources;
  for (const api::FileShard& shard : c.shards) {
    const Key key{shard.array, shard.device};
    if (memory_.buffers.count(key) > 0) {
      sources.push_back(Retain(key));
      continue;
    }
    if (fleet_->is_live(c.launch))
      world_->Violate("save ", c.launch, " reads array ", shard.array, ", which ", name_,
                      " does not have", memory_.deleted.count(key) > 0 ? ": deleted" : "");
    return Report(
        api::LaunchFailed{c.launch, MakeError(ErrorKind::kArrayNotFound, "not here"), true});
  }
  fleet_->checker->OnLaunchBegin(c.launch, name_, incarnation_);
  FileWork work{c.launch, nullptr};
  const auto my_draft = std::make_shared<FileRef>();  // the draft, once it is there
  const absl::Time began_at = world_->now();
  work.continue_work = [this, c, sources, my_draft, began_at]() -> std::optional<absl::Status> {
    FileRef& draft = *my_draft;
    if (draft == nullptr && c.part == 0) {
      if (!c.overwrite && fleet_->files.count(c.path) > 0)
        return MakeError(ErrorKind::kAlreadyExists, absl::StrCat(c.path, " exists already"));
      draft = std::make_shared<File>();
      for (const api::FileArrayInfo& info : c.arrays) draft->arrays.push_back({info});
      draft->parts.assign(c.parts, File::kMissing);
      if (!fleet_->drafts.emplace(DraftKey(c), draft).second)
        world_->Violate("the draft of save ", c.launch, " is made twice");
      return std::nullopt;
    }
    if (draft == nullptr) {
      const auto found = fleet_->drafts.find(DraftKey(c));
      if (found != fleet_->drafts.end()) draft = found->second;
      if (draft == nullptr && world_->now() > began_at + kBeginTimeout)
        return MakeError(ErrorKind::kFilesDisabled, "the file that another began is not here");
      return std::nullopt;
    }
    if (draft->parts.at(c.part) == File::kMissing) return WriteShards(c, *draft, sources);
    return Publish(c, draft);
  };
  work.fail = [this, c, my_draft](const absl::Status&) {
    if (*my_draft == nullptr) return;
    (*my_draft)->parts.at(c.part) = File::kFailed;
    if (c.part == 0) fleet_->drafts.erase(DraftKey(c));
  };
  QueueFileWork(std::move(work));
}

std::optional<absl::Status> Executor::WriteShards(
    const api::SaveShards& c, File& draft, const std::vector<std::shared_ptr<Buffer>>& sources) {
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i]->state == Buffer::kExpected) return std::nullopt;
    if (sources[i]->state == Buffer::kFailed) return sources[i]->error;
    draft.arrays.at(c.shards[i].index).value = sources[i]->value;
  }
  draft.parts.at(c.part) = File::kWritten;
  if (c.part == 0) return std::nullopt;
  return absl::OkStatus();
}

std::optional<absl::Status> Executor::Publish(const api::SaveShards& c, const FileRef& draft) {
  const std::vector<File::Part>& parts = draft->parts;
  if (std::count(parts.begin(), parts.end(), File::kFailed) > 0)
    return MakeError(ErrorKind::kPeerFailed, "another part failed");
  if (std::count(parts.begin(), parts.end(), File::kMissing) > 0) return std::nullopt;
  if (!c.overwrite && fleet_->files.count(c.path) > 0)
    return MakeError(ErrorKind::kAlreadyExists, absl::StrCat(c.path, " exists already"));
  fleet_->files[c.path] = draft;
  fleet_->drafts.erase(DraftKey(c));
  return absl::OkStatus();
}

// ---- Loads. -------------------------------------------------------------------------------------

void Executor::On(const api::LoadShards& c) {
  memory_.unreported[c.launch] = {0, 0};
  fleet_->checker->OnLaunchBegin(c.launch, name_, incarnation_);
  for (const api::FileShard& shard : c.shards) Expect(shard.array, shard.device);
  FileWork work{c.launch, nullptr};
  work.continue_work = [this, c]() -> std::optional<absl::Status> { return ReadShards(c); };
  work.fail = [this, c](const absl::Status& why) {
    for (const api::FileShard& shard : c.shards) {
      const auto it = memory_.buffers.find({shard.array, shard.device});
      if (it != memory_.buffers.end() && it->second.state == Buffer::kExpected)
        Resolve(it->first, {Buffer::kFailed, 0, why});
    }
  };
  QueueFileWork(std::move(work));
}

absl::Status Executor::ReadShards(const api::LoadShards& c) {
  const auto file = fleet_->files.find(c.path);
  if (file == fleet_->files.end()) return FileNotFoundError(c.path);
  for (const api::FileShard& shard : c.shards) {
    const api::FileArrayInfo& expected = c.arrays.at(shard.index);
    const std::vector<File::Array>& arrays = file->second->arrays;
    const auto found = std::find_if(arrays.begin(), arrays.end(),
                                    [&](const File::Array& a) { return a.info == expected; });
    if (found == arrays.end())
      return FileNotFoundError(absl::StrCat(expected.name, " of ", c.path));
    const Key key{shard.array, shard.device};
    if (memory_.deleted.count(key) > 0) continue;
    if (memory_.buffers.at(key).state != Buffer::kExpected)
      return MakeError(ErrorKind::kInternal,
                       absl::StrCat("array ", shard.array, " is loaded twice"));
    Resolve(key, {Buffer::kReady, found->value, {}});
    Report(api::BufferWritten{shard.array, shard.device, absl::OkStatus()});
  }
  return absl::OkStatus();
}

void Executor::On(const api::InspectFile& c) {
  QueueFileWork({0, [this, c, stream = memory_.stream]() -> std::optional<absl::Status> {
                   api::FileInspected report{c.request, FileNotFoundError(c.path)};
                   if (const auto file = fleet_->files.find(c.path); file != fleet_->files.end()) {
                     report.arrays.emplace();
                     for (const File::Array& array : file->second->arrays)
                       report.arrays->push_back(array.info);
                   }
                   Answer(stream, std::move(report));
                   return absl::OkStatus();
                 }});
}

}  // namespace tessera::sim
