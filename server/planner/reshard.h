// From one sharding of an array to another, by collectives that every device runs alike.
#pragma once
#include "ir/builder.h"
#include "ir/mesh.h"

namespace tessera::server::planner {

// `shard` is this device's shard of an array under the sharding `current`; returns its shard under
// `target`.  Prefers local slices to all_to_all, and that to all_gather, so that no shard in
// between is larger than the larger of the two ends.  Emits through the shard's builder; throws
// StatusException.
ir::Value Reshard(ir::Value shard, ir::DimAxes current, const ir::DimAxes& target);

}  // namespace tessera::server::planner
