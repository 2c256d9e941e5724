// The released steps of the schema. SqliteStore::Open runs the missing ones in the transaction that
// counts its start, so that a start which fails leaves the old schema.
#include "server/store/migrations.h"

#include "absl/strings/str_cat.h"
#include "base/state_file.h"
#include "base/status.h"

namespace tessera::server::store {
namespace {

std::string CreateTableSql(std::string_view name) {
  return absl::StrCat("CREATE TABLE \"", ToAbsl(name),
                      "\" (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL) "
                      "STRICT, WITHOUT ROWID;\n");
}

std::string FirstSchemaSql() {
  std::string sql =
      "CREATE TABLE meta (name TEXT PRIMARY KEY NOT NULL, value ANY NOT NULL) "
      "STRICT, WITHOUT ROWID;\n"
      "INSERT INTO meta VALUES ('starts', 0);\n";
  for (const char* name : {"session", "array", "operation", "executable", "program", "mesh",
                           "worker", "executor", "answer"})
    sql += CreateTableSql(name);
  return sql;
}

}  // namespace

const std::vector<std::string>& Migrations() {
  static const auto* const steps = new std::vector<std::string>{FirstSchemaSql()};
  return *steps;
}

absl::Status Migrate(sqlite::Database& database, int64_t version,
                     const std::vector<std::string>& steps) {
  for (size_t i = static_cast<size_t>(version); i < steps.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(database.Execute(steps[i]));
    TESSERA_RETURN_IF_ERROR(database.Execute(absl::StrCat("PRAGMA user_version = ", i + 1)));
  }
  return database.Execute(absl::StrCat("PRAGMA application_id = ", state_file::kApplicationId));
}

}  // namespace tessera::server::store
