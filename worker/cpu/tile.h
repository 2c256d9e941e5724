// Loop tiling for cache locality: where one access is contiguous along one dim and another along a
// second, as when a matrix is transposed, both dims are tiled. Stateless; thread-safe.
#pragma once
#include "worker/codegen/kernel.h"

namespace tessera::worker {

// The same kernel with tiled parallel dims, or unchanged if tiling does not help.
codegen::Kernel Tiled(codegen::Kernel kernel);

}  // namespace tessera::worker
