// The placement of an argument whose devices are in another order than the program's.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/mesh.h"

namespace tessera::ir::stablehlo {

// The value's mesh has the devices of the program's mesh in another order. `devices` are the ids of
// the artifact's devices at the positions of `mesh`, row-major.
struct OtherPlacement {
  Mesh mesh;
  std::vector<int64_t> devices;
  PartitionSpec spec;
};

}  // namespace tessera::ir::stablehlo
