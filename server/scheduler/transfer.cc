// Which blocks of one placement make up the blocks of another.
#include <algorithm>
#include <map>

#include "ir/api/placement.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {

bool BlocksMatch(const api::ArraySpec& array, const api::ArraySpec& wanted) {
  if (array.placement == wanted.placement) return true;
  if (api::LocalShape(array.placement, array.shape) !=
      api::LocalShape(wanted.placement, wanted.shape))
    return false;
  std::map<int64_t, int64_t> ordinal_of;
  for (size_t k = 0; k < array.placement.devices.size(); ++k)
    ordinal_of[array.placement.devices[k]] = static_cast<int64_t>(k);
  for (size_t k = 0; k < wanted.placement.devices.size(); ++k) {
    const auto it = ordinal_of.find(wanted.placement.devices[k]);
    if (it == ordinal_of.end() ||
        api::BlockStarts(array.placement, array.shape, it->second) !=
            api::BlockStarts(wanted.placement, wanted.shape, static_cast<int64_t>(k)))
      return false;
  }
  return true;
}

std::vector<SourcePiece> PiecesOf(const api::ArraySpec& array, const api::ArraySpec& wanted,
                                  int64_t ordinal,
                                  const std::function<int(int64_t source)>& prefer) {
  const ir::Dims source_shape = api::LocalShape(array.placement, array.shape);
  const ir::Dims dest_shape = api::LocalShape(wanted.placement, wanted.shape);
  const ir::Dims dest = api::BlockStarts(wanted.placement, wanted.shape, ordinal);
  const size_t rank = dest.size();
  // Per distinct source block that overlaps, the replica preferred most, the first among equals.
  std::map<ir::Dims, std::pair<int, int64_t>> best;
  for (size_t k = 0; k < array.placement.devices.size(); ++k) {
    const ir::Dims source = api::BlockStarts(array.placement, array.shape, static_cast<int64_t>(k));
    bool overlaps = true;
    for (size_t d = 0; d < rank; ++d)
      overlaps &= source[d] < dest[d] + dest_shape[d] && dest[d] < source[d] + source_shape[d];
    if (!overlaps) continue;
    const int wish = prefer(static_cast<int64_t>(k));
    auto [it, added] = best.try_emplace(source, wish, static_cast<int64_t>(k));
    if (!added && wish > it->second.first) it->second = {wish, static_cast<int64_t>(k)};
  }
  std::vector<SourcePiece> pieces;
  for (const auto& [source, chosen] : best) {
    SourcePiece p;
    p.source = chosen.second;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t begin = std::max(source[d], dest[d]);
      const int64_t end = std::min(source[d] + source_shape[d], dest[d] + dest_shape[d]);
      p.source_starts.push_back(begin - source[d]);
      p.dest_starts.push_back(begin - dest[d]);
      p.shape.push_back(end - begin);
    }
    pieces.push_back(std::move(p));
  }
  return pieces;
}

}  // namespace tessera::server::scheduler
