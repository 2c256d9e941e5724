// The bytes of the coordinator's durable records (server/scheduler/rows.h), as messages of
// proto/tessera/state/v1/rows.proto. Thread-safe.
#pragma once
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/life.h"
#include "server/core/rows.h"
#include "server/scheduler/rows.h"

namespace tessera::server::rows {

// A record beyond kRowValueBytesMax is left out, and logged: an executable whose program is that
// large. What refers to it fails after a restart.
std::vector<core::Row> Encode(const std::vector<scheduler::RowChange>& changes);
// STORE_FAILED, with the row, if one does not read. Rows of other kinds are skipped.
absl::StatusOr<std::vector<scheduler::RowChange>> Decode(const std::vector<core::Row>& rows);
// The row of an executor of which only its devices are known.
core::Row RowOf(const core::KnownExecutor& executor);

}  // namespace tessera::server::rows
