#include "server/planner/reshard.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

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

// Cuts one dim along the next mesh axis of the target, if the axis is not in use: by a scatter of
// the sum if it is pending, else without communication.
bool TrySlice(Value* shard, DimAxes* current, const DimAxes& target, AxisList* pending) {
  for (size_t d = 0; d < target.size(); ++d) {
    if ((*current)[d].size() >= target[d].size() || !IsPrefix((*current)[d], target[d])) continue;
    const std::string& axis = target[d][(*current)[d].size()];
    if (DimOf(*current, axis) >= 0) continue;
    const auto sum = std::find(pending->begin(), pending->end(), axis);
    if (sum == pending->end()) {
      *shard = SliceAlong(*shard, static_cast<int>(d), axis);
    } else {
      *shard = ir::PsumScatter(*shard, {axis}, static_cast<int>(d), /*tiled=*/true);
      pending->erase(sum);
    }
    (*current)[d].push_back(axis);
    return true;
  }
  return false;
}

// The pairs (from, to) of positions along `axes` by which each gets the block that it has under
// `want` from one that has it under `have`, from itself where it does.
std::vector<std::pair<int64_t, int64_t>> BlocksToOwners(const ir::Mesh& mesh, const AxisList& axes,
                                                        const AxisList& have,
                                                        const AxisList& want) {
  const int64_t n = mesh.SizeOf(axes);
  // The block of a position whose coordinates along `axes` are the digits of its number.
  const auto block_of = [&](int64_t position, const AxisList& cut) {
    int64_t block = 0;
    for (const std::string& axis : cut) {
      int64_t minor = 1;
      for (auto a = axes.rbegin(); *a != axis; ++a) minor *= mesh.SizeOf(*a);
      block = block * mesh.SizeOf(axis) + position / minor % mesh.SizeOf(axis);
    }
    return block;
  };
  std::vector<std::vector<int64_t>> holders(mesh.SizeOf(have));
  std::vector<std::pair<int64_t, int64_t>> pairs;
  std::vector<int64_t> others;
  for (int64_t p = 0; p < n; ++p) {
    if (block_of(p, have) == block_of(p, want)) {
      pairs.emplace_back(p, p);
    } else {
      holders[block_of(p, have)].push_back(p);
      others.push_back(p);
    }
  }
  for (const int64_t p : others) {
    std::vector<int64_t>& from = holders[block_of(p, want)];
    pairs.emplace_back(from.back(), p);
    from.pop_back();
  }
  return pairs;
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

// Exchanges whole shards where one dim is cut by other axes into as many blocks: one ppermute.
bool TryPermute(Value* shard, DimAxes* current, const DimAxes& target) {
  constexpr int64_t kDevicesMax = 4096;  // The pairs are listed.
  const ir::Mesh& mesh = shard->builder().mesh();
  for (size_t d = 0; d < target.size(); ++d) {
    AxisList& have = (*current)[d];
    const AxisList& want = target[d];
    if (have == want || mesh.SizeOf(have) != mesh.SizeOf(want)) continue;
    AxisList axes = have;
    bool is_free = true;
    for (const std::string& axis : want) {
      if (DimOf({have}, axis) >= 0) continue;
      is_free &= DimOf(*current, axis) < 0;
      axes.push_back(axis);
    }
    if (!is_free || mesh.SizeOf(axes) > kDevicesMax) continue;
    *shard = ir::Ppermute(*shard, axes, BlocksToOwners(mesh, axes, have, want));
    have = want;
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
Value Reshard(Value shard, DimAxes current, const DimAxes& target, AxisList pending) {
  while (TrySlice(&shard, &current, target, &pending)) {
  }
  if (!pending.empty()) shard = ir::Psum(shard, std::exchange(pending, {}));
  while (TrySlice(&shard, &current, target, &pending) || TryMove(&shard, &current, target) ||
         TryPermute(&shard, &current, target) || TryGather(&shard, &current, target)) {
  }
  return shard;
}

}  // namespace tessera::server::planner
