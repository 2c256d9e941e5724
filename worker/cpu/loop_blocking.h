// Loop blocking for cache locality. If one access is contiguous along one dim and another access
// along a second dim, as in a transposition of a matrix, both dims are cut into blocks. Stateless;
// thread-safe.
#pragma once
#include "worker/codegen/kernel.h"

namespace tessera::worker {

// Returns the kernel with blocked parallel dims, or unchanged if blocking does not help.
codegen::Kernel BlockLoops(codegen::Kernel kernel);

}  // namespace tessera::worker
