// The geometry of placements: which shard of an array is on which device.  Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ir/api/service.h"

namespace tessera::api {

// Checks that the placement is complete and fits `shape`: as many distinct devices as the mesh has
// coordinates, a spec no longer than the rank, axes of the mesh used once each, dims that divide
// evenly, nothing unreduced or left open.  VALUE_ERROR, UNKNOWN_AXIS or INDIVISIBLE.
absl::Status CheckPlacement(const Placement& placement, const ir::Dims& shape);

// The functions below require a placement that CheckPlacement accepts.

// The shape of every shard.
ir::Dims LocalShape(const Placement& placement, const ir::Dims& shape);
// The start indices of the shard of mesh device `ordinal`.
ir::Dims ShardStarts(const Placement& placement, const ir::Dims& shape, int64_t ordinal);
// One ordinal per distinct shard, ascending.
// Requires: the shards are not terms of a sum.
std::vector<int> OrdinalsOfDistinctShards(const Placement& placement, const ir::Dims& shape);

// Whether shards are terms of a sum along an axis of more than one device: no block of the array is
// on any of them, but what they add up to.
bool HoldsTerms(const Placement& placement);

// Which results of a run come with its completion, ascending: those whose blocks are on devices, if
// they have at most `bytes_max` together; else the first of those of at most kInlineEachMax, up to
// `bytes_max`.
std::vector<int> InlineResults(const std::vector<const ArraySpec*>& results, int64_t bytes_max);

}  // namespace tessera::api
