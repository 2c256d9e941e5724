// A store whose rows persist in a folder over restarts of the coordinator:
//
//   state.db   an SQLite database with a write-ahead log beside it (base/state_file.h)
//   lock       locked while a coordinator uses the folder
//   epoch      the words "in state.db"; builds that know no database expect the number of starts
//              here, and therefore refuse the folder
//
// The store's thread writes all waiting commits in one transaction. Commits that arrive meanwhile
// wait for the next one. The transaction is synced to the disk before the listener is called. A
// transaction that fails is tried again together with the commits that came since; a row that
// changed several times is written once.
//
// The lock keeps a second coordinator out of the folder. Locks do not work on every file system, so
// each transaction also checks that the database is still the same file and that it has counted no
// later start. If not, the transaction fails with STALE_EPOCH. Reference: docs/decisions/0010.
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
  std::string folder;  // created with mode 0700 if it does not exist
  std::string build;   // the build that writes the state, which `tessera state check` shows
  // Time from a failed attempt to write to the next attempt.
  absl::Duration retry = absl::Milliseconds(500);
  // Turns an executor that a build without a database kept in the folder into a row. If it is null,
  // the file with such executors stays as it is.
  std::function<core::Row(const core::KnownExecutor&)> row_of_executor = nullptr;
  std::string vfs = "";  // name of SQLite's VFS, its access to the disk; "" for the usual one
};

class SqliteStore final : public Store {
 public:
  // Opens the folder and counts this start, durably. Returns VALUE_ERROR if the folder cannot be
  // used, another coordinator uses it, or its state is of a newer build; FILE_CORRUPT if the state
  // is damaged or gone; DISK_FULL; or STORE_FAILED. After an error the rows are unchanged; the
  // folder with an empty database may have been created, and the start may have been counted.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(SqliteOptions options);
  // Writes the waiting commits, unless the disk fails.
  ~SqliteStore() override;

  core::Life life() const override { return life_; }
  const std::string& secret() const override { return secret_; }
  bool is_persistent() const override { return true; }
  absl::StatusOr<std::vector<core::Row>> Load() const override;
  void Listen(Listener* listener) override ABSL_LOCKS_EXCLUDED(mu_);
  // The keys and values must not exceed kRowKeyBytesMax and kRowValueBytesMax.
  void Commit(uint64_t number, std::vector<core::Row> rows) override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Flush(absl::Duration bound) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The rows of one transaction: the last value for each kind and key.
  using Batch = std::map<std::pair<core::RowKind, std::string>, std::optional<std::string>>;
  // The statements that write rows of one kind.
  struct KindStatements {
    sqlite::Statement replace, remove;
  };

  SqliteStore(SqliteOptions options, UniqueFd lock, std::unique_ptr<sqlite::Database> database,
              struct stat file, core::Life life, std::string secret);
  absl::Status PrepareStatements();
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Writes the batch in one transaction. After an error nothing has changed.
  absl::Status Write(const Batch& batch);
  // Like Write, but leaves the transaction open after an error.
  absl::Status WriteWithoutRollBack(const Batch& batch);
  // Returns STALE_EPOCH if the database no longer belongs to this start.
  absl::Status CheckEpoch();
  void CheckpointIfLong();
  // Calls the listener, if there is one, without the lock.
  void CallListener(const std::function<void(Listener*)>& call) ABSL_LOCKS_EXCLUDED(mu_);
  // Records the result of an attempt to write. If it differs from the result before, logs it, and
  // reports a failure to the listener.
  void ReportOutcome(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  const SqliteOptions options_;
  const UniqueFd lock_;
  const struct stat opened_file_;  // identifies the database's file as it was when it was opened
  const core::Life life_;
  const std::string secret_;

  // The members below are used by the store's thread. Load uses the database too, but only before
  // the first Commit.
  const std::unique_ptr<sqlite::Database> database_;
  std::vector<KindStatements> statements_;           // index: RowKind
  std::vector<sqlite::Statement> fixed_statements_;  // index: FixedStatement in sqlite_store.cc
  int64_t checkpointed_pages_ = 0;  // length of the log at the last attempt to checkpoint
  absl::Status write_status_;       // result of the last attempt to write

  absl::Mutex mu_;
  Listener* listener_ ABSL_GUARDED_BY(mu_) = nullptr;
  // True while the store's thread calls the listener.
  bool calling_listener_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<core::Row> queue_ ABSL_GUARDED_BY(mu_);
  uint64_t queued_through_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t durable_through_ ABSL_GUARDED_BY(mu_) = 0;  // last durable commit that was reported
  // The error STALE_EPOCH, once another coordinator has taken the store over.
  absl::Status stale_error_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tessera::server::store
