// A VFS of SQLite that passes every call on to the VFS "unix", except for the faults that a test
// has set. Tests of the store name it in SqliteOptions::vfs. The disk remembers the writes that
// were not synced, because only those may be lost in a power failure.
#include "server/store/testing/faulty_disk.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/unique_fd.h"

namespace tessera::server::store {
namespace {

// An open file of this VFS. The file object of the VFS "unix" lies behind it in memory.
struct File {
  sqlite3_file base;
  FaultyDisk* disk;
  std::string* path;
};

sqlite3_vfs* UnixVfs() {
  static sqlite3_vfs* const vfs = sqlite3_vfs_find("unix");
  return vfs;
}
FaultyDisk* DiskOf(sqlite3_vfs* vfs) { return static_cast<FaultyDisk*>(vfs->pAppData); }
File* FileOf(sqlite3_file* file) { return reinterpret_cast<File*>(file); }
sqlite3_file* RealFileOf(sqlite3_file* file) {
  return reinterpret_cast<sqlite3_file*>(FileOf(file) + 1);
}

int Close(sqlite3_file* file) {
  delete std::exchange(FileOf(file)->path, nullptr);
  return RealFileOf(file)->pMethods->xClose(RealFileOf(file));
}
int Read(sqlite3_file* file, void* to, int bytes, sqlite3_int64 offset) {
  return RealFileOf(file)->pMethods->xRead(RealFileOf(file), to, bytes, offset);
}
int Write(sqlite3_file* file, const void* from, int bytes, sqlite3_int64 offset) {
  FaultyDisk& disk = *FileOf(file)->disk;
  if (const int code = disk.Admit(); code != SQLITE_OK) return code;
  sqlite3_int64 size = 0;
  RealFileOf(file)->pMethods->xFileSize(RealFileOf(file), &size);
  std::string before(
      static_cast<size_t>(std::max<int64_t>(0, std::min<int64_t>(bytes, size - offset))), '\0');
  if (!before.empty()) Read(file, before.data(), static_cast<int>(before.size()), offset);
  disk.OnWrite(*FileOf(file)->path, offset, std::move(before), size,
               std::string(static_cast<const char*>(from), static_cast<size_t>(bytes)));
  return RealFileOf(file)->pMethods->xWrite(RealFileOf(file), from, bytes, offset);
}
int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  if (const int code = FileOf(file)->disk->Admit(); code != SQLITE_OK) return code;
  FileOf(file)->disk->OnSync(*FileOf(file)->path);
  return RealFileOf(file)->pMethods->xTruncate(RealFileOf(file), size);
}
int Sync(sqlite3_file* file, int flags) {
  FaultyDisk& disk = *FileOf(file)->disk;
  if (const int code = disk.Admit(); code != SQLITE_OK) return code;
  disk.BeginSync();
  const int code = RealFileOf(file)->pMethods->xSync(RealFileOf(file), flags);
  if (code == SQLITE_OK) disk.OnSync(*FileOf(file)->path);
  return code;
}
int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  return RealFileOf(file)->pMethods->xFileSize(RealFileOf(file), size);
}
int Lock(sqlite3_file* file, int kind) {
  return RealFileOf(file)->pMethods->xLock(RealFileOf(file), kind);
}
int Unlock(sqlite3_file* file, int kind) {
  return RealFileOf(file)->pMethods->xUnlock(RealFileOf(file), kind);
}
int CheckReserved(sqlite3_file* file, int* out) {
  return RealFileOf(file)->pMethods->xCheckReservedLock(RealFileOf(file), out);
}
int Control(sqlite3_file* file, int op, void* argument) {
  return RealFileOf(file)->pMethods->xFileControl(RealFileOf(file), op, argument);
}
int SectorSize(sqlite3_file* file) {
  return RealFileOf(file)->pMethods->xSectorSize(RealFileOf(file));
}
int Characteristics(sqlite3_file* file) {
  return RealFileOf(file)->pMethods->xDeviceCharacteristics(RealFileOf(file));
}
int ShmMap(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
  return RealFileOf(file)->pMethods->xShmMap(RealFileOf(file), page, size, extend, out);
}
int ShmLock(sqlite3_file* file, int offset, int n, int flags) {
  return RealFileOf(file)->pMethods->xShmLock(RealFileOf(file), offset, n, flags);
}
void ShmBarrier(sqlite3_file* file) { RealFileOf(file)->pMethods->xShmBarrier(RealFileOf(file)); }
int ShmUnmap(sqlite3_file* file, int remove) {
  return RealFileOf(file)->pMethods->xShmUnmap(RealFileOf(file), remove);
}

constexpr sqlite3_io_methods kMethods = {
    .iVersion = 2,  // excludes memory maps of the file, because their writes would bypass Write
    .xClose = Close,
    .xRead = Read,
    .xWrite = Write,
    .xTruncate = Truncate,
    .xSync = Sync,
    .xFileSize = FileSize,
    .xLock = Lock,
    .xUnlock = Unlock,
    .xCheckReservedLock = CheckReserved,
    .xFileControl = Control,
    .xSectorSize = SectorSize,
    .xDeviceCharacteristics = Characteristics,
    .xShmMap = ShmMap,
    .xShmLock = ShmLock,
    .xShmBarrier = ShmBarrier,
    .xShmUnmap = ShmUnmap,
    .xFetch = nullptr,
    .xUnfetch = nullptr,
};

