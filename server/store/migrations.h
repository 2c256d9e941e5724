// The schema of the state's database (base/state_file.h), as a list of steps. Step i brings version
// i to version i + 1; the first step brings an empty database to version 1. A step never changes
// once it was released: to change the schema, add a step.
//
// The values of rows are versioned separately, in proto/tessera/state/v1/rows.proto.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/sqlite.h"

namespace tessera::server::store {

// Returns the steps, as SQL.
const std::vector<std::string>& Migrations();

// Runs the steps from `version` on, within the caller's transaction.
absl::Status Migrate(sqlite::Database& database, int64_t version,
                     const std::vector<std::string>& steps);

}  // namespace tessera::server::store
