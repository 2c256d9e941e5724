// Specs and the shards that follow from them, for pictures of plans, memory statistics and checks
// of placements (plan_view.cc, picture.cc, stages.cc, client/cli).
#include "client/plan/shards.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::internal {

bool IsAxisName(absl::string_view text) {
  return !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_') &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
         });
}

// A small recursive-descent parser of the text that PartitionSpec::ToString writes and that users
// give on the command line. Lambdas consume `text` from the front; any text left over is an error.
std::optional<ir::PartitionSpec> ParseSpec(absl::string_view text) {
  ir::PartitionSpec out;
  const auto skip_blanks = [&] {
    while (!text.empty() && text[0] == ' ') text.remove_prefix(1);
  };
  const auto accept = [&](absl::string_view word) {
    skip_blanks();
    if (!absl::StartsWith(text, word)) return false;
    text.remove_prefix(word.size());
    return true;
  };
  const auto accept_name = [&](ir::AxisList* axes) {
    if (!accept("'")) return false;
    const size_t end = text.find('\'');
    if (end == absl::string_view::npos || !IsAxisName(text.substr(0, end))) return false;
    axes->emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
    return true;
  };
  if (!accept("P(")) return std::nullopt;
  while (!accept(")")) {
    if (const bool unreduced = accept("unreduced={"); unreduced || accept("reduced={")) {
      ir::AxisList* const axes = unreduced ? &out.unreduced : &out.reduced;
      while (!accept("}")) {
        if (!accept_name(axes)) return std::nullopt;
        accept(",");
      }
    } else if (accept("None")) {
      out.dims.emplace_back();
    } else if (accept("(")) {
      out.dims.emplace_back();
      while (!accept(")")) {
        if (!accept_name(&out.dims.back())) return std::nullopt;
        accept(",");
      }
    } else {
      out.dims.emplace_back();
      if (!accept_name(&out.dims.back())) return std::nullopt;
    }
    if (!accept(",") && !absl::StartsWith(text, ")")) return std::nullopt;
  }
  skip_blanks();
  if (!text.empty()) return std::nullopt;
  return out;
}

std::vector<Range> ShardRanges(const ir::Mesh& mesh, const ir::PartitionSpec& spec,
                               const ir::Dims& shape, int64_t ordinal) {
  std::vector<Range> out;
  for (size_t d = 0; d < shape.size(); ++d) {
    Range range{0, shape[d], true};
    if (d < spec.dims.size() && !spec.dims[d].empty() &&
        std::all_of(spec.dims[d].begin(), spec.dims[d].end(),
                    [&](const std::string& axis) { return mesh.Has(axis); })) {
      const int64_t parts = mesh.SizeOf(spec.dims[d]);
      // Specs divide dims evenly (FindSpecFault). If one did not, the last shards would be smaller.
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

bool HaveSameShards(const api::Placement& a, const api::Placement& b, const ir::Dims& shape) {
  if (a == b) return true;
  if (a.devices.size() != b.devices.size()) return false;
  std::map<int64_t, std::vector<Range>> ranges;
  for (size_t i = 0; i < a.devices.size(); ++i)
    ranges[a.devices[i]] = ShardRanges(a.mesh, a.spec, shape, static_cast<int64_t>(i));
  for (size_t i = 0; i < b.devices.size(); ++i) {
    const auto found = ranges.find(b.devices[i]);
    if (found == ranges.end() ||
        found->second != ShardRanges(b.mesh, b.spec, shape, static_cast<int64_t>(i)))
      return false;
  }
  return true;
}

}  // namespace tessera::internal
