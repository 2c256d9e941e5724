// From one sharding of a local block to another, by collectives that every device runs alike.
#pragma once
#include "ir/builder.h"
#include "ir/mesh.h"

namespace tessera::server::planner {

// `block` is this device's part of an array cut as `from`; returns its part under
// `to`.  Slices before it moves, moves (all_to_all) before it gathers, so that no block is larger
// than the larger of the two ends.  Emits through block's builder; throws StatusException.
ir::Value Reshard(ir::Value block, ir::DimAxes from, const ir::DimAxes& to);

}  // namespace tessera::server::planner
