// The file with the coordinator's durable state: an SQLite database in its --state-dir. The store
// (server/store/sqlite_store.h) writes the database. The commands `tessera state ...` copy and
// check it with the functions below.
//
//   header   application_id: kApplicationId; user_version: the version of the schema
//   meta     a table with columns name and value: "starts" (how many coordinators have started with
//            this state), "cluster" (the id of the cluster, hex), "build" (the build of the last
//            coordinator that used the state)
//   others   a table for each kind of rows, with columns key and value
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sqlite.h"

namespace tessera::state_file {

inline constexpr char kName[] = "state.db";
inline constexpr int64_t kApplicationId = 0x54535241;  // "TSRA"
inline constexpr int64_t kSchemaVersion = 1;           // the newest that this build knows

// Returns the version of the schema; 0 if the database is empty. Returns VALUE_ERROR if the
// database belongs to another program, or has a version that only a newer build knows. Returns
// FILE_CORRUPT or STORE_FAILED if the file cannot be read.
absl::StatusOr<int64_t> ReadSchemaVersion(sqlite::Database& database);

// Checks the database. Returns FILE_CORRUPT with the first fault that SQLite finds. The `quick`
// check does not test whether keys are unique and does not compare indexes with their tables.
absl::Status CheckIntegrity(sqlite::Database& database, bool quick);

struct Table {
  std::string name;
  int64_t rows = 0;
  int64_t bytes = 0;  // total size of the values
};
struct Report {
  int64_t schema_version = 0;
  int64_t starts = 0;
  std::string cluster, build;
  std::vector<Table> tables;  // the tables that hold rows of the state, without "meta"
};
// Checks the whole file, or the state file in a folder, and returns what it contains. A coordinator
// may be using the file. Returns VALUE_ERROR if there is no such file or for the reasons of
// ReadSchemaVersion, and FILE_CORRUPT or STORE_FAILED if the file is damaged or cannot be read.
absl::StatusOr<Report> Check(const std::string& file_or_folder);

// The number that a backup adds to its count of starts. A coordinator that starts from the backup
// must not use any id or epoch that the original coordinator has used since the backup was made.
inline constexpr int64_t kStartsSinceBackup = 32;

// Copies the state in the folder, as it is at one moment, to the new file `to`. A coordinator may
// be using the state. Returns ALREADY_EXISTS if `to` exists. Returns DISK_FULL, or an error of
// Check, if the copy fails; `to` does not exist then.
absl::Status Backup(const std::string& folder, const std::string& to);

}  // namespace tessera::state_file