int Open(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* out) {
  file->pMethods = nullptr;
  const int code = UnixVfs()->xOpen(UnixVfs(), path, RealFileOf(file), flags, out);
  if (RealFileOf(file)->pMethods == nullptr) return code;
  FileOf(file)->disk = DiskOf(vfs);
  FileOf(file)->path = new std::string(path == nullptr ? "" : path);
  file->pMethods = &kMethods;
  return code;
}
int Delete(sqlite3_vfs* vfs, const char* path, int sync) {
  const int code = DiskOf(vfs)->Admit();
  return code != SQLITE_OK ? code : UnixVfs()->xDelete(UnixVfs(), path, sync);
}

std::unique_ptr<sqlite3_vfs> MakeVfs(FaultyDisk* disk) {
  auto vfs = std::make_unique<sqlite3_vfs>(*UnixVfs());
  vfs->szOsFile = static_cast<int>(sizeof(File)) + UnixVfs()->szOsFile;
  vfs->pNext = nullptr;
  vfs->zName = "tessera-faulty";
  vfs->pAppData = disk;
  vfs->xOpen = Open;
  vfs->xDelete = Delete;
  return vfs;
}

}  // namespace

FaultyDisk::FaultyDisk() : vfs_(MakeVfs(this)) {
  TESSERA_CHECK_EQ(sqlite3_vfs_register(vfs_.get(), /*makeDflt=*/0), SQLITE_OK);
}
FaultyDisk::~FaultyDisk() { sqlite3_vfs_unregister(vfs_.get()); }
const char* FaultyDisk::name() const { return vfs_->zName; }

void FaultyDisk::SetFault(Fault fault) {
  absl::MutexLock lock(&mu_);
  fault_ = fault;
}

void FaultyDisk::SetSyncTime(absl::Duration time) {
  absl::MutexLock lock(&mu_);
  sync_time_ = time;
}

void FaultyDisk::HoldSyncs(bool held) {
  absl::MutexLock lock(&mu_);
  syncs_held_ = held;
}

void FaultyDisk::BeginSync() {
  absl::Duration time;
  {
    absl::MutexLock lock(&mu_);
    ++syncs_;
    mu_.Await(absl::Condition(
        +[](bool* held) { return !*held; }, &syncs_held_));
    time = sync_time_;
  }
  absl::SleepFor(time);  // The test has asked for a slow disk.
}

int64_t FaultyDisk::syncs() const {
  absl::MutexLock lock(&mu_);
  return syncs_;
}

void FaultyDisk::FailPowerAfter(int64_t n) {
  absl::MutexLock lock(&mu_);
  writes_left_ = n;
}

bool FaultyDisk::has_power() const {
  absl::MutexLock lock(&mu_);
  return has_power_;
}

int FaultyDisk::Admit() {
  absl::MutexLock lock(&mu_);
  if (writes_left_ > 0 && --writes_left_ == 0) has_power_ = false;
  errno = EIO;
  if (!has_power_) return SQLITE_IOERR_WRITE;
  switch (fault_) {
    case Fault::kNone:
      return SQLITE_OK;
    case Fault::kFull:
      errno = ENOSPC;
      return SQLITE_FULL;
    case Fault::kBroken:
      return SQLITE_IOERR_WRITE;
    case Fault::kReadOnly:
      errno = EROFS;
      return SQLITE_IOERR_WRITE;
  }
  return SQLITE_OK;
}

void FaultyDisk::OnWrite(const std::string& path, int64_t offset, std::string before,
                         int64_t size_before, std::string after) {
  absl::MutexLock lock(&mu_);
  unsynced_[path].push_back({offset, std::move(before), size_before, std::move(after)});
}

void FaultyDisk::OnSync(const std::string& path) {
  absl::MutexLock lock(&mu_);
  unsynced_.erase(path);
}

// First undoes all unsynced writes of each file, the last one first, so that the file is as it was
// after its last sync. Then applies each write again as a disk might have done: not at all, in part
// or completely, at random.
void FaultyDisk::ReturnPower(std::mt19937_64& random) {
  absl::MutexLock lock(&mu_);
  for (const auto& [path, writes] : unsynced_) {
    const UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!file.ok()) continue;
    for (auto write = writes.rbegin(); write != writes.rend(); ++write) {
      TESSERA_CHECK_EQ(
          pwrite(file.get(), write->before.data(), write->before.size(), write->offset),
          static_cast<ssize_t>(write->before.size()));
      TESSERA_CHECK_EQ(ftruncate(file.get(), write->size_before), 0);
    }
    for (const Write& write : writes) {
      const uint64_t fate = random() % 3;  // 0 is lost, 1 is torn, 2 is whole
      const size_t kept = fate == 0   ? 0
                          : fate == 1 ? random() % (write.after.size() + 1)
                                      : write.after.size();
      TESSERA_CHECK_EQ(pwrite(file.get(), write.after.data(), kept, write.offset),
                       static_cast<ssize_t>(kept));
    }
    // Removes the log's index. It is shared memory, which a power failure loses.
    const size_t log = path.rfind("-wal");
    unlink(((log == std::string::npos ? path : path.substr(0, log)) + "-shm").c_str());
  }
  unsynced_.clear();
  has_power_ = true;
  writes_left_ = -1;
}

}  // namespace tessera::server::store
