#include "client/shards.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::internal {

std::vector<Range> ShardRanges(const ir::Mesh& mesh, const ir::PartitionSpec& spec,
                               const ir::Dims& shape, int64_t ordinal) {
  std::vector<Range> out;
  for (size_t d = 0; d < shape.size(); ++d) {
    Range range{0, shape[d], true};
    if (d < spec.dims.size() && !spec.dims[d].empty() &&
        std::all_of(spec.dims[d].begin(), spec.dims[d].end(),
                    [&](const std::string& axis) { return mesh.Has(axis); })) {
      const int64_t parts = mesh.SizeOf(spec.dims[d]);
      // Specs divide dims evenly (FindSpecFault); if one did not, the last shards would be smaller.
      const int64_t size = (shape[d] + parts - 1) / std::max<int64_t>(parts, 1);
      range.begin = std::min(shape[d], mesh.IndexAlong(ordinal, spec.dims[d]) * size);
      range.end = std::min(shape[d], range.begin + size);
      range.unsharded = parts == 1;
    }
    out.push_back(range);
  }
  return out;
}

std::string ShardText(const std::vector<Range>& shard) {
  if (std::all_of(shard.begin(), shard.end(), [](const Range& r) { return r.unsharded; })) {
    return "whole";
  }
  return absl::StrCat("[",
                      absl::StrJoin(shard, ", ",
                                    [](std::string* out, const Range& r) {
                                      absl::StrAppend(out, r.unsharded
                                                               ? std::string(":")
                                                               : absl::StrCat(r.begin, ":", r.end));
                                    }),
                      "]");
}

bool HoldTheSame(const api::Placement& a, const api::Placement& b, const ir::Dims& shape) {
  if (a == b) return true;
  if (a.devices.size() != b.devices.size()) return false;
  std::map<int64_t, std::vector<Range>> held;
  for (size_t i = 0; i < a.devices.size(); ++i)
    held[a.devices[i]] = ShardRanges(a.mesh, a.spec, shape, static_cast<int64_t>(i));
  for (size_t i = 0; i < b.devices.size(); ++i) {
    const auto found = held.find(b.devices[i]);
    if (found == held.end() ||
        found->second != ShardRanges(b.mesh, b.spec, shape, static_cast<int64_t>(i)))
      return false;
  }
  return true;
}

}  // namespace tessera::internal
