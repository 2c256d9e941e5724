// The slices of an array's shards that make up the shards of another placement. Stateless;
// thread-safe.
//
// Requires: CheckPlacement (ir/api/placement.h) accepts the placements, and both specs have the
// same shape.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "ir/api/service.h"
#include "ir/type.h"

namespace tessera::server::scheduler {

// Returns the axes of more than one device along which the array is a pending sum.
ir::AxisSet PendingSumAxes(const api::ArraySpec& array);
// Returns whether the shard of `array` on each device of `wanted` is exactly the device's shard of
// `wanted`, so that no bytes need to move.
bool BlocksMatch(const api::ArraySpec& array, const api::ArraySpec& wanted);
// A slice of the shard with ordinal `source` of `array`: where it begins there, where it begins in
// the shard of `wanted` that it becomes a part of, and its shape.
struct ShardSlice {
  int64_t source = 0;
  ir::Dims source_starts, dest_starts, shape;
};
// The preference for a replica that cannot be read.
inline constexpr int kUnreadable = -1;
// Returns the slices that together are shard `ordinal` of `wanted`. If a source shard has several
// replicas, the result refers to the replica with the highest `prefer`.
// Requires: each source shard that is needed has a replica for which `prefer` is not kUnreadable.
std::vector<ShardSlice> SlicesOf(const api::ArraySpec& array, const api::ArraySpec& wanted,
                                 int64_t ordinal, const std::function<int(int64_t source)>& prefer);

}  // namespace tessera::server::scheduler
