// Shardings on Explicit axes: the specs that ops take as out_sharding, and changes of sharding.
// Used by the SDK only.
#pragma once
#include <string_view>

#include "base/site.h"
#include "client/mesh.h"
#include "ir/builder.h"

namespace tessera::internal {

// Returns the spec with one entry for each dim. Throws VALUE_ERROR unless the mesh in context has
// all axes of the spec and they are Explicit, and for a spec with more than `rank` entries. The
// message begins with `op`.
PartitionSpec FitToRank(std::string_view op, const PartitionSpec& spec, int rank, const Site& site);
// Returns `x`, resharded if `to` is given and differs from the sharding of `x`.
ir::Value Resharded(std::string_view op, ir::Value x, const OutSharding& to, const Site& site);

}  // namespace tessera::internal
