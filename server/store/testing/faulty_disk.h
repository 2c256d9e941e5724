// A disk for SQLite that is slow, full or broken when a test says so, and that loses power. A power
// failure loses parts of the writes that were not synced. All calls go through to the usual files.
//
// Thread-safe. The disk outlives the connections that use it. A process may have only one
// FaultyDisk at a time.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

struct sqlite3_vfs;

namespace tessera::server::store {

class FaultyDisk {
 public:
  enum class Fault { kNone, kFull, kBroken, kReadOnly };

  FaultyDisk();
  ~FaultyDisk();
  FaultyDisk(const FaultyDisk&) = delete;
  FaultyDisk& operator=(const FaultyDisk&) = delete;

  // The name of this disk's VFS, by which SQLite finds it.
  const char* name() const;

  // Sets the fault with which writes and syncs fail from now on.
  void SetFault(Fault fault) ABSL_LOCKS_EXCLUDED(mu_);
  // Sets how long every sync takes at least.
  void SetSyncTime(absl::Duration time) ABSL_LOCKS_EXCLUDED(mu_);
  // While syncs are held, they wait. syncs() counts them when they begin.
  void HoldSyncs(bool held) ABSL_LOCKS_EXCLUDED(mu_);
  int64_t syncs() const ABSL_LOCKS_EXCLUDED(mu_);
  // Lets the power fail at the n-th write or sync from now on. That write or sync and all later
  // ones fail and change nothing.
  void FailPowerAfter(int64_t n) ABSL_LOCKS_EXCLUDED(mu_);
  bool has_power() const ABSL_LOCKS_EXCLUDED(mu_);
  // Turns the files into a state that a disk may hold after a power failure: each write since a
  // file's last sync is lost, torn or whole. All connections must be closed.
  void ReturnPower(std::mt19937_64& random) ABSL_LOCKS_EXCLUDED(mu_);

  // ---- Called by the functions of the VFS. ----
  // Returns SQLite's result code for a call that changes a file: SQLITE_OK, or the present fault.
  int Admit() ABSL_LOCKS_EXCLUDED(mu_);
  void OnWrite(const std::string& path, int64_t offset, std::string before, int64_t size_before,
               std::string after) ABSL_LOCKS_EXCLUDED(mu_);
  void OnSync(const std::string& path) ABSL_LOCKS_EXCLUDED(mu_);
  void BeginSync() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Write {
    int64_t offset;
    std::string before;  // the overwritten bytes; shorter than `after` if the file ended there
    int64_t size_before;
    std::string after;
  };
  const std::unique_ptr<sqlite3_vfs> vfs_;
  mutable absl::Mutex mu_;
  Fault fault_ ABSL_GUARDED_BY(mu_) = Fault::kNone;
  absl::Duration sync_time_ ABSL_GUARDED_BY(mu_);
  bool syncs_held_ ABSL_GUARDED_BY(mu_) = false;
  int64_t syncs_ ABSL_GUARDED_BY(mu_) = 0;
  // The number of writes and syncs until the power fails, or a negative number if it does not fail.
  int64_t writes_left_ ABSL_GUARDED_BY(mu_) = -1;
  bool has_power_ ABSL_GUARDED_BY(mu_) = true;
  std::map<std::string, std::vector<Write>> unsynced_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::server::store
