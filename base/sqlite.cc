// Wraps SQLite for the coordinator's durable state: the store writes it through this file, and the
// command line copies and checks it. A wrong use of SQLite's API by our code aborts the process; an
// error of the disk or of the file is returned as a status.
#include "base/sqlite.h"

#include <sqlite3.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace tessera::sqlite {
namespace {

ErrorKind KindOfCode(int code, int error) {
  switch (code & 0xff) {
    case SQLITE_FULL:
      return ErrorKind::kDiskFull;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorKind::kFileCorrupt;
    default:
      return error == ENOSPC || error == EDQUOT ? ErrorKind::kDiskFull : ErrorKind::kStoreFailed;
  }
}

bool IsDiskError(int code) {
  code &= 0xff;
  return code == SQLITE_IOERR || code == SQLITE_CANTOPEN;
}

absl::Status ErrorOf(sqlite3* database, const std::string& path, std::string_view what) {
  const int code = sqlite3_extended_errcode(database);
  // SQLite's system error belongs to this error only if the error came from the disk.
  const int error = IsDiskError(code) ? sqlite3_system_errno(database) : 0;
  std::string message = absl::StrCat(path, ": ", ToAbsl(what), ": ", sqlite3_errmsg(database));
  if (error != 0) absl::StrAppend(&message, " (", std::strerror(error), ")");
  if ((code & 0xff) == SQLITE_BUSY)
    absl::StrAppend(&message, "; another program has it open for writing; end that program");
  return MakeError(KindOfCode(code, error), std::move(message));
}

int SizeOf(std::string_view bytes) {
  TESSERA_CHECK(bytes.size() < (size_t{1} << 30)) << bytes.size();
  return static_cast<int>(bytes.size());
}

}  // namespace

// ---- Statement. ---------------------------------------------------------------------------------
void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

void Statement::BindInt(int index, int64_t value) {
  TESSERA_CHECK_EQ(sqlite3_bind_int64(statement_.get(), index, value), SQLITE_OK);
}

void Statement::BindText(int index, std::string_view text) {
  TESSERA_CHECK_EQ(
      sqlite3_bind_text(statement_.get(), index, text.data(), SizeOf(text), SQLITE_STATIC),
      SQLITE_OK);
}

void Statement::BindBlob(int index, std::string_view bytes) {
  // A null pointer would bind SQL's NULL instead of an empty blob.
  const char* const data = bytes.empty() ? "" : bytes.data();
  TESSERA_CHECK_EQ(sqlite3_bind_blob(statement_.get(), index, data, SizeOf(bytes), SQLITE_STATIC),
                   SQLITE_OK);
}

absl::StatusOr<bool> Statement::Step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_->LastError(sqlite3_sql(statement_.get()));
}

absl::Status Statement::Run() {
  const absl::StatusOr<bool> has_row = Step();
  Reset();
  return has_row.status();
}

// sqlite3_reset returns the error of the last Step again, which Step has reported already.
void Statement::Reset() { sqlite3_reset(statement_.get()); }

int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }

std::string_view Statement::Bytes(int column) const {
  const void* const data = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return data == nullptr
             ? std::string_view()
             : std::string_view(static_cast<const char*>(data), static_cast<size_t>(size));
}

// ---- Database. ----------------------------------------------------------------------------------
void Database::Close::operator()(sqlite3* database) const {
  TESSERA_CHECK_EQ(sqlite3_close(database), SQLITE_OK) << "a statement outlives its connection";
}

// Opens a connection that trusts its file with nothing but data: a schema in the file cannot call
// functions of this process, and a damaged page gives an error instead of wrong rows. SQLite's own
// locking is off, because one thread at a time uses a connection. A hook counts the pages of the
// log, so that the owner decides when to run a checkpoint.
absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path, OpenMode mode,
                                                         int patience_ms, const std::string& vfs) {
  const int flags = mode == OpenMode::kReadOnly    ? SQLITE_OPEN_READONLY
                    : mode == OpenMode::kReadWrite ? SQLITE_OPEN_READWRITE
                                                   : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  sqlite3* opened = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &opened, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
                      vfs.empty() ? nullptr : vfs.c_str());
  TESSERA_CHECK(opened != nullptr) << "no memory for a connection";
  std::unique_ptr<Database> database(new Database(path, opened));
  if (code != SQLITE_OK) return database->LastError("opening");
  sqlite3_busy_timeout(opened, patience_ms);
  // The file must not be able to call functions of this process, and a damaged page is an error.
  sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  TESSERA_RETURN_IF_ERROR(database->Execute("PRAGMA cell_size_check = ON"));
  TESSERA_RETURN_IF_ERROR(database->Execute("PRAGMA temp_store = MEMORY"));
  // Because this hook is set, SQLite itself runs no checkpoints. Only Database::Checkpoint does, so
  // that no commit waits for a checkpoint.
  sqlite3_wal_hook(
      opened,
      [](void* self, sqlite3*, const char*, int pages) {
        static_cast<Database*>(self)->log_pages_ = pages;
        return SQLITE_OK;
      },
      database.get());
  return database;
}

absl::StatusOr<Statement> Database::Prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(database_.get(), sql.data(), SizeOf(sql), SQLITE_PREPARE_PERSISTENT,
                         &statement, nullptr) != SQLITE_OK)
    return LastError(sql);
  return Statement(this, statement);
}

absl::Status Database::Execute(const std::string& sql) {
  if (sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
    return LastError(sql);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Database::ReadText(std::string_view sql) {
  TESSERA_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  TESSERA_ASSIGN_OR_RETURN(const bool has_row, statement.Step());
  if (!has_row)
    return MakeError(ErrorKind::kFileCorrupt,
                     absl::StrCat(path_, ": ", ToAbsl(sql), ": the result has no row"));
  return std::string(statement.Bytes(0));
}

absl::StatusOr<int64_t> Database::ReadInt(std::string_view sql) {
  TESSERA_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  TESSERA_ASSIGN_OR_RETURN(const bool has_row, statement.Step());
  if (!has_row)
    return MakeError(ErrorKind::kFileCorrupt,
                     absl::StrCat(path_, ": ", ToAbsl(sql), ": the result has no row"));
  return statement.Int(0);
}

void Database::RollBack() {
  if (sqlite3_get_autocommit(database_.get()) != 0) return;  // SQLite has rolled back already.
  sqlite3_exec(database_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
}

absl::Status Database::Checkpoint(bool shrink) {
  const int mode = shrink ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE;
  if (sqlite3_wal_checkpoint_v2(database_.get(), nullptr, mode, nullptr, nullptr) != SQLITE_OK)
    return LastError("checkpoint");
  return absl::OkStatus();
}

absl::Status Database::CopyTo(Database& to) {
  sqlite3_backup* const copy =
      sqlite3_backup_init(to.database_.get(), "main", database_.get(), "main");
  if (copy == nullptr) return to.LastError("copying");
  // Copy all pages in one step. The copy then reads one snapshot, and no writer makes it start
  // again.
  sqlite3_backup_step(copy, -1);
  if (sqlite3_backup_finish(copy) != SQLITE_OK) return to.LastError("copying");
  return absl::OkStatus();
}

absl::Status Database::LastError(std::string_view what) const {
  return ErrorOf(database_.get(), path_, what);
}

}  // namespace tessera::sqlite
