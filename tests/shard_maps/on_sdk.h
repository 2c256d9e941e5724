// Runs a random program with the SDK.
#pragma once
#include <string>
#include <vector>

#include "client/tessera.h"
#include "tests/shard_maps/program.h"

namespace tessera::shard_maps {

using Arrays = std::vector<Array>;

Mesh MeshOf(const Program& p);
PartitionSpec SpecOf(const Program& p, const Spec& spec);
// Returns the program as a shard_map of the SDK, to be called with whole arrays. While its body is
// traced, the types of its values are compared with those of the program; throws std::logic_error
// if they differ. `p` must outlive the result.
std::function<Arrays(const Arrays&)> OnSdk(const Program& p, bool check_vma);
// Returns the inputs as arrays. If the axes of the mesh are Explicit, they are sharded as the
// in_specs say; otherwise as `placed` says.
Arrays Inputs(const Program& p);

}  // namespace tessera::shard_maps
