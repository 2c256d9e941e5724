// The geometry of placements: which block of an array lies on which device.  Pure; any thread.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ir/api/service.h"

namespace tessera::api {

// The placement is whole and fits `shape`: as many distinct devices as the mesh has coordinates, a
// spec no longer than the rank, axes of the mesh used once each, dims that divide evenly, nothing
// unreduced or left open.  VALUE_ERROR, UNKNOWN_AXIS or INDIVISIBLE.
absl::Status CheckPlacement(const Placement& placement, const ir::Dims& shape);

// The rest require CheckPlacement.
// The shape of every block.
ir::Dims LocalShape(const Placement& placement, const ir::Dims& shape);
// Where the block of mesh device `ordinal` starts.
ir::Dims BlockStarts(const Placement& placement, const ir::Dims& shape, int64_t ordinal);
// One ordinal per distinct block, in order of ordinal.
std::vector<int> DistinctBlocks(const Placement& placement, const ir::Dims& shape);

}  // namespace tessera::api
