// Reads the environment variable by which scripts/test makes random tests shorter.
#include "base/testing/seeds.h"

#include <cstdlib>

namespace tessera::testing {

int64_t NumSeeds(int64_t all) {
  return std::getenv("TESSERA_FEWER_SEEDS") == nullptr ? all : (all + 5) / 6;
}

}  // namespace tessera::testing
