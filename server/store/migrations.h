// The schema of the state's database (base/state_file.h), as the steps that lead to it: step i
// brings version i to version i + 1, the first one an empty database to version 1. A step that a
// build was released with never changes; another schema is another step.
//
// The values of rows have versions of their own: see who makes them.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/sqlite.h"

namespace tessera::server::store {

const std::vector<std::string>& Migrations();

// Runs the steps from `version` on, within the caller's transaction.
absl::Status Migrate(sqlite::Database& database, int64_t version,
                     const std::vector<std::string>& steps);

}  // namespace tessera::server::store
