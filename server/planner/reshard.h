// Changes the sharding of an array, by collectives that every device runs alike.
#pragma once
#include "ir/builder.h"
#include "ir/mesh.h"

namespace tessera::server::planner {

// `shard` is this device's shard of an array under the sharding `current`; returns its shard under
// `target`.  Prefers local slices to all_to_all, and that to all_gather, so that no intermediate
// shard is larger than both its source and its result.  Emits through the shard's builder; throws
// StatusException.
ir::Value Reshard(ir::Value shard, ir::DimAxes current, const ir::DimAxes& target);

}  // namespace tessera::server::planner
