// Says how many random cases a test tries. Thread-safe.
#pragma once
#include <cstdint>

namespace tessera::testing {

// Returns a sixth of `all`, rounded up, if the environment variable TESSERA_FEWER_SEEDS is set,
// else `all`. The test presets asan and tsan set it.
int64_t NumSeeds(int64_t all);

}  // namespace tessera::testing
