// Reads, checks and copies the coordinator's state file. The store calls ReadSchemaVersion and
// CheckIntegrity when the coordinator starts; `tessera state check` and `tessera state backup` call
// Check and Backup, also while a coordinator runs.
#include "base/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tessera::state_file {
namespace {

// How long to wait for a lock on the database. A coordinator that runs holds it only briefly.
constexpr int kPatienceMs = 5'000;
constexpr char kRestoreAdvice[] =
    "restore a backup (tessera state backup) into an empty folder, or give an empty folder to "
    "begin anew";

absl::Status WithAdvice(const absl::Status& status) {
  if (KindOf(status) != ErrorKind::kFileCorrupt) return status;
  return MakeError(ErrorKind::kFileCorrupt, absl::StrCat(status.message(), "; ", kRestoreAdvice));
}

absl::Status ErrnoError(const std::string& path, int error = errno) {
  return MakeError(
      error == ENOSPC || error == EDQUOT ? ErrorKind::kDiskFull : ErrorKind::kStoreFailed,
      absl::StrCat(path, ": ", std::strerror(error)));
}

absl::StatusOr<std::unique_ptr<sqlite::Database>> OpenToRead(const std::string& file_or_folder) {
  std::string path = file_or_folder;
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    path += std::string("/") + kName;
    if (stat(path.c_str(), &info) != 0)
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat(file_or_folder, ": holds no ", kName,
                                    "; give the folder of a coordinator's --state-dir"));
  }
  if (stat(path.c_str(), &info) != 0)
    return MakeError(ErrorKind::kValueError, absl::StrCat(path, ": ", std::strerror(errno)));
  TESSERA_ASSIGN_OR_RETURN(auto database,
                           sqlite::Database::Open(path, sqlite::OpenMode::kReadOnly, kPatienceMs));
  TESSERA_ASSIGN_OR_RETURN(const int64_t version, ReadSchemaVersion(*database));
  if (version == 0)
    return MakeError(ErrorKind::kFileCorrupt, absl::StrCat(path, ": is empty; ", kRestoreAdvice));
  return database;
}

// Fills the empty file `path` with a copy of the database. The copy is a single file, without a
// write-ahead log beside it.
absl::Status CopyInto(sqlite::Database& from, const std::string& path) {
  {
    TESSERA_ASSIGN_OR_RETURN(
        const auto copy, sqlite::Database::Open(path, sqlite::OpenMode::kReadWrite, kPatienceMs));
    TESSERA_RETURN_IF_ERROR(from.CopyTo(*copy));
  }
  TESSERA_ASSIGN_OR_RETURN(const auto copy,
                           sqlite::Database::Open(path, sqlite::OpenMode::kReadWrite, kPatienceMs));
  TESSERA_RETURN_IF_ERROR(copy->Execute("PRAGMA journal_mode = DELETE"));
  TESSERA_RETURN_IF_ERROR(copy->Execute(absl::StrCat(
      "UPDATE meta SET value = value + ", kStartsSinceBackup, " WHERE name = 'starts'")));
  return CheckIntegrity(*copy, /*quick=*/false);
}

}  // namespace

absl::StatusOr<int64_t> ReadSchemaVersion(sqlite::Database& database) {
  constexpr const char* kHeader[] = {"PRAGMA application_id", "PRAGMA user_version",
                                     "SELECT count(*) FROM sqlite_schema"};
  int64_t header[3];
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<int64_t> read = database.ReadInt(kHeader[i]);
    if (!read.ok()) return WithAdvice(read.status());
    header[i] = *read;
  }
  const auto [application, version, tables] = header;
  if (application == 0 && version == 0 && tables == 0) return 0;
  if (application != kApplicationId || version < 1)
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat(database.path(),
                                  ": is another program's database; give another file or folder"));
  if (version > kSchemaVersion)
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat(database.path(), ": has version ", version,
                     " of the schema, but this build knows only versions up to ", kSchemaVersion,
                     "; use the newer build that wrote it, or restore an older backup into an "
                     "empty folder"));
  return version;
}

