// The coordinator's store on disk. main.cc opens it. The coordinator commits rows from the thread
// that runs the scheduler, and the store's own thread tells it when they are durable. Replies to
// clients wait for that call, but the scheduler does not: Commit only queues the rows.
#include "server/store/sqlite_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/state_file.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "server/store/legacy_files.h"
#include "server/store/migrations.h"

namespace tessera::server::store {
namespace {

// How long to wait for a lock that another process holds. This is shorter than the time
// (store_answer_ms) after which the state counts as failing.
constexpr int kLockPatienceMs = 200;
// The log is moved into the database when it has this many pages, 4 MiB.
constexpr int64_t kLogPagesMax = 1'000;
// The integrity check of a database of this size takes about a second. A larger one is not checked
// at a start, except that Load reads all rows and the coordinator decodes their values.
constexpr int64_t kCheckBytesMax = 256 << 20;

// The statements that do not depend on the kind of rows.
enum FixedStatement { kBegin, kCommit, kReadStarts };
constexpr const char* kFixedSql[] = {"BEGIN IMMEDIATE", "COMMIT",
                                     "SELECT value FROM meta WHERE name = 'starts'"};

absl::Status StateError(const std::string& why) {
  return MakeError(ErrorKind::kValueError, absl::StrCat("state_dir: ", why));
}

// Returns the error of a system call that creates something: DISK_FULL if the disk is full, and an
// error of the given kind for every other cause.
absl::Status ErrnoError(ErrorKind kind, const std::string& what) {
  const int error = errno;
  return MakeError(error == ENOSPC || error == EDQUOT ? ErrorKind::kDiskFull : kind,
                   absl::StrCat("state_dir: ", what, ": ", std::strerror(error)));
}

std::string ReplaceSql(std::string_view table) {
  return absl::StrCat("INSERT INTO \"", ToAbsl(table),
                      "\" VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value");
}

absl::StatusOr<UniqueFd> LockFolder(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(folder).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  const std::string path = folder + "/lock";
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return ErrnoError(ErrorKind::kValueError, "cannot make " + folder);
  UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.ok()) return ErrnoError(ErrorKind::kValueError, "cannot use " + folder);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return StateError(absl::StrCat("another coordinator uses ", folder,
                                   "; give each coordinator its own folder"));
  return lock;
}

// Creates the database's file, empty and with mode 0600. SQLite gives its log the same mode.
absl::Status MakeFile(const std::string& folder, const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const UniqueFd directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.ok() || fchmod(file.get(), 0600) != 0 || !directory.ok() || fsync(directory.get()) != 0)
    return ErrnoError(ErrorKind::kStoreFailed, path);
  return absl::OkStatus();
}

absl::Status ConfigureLog(sqlite::Database& database) {
  TESSERA_ASSIGN_OR_RETURN(const std::string mode, database.ReadText("PRAGMA journal_mode = WAL"));
  if (mode != "wal")
    return MakeError(
        ErrorKind::kStoreFailed,
        absl::StrCat(database.path(),
                     ": the file system does not support a write-ahead log; give a folder on a "
                     "local disk"));
  TESSERA_RETURN_IF_ERROR(database.Execute("PRAGMA synchronous = FULL"));
  return database.Execute(absl::StrCat("PRAGMA journal_size_limit = ", kLogPagesMax * 4096));
}

absl::Status ImportExecutors(sqlite::Database& database, const LegacyFiles& legacy,
                             const SqliteOptions& options) {
  for (const core::KnownExecutor& executor : legacy.executors) {
    const core::Row row = options.row_of_executor(executor);
    TESSERA_ASSIGN_OR_RETURN(sqlite::Statement replace,
                             database.Prepare(ReplaceSql(NameOf(row.kind))));
    replace.BindBlob(1, row.key);
    replace.BindBlob(2, *row.value);
    TESSERA_RETURN_IF_ERROR(replace.Run());
  }
  return absl::OkStatus();
}

