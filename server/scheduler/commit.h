// Reads the rows of a commit (rows.h) from the state.
#pragma once
#include "server/scheduler/rows.h"
#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

// Returns the record as it is now.
RowChange RowOf(const State& state, const RowKey& key);

}  // namespace tessera::server::scheduler