absl::Status CheckIntegrity(sqlite::Database& database, bool quick) {
  const absl::StatusOr<std::string> found =
      database.ReadText(quick ? "PRAGMA quick_check(1)" : "PRAGMA integrity_check(1)");
  if (!found.ok()) return WithAdvice(found.status());
  if (*found == "ok") return absl::OkStatus();
  return WithAdvice(MakeError(
      ErrorKind::kFileCorrupt,
      absl::StrCat(database.path(), ": is damaged: ", absl::StrReplaceAll(*found, {{"\n", " "}}))));
}

// Checks the integrity first, so that the counts below come from a file that SQLite can trust. The
// tables are listed from the file itself and not from this build's schema, because the file may
// have been written by an older build.
absl::StatusOr<Report> Check(const std::string& file_or_folder) {
  TESSERA_ASSIGN_OR_RETURN(const auto database, OpenToRead(file_or_folder));
  TESSERA_RETURN_IF_ERROR(CheckIntegrity(*database, /*quick=*/false));
  // Begin a transaction, so that all reads see the state at one moment.
  TESSERA_RETURN_IF_ERROR(database->Execute("BEGIN"));
  Report report;
  TESSERA_ASSIGN_OR_RETURN(report.schema_version, ReadSchemaVersion(*database));
  TESSERA_ASSIGN_OR_RETURN(report.starts,
                           database->ReadInt("SELECT value FROM meta WHERE name = 'starts'"));
  TESSERA_ASSIGN_OR_RETURN(report.cluster,
                           database->ReadText("SELECT value FROM meta WHERE name = 'cluster'"));
  TESSERA_ASSIGN_OR_RETURN(report.build,
                           database->ReadText("SELECT value FROM meta WHERE name = 'build'"));
  TESSERA_ASSIGN_OR_RETURN(sqlite::Statement tables,
                           database->Prepare("SELECT name FROM sqlite_schema WHERE type = 'table' "
                                             "AND name <> 'meta' ORDER BY rowid"));
  while (true) {
    TESSERA_ASSIGN_OR_RETURN(const bool has_row, tables.Step());
    if (!has_row) break;
    Table table{std::string(tables.Bytes(0))};
    const std::string from =
        absl::StrCat(" FROM \"", absl::StrReplaceAll(table.name, {{"\"", "\"\""}}), "\"");
    TESSERA_ASSIGN_OR_RETURN(table.rows, database->ReadInt("SELECT count(*)" + from));
    TESSERA_ASSIGN_OR_RETURN(table.bytes,
                             database->ReadInt("SELECT coalesce(sum(length(value)), 0)" + from));
    report.tables.push_back(std::move(table));
  }
  return report;
}

absl::Status Backup(const std::string& folder, const std::string& to) {
  if (access(to.c_str(), F_OK) == 0)
    return MakeError(ErrorKind::kAlreadyExists,
                     absl::StrCat(to, ": exists already; name a file that does not exist"));
  TESSERA_ASSIGN_OR_RETURN(const auto database, OpenToRead(folder));
  std::string temporary_path = to + ".XXXXXX";
  // mkostemp creates the file with mode 0600, so that other users cannot read it.
  const UniqueFd file(mkostemp(temporary_path.data(), O_CLOEXEC));
  if (!file.ok()) return ErrnoError(to);
  absl::Status status = CopyInto(*database, temporary_path);
  if (status.ok() && fsync(file.get()) != 0) status = ErrnoError(temporary_path);
  if (status.ok() && std::rename(temporary_path.c_str(), to.c_str()) != 0) status = ErrnoError(to);
  if (!status.ok()) {
    unlink(temporary_path.c_str());
    unlink((temporary_path + "-journal").c_str());
    return status;
  }
  const int error = SyncFolderOf(to);
  return error == 0 ? absl::OkStatus() : ErrnoError(to, error);
}

}  // namespace tessera::state_file