// Returns the store's secret. The first start of a build that knows secrets makes it at random;
// later starts read it.
absl::StatusOr<std::string> ReadSecret(sqlite::Database& database) {
  TESSERA_ASSIGN_OR_RETURN(sqlite::Statement make,
                           database.Prepare("INSERT OR IGNORE INTO meta VALUES ('secret', ?)"));
  const std::string random = RandomHex(kSecretBytes);
  make.BindText(1, random);
  TESSERA_RETURN_IF_ERROR(make.Run());
  return database.ReadText("SELECT value FROM meta WHERE name = 'secret'");
}

// Returns when the state began. The first start of a build that records it takes the present time.
absl::StatusOr<absl::Time> ReadBegan(sqlite::Database& database) {
  TESSERA_ASSIGN_OR_RETURN(sqlite::Statement make,
                           database.Prepare("INSERT OR IGNORE INTO meta VALUES ('began_ms', ?)"));
  make.BindInt(1, absl::ToUnixMillis(absl::Now()));
  TESSERA_RETURN_IF_ERROR(make.Run());
  TESSERA_ASSIGN_OR_RETURN(const int64_t began,
                           database.ReadInt("SELECT value FROM meta WHERE name = 'began_ms'"));
  return absl::FromUnixMillis(began);
}

// Brings the schema to the newest version, counts the start and returns the life that it begins.
// Everything happens in one transaction, so that a start either counts or leaves no trace. On an
// error the caller rolls the transaction back.
absl::StatusOr<core::Life> BeginLife(sqlite::Database& database, int64_t version,
                                     const LegacyFiles& legacy, const SqliteOptions& options,
                                     std::string* secret) {
  TESSERA_RETURN_IF_ERROR(database.Execute("BEGIN IMMEDIATE"));
  TESSERA_RETURN_IF_ERROR(Migrate(database, version, Migrations()));
  if (version == 0) {
    TESSERA_ASSIGN_OR_RETURN(sqlite::Statement cluster,
                             database.Prepare("INSERT INTO meta VALUES ('cluster', ?)"));
    const std::string id = RandomHex(8);
    cluster.BindText(1, id);
    TESSERA_RETURN_IF_ERROR(cluster.Run());
  }
  if (options.row_of_executor) TESSERA_RETURN_IF_ERROR(ImportExecutors(database, legacy, options));
  TESSERA_ASSIGN_OR_RETURN(const int64_t counted, database.ReadInt(kFixedSql[kReadStarts]));
  const uint64_t starts = std::max(static_cast<uint64_t>(counted), legacy.starts) + 1;
  if (counted < 0 || starts > core::kStartsMax)
    return StateError(absl::StrCat(database.path(), " has counted ", starts - 1,
                                   " starts, at most ", core::kStartsMax,
                                   " are allowed; give another folder"));
  TESSERA_ASSIGN_OR_RETURN(sqlite::Statement update,
                           database.Prepare("INSERT INTO meta VALUES ('starts', ?1), ('build', ?2) "
                                            "ON CONFLICT DO UPDATE SET value = excluded.value"));
  update.BindInt(1, static_cast<int64_t>(starts));
  update.BindText(2, options.build);
  TESSERA_RETURN_IF_ERROR(update.Run());
  TESSERA_ASSIGN_OR_RETURN(*secret, ReadSecret(database));
  core::Life life = core::LifeOfStart(starts);
  TESSERA_ASSIGN_OR_RETURN(life.state_began, ReadBegan(database));
  TESSERA_RETURN_IF_ERROR(database.Execute("COMMIT"));
  return life;
}

}  // namespace

