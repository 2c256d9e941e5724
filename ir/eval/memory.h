// The memory that the reference evaluator takes. Stateless; thread-safe.
#pragma once
#include <cstdint>

#include "ir/program.h"

namespace tessera::ir {

// The peak of a function: arguments, live values, and what the current op allocates, regions
// included.
int64_t PeakBytes(const Function& f);
// What the op allocates while it runs, besides its results.
int64_t ScratchBytes(const Function& f, const Op& op);

}  // namespace tessera::ir
