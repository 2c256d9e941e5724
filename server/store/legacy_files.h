// The files of a state folder from before it had a database: `epoch`, the number of starts, and
// `executors`, a line per executor: FIRST_ID DEVICES INDEX KIND WORKER.
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
  bool is_superseded = false;  // the folder has had a database
};

// VALUE_ERROR: the files cannot be read, or nobody wrote them.
absl::StatusOr<LegacyFiles> ReadLegacyFiles(const std::string& folder);

// Makes builds that know `epoch` alone refuse the folder, for they would give ids of the database's
// lives again.
absl::Status SupersedeEpoch(const std::string& folder, const LegacyFiles& read);
void RemoveExecutors(const std::string& folder);

}  // namespace tessera::server::store
