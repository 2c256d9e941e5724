// Predicts the memory that the reference evaluator takes. Stateless; thread-safe.
#pragma once
#include <cstdint>

#include "ir/program.h"

namespace tessera::ir {

// Returns the peak memory of a function: arguments, live values, and the allocations of the current
// op, including its regions.
int64_t PeakBytes(const Function& f);
// Returns the bytes that the reference evaluator allocates while it runs the op, besides the
// results.
int64_t ScratchBytes(const Function& f, const Op& op);

}  // namespace tessera::ir
