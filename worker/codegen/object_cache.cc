// The cache of compiled objects on disk. host_code.cc looks here for an object before it compiles,
// and stores here what it has compiled. Everything that goes wrong with a file is a miss or a
// warning, never an error, because the object can always be compiled again.
#include "worker/codegen/object_cache.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status.h"

namespace tessera::worker::codegen {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[] = "tessera object 1\n";
constexpr size_t kMagicBytes = sizeof(kMagic) - 1;
constexpr size_t kDigestBytes = 64;  // length of the hex digits
// The size of the directory is computed again after this many entries, because other processes
// write entries too.
constexpr int64_t kPutsPerTrim = 64;

// An entry consists of the magic, the digest of the object, and the object.
std::string Encode(std::string_view object) {
  return absl::StrCat(kMagic, Sha256Hex(object), absl::string_view(object.data(), object.size()));
}
std::optional<std::string> Decode(const std::string& entry) {
  if (entry.size() < kMagicBytes + kDigestBytes || entry.compare(0, kMagicBytes, kMagic) != 0)
    return std::nullopt;
  std::string object = entry.substr(kMagicBytes + kDigestBytes);
  if (entry.compare(kMagicBytes, kDigestBytes, Sha256Hex(object)) != 0) return std::nullopt;
  return object;
}

}  // namespace

ObjectCache::ObjectCache(std::string folder, int64_t bytes_max)
    : folder_(std::move(folder)), bytes_max_(bytes_max) {}

bool ObjectCache::EnsureUsable() {
  if (state_ != State::kUnknown) return state_ == State::kUsable;
  if (folder_.empty()) {
    state_ = State::kUnusable;
    return false;
  }
  std::error_code error;
  fs::create_directories(fs::path(folder_).parent_path(), error);
  mkdir(folder_.c_str(), 0700);
  struct stat info;
  if (stat(folder_.c_str(), &info) != 0) {
    GiveUp("cannot be made", errno);
  } else if (!S_ISDIR(info.st_mode)) {
    GiveUp("is not a folder", ENOTDIR);
  } else if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    // Entries are code that this process will run, so other users must not be able to write them.
    GiveUp("can be written by others", EPERM);
  } else {
    state_ = State::kUsable;
    Trim();
  }
  return state_ == State::kUsable;
}

void ObjectCache::GiveUp(std::string_view what, int error_number) {
  state_ = State::kUnusable;
  TESSERA_LOG(WARNING) << "the folder for compiled code " << what
                       << "; compiling anew in every process" << Field("folder", folder_)
                       << Field("error", std::strerror(error_number));
}

std::optional<std::string> ObjectCache::Get(const std::string& key) {
  {
    absl::MutexLock lock(&mu_);
    if (!EnsureUsable()) return std::nullopt;
  }
  const std::string path = EntryPathOf(key);
  std::string entry;
  if (TryReadWholeFile(path, static_cast<size_t>(bytes_max_), &entry) != 0) return std::nullopt;
  std::optional<std::string> object = Decode(entry);
  if (object) {
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // the entry was used just now
  } else {
    TESSERA_LOG(WARNING) << "a compiled object is damaged; compiling it anew"
                         << Field("file", path);
    unlink(path.c_str());
  }
  return object;
}

void ObjectCache::Put(const std::string& key, std::string_view object) {
  absl::MutexLock lock(&mu_);
  if (!EnsureUsable()) return;
  const std::string entry = Encode(object);
  if (static_cast<int64_t>(entry.size()) > bytes_max_) return;
  const int error_number =
      TryReplaceFile(EntryPathOf(key), entry, {.access = FileAccess::kOwner, .is_durable = false});
  if (error_number != 0) {
    GiveUp("cannot be written", error_number);
    return;
  }
  folder_bytes_ += static_cast<int64_t>(entry.size());
  if (folder_bytes_ > bytes_max_ || ++puts_since_trim_ >= kPutsPerTrim) Trim();
}

// ---- Locks. ------------------------------------------------------------------------------------
namespace {

// The time to wait for an object that another process compiles.
constexpr absl::Duration kOtherProcessWaitMax = absl::Seconds(30);

// Creates and locks the file at `path`. Returns its descriptor, or -1 if that is not possible by
// `deadline`. The holder of a lock removes the file before it unlocks it, so the file that was just
// locked may already be removed. Then another file is created.
int LockFile(const std::string& path, absl::Time deadline) {
  int pause_ms = 1;
  while (true) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    struct stat ours, there;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
      if (fstat(fd, &ours) == 0 && stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino)
        return fd;
      close(fd);
      continue;
    }
    close(fd);
    if (SteadyNow() >= deadline) return -1;
    constexpr int kPauseMsMax = 50;
    // The thread pauses because the kernel's file locks have no deadline of their own.
    poll(nullptr, 0, pause_ms);
    pause_ms = std::min(2 * pause_ms, kPauseMsMax);
  }
}

}  // namespace

ObjectCache::KeyLock::KeyLock(KeyLock&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      key_(std::move(other.key_)),
      fd_(std::exchange(other.fd_, -1)) {}

ObjectCache::KeyLock::~KeyLock() {
  if (cache_ == nullptr) return;
  if (fd_ >= 0) {
    unlink(cache_->LockPathOf(key_).c_str());
    close(fd_);
  }
  absl::MutexLock lock(&cache_->mu_);
  cache_->locked_keys_.erase(key_);
}

absl::StatusOr<ObjectCache::KeyLock> ObjectCache::LockKey(const std::string& key,
                                                          absl::Time deadline,
                                                          const std::string& label) {
  bool locks_file = false;
  {
    absl::MutexLock lock(&mu_);
    const auto is_free = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return locked_keys_.count(key) == 0;
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&is_free), deadline - SteadyNow()))
      return MakeError(ErrorKind::kCompileTimeout,
                       absl::StrCat("compile of ", label,
                                    ": another program's compilation of the same code has not "
                                    "ended within compile_timeout_ms; retry"));
    locked_keys_.insert(key);
    locks_file = EnsureUsable();
  }
  KeyLock key_lock(this, key);
  if (locks_file)
    key_lock.fd_ =
        LockFile(LockPathOf(key), std::min(deadline, SteadyNow() + kOtherProcessWaitMax));
  return key_lock;
}

// Adds up the sizes of the files of the directory, and removes the least recently used files if the
// sum exceeds the limit. It reads the directory each time instead of keeping a list, because other
// processes write and remove entries as well. Get sets the time of an entry that it reads, so the
// modification time is the time of the last use.
void ObjectCache::Trim() {
  struct File {
    fs::file_time_type last_used;
    std::string path;
    int64_t bytes;
  };
  std::vector<File> files;
  std::error_code error;
  folder_bytes_ = 0;
  puts_since_trim_ = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    // If another process has removed the file meanwhile, it is not counted.
    std::error_code gone;
    const auto bytes = static_cast<int64_t>(entry.file_size(gone));
    const fs::file_time_type last_used = entry.last_write_time(gone);
    if (gone) continue;
    files.push_back({last_used, entry.path().string(), bytes});
    folder_bytes_ += bytes;
  }
  if (folder_bytes_ <= bytes_max_) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return a.last_used != b.last_used ? a.last_used < b.last_used : a.path < b.path;
  });
  // Trims to less than the limit, so that not every new entry has to trim.
  const int64_t enough = bytes_max_ - bytes_max_ / 8;
  for (const File& file : files) {
    if (folder_bytes_ <= enough) break;
    unlink(file.path.c_str());
    folder_bytes_ -= file.bytes;
  }
}

}  // namespace tessera::worker::codegen