// Locks the folder first, so that nothing below meets another coordinator. A folder whose file
// `epoch` points to the database must have one: if a lost database passed for a first start, all
// ids would be assigned again. The files of older builds are changed or removed only after the
// transaction with their contents is durable; after a crash in between, the next start does both
// again.
absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(SqliteOptions options) {
  std::string& folder = options.folder;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  TESSERA_ASSIGN_OR_RETURN(UniqueFd lock, LockFolder(folder));
  TESSERA_ASSIGN_OR_RETURN(const LegacyFiles legacy, ReadLegacyFiles(folder));
  const std::string path = absl::StrCat(folder, "/", state_file::kName);
  struct stat file = {};
  const bool exists = stat(path.c_str(), &file) == 0;
  if (legacy.is_superseded && (!exists || file.st_size == 0))
    return MakeError(ErrorKind::kFileCorrupt,
                     absl::StrCat("state_dir: ", path, exists ? " is empty" : " is gone",
                                  "; restore a backup of it, or give an empty folder to begin "
                                  "anew, with all sessions and arrays lost"));
  if (!exists) TESSERA_RETURN_IF_ERROR(MakeFile(folder, path));
  TESSERA_ASSIGN_OR_RETURN(auto database, sqlite::Database::Open(path, sqlite::OpenMode::kReadWrite,
                                                                 kLockPatienceMs, options.vfs));
  const absl::StatusOr<int64_t> version = state_file::ReadSchemaVersion(*database);
  if (!version.ok()) return Annotate(version.status(), "state_dir");
  if (file.st_size <= kCheckBytesMax)
    TESSERA_RETURN_IF_ERROR(
        Annotate(state_file::CheckIntegrity(*database, /*quick=*/true), "state_dir"));
  TESSERA_RETURN_IF_ERROR(ConfigureLog(*database));
  std::string secret;
  const absl::StatusOr<core::Life> life = BeginLife(*database, *version, legacy, options, &secret);
  if (!life.ok()) {
    database->RollBack();
    return life.status();
  }
  TESSERA_RETURN_IF_ERROR(SupersedeEpochFile(folder, legacy));
  if (options.row_of_executor) RemoveExecutorsFile(folder);
  if (stat(path.c_str(), &file) != 0)
    return StateError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::unique_ptr<SqliteStore> store(new SqliteStore(
      std::move(options), std::move(lock), std::move(database), file, *life, std::move(secret)));
  TESSERA_RETURN_IF_ERROR(store->PrepareStatements());
  store->thread_ = std::thread([self = store.get()] { self->Run(); });
  return store;
}

SqliteStore::SqliteStore(SqliteOptions options, UniqueFd lock,
                         std::unique_ptr<sqlite::Database> database, struct stat file,
                         core::Life life, std::string secret)
    : options_(std::move(options)),
      lock_(std::move(lock)),
      opened_file_(file),
      life_(life),
      secret_(std::move(secret)),
      database_(std::move(database)) {}

