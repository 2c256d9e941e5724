// The peak memory of a function while the reference evaluator runs it. Stateless; thread-safe.
#pragma once
#include <cstdint>

#include "ir/program.h"

namespace tessera::worker {

// Counts arguments, live values, and what the current op allocates, regions included.
int64_t PeakBytes(const ir::Function& f);

}  // namespace tessera::worker
