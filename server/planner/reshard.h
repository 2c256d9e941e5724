// Changes the sharding of an array with collectives that all devices run.
#pragma once
#include <cstdint>

#include "ir/builder.h"
#include "ir/mesh.h"

namespace tessera::server::planner {

// Emits the ops that turn `shard`, this device's shard under the sharding `current`, into the
// device's shard under `target`, and returns the result.  Local slices are preferred to all_to_all,
// all_to_all to a permutation of whole shards, and the permutation to all_gather. So no shard in
// between is larger than both the first and the last shard. Along the axes in `pending` the array
// is a pending sum. The summands are added up first: by a psum_scatter if the target is cut by the
// axis, or else by a psum. `current` must use no axis of `pending`. Emits through the shard's
// builder; throws StatusException.
ir::Value Reshard(ir::Value shard, ir::DimAxes current, const ir::DimAxes& target,
                  ir::AxisList pending = {});

// Returns the bytes that a device sends for Reshard of an array with this type, by the costs of
// ring algorithms (uses.h).
int64_t BytesToReshard(const ir::Mesh& mesh, const ir::Type& global, ir::DimAxes current,
                       const ir::DimAxes& target, ir::AxisList pending = {});

}  // namespace tessera::server::planner