SqliteStore::~SqliteStore() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status SqliteStore::PrepareStatements() {
  for (const std::string_view name : core::kRowKindNames) {
    TESSERA_ASSIGN_OR_RETURN(sqlite::Statement replace, database_->Prepare(ReplaceSql(name)));
    TESSERA_ASSIGN_OR_RETURN(
        sqlite::Statement remove,
        database_->Prepare(absl::StrCat("DELETE FROM \"", ToAbsl(name), "\" WHERE key = ?")));
    statements_.push_back({std::move(replace), std::move(remove)});
  }
  for (const char* sql : kFixedSql) {
    TESSERA_ASSIGN_OR_RETURN(sqlite::Statement statement, database_->Prepare(sql));
    fixed_statements_.push_back(std::move(statement));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<core::Row>> SqliteStore::Load() const {
  std::vector<core::Row> rows;
  for (int k = 0; k < core::kNumRowKinds; ++k) {
    const auto kind = static_cast<core::RowKind>(k);
    TESSERA_ASSIGN_OR_RETURN(
        sqlite::Statement select,
        database_->Prepare(
            absl::StrCat("SELECT key, value FROM \"", ToAbsl(NameOf(kind)), "\" ORDER BY key")));
    while (true) {
      TESSERA_ASSIGN_OR_RETURN(const bool has_row, select.Step());
      if (!has_row) break;
      rows.push_back({kind, std::string(select.Bytes(0)), std::string(select.Bytes(1))});
    }
  }
  return rows;
}

void SqliteStore::Listen(Listener* listener) {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(
      +[](bool* calling) { return !*calling; }, &calling_listener_));
  listener_ = listener;
}

void SqliteStore::Commit(uint64_t number, std::vector<core::Row> rows) {
  for (const core::Row& row : rows)
    TESSERA_CHECK(row.key.size() <= core::kRowKeyBytesMax &&
                  (!row.value || row.value->size() <= core::kRowValueBytesMax))
        << NameOf(row.kind) << " of " << row.key.size() << " and "
        << (row.value ? row.value->size() : 0) << " bytes";
  absl::MutexLock lock(&mu_);
  TESSERA_CHECK(number > queued_through_) << number << " after " << queued_through_;
  if (!stale_error_.ok()) return;
  queued_through_ = number;
  if (queue_.empty()) {
    queue_ = std::move(rows);
  } else {
    queue_.insert(queue_.end(), std::make_move_iterator(rows.begin()),
                  std::make_move_iterator(rows.end()));
  }
}

absl::Status SqliteStore::Flush(absl::Duration bound) {
  absl::MutexLock lock(&mu_);
  const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !stale_error_.ok() || durable_through_ == queued_through_;
  };
  if (!mu_.AwaitWithTimeout(absl::Condition(&done), bound))
    return MakeError(ErrorKind::kDeadlineExceeded,
                     absl::StrCat("state_dir: ", queued_through_ - durable_through_,
                                  " commits are not durable after ", absl::FormatDuration(bound)));
  return stale_error_;
}

// ---- The store's thread. ------------------------------------------------------------------------
// Takes all waiting commits, writes them in one transaction, and tells the listener. After a
// failure the batch is kept, and the next attempt adds the commits that came meanwhile.
// durable_through_ is set after the listener was told, so that Flush returns only after that. The
// destructor lets this thread write the waiting commits, but not repeat a failed attempt.
void SqliteStore::Run() {
  NameThread("store");
  Batch batch;  // rows that are not durable; after a failed attempt it is not empty
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || durable_through_ != queued_through_;
  };
  while (true) {
    std::vector<core::Row> rows;
    uint64_t through = 0;
    {
      absl::MutexLock lock(&mu_);
      if (write_status_.ok())
        mu_.Await(absl::Condition(&has_work));
      else
        mu_.AwaitWithTimeout(absl::Condition(&stopping_), options_.retry);
      if (stopping_ && (!write_status_.ok() || durable_through_ == queued_through_)) return;
      rows = std::exchange(queue_, {});
      through = queued_through_;
    }
    for (core::Row& row : rows)
      batch.insert_or_assign({row.kind, std::move(row.key)}, std::move(row.value));
    const absl::Status status = batch.empty() ? absl::OkStatus() : Write(batch);
    ReportOutcome(status);
    if (status.ok()) {
      batch.clear();
      CallListener([through](Listener* l) { l->OnDurable(through); });
      {
        absl::MutexLock lock(&mu_);
        durable_through_ = through;
      }
      CheckpointIfLong();
    } else if (KindOf(status) == ErrorKind::kStaleEpoch) {
      return;
    } else if (KindOf(status) == ErrorKind::kDiskFull) {
      // Emptying the log may free enough space for the next attempt.
      (void)database_->Checkpoint(/*shrink=*/true);
    }
  }
}

