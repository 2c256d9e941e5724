// Opens, reads and writes the files of a worker's folder (--files-dir). Save and Load (task.cc)
// copy shards with it, and the executor asks for the folder's identity when it starts. All paths
// come from users, so every component is opened by itself without following links.
#include "worker/files/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "ir/array.h"

namespace tessera::worker::files {
namespace {

// Calls f(offset in the file, offset in the block, bytes) for each run of bytes of the block that
// is contiguous in the file.
absl::Status ForContiguousRuns(int64_t offset, int64_t width, const ir::Dims& whole,
                               const ir::Dims& starts, const ir::Dims& shape,
                               const std::function<absl::Status(int64_t, int64_t, int64_t)>& f) {
  const int rank = static_cast<int>(whole.size());
  for (const int64_t dim : shape)
    if (dim == 0) return absl::OkStatus();
  const ir::Dims strides = ir::StridesOf(whole);
  // A run covers the block's part of dim `split` and all dims after it, in which the block is as
  // large as the whole array.
  int split = rank;
  int64_t run = width;
  while (split > 0) {
    --split;
    run *= shape[split];
    if (shape[split] != whole[split]) break;
  }
  if (rank == 0) return f(offset, 0, width);
  ir::Dims index(static_cast<size_t>(split), 0);
  for (int64_t in_block = 0;; in_block += run) {
    int64_t at = starts[split] * strides[split];
    for (int d = 0; d < split; ++d) at += (starts[d] + index[d]) * strides[d];
    TESSERA_RETURN_IF_ERROR(f(offset + at * width, in_block, run));
    int d = split - 1;
    for (; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
    if (d < 0) return absl::OkStatus();
  }
}

}  // namespace

absl::Status FileError(const std::string& what, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return MakeError(ErrorKind::kFileNotFound, absl::StrCat(what, " does not exist"));
  }
  if (error == ELOOP) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat(what, " is a link; links are not followed"));
  }
  if (error == ENOSPC || error == EDQUOT) {
    return MakeError(ErrorKind::kNoSpace,
                     absl::StrCat(what, ": ", std::strerror(error),
                                  "; delete files there, or give it more room"));
  }
  if (error == EFBIG) {
    return MakeError(ErrorKind::kLimitExceeded, absl::StrCat(what, ": ", std::strerror(error)));
  }
  return MakeError(ErrorKind::kInternal, absl::StrCat(what, ": ", std::strerror(error)));
}

absl::StatusOr<FilesRoot::Location> FilesRoot::Locate(const std::string& path,
                                                      bool make_directories) const {
  if (path_.empty()) {
    return MakeError(ErrorKind::kFilesDisabled,
                     "files: this worker has no folder of files; start it with --files-dir");
  }
  Location location;
  location.directory = UniqueFd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!location.directory.ok()) return FileError("files: the folder of files", errno);
  std::vector<std::string> parts = absl::StrSplit(path, '/');
  location.name = parts.back();
  parts.pop_back();
  for (const std::string& part : parts) {
    const int at = location.directory.get();
    if (make_directories && mkdirat(at, part.c_str(), 0755) != 0 && errno != EEXIST) {
      return FileError(absl::StrCat("files: ", part, " in ", path), errno);
    }
    UniqueFd next(openat(at, part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next.ok()) return FileError(absl::StrCat("files: ", part, " in ", path), errno);
    location.directory = std::move(next);
  }
  return location;
}

