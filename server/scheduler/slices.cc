// Computes how the shards of two placements of an array overlap. Transfers (transfer.cc) copy the
// slices, and runs (run.cc) compare the placement of an argument with the placement that the
// program wants.
#include "server/scheduler/slices.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "ir/api/placement.h"

namespace tessera::server::scheduler {

ir::AxisSet PendingSumAxes(const api::ArraySpec& array) {
  ir::AxisSet axes;
  for (const std::string& axis : array.placement.spec.unreduced)
    if (array.placement.mesh.SizeOf(axis) > 1) axes.insert(axis);
  return axes;
}

bool BlocksMatch(const api::ArraySpec& array, const api::ArraySpec& wanted) {
  if (array.placement == wanted.placement) return true;
  const ir::AxisSet sum_axes = PendingSumAxes(array);
  if (sum_axes != PendingSumAxes(wanted) ||
      (!sum_axes.empty() && !(array.placement.mesh.SameShape(wanted.placement.mesh) &&
                              array.placement.devices == wanted.placement.devices)))
    return false;
  if (array.placement.devices.size() == 1 && wanted.placement.devices.size() == 1)
    return array.placement.devices == wanted.placement.devices;
  if (api::LocalShape(array.placement, array.shape) !=
      api::LocalShape(wanted.placement, wanted.shape))
    return false;
  std::map<int64_t, int64_t> ordinal_of;
  for (size_t k = 0; k < array.placement.devices.size(); ++k)
    ordinal_of[array.placement.devices[k]] = static_cast<int64_t>(k);
  for (size_t k = 0; k < wanted.placement.devices.size(); ++k) {
    const auto it = ordinal_of.find(wanted.placement.devices[k]);
    if (it == ordinal_of.end() ||
        api::ShardStarts(array.placement, array.shape, it->second) !=
            api::ShardStarts(wanted.placement, wanted.shape, static_cast<int64_t>(k)))
      return false;
  }
  return true;
}

// Computes which slices of which source shards cover one shard of the destination. Equal blocks are
// replicas, of which only the preferred one is read, so that bytes already on the device or its
// executor do not travel.
std::vector<ShardSlice> SlicesOf(const api::ArraySpec& array, const api::ArraySpec& wanted,
                                 int64_t ordinal,
                                 const std::function<int(int64_t source)>& prefer) {
  const ir::Dims source_shape = api::LocalShape(array.placement, array.shape);
  const ir::Dims dest_shape = api::LocalShape(wanted.placement, wanted.shape);
  const ir::Dims dest = api::ShardStarts(wanted.placement, wanted.shape, ordinal);
  const size_t rank = dest.size();
  // For each overlapping source block, the most preferred replica; the first one if several are
  // equal.
  std::map<ir::Dims, std::pair<int, int64_t>> best;
  for (size_t k = 0; k < array.placement.devices.size(); ++k) {
    const ir::Dims source = api::ShardStarts(array.placement, array.shape, static_cast<int64_t>(k));
    bool overlaps = true;
    for (size_t d = 0; d < rank; ++d)
      overlaps &= source[d] < dest[d] + dest_shape[d] && dest[d] < source[d] + source_shape[d];
    if (!overlaps) continue;
    const int preference = prefer(static_cast<int64_t>(k));
    if (preference == kUnreadable) continue;
    auto [it, added] = best.try_emplace(source, preference, static_cast<int64_t>(k));
    if (!added && preference > it->second.first) it->second = {preference, static_cast<int64_t>(k)};
  }
  std::vector<ShardSlice> slices;
  for (const auto& [source, chosen] : best) {
    ShardSlice p;
    p.source = chosen.second;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t begin = std::max(source[d], dest[d]);
      const int64_t end = std::min(source[d] + source_shape[d], dest[d] + dest_shape[d]);
      p.source_starts.push_back(begin - source[d]);
      p.dest_starts.push_back(begin - dest[d]);
      p.shape.push_back(end - begin);
    }
    slices.push_back(std::move(p));
  }
  return slices;
}

}  // namespace tessera::server::scheduler
