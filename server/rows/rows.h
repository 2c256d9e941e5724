// Encodes the coordinator's durable records (server/scheduler/rows.h) as messages of
// proto/tessera/state/v1/rows.proto, and decodes them. Thread-safe.
#pragma once
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/life.h"
#include "server/core/rows.h"
#include "server/scheduler/rows.h"

namespace tessera::server::rows {

// Encodes the changes. A record that is encoded to more than kRowValueBytesMax bytes (an executable
// with a very large program) is left out and logged. After a restart it is missing, and objects
// that refer to it fail.
std::vector<core::Row> Encode(const std::vector<scheduler::RowChange>& changes);
// Decodes the rows. Returns STORE_FAILED, and names the row, if a row cannot be read. Rows without
// a value are skipped.
absl::StatusOr<std::vector<scheduler::RowChange>> Decode(const std::vector<core::Row>& rows);
// Returns the row of an executor about which only its devices are known.
core::Row RowOf(const core::KnownExecutor& executor);

}  // namespace tessera::server::rows
