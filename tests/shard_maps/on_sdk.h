// Runs a random shard_map program (program.h) with the functions of the SDK.
#pragma once
#include <string>
#include <vector>

#include "client/tessera.h"
#include "tests/shard_maps/program.h"

namespace tessera::shard_maps {

using Arrays = std::vector<Array>;

Mesh MeshOf(const Program& p);
PartitionSpec SpecOf(const Program& p, const Spec& spec);
// Returns the program as a shard_map of the SDK, to be called with whole arrays. While the body of
// the shard_map is traced, the type of each value is compared with its type in the program. Throws
// std::logic_error if the types differ. `p` must outlive the result.
std::function<Arrays(const Arrays&)> ShardMapOf(const Program& p, bool check_vma);
// Returns the inputs of the program as arrays. If the axes of the mesh are Explicit, the inputs are
// sharded as the in_specs say; otherwise as `input_shardings` says.
Arrays InputArrays(const Program& p);

}  // namespace tessera::shard_maps
