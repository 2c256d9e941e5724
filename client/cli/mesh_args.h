// Parses the values of --mesh, --spec and --devices, and tells which shard of an array a device
// holds.
//
// Stateless; thread-safe. Errors are usage errors (kExitUsage).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/plan/shards.h"
#include "ir/mesh.h"
#include "ir/type.h"

namespace tessera::cli {

// Parses "data=2,model=2" or "2x2". The axes of the second form have the names and types of the
// axes of `like`, or are named x, y, z, ... if `like` is empty. Returns nullopt if the text is a
// name, which stands for a mesh that the cluster knows.
absl::StatusOr<std::optional<ir::Mesh>> ParseMesh(const std::string& text,
                                                  const ir::Mesh& like = {});
// Parses "P('data', None, ('x','y'))", as programs write it, or the short form "data,-,x+y".
absl::StatusOr<ir::PartitionSpec> ParseSpec(const std::string& text);
// Parses a list of numbers and ranges, such as "0,2,4-7".
absl::StatusOr<std::vector<int64_t>> ParseInts(const std::string& text);
// Parses an id. For the `collection` "operations" it is "12", "operations/12", or a longer resource
// name that ends in "operations/12".
absl::StatusOr<uint64_t> ParseId(const std::string& text, const std::string& collection);

// Replaces the sizes in the mesh line of a program's text by those of `mesh`, or adds a mesh line.
absl::StatusOr<std::string> WithMesh(const std::string& program, const std::string& mesh);

// Tell which shard of an array a device holds.
using internal::Range;
using internal::ShardRanges;
using internal::ShardText;

}  // namespace tessera::cli
