// Reads the files that a state folder had before it had a database. The file `epoch` holds the
// number of starts. The file `executors` holds a line for each executor: FIRST_ID DEVICES INDEX
// KIND WORKER, which are members of core::KnownExecutor.
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

// Reads the files. Returns VALUE_ERROR if a file cannot be read or does not have its format.
// Missing files are no error.
absl::StatusOr<LegacyFiles> ReadLegacyFiles(const std::string& folder);

// Replaces the number in `epoch` by words that point to the database. Builds that know only the
// files then refuse the folder. Otherwise they would assign ids again that lives counted in the
// database have assigned.
absl::Status SupersedeEpochFile(const std::string& folder, const LegacyFiles& legacy);
// Removes the file `executors`.
void RemoveExecutorsFile(const std::string& folder);

}  // namespace tessera::server::store
