// Saves shards into a file and loads them from it. The executor (worker/runtime/executor_files.cc)
// calls Save, Load and Inspect on a thread for files, one command of the coordinator at a time. The
// executors of a save know each other only by the file: they communicate through its status bytes.
#include "worker/files/task.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/host_memory.h"
#include "base/status.h"
#include "worker/files/index.h"

namespace tessera::worker::files {
namespace {

enum class PartStatus : char { kMissing = 0, kWritten = 1, kFailed = 2 };

constexpr absl::Duration kFirstPoll = absl::Milliseconds(2), kLastPoll = absl::Milliseconds(100);
// A partial file that has not changed for this long belongs to a process that died.
constexpr int64_t kAbandonedSeconds = 3600;

absl::Status ErrnoError(const std::string& what) {
  return FileError(absl::StrCat("files: ", what), errno);
}

std::string HiddenName(const std::string& name, const std::string& token) {
  return absl::StrCat(".", name, ".tessera-", token);
}

absl::Status ExistsError(const std::string& path) {
  return MakeError(
      ErrorKind::kAlreadyExists,
      absl::StrCat("files: ", path, " exists already; set overwrite, or choose another path"));
}

// Removes the drafts of saves to this file whose processes died.
void RemoveAbandoned(const FilesRoot::Location& location) {
  const std::string prefix = HiddenName(location.name, "");
  UniqueFd own(fcntl(location.directory.get(), F_DUPFD_CLOEXEC, 0));
  DIR* const listing = own.ok() ? fdopendir(own.get()) : nullptr;
  if (listing == nullptr) return;
  own.Release();  // closedir closes the descriptor
  rewinddir(listing);
  while (const dirent* entry = readdir(listing)) {
    struct stat about = {};
    if (absl::StartsWith(entry->d_name, prefix) &&
        fstatat(location.directory.get(), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
        about.st_mtime < time(nullptr) - kAbandonedSeconds) {
      unlinkat(location.directory.get(), entry->d_name, 0);
    }
  }
  closedir(listing);
}

// The temporary file of a save, as one part sees it.
class Draft {
 public:
  Draft(const api::SaveShards& command, FilesRoot::Location location, const Index& index,
        UniqueFd fd)
      : command_(&command),
        location_(std::move(location)),
        hidden_(HiddenName(location_.name, command.token)),
        statuses_offset_(index.file_bytes),
        fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  absl::Status SetStatus(PartStatus status) const {
    const char byte = static_cast<char>(status);
    if (status == PartStatus::kWritten && fdatasync(fd()) != 0) return ErrnoError("fdatasync");
    return WriteAll(fd(), statuses_offset_ + command_->part, 1, &byte);
  }
  // Part 0 only: waits until all parts are written, or one has failed.
  absl::Status AwaitOthers(const Hooks& hooks) const {
    std::vector<char> statuses(static_cast<size_t>(command_->parts));
    absl::Duration poll = kFirstPoll;
    while (true) {
      TESSERA_RETURN_IF_ERROR(ReadAll(fd(), statuses_offset_, command_->parts, statuses.data()));
      for (int32_t part = 0; part < command_->parts; ++part) {
        if (statuses[part] == static_cast<char>(PartStatus::kFailed)) {
          return MakeError(ErrorKind::kPeerFailed,
                           absl::StrCat("save: part ", part, " of ", command_->path, " failed"));
        }
      }
      if (std::find(statuses.begin(), statuses.end(), static_cast<char>(PartStatus::kMissing)) ==
          statuses.end()) {
        return absl::OkStatus();
      }
      TESSERA_RETURN_IF_ERROR(hooks.wait(poll));
      poll = std::min(2 * poll, kLastPoll);
    }
  }
  // Part 0 only: cuts the status bytes off, syncs the file and gives it its final name.
  absl::Status Publish() const {
    const int directory = location_.directory.get();
    if (ftruncate(fd(), statuses_offset_) != 0) return ErrnoError("ftruncate");
    if (fsync(fd()) != 0) return ErrnoError("fsync");
    if (command_->overwrite) {
      if (renameat(directory, hidden_.c_str(), directory, location_.name.c_str()) != 0) {
        return ErrnoError("rename");
      }
    } else if (linkat(directory, hidden_.c_str(), directory, location_.name.c_str(), 0) != 0) {
      return errno == EEXIST ? ExistsError(command_->path) : ErrnoError("link");
    } else {
      unlinkat(directory, hidden_.c_str(), 0);
    }
    // A failure is ignored, since some file systems cannot sync a directory.
    static_cast<void>(fsync(directory));
    return absl::OkStatus();
  }
  void Remove() const { unlinkat(location_.directory.get(), hidden_.c_str(), 0); }

 private:
  const api::SaveShards* command_;
  FilesRoot::Location location_;
  std::string hidden_;
  int64_t statuses_offset_;
  UniqueFd fd_;
};

// Opens the draft of a save: part 0 creates it, and the other parts wait until it exists. Part 0
// also writes the header, and sets the length of the file last, so that a part that sees the full
// length may write at once. A part that waits in vain is probably in another folder than part 0,
// and the error says so.
absl::StatusOr<Draft> OpenDraft(const FilesRoot& root, const api::SaveShards& command,
                                const std::string& header, const Index& index, const Hooks& hooks,
                                absl::Duration timeout) {
  TESSERA_ASSIGN_OR_RETURN(FilesRoot::Location location,
                           root.Locate(command.path, /*make_directories=*/true));
  const std::string hidden = HiddenName(location.name, command.token);
  const int at = location.directory.get();
  if (command.part == 0) {
    struct stat about = {};
    if (!command.overwrite &&
        fstatat(at, location.name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0) {
      return ExistsError(command.path);
    }
    RemoveAbandoned(location);
    UniqueFd fd(
        openat(at, hidden.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!fd.ok()) return ErrnoError(absl::StrCat("cannot make ", hidden));
    Draft draft(command, std::move(location), index, std::move(fd));
    absl::Status made = WriteAll(draft.fd(), 0, static_cast<int64_t>(header.size()), header.data());
    if (made.ok() && ftruncate(draft.fd(), index.file_bytes + command.parts) != 0) {
      made = ErrnoError("ftruncate");
    }
    if (!made.ok()) {
      draft.Remove();
      return made;
    }
    return draft;
  }
  const absl::Time end = SteadyNow() + timeout;
  for (absl::Duration poll = kFirstPoll;; poll = std::min(2 * poll, kLastPoll)) {
    UniqueFd fd(openat(at, hidden.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    struct stat about = {};
    // Part 0 sets the length of the file last.
    if (fd.ok() && fstat(fd.get(), &about) == 0 &&
        about.st_size >= index.file_bytes + command.parts) {
      return Draft(command, std::move(location), index, std::move(fd));
    }
    if (SteadyNow() > end) {
      return MakeError(ErrorKind::kFilesDisabled,
                       absl::StrCat("save: ", command.path,
                                    ": the file that another worker began "
                                    "is not here; arrays that lie on several workers are saved "
                                    "into a folder that all of them share (--files-dir)"));
    }
    TESSERA_RETURN_IF_ERROR(hooks.wait(poll));
  }
}

absl::Status WriteShards(const api::SaveShards& command, const Index& index, int fd,
                         const Hooks& hooks) {
  for (const api::FileShard& shard : command.shards) {
    TESSERA_RETURN_IF_ERROR(hooks.wait(absl::ZeroDuration()));
    const Entry& entry = index.entries[shard.index];
    TESSERA_ASSIGN_OR_RETURN(const ir::Array value, hooks.bytes_of(shard));
    if (value.dtype() != entry.array.dtype || value.shape() != shard.shape) {
      return MakeError(
          ErrorKind::kInternal,
          absl::StrCat("save: array ", shard.array, " is ",
                       ir::MakeType(value.dtype(), value.shape()).ToString(), " here; expected ",
                       ir::MakeType(entry.array.dtype, shard.shape).ToString()));
    }
    TESSERA_RETURN_IF_ERROR(WriteBlock(fd, entry.offset, ir::ByteWidth(entry.array.dtype),
                                       entry.array.shape, shard.starts, shard.shape,
                                       reinterpret_cast<const char*>(value.data())));
  }
  return absl::OkStatus();
}

struct IndexedFile {
  UniqueFd fd;
  Index index;
};
absl::StatusOr<IndexedFile> OpenFile(const FilesRoot& root, const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const api::FileFormat format, api::CheckFilePath(path));
  IndexedFile file;
  int64_t bytes = 0;
  TESSERA_ASSIGN_OR_RETURN(file.fd, root.Open(path, &bytes));
  absl::StatusOr<Index> index =
      ReadIndex(format, bytes, [&](int64_t offset, int64_t size, char* into) {
        return ReadAll(file.fd.get(), offset, size, into);
      });
  TESSERA_RETURN_IF_ERROR(Annotate(index.status(), path));
  file.index = *std::move(index);
  return file;
}

}  // namespace

absl::Status Save(const FilesRoot& root, const api::SaveShards& command, const Hooks& hooks,
                  absl::Duration begin_timeout) {
  TESSERA_ASSIGN_OR_RETURN(const api::FileFormat format, api::CheckFilePath(command.path));
  TESSERA_RETURN_IF_ERROR(api::CheckFileArrays(format, command.arrays));
  Index index;
  const std::string header = MakeHeader(format, command.arrays, &index);
  TESSERA_ASSIGN_OR_RETURN(const Draft draft,
                           OpenDraft(root, command, header, index, hooks, begin_timeout));
  absl::Status status = WriteShards(command, index, draft.fd(), hooks);
  if (command.part != 0) {
    status.Update(draft.SetStatus(status.ok() ? PartStatus::kWritten : PartStatus::kFailed));
    return status;
  }
  if (status.ok()) status = draft.SetStatus(PartStatus::kWritten);
  if (status.ok()) status = draft.AwaitOthers(hooks);
  if (status.ok()) status = draft.Publish();
  if (!status.ok()) draft.Remove();
  return status;
}

absl::Status Load(const FilesRoot& root, const api::LoadShards& command, const Hooks& hooks) {
  TESSERA_ASSIGN_OR_RETURN(const IndexedFile file, OpenFile(root, command.path));
  for (const api::FileShard& shard : command.shards) {
    TESSERA_RETURN_IF_ERROR(hooks.wait(absl::ZeroDuration()));
    const api::FileArrayInfo& expected = command.arrays[shard.index];
    const Entry* entry = file.index.Find(expected.name);
    if (entry == nullptr || !(entry->array == expected)) {
      return MakeError(
          ErrorKind::kFileNotFound,
          absl::StrCat("load: ", command.path, " has changed since it was inspected: array '",
                       expected.name, "' is different"));
    }
    const int64_t bytes = ir::MakeType(expected.dtype, shard.shape).num_bytes();
    TESSERA_RETURN_IF_ERROR(hooks.reserve(shard, bytes));
    const std::shared_ptr<std::byte[]> memory = NewHostMemory(bytes);
    TESSERA_RETURN_IF_ERROR(ReadBlock(file.fd.get(), entry->offset, ir::ByteWidth(expected.dtype),
                                      expected.shape, shard.starts, shard.shape,
                                      reinterpret_cast<char*>(memory.get())));
    TESSERA_RETURN_IF_ERROR(hooks.store(shard, ir::Array(expected.dtype, shard.shape, memory)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<api::FileArrayInfo>> Inspect(const FilesRoot& root,
                                                        const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const IndexedFile file, OpenFile(root, path));
  std::vector<api::FileArrayInfo> arrays;
  for (const Entry& entry : file.index.entries) arrays.push_back(entry.array);
  return arrays;
}

}  // namespace tessera::worker::files
