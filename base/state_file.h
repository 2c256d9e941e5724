// The file with the coordinator's durable state: an SQLite database in its --state-dir, which the
// store (server/store/sqlite_store.h) writes, and which the command line copies and checks.
//
//   header   application_id: kApplicationId; user_version: the version of the schema
//   meta     name, value: starts (how often a coordinator began to use the state), cluster (which
//            it is, hex), build (the last that did)
//   others   a table per kind of rows: key, value
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

// The version of the schema, 0: the database is empty. VALUE_ERROR: it is another program's, or of
// a version that only a newer build knows. FILE_CORRUPT; STORE_FAILED.
absl::StatusOr<int64_t> ReadSchemaVersion(sqlite::Database& database);

// FILE_CORRUPT with the first fault that SQLite finds. `quick`: does not compare keys with one
// another.
absl::Status CheckIntegrity(sqlite::Database& database, bool quick);

struct Table {
  std::string name;
  int64_t rows = 0;
  int64_t bytes = 0;  // of the values
};
struct Report {
  int64_t schema_version = 0;
  int64_t starts = 0;
  std::string cluster, build;
  std::vector<Table> tables;  // those of rows
};
// Reads the whole file, or the one in a folder. A coordinator may be using it. VALUE_ERROR: there
// is none, or see ReadSchemaVersion. FILE_CORRUPT; STORE_FAILED.
absl::StatusOr<Report> Check(const std::string& file_or_folder);

// What a backup counts as starts since it was made: a coordinator that begins with it must give no
// id, and no epoch, that the one it was made of has given since.
inline constexpr int64_t kStartsSinceBackup = 32;

// Makes `to`, one file, of the state in the folder as it is at one moment; a coordinator may be
// using it. ALREADY_EXISTS: `to` does. Otherwise as Check, and DISK_FULL; `to` does not exist then.
absl::Status Backup(const std::string& folder, const std::string& to);

}  // namespace tessera::state_file
