// The geometry of placements: which device has which shard of an array. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ir/api/service.h"

namespace tessera::api {

// Checks that the placement is complete and fits `shape`: it has as many distinct devices as the
// mesh has coordinates, a spec no longer than the rank, axes of the mesh used once each, dims that
// divide evenly, and nothing unreduced or left open. Errors are VALUE_ERROR, UNKNOWN_AXIS and
// INDIVISIBLE.
absl::Status CheckPlacement(const Placement& placement, const ir::Dims& shape);

// The functions below require a placement that CheckPlacement accepts.

// Returns the shape that every shard has.
ir::Dims LocalShape(const Placement& placement, const ir::Dims& shape);
// Returns the start indices of the shard of mesh device `ordinal`.
ir::Dims ShardStarts(const Placement& placement, const ir::Dims& shape, int64_t ordinal);
// Returns for each ordinal the first ordinal with the same shard: the same block of the array and,
// if the array is a pending sum, the same term.
std::vector<int> FirstReplicas(const Placement& placement, const ir::Dims& shape);
// Returns one ordinal for each distinct shard, ascending.
// Requires: the array is not a pending sum.
std::vector<int> OrdinalsOfDistinctShards(const Placement& placement, const ir::Dims& shape);

// Returns whether the array is a pending sum along an axis of more than one device. No device then
// holds a block of the array; the array is the sum of the shards.
bool IsPendingSum(const Placement& placement);

// Returns the indices, ascending, of the results that the completion of a run carries inline. A
// result that is a pending sum is never carried. If the other results have at most `bytes_max`
// bytes together, all of them are carried. If they have more, the results of at most kInlineEachMax
// bytes are carried, in order, up to a total of `bytes_max`.
std::vector<int> IndicesOfInlineResults(const std::vector<const ArraySpec*>& results,
                                        int64_t bytes_max);

}  // namespace tessera::api
