// Parses the values of --mesh, --spec and --devices; says which shard of an array a device holds.
//
// Stateless; thread-safe. Errors are usage errors (kExitUsage).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/shards.h"
#include "ir/mesh.h"
#include "ir/type.h"

namespace tessera::cli {

// "2x2" (axes x, y, z ... unless `like` has as many, whose names and types are taken),
// "data=2,model=2"; nullopt for the name of a mesh that the cluster knows.
absl::StatusOr<std::optional<ir::Mesh>> ParseMesh(const std::string& text,
                                                  const ir::Mesh& like = {});
// "P('data', None, ('x','y'))" as programs write it, or short: "data,-,x+y".
absl::StatusOr<ir::PartitionSpec> ParseSpec(const std::string& text);
// "0,2,4-7".
absl::StatusOr<std::vector<int64_t>> ParseInts(const std::string& text);
// "12", "operations/12", or a longer resource name that ends so.
absl::StatusOr<uint64_t> ParseId(const std::string& text, const std::string& collection);

// Replaces the sizes in the mesh line of a program's text by `mesh`, or adds the line.
absl::StatusOr<std::string> WithMesh(const std::string& program, const std::string& mesh);

// Which shard of an array a device holds.
using internal::Range;
using internal::ShardRanges;
using internal::ShardText;

}  // namespace tessera::cli
