// Reads the files that a state folder had before it had a database. `epoch` holds the number of
// starts. `executors` holds a line per executor: FIRST_ID DEVICES INDEX KIND WORKER.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/core/life.h"

namespace tessera::server::store {

struct LegacyFiles {
  uint64_t starts = 0;
  std::vector<core::KnownExecutor> executors;
  bool is_superseded = false;  // true if `epoch` says that the folder has a database
};

// Reads the files. Returns VALUE_ERROR if they cannot be read, or hold something else.
absl::StatusOr<LegacyFiles> ReadLegacyFiles(const std::string& folder);

// Makes builds that know only the file `epoch` refuse the folder, because they would assign ids
// again that lives in the database have assigned.
absl::Status SupersedeEpoch(const std::string& folder, const LegacyFiles& read);
void RemoveExecutors(const std::string& folder);

}  // namespace tessera::server::store
