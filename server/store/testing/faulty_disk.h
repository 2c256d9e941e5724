// A disk for SQLite that is slow, full or broken when a test says so, and that loses power: what
// was written and not synced is then lost in parts. Everything else goes to the usual files.
//
// Thread-safe. Outlives the connections that use it; one at a time in a process.
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

  // SQLite's name for it.
  const char* name() const;

  // What writes and syncs answer from now on.
  void Set(Fault fault) ABSL_LOCKS_EXCLUDED(mu_);
  // Every sync takes as long, at least.
  void SetSyncTime(absl::Duration time) ABSL_LOCKS_EXCLUDED(mu_);
  // Syncs wait while they are held, and are counted as they begin.
  void HoldSyncs(bool held) ABSL_LOCKS_EXCLUDED(mu_);
  int64_t syncs() const ABSL_LOCKS_EXCLUDED(mu_);
  // The power fails at the n-th write or sync from now on: it and all that follow change nothing.
  void FailPowerAfter(int64_t n) ABSL_LOCKS_EXCLUDED(mu_);
  bool has_power() const ABSL_LOCKS_EXCLUDED(mu_);
  // Makes the files what a disk may hold after that: of the writes since a file's last sync any
  // part, whole or torn. All connections are closed.
  void ReturnPower(std::mt19937_64& random) ABSL_LOCKS_EXCLUDED(mu_);

  // ---- Of the file calls. ----
  // The answer to a call that changes a file.
  int Admit() ABSL_LOCKS_EXCLUDED(mu_);
  void OnWrite(const std::string& path, int64_t offset, std::string before, int64_t size_before,
               std::string after) ABSL_LOCKS_EXCLUDED(mu_);
  void OnSync(const std::string& path) ABSL_LOCKS_EXCLUDED(mu_);
  void BeginSync() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Write {
    int64_t offset;
    std::string before;  // shorter than `after` where the file ended
    int64_t size_before;
    std::string after;
  };
  const std::unique_ptr<sqlite3_vfs> vfs_;
  mutable absl::Mutex mu_;
  Fault fault_ ABSL_GUARDED_BY(mu_) = Fault::kNone;
  absl::Duration sync_time_ ABSL_GUARDED_BY(mu_);
  bool syncs_held_ ABSL_GUARDED_BY(mu_) = false;
  int64_t syncs_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t left_ ABSL_GUARDED_BY(mu_) = -1;  // changes until the power fails; negative: it does not
  bool has_power_ ABSL_GUARDED_BY(mu_) = true;
  std::map<std::string, std::vector<Write>> unsynced_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::server::store
