// Computes which part of an array each device of a mesh holds.
//
// Stateless; thread-safe. Used by the SDK and the command line.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ir/api/service.h"
#include "ir/mesh.h"
#include "ir/type.h"

namespace tessera::internal {

bool IsAxisName(absl::string_view text);
// Parses "P('x', None, ('y','z'))". Returns nullopt if the text does not have this form.
std::optional<ir::PartitionSpec> ParseSpec(absl::string_view text);

// One dim of a shard: the half-open range [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  bool unsharded = true;  // whether the range is the whole dim
  bool operator==(const Range&) const = default;
};
// Returns the ranges, one per dim of `shape`, of the shard that mesh device `ordinal` holds.
std::vector<Range> ShardRanges(const ir::Mesh& mesh, const ir::PartitionSpec& spec,
                               const ir::Dims& shape, int64_t ordinal);
// Returns a text like "[0:4, :]".
std::string ShardText(const std::vector<Range>& shard);
// Returns whether the same devices hold the same parts of an array of this shape.
bool HaveSameShards(const api::Placement& a, const api::Placement& b, const ir::Dims& shape);

}  // namespace tessera::internal