void SqliteStore::ReportOutcome(const absl::Status& status) {
  const bool changed =
      status.code() != write_status_.code() || ReasonOf(status) != ReasonOf(write_status_);
  write_status_ = status;
  if (!changed) return;
  if (status.ok()) {
    TESSERA_LOG(INFO) << "the state is durable again";
    return;  // OnDurable tells the listener.
  }
  TESSERA_LOG(ERROR) << "the state is not durable" << Field("reason", ReasonOf(status))
                     << Field("why", status.message());
  if (KindOf(status) == ErrorKind::kStaleEpoch) {
    absl::MutexLock lock(&mu_);
    stale_error_ = status;
    queue_.clear();
  }
  CallListener([&status](Listener* l) { l->OnCommitsFailed(status); });
}

void SqliteStore::CallListener(const std::function<void(Listener*)>& call) {
  Listener* listener;
  {
    absl::MutexLock lock(&mu_);
    listener = listener_;
    calling_listener_ = true;
  }
  if (listener != nullptr) call(listener);
  absl::MutexLock lock(&mu_);
  calling_listener_ = false;
}

absl::Status SqliteStore::Write(const Batch& batch) {
  const absl::Status status = WriteWithoutRollBack(batch);
  if (status.ok()) return status;
  database_->RollBack();
  const ErrorKind kind = KindOf(status);
  if (kind == ErrorKind::kDiskFull || kind == ErrorKind::kStaleEpoch) return status;
  return MakeError(ErrorKind::kStoreFailed, std::string(status.message()));
}

absl::Status SqliteStore::WriteWithoutRollBack(const Batch& batch) {
  TESSERA_RETURN_IF_ERROR(fixed_statements_[kBegin].Run());
  TESSERA_RETURN_IF_ERROR(CheckEpoch());
  for (const auto& [key, value] : batch) {
    KindStatements& statements = statements_[static_cast<size_t>(key.first)];
    sqlite::Statement& statement = value ? statements.replace : statements.remove;
    statement.BindBlob(1, key.second);
    if (value) statement.BindBlob(2, *value);
    TESSERA_RETURN_IF_ERROR(statement.Run());
  }
  return fixed_statements_[kCommit].Run();
}

absl::Status SqliteStore::CheckEpoch() {
  struct stat file = {};
  sqlite::Statement& read = fixed_statements_[kReadStarts];
  const absl::StatusOr<bool> has_row = read.Step();
  const int64_t starts = has_row.ok() && *has_row ? read.Int(0) : 0;
  read.Reset();
  TESSERA_RETURN_IF_ERROR(has_row.status());
  // If stat fails because of the disk, the file does not count as replaced; the writes that follow
  // then report the disk's error. Only a file that is certainly absent counts as replaced.
  const bool found = stat(database_->path().c_str(), &file) == 0;
  const bool replaced =
      found ? file.st_ino != opened_file_.st_ino || file.st_dev != opened_file_.st_dev
            : errno == ENOENT || errno == ENOTDIR;
  if (!replaced && static_cast<uint64_t>(starts) == life_.epoch) return absl::OkStatus();
  return MakeError(
      ErrorKind::kStaleEpoch,
      replaced ? absl::StrCat("state_dir: ", database_->path(),
                              " was removed or replaced under a running coordinator; stop this one")
               : absl::StrCat("state_dir: the coordinator with start number ", starts,
                              " has taken over ", options_.folder,
                              " from this one, which has start number ", life_.epoch,
                              "; stop this one"));
}

void SqliteStore::CheckpointIfLong() {
  const int64_t pages = database_->log_pages();
  if (pages < checkpointed_pages_) checkpointed_pages_ = 0;  // SQLite has begun the log anew.
  if (pages < checkpointed_pages_ + kLogPagesMax) return;
  checkpointed_pages_ = pages;
  if (const absl::Status status = database_->Checkpoint(/*shrink=*/false); !status.ok())
    TESSERA_LOG(WARNING) << "the log of the state stays long" << Field("pages", pages)
                         << Field("why", status.message());
}

}  // namespace tessera::server::store
