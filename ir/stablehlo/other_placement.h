// The placement of an argument whose devices are in another order than the program's.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/mesh.h"

namespace tessera::ir::stablehlo {

// The value's mesh has the devices of the program's mesh in another order. `devices[place]` is the
// artifact's device at each place of `mesh`, row-major.
struct OtherPlacement {
  Mesh mesh;
  std::vector<int64_t> devices;
  PartitionSpec spec;
};

}  // namespace tessera::ir::stablehlo
