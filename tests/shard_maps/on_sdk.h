// A random program in the words of the SDK.
#pragma once
#include <string>
#include <vector>

#include "client/tessera.h"
#include "tests/shard_maps/program.h"

namespace tessera::shard_maps {

using Arrays = std::vector<Array>;

Mesh MeshOf(const Program& p);
PartitionSpec SpecOf(const Program& p, const Spec& spec);
// The shard_map, which is called with whole arrays. The types that its body sees are compared with
// those that the program has; throws std::logic_error where they differ.
std::function<Arrays(const Arrays&)> OnSdk(const Program& p, bool check_vma);
// The inputs, on the devices of the mesh as the in_specs say if its axes are Explicit.
Arrays Inputs(const Program& p);

}  // namespace tessera::shard_maps
