// A store whose rows persist in a folder over restarts of the coordinator:
//
//   state.db   an SQLite database with a write-ahead log beside it (base/state_file.h)
//   lock       locked while a coordinator uses the folder
//   epoch      says that state.db has the epoch: a build from before it refuses the folder
//
// One thread writes. All commits that wait are one transaction, which is synced to the disk before
// the listener hears of it; meanwhile the next ones gather. A transaction that fails is tried again
// with what has come since, rows of a kind and key once.
//
// A second coordinator on the folder is refused by the lock. Where that does not work, each
// transaction finds the start that it belongs to no longer to be the last, or another file in
// place of its own, and the commit fails with STALE_EPOCH.
#pragma once
#include <sys/stat.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/sqlite.h"
#include "base/unique_fd.h"
#include "server/store/store.h"

namespace tessera::server::store {

struct SqliteOptions {
  std::string folder;  // made, with mode 0700, if it does not exist
  std::string build;   // who writes the state; `tessera state check` shows it
  // How long after a failed attempt to write the next one is.
  absl::Duration retry = absl::Milliseconds(500);
  // Makes rows of the executors that builds from before state.db kept in the folder; null: they
  // stay where they are.
  std::function<core::Row(const core::KnownExecutor&)> row_of_executor = nullptr;
  std::string vfs = "";  // SQLite's way to the disk; "": the usual one
};

class SqliteStore final : public Store {
 public:
  // Counts this start, durably. VALUE_ERROR: the folder cannot be used, another coordinator uses
  // it, or its state is of a newer build. FILE_CORRUPT: the state is damaged or gone. DISK_FULL;
  // STORE_FAILED. Errors change nothing.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(SqliteOptions options);
  // Writes what waits, if the disk takes it at once.
  ~SqliteStore() override;

  core::Life life() const override { return life_; }
  const std::string& secret() const override { return secret_; }
  bool is_persistent() const override { return true; }
  absl::StatusOr<std::vector<core::Row>> Load() const override;
  void Listen(Listener* listener) override ABSL_LOCKS_EXCLUDED(mu_);
  // The rows' keys and values must be within kRowKeyBytesMax and kRowValueBytesMax.
  void Commit(uint64_t number, std::vector<core::Row> rows) override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Flush(absl::Duration bound) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The rows of one transaction, the last of each kind and key.
  using Batch = std::map<std::pair<core::RowKind, std::string>, std::optional<std::string>>;
  // The statements of one kind of rows.
  struct KindStatements {
    sqlite::Statement replace, remove;
  };

  SqliteStore(SqliteOptions options, UniqueFd lock, std::unique_ptr<sqlite::Database> database,
              struct stat file, core::Life life, std::string secret);
  absl::Status PrepareStatements();
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // One transaction; an error has changed nothing.
  absl::Status Write(const Batch& batch);
  absl::Status WriteOpen(const Batch& batch);
  // STALE_EPOCH: the file is no longer this start's.
  absl::Status CheckEpoch();
  void CheckpointIfLong();
  // Calls the listener, if there is one, without the lock.
  void Tell(const std::function<void(Listener*)>& what) ABSL_LOCKS_EXCLUDED(mu_);
  void Report(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  const SqliteOptions options_;
  const UniqueFd lock_;
  const struct stat file_;  // of the database, when it was opened
  const core::Life life_;
  const std::string secret_;

  // Used by the store's thread; before the first Commit by Load.
  const std::unique_ptr<sqlite::Database> database_;
  std::vector<KindStatements> statements_;  // by kind
  std::vector<sqlite::Statement> fixed_;    // see Fixed in sqlite_store.cc
  int64_t checkpointed_pages_ = 0;          // log pages at the last attempt
  absl::Status failing_;                    // of the last attempt to write

  absl::Mutex mu_;
  Listener* listener_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool telling_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<core::Row> queue_ ABSL_GUARDED_BY(mu_);
  uint64_t queued_through_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t durable_through_ ABSL_GUARDED_BY(mu_) = 0;  // and the listener knows
  absl::Status stale_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tessera::server::store