absl::StatusOr<UniqueFd> FilesRoot::Open(const std::string& path, int64_t* bytes) const {
  TESSERA_ASSIGN_OR_RETURN(const Location location, Locate(path, /*make_directories=*/false));
  // Without O_NONBLOCK, opening a named pipe would block until it has a writer.
  UniqueFd fd(openat(location.directory.get(), location.name.c_str(),
                     O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat about = {};
  if (!fd.ok() || fstat(fd.get(), &about) != 0) return FileError("files: " + path, errno);
  if (!S_ISREG(about.st_mode)) {
    return MakeError(ErrorKind::kFileNotFound, absl::StrCat("files: ", path, " is not a file"));
  }
  *bytes = about.st_size;
  return fd;
}

// Reads the id of the folder from a hidden file, or creates that file. Several processes may do so
// at the same time, on one machine or over a shared file system. Each therefore writes its own
// draft and links it to the final name, which succeeds for the first only, and then all read the
// file that won.
absl::StatusOr<std::string> FilesRoot::Identity() const {
  constexpr char kName[] = ".tessera-folder";
  constexpr size_t kBytes = 16;
  const auto failure = [this](const char* what) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("files-dir: ", path_, ": ", what, ": ", std::strerror(errno),
                                  "; expected a folder that this process may write to"));
  };
  const UniqueFd directory(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.ok()) return failure("it does not open");
  const auto read_identity = [&]() -> std::string {
    const UniqueFd fd(openat(directory.get(), kName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    char text[2 * kBytes];
    if (!fd.ok() || !ReadAll(fd.get(), 0, sizeof(text), text).ok()) return "";
    return {text, sizeof(text)};
  };
  if (std::string identity = read_identity(); !identity.empty()) return identity;
  char bytes[kBytes];
  if (getentropy(bytes, sizeof(bytes)) != 0) return failure("no random bytes");
  const std::string random_id = absl::BytesToHexString(absl::string_view(bytes, sizeof(bytes)));
  // The file is written completely under another name and then linked, so that no reader sees a
  // part of it. If several processes do this, the first link wins.
  const std::string draft = absl::StrCat(kName, ".", random_id);
  const UniqueFd fd(
      openat(directory.get(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.ok()) return failure("a file in it cannot be made");
  const absl::Status written =
      WriteAll(fd.get(), 0, static_cast<int64_t>(random_id.size()), random_id.data());
  const bool linked =
      written.ok() &&
      (linkat(directory.get(), draft.c_str(), directory.get(), kName, 0) == 0 || errno == EEXIST);
  const int error = errno;
  unlinkat(directory.get(), draft.c_str(), 0);
  TESSERA_RETURN_IF_ERROR(written);
  errno = error;
  if (!linked) return failure("a file in it cannot be named");
  std::string identity = read_identity();
  if (identity.empty()) return failure("the file with its identity cannot be read");
  return identity;
}

absl::Status ReadAll(int fd, int64_t offset, int64_t size, char* into) {
  while (size > 0) {
    const ssize_t got = pread(fd, into, static_cast<size_t>(size), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("files: reading", errno);
    if (got == 0) {
      return MakeError(ErrorKind::kFileCorrupt, absl::StrCat("files: the file ends at ", offset,
                                                             ", ", size, " bytes too early"));
    }
    into += got;
    offset += got;
    size -= got;
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, int64_t offset, int64_t size, const char* from) {
  while (size > 0) {
    const ssize_t put = pwrite(fd, from, static_cast<size_t>(size), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return FileError("files: writing", errno);
    from += put;
    offset += put;
    size -= put;
  }
  return absl::OkStatus();
}

absl::Status ReadBlock(int fd, int64_t offset, int64_t width, const ir::Dims& whole,
                       const ir::Dims& starts, const ir::Dims& shape, char* block) {
  return ForContiguousRuns(offset, width, whole, starts, shape,
                           [&](int64_t in_file, int64_t in_block, int64_t bytes) {
                             return ReadAll(fd, in_file, bytes, block + in_block);
                           });
}

absl::Status WriteBlock(int fd, int64_t offset, int64_t width, const ir::Dims& whole,
                        const ir::Dims& starts, const ir::Dims& shape, const char* block) {
  return ForContiguousRuns(offset, width, whole, starts, shape,
                           [&](int64_t in_file, int64_t in_block, int64_t bytes) {
                             return WriteAll(fd, in_file, bytes, block + in_block);
                           });
}

}  // namespace tessera::worker::files
