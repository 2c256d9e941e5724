// The most memory that a function needs while the op-by-op backend runs it: arguments, live values,
// the op's results and its expanded scalars, region bodies included. Stateless; thread-safe.
#pragma once
#include <cstdint>

#include "ir/program.h"

namespace tessera::worker {

int64_t PeakBytes(const ir::Function& f);

}  // namespace tessera::worker
