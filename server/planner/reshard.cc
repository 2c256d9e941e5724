#include "server/planner/reshard.h"

#include <algorithm>

#include "ir/ops.h"
#include "ir/spec.h"

namespace tessera::server::planner {
namespace {

using ir::AxisList;
using ir::DimAxes;
using ir::IsPrefix;
using ir::Value;

int DimOf(const DimAxes& dims, const std::string& axis) {
  for (size_t d = 0; d < dims.size(); ++d)
    if (std::find(dims[d].begin(), dims[d].end(), axis) != dims[d].end())
      return static_cast<int>(d);
  return -1;
}

// This device's part of `block` along `axis`: no communication.
Value SliceAlong(Value block, int dim, const std::string& axis) {
  ir::Builder& b = block.builder();
  ir::Dims sizes = block.shape();
  sizes[dim] /= b.mesh().SizeOf(axis);
  std::vector<Value> starts(block.rank(), ir::Constant(b, ir::DType::kS32, 0));
  const Value size = ir::Constant(b, ir::DType::kS32, static_cast<double>(sizes[dim]));
  starts[dim] = ir::AxisIndex(b, {axis}) * size;
  return ir::DynamicSlice(block, starts, sizes);
}

// One free slice that brings `from` nearer to `to`, if there is one.
bool TrySlice(Value* block, DimAxes* from, const DimAxes& to) {
  for (size_t d = 0; d < to.size(); ++d) {
    if ((*from)[d].size() >= to[d].size() || !IsPrefix((*from)[d], to[d])) continue;
    const std::string& axis = to[d][(*from)[d].size()];
    if (DimOf(*from, axis) >= 0) continue;
    *block = SliceAlong(*block, static_cast<int>(d), axis);
    (*from)[d].push_back(axis);
    return true;
  }
  return false;
}

// One axis that leaves the end of a dim for the place it has in `to`.
bool TryMove(Value* block, DimAxes* from, const DimAxes& to) {
  for (size_t d = 0; d < to.size(); ++d) {
    AxisList& src = (*from)[d];
    if (src.empty() || IsPrefix(src, to[d])) continue;
    const std::string axis = src.back();
    const int e = DimOf(to, axis);
    if (e < 0 || e == static_cast<int>(d)) continue;
    AxisList& dst = (*from)[e];
    if (!IsPrefix(dst, to[e]) || dst.size() >= to[e].size() || to[e][dst.size()] != axis) continue;
    *block = ir::AllToAll(*block, {axis}, e, static_cast<int>(d), /*tiled=*/true);
    src.pop_back();
    dst.push_back(axis);
    return true;
  }
  return false;
}

// Gathers the axes of one dim that `to` does not have there.
bool TryGather(Value* block, DimAxes* from, const DimAxes& to) {
  for (size_t d = 0; d < to.size(); ++d) {
    AxisList& have = (*from)[d];
    if (IsPrefix(have, to[d])) continue;
    size_t keep = 0;
    while (keep < have.size() && keep < to[d].size() && have[keep] == to[d][keep]) ++keep;
    const AxisList drop(have.begin() + keep, have.end());
    *block = ir::AllGather(*block, drop, static_cast<int>(d), /*tiled=*/true);
    have.resize(keep);
    return true;
  }
  return false;
}

}  // namespace

Value Reshard(Value block, DimAxes from, const DimAxes& to) {
  while (TrySlice(&block, &from, to) || TryMove(&block, &from, to) ||
         TryGather(&block, &from, to)) {
  }
  return block;
}

}  // namespace tessera::server::planner
