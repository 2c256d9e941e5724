// Computes which shards of an array are missing without the devices that have lost theirs, and
// words the error of an array that is lost for this reason. holders.cc calls these functions when
// executors are lost.
#include "server/scheduler/replicas.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "ir/api/placement.h"

namespace tessera::server::scheduler {
namespace {

constexpr size_t kNamedMax = 4;  // number of shards, and of devices, that an error names

// Returns the first names, and how many more there are: "a, b, c, d and 2 more".
std::string FirstOf(const std::vector<std::string>& names) {
  const size_t named = std::min(names.size(), kNamedMax);
  std::string text =
      absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(named), ", ");
  if (names.size() > named) absl::StrAppend(&text, " and ", names.size() - named, " more");
  return text;
}

}  // namespace

bool HasAllHolders(const ArrayRecord& a) {
  return a.holders.size() == a.spec->placement.devices.size();
}

size_t NumHeld(const ArrayRecord& a) {
  const bool knows_holders = a.error.ok() && a.state != ArrayState::kPlanned;
  return knows_holders ? a.holders.size() : a.spec->placement.devices.size();
}

std::vector<int> MissingShards(const ArrayRecord& a) {
  const api::Placement& placement = a.spec->placement;
  const std::vector<int> first = api::FirstReplicas(placement, a.spec->shape);
  std::vector<bool> held(first.size());
  for (size_t k = 0; k < first.size(); ++k)
    if (a.holders.count(placement.devices[k]) > 0) held[first[k]] = true;
  std::vector<int> missing;
  for (size_t k = 0; k < first.size(); ++k)
    if (first[k] == static_cast<int>(k) && !held[k]) missing.push_back(first[k]);
  return missing;
}

std::string ShardText(const api::ArraySpec& array, int ordinal) {
  const ir::Dims starts = api::ShardStarts(array.placement, array.shape, ordinal);
  const ir::Dims local = api::LocalShape(array.placement, array.shape);
  std::vector<std::string> ranges;
  for (size_t d = 0; d < local.size(); ++d)
    ranges.push_back(
        local[d] == array.shape[d] ? ":" : absl::StrCat(starts[d], ":", starts[d] + local[d]));
  std::string text = absl::StrCat("[", absl::StrJoin(ranges, ", "), "]");
  if (api::IsPendingSum(array.placement))
    absl::StrAppend(&text, " (term ",
                    array.placement.mesh.IndexAlong(ordinal, array.placement.spec.unreduced), ")");
  return text;
}

const absl::Status& LossErrors::Of(const ArrayRecord& array, const std::vector<int>& missing,
                                   const std::vector<int64_t>& devices) {
  const api::ArraySpec& spec = *array.spec;
  const std::vector<int> first = api::FirstReplicas(spec.placement, spec.shape);
  std::vector<std::string> shards, holders;
  for (const int k : missing) shards.push_back(ShardText(spec, k));
  for (size_t k = 0; k < first.size(); ++k) {
    const int64_t device = spec.placement.devices[k];
    if (std::binary_search(missing.begin(), missing.end(), first[k]) &&
        std::find(devices.begin(), devices.end(), device) != devices.end())
      holders.push_back(absl::StrCat(device));
  }
  std::string text =
      absl::StrCat("lost with its shard", shards.size() == 1 ? " " : "s ", FirstOf(shards),
                   ", which ", shards.size() == 1 ? "was" : "were", " only on device",
                   holders.size() == 1 ? " " : "s ", FirstOf(holders), how_);
  const auto [it, added] = by_text_.try_emplace(std::move(text));
  if (added) it->second = MakeError(KindOf(whole_), it->first);
  return it->second;
}

}  // namespace tessera::server::scheduler
