// Loop tiling for cache locality. If one access is contiguous along one dim and another access
// along a second dim, as in a transposition of a matrix, both dims are tiled. Stateless;
// thread-safe.
#pragma once
#include "worker/codegen/kernel.h"

namespace tessera::worker {

// Returns the kernel with tiled parallel dims, or unchanged if tiling does not help.
codegen::Kernel Tiled(codegen::Kernel kernel);

}  // namespace tessera::worker
