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

// This device's part of `shard` along `axis`, without communication.
Value SliceAlong(Value shard, int dim, const std::string& axis) {
  ir::Builder& b = shard.builder();
  ir::Dims sizes = shard.shape();
  sizes[dim] /= b.mesh().SizeOf(axis);
  std::vector<Value> starts(shard.rank(), ir::Constant(b, ir::DType::kS32, 0));
  const Value size = ir::Constant(b, ir::DType::kS32, static_cast<double>(sizes[dim]));
  starts[dim] = ir::AxisIndex(b, {axis}) * size;
  return ir::DynamicSlice(shard, starts, sizes);
}

// Slices one dim along the next mesh axis of the target, if the axis is not in use: without
// communication.
bool TrySlice(Value* shard, DimAxes* current, const DimAxes& target) {
  for (size_t d = 0; d < target.size(); ++d) {
    if ((*current)[d].size() >= target[d].size() || !IsPrefix((*current)[d], target[d])) continue;
    const std::string& axis = target[d][(*current)[d].size()];
    if (DimOf(*current, axis) >= 0) continue;
    *shard = SliceAlong(*shard, static_cast<int>(d), axis);
    (*current)[d].push_back(axis);
    return true;
  }
  return false;
}

// Moves the minor-most mesh axis of one dim to the dim that has it next in the target: one
// all_to_all.
bool TryMove(Value* shard, DimAxes* current, const DimAxes& target) {
  for (size_t d = 0; d < target.size(); ++d) {
    AxisList& src = (*current)[d];
    if (src.empty() || IsPrefix(src, target[d])) continue;
    const std::string axis = src.back();
    const int e = DimOf(target, axis);
    if (e < 0 || e == static_cast<int>(d)) continue;
    AxisList& dst = (*current)[e];
    if (!IsPrefix(dst, target[e]) || dst.size() >= target[e].size() ||
        target[e][dst.size()] != axis)
      continue;
    *shard = ir::AllToAll(*shard, {axis}, e, static_cast<int>(d), /*tiled=*/true);
    src.pop_back();
    dst.push_back(axis);
    return true;
  }
  return false;
}

// Gathers one dim over the minor mesh axes that are not in the common prefix with the target.
bool TryGather(Value* shard, DimAxes* current, const DimAxes& target) {
  for (size_t d = 0; d < target.size(); ++d) {
    AxisList& have = (*current)[d];
    if (IsPrefix(have, target[d])) continue;
    size_t keep = 0;
    while (keep < have.size() && keep < target[d].size() && have[keep] == target[d][keep]) ++keep;
    const AxisList drop(have.begin() + keep, have.end());
    *shard = ir::AllGather(*shard, drop, static_cast<int>(d), /*tiled=*/true);
    have.resize(keep);
    return true;
  }
  return false;
}

}  // namespace

// Takes the cheapest step that applies until the current sharding is the target's.
Value Reshard(Value shard, DimAxes current, const DimAxes& target) {
  while (TrySlice(&shard, &current, target) || TryMove(&shard, &current, target) ||
         TryGather(&shard, &current, target)) {
  }
  return shard;
}

}  // namespace tessera::server::planner
