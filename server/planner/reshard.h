// Changes the sharding of an array, by collectives that every device runs alike.
#pragma once
#include <cstdint>

#include "ir/builder.h"
#include "ir/mesh.h"

namespace tessera::server::planner {

// `shard` is this device's shard of an array under the sharding `current`; returns its shard under
// `target`.  Prefers local slices to all_to_all, that to a permutation of whole shards, and that to
// all_gather, so that no intermediate shard is larger than both its source and its result.
// `pending`: the shards along these axes, of which `current` has none, are terms of the array, and
// are added up first: scattered where the target is cut by the axis.  Emits through the shard's
// builder; throws StatusException.
ir::Value Reshard(ir::Value shard, ir::DimAxes current, const ir::DimAxes& target,
                  ir::AxisList pending = {});

// The bytes that a device sends for that, by the costs of ring algorithms (explain.h); of an array
// of this type.
int64_t BytesToReshard(const ir::Mesh& mesh, const ir::Type& global, ir::DimAxes current,
                       const ir::DimAxes& target, ir::AxisList pending = {});

}  // namespace tessera::server::planner
