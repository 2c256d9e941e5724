// Reads and replaces whole files, for all code that handles a file in one piece: certificates,
// tokens, port files, dumps, the cache of compiled code. The shards of saved arrays and the
// coordinator's database are read and written in pieces, by code of their own.
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tessera {
namespace {

constexpr size_t kBlockBytes = size_t{64} << 10;

// Returns the advice for an error, with a semicolon before it. Returns "" if the cause says enough.
absl::string_view Advice(int error, bool is_write) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return is_write ? "; its folder has to exist" : "; check the path";
    case EACCES:
    case EPERM:
      return is_write ? "; this user has to be allowed to write to its folder"
                      : "; this user has to be allowed to read it";
    case EISDIR:
      return "; name a file, not a folder";
    case ENOSPC:
    case EDQUOT:
      return "; make room on its disk";
    default:
      return "";
  }
}

absl::Status FileError(const std::string& path, int error, bool is_write) {
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat(path, ": ", std::strerror(error), Advice(error, is_write)));
}

mode_t ModeOf(FileAccess access) {
  switch (access) {
    case FileAccess::kOwner:
      return 0600;
    case FileAccess::kEveryone:
      return 0644;
    case FileAccess::kByUmask:
      return 0666;
  }
  return 0600;
}

// Creates a file beside `path` under a name that no file has, and stores that name in `name`. The
// process id and the counter make names of other processes and threads unlikely, and O_EXCL refuses
// those that are taken: by a file that a crash has left, or by a process of another container.
UniqueFd CreateBeside(const std::string& path, mode_t mode, std::string* name) {
  constexpr int kTriesMax = 1000;
  static std::atomic<uint64_t> last{0};
  for (int i = 0; i < kTriesMax; ++i) {
    *name = absl::StrCat(path, ".", getpid(), ".", ++last, ".tmp");
    UniqueFd file(open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (file.ok() || errno != EEXIST) return file;
  }
  return UniqueFd();
}

// Returns 0 or an errno.
int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

int TryReadWholeFile(const std::string& path, size_t bytes_max, std::string* bytes) {
  bytes->clear();
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) return errno;
  size_t size = 0;
  while (true) {
    bytes->resize(size + kBlockBytes);
    const ssize_t got = read(file.get(), bytes->data() + size, kBlockBytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    size += static_cast<size_t>(got);
    if (size > bytes_max) return EFBIG;
    if (got == 0) break;
  }
  bytes->resize(size);
  return 0;
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t bytes_max) {
  std::string bytes;
  const int error = TryReadWholeFile(path, bytes_max, &bytes);
  if (error == 0) return bytes;
  if (error == EFBIG)
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat(path, ": is longer than ", bytes_max,
                                  " bytes; check that it is the file meant"));
  return FileError(path, error, /*is_write=*/false);
}

int TryReplaceFile(const std::string& path, std::string_view bytes, ReplaceOptions options) {
  const mode_t mode = ModeOf(options.access);
  std::string temporary_path;
  UniqueFd file = CreateBeside(path, mode, &temporary_path);
  if (!file.ok()) return errno;
  int error = 0;
  // Set the mode again, because the umask may have changed the mode that `open` gave the file.
  if (options.access != FileAccess::kByUmask && fchmod(file.get(), mode) != 0) error = errno;
  if (error == 0) error = WriteAll(file.get(), bytes);
  if (error == 0 && options.is_durable && fsync(file.get()) != 0) error = errno;
  // Some file systems report a failed write only when the file is closed.
  if (close(file.Release()) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(temporary_path.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(temporary_path.c_str());
    return error;
  }
  return options.is_durable ? SyncFolderOf(path) : 0;
}

absl::Status ReplaceFile(const std::string& path, std::string_view bytes, bool is_private) {
  const FileAccess access = is_private ? FileAccess::kOwner : FileAccess::kEveryone;
  const int error = TryReplaceFile(path, bytes, {.access = access, .is_durable = true});
  return error == 0 ? absl::OkStatus() : FileError(path, error, /*is_write=*/true);
}

int SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return directory.ok() && fsync(directory.get()) == 0 ? 0 : errno;
}

}  // namespace tessera
