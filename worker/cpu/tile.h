// Kernels in the order in which a cache likes them: where one access walks along one dim and
// another along a second, as when a matrix is transposed, both are cut into tiles.
//
// Pure; any thread.
#pragma once
#include "worker/codegen/kernel.h"

namespace tessera::worker {

// The same kernel over the same elements, with other kept dims; as it is where nothing is won.
codegen::Kernel Tiled(codegen::Kernel kernel);

}  // namespace tessera::worker
