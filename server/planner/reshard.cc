// Finds and emits the steps from one sharding to another. The partitioner calls Reshard wherever an
// operand or result has another sharding than an op needs; cuts.cc compares ways to cut an op by
// BytesToReshard. Both functions follow the same list of steps, so that the compared bytes are
// those of the ops that are emitted.
#include "server/planner/reshard.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/ops.h"
#include "ir/spec.h"
#include "server/planner/bytes.h"
#include "server/planner/propagate.h"

namespace tessera::server::planner {
namespace {

using ir::AxisList;
using ir::DimAxes;
using ir::IsPrefix;
using ir::Mesh;
using ir::Value;

// One step from a sharding to the next.
struct Step {
  enum class Kind {
    kSlice,    // cuts `dim` along an unused axis, without communication
    kScatter,  // sums along a pending axis and cuts `dim` by it: psum_scatter
    kSum,      // sums along all pending axes: psum
    kMove,     // moves an axis from `dim` to `to`: all_to_all
    kPermute,  // cuts `dim` by `want` instead of `have`: ppermute along `axes`
    kGather,   // gathers `dim`: all_gather
  };
  Kind kind;
  AxisList axes;
  int dim = 0, to = 0;
  AxisList have = {}, want = {};
};

// ---- Each Try function returns a step of its kind, if one applies, and updates `current`. -------

// Cuts a dim along the target's next axis, if that axis is unused.
std::optional<Step> TrySlice(DimAxes* current, const DimAxes& target, AxisList* pending) {
  for (size_t d = 0; d < target.size(); ++d) {
    if ((*current)[d].size() >= target[d].size() || !IsPrefix((*current)[d], target[d])) continue;
    const std::string& axis = target[d][(*current)[d].size()];
    if (DimOf(*current, axis) >= 0) continue;
    (*current)[d].push_back(axis);
    const bool is_sum = std::erase(*pending, axis) > 0;
    return Step{is_sum ? Step::Kind::kScatter : Step::Kind::kSlice, {axis}, static_cast<int>(d)};
  }
  return std::nullopt;
}

// Moves the last (most minor) mesh axis of one dim to the dim that needs this axis next in the
// target.
std::optional<Step> TryMove(DimAxes* current, const DimAxes& target) {
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
    src.pop_back();
    dst.push_back(axis);
    return Step{Step::Kind::kMove, {axis}, static_cast<int>(d), e};
  }
  return std::nullopt;
}

// Sends whole shards to other devices, if the target cuts a dim by other axes into the same number
// of blocks.
std::optional<Step> TryPermute(const Mesh& mesh, DimAxes* current, const DimAxes& target) {
  constexpr int64_t kDevicesMax = 4096;  // bounds the list of pairs in the op
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
    return Step{Step::Kind::kPermute,      axes, static_cast<int>(d), 0,
                std::exchange(have, want), want};
  }
  return std::nullopt;
}

// Gathers one dim over its minor mesh axes, down to the prefix that it has in common with the
// target.
std::optional<Step> TryGather(DimAxes* current, const DimAxes& target) {
  for (size_t d = 0; d < target.size(); ++d) {
    AxisList& have = (*current)[d];
    if (IsPrefix(have, target[d])) continue;
    size_t keep = 0;
    while (keep < have.size() && keep < target[d].size() && have[keep] == target[d][keep]) ++keep;
    Step step{Step::Kind::kGather, {have.begin() + keep, have.end()}, static_cast<int>(d)};
    have.resize(keep);
    return step;
  }
  return std::nullopt;
}

void DropAxesOfSizeOne(const Mesh& mesh, AxisList* axes) {
  std::erase_if(*axes, [&](const std::string& axis) { return mesh.SizeOf(axis) == 1; });
}

// Returns the steps from `current` to `target`: at each point the cheapest step that applies.
std::vector<Step> StepsOf(const Mesh& mesh, DimAxes current, DimAxes target, AxisList pending) {
  for (DimAxes* dims : {&current, &target})
    for (AxisList& dim : *dims) DropAxesOfSizeOne(mesh, &dim);
  DropAxesOfSizeOne(mesh, &pending);
  std::vector<Step> steps;
  while (true) {
    std::optional<Step> next = TrySlice(&current, target, &pending);
    if (!next && !pending.empty()) next = Step{Step::Kind::kSum, std::exchange(pending, {})};
    if (!next) next = TryMove(&current, target);
    if (!next) next = TryPermute(mesh, &current, target);
    if (!next) next = TryGather(&current, target);
    if (!next) return steps;
    steps.push_back(*std::move(next));
  }
}

// ---- The ops of a step. -------------------------------------------------------------------------

// Emits the slice of this device from `shard`, cut along `axis`, without communication.
Value SliceAlong(Value shard, int dim, const std::string& axis) {
  ir::Builder& b = shard.builder();
  ir::Dims sizes = shard.shape();
  sizes[dim] /= b.mesh().SizeOf(axis);
  std::vector<Value> starts(shard.rank(), ir::Constant(b, ir::DType::kS32, 0));
  const Value size = ir::Constant(b, ir::DType::kS32, static_cast<double>(sizes[dim]));
  starts[dim] = ir::AxisIndex(b, {axis}) * size;
  return ir::DynamicSlice(shard, starts, sizes);
}

// Returns the pairs (from, to) of positions along `axes`. By these pairs, each position gets the
// block that it needs if the dim is cut by `want`, from a position that holds this block if the dim
// is cut by `have`: from itself, if possible.
std::vector<std::pair<int64_t, int64_t>> BlocksToOwners(const Mesh& mesh, const Step& step) {
  // Returns the block that a position holds if the dim is cut by `cut`. A position is a number
  // whose digits are the coordinates along step.axes.
  const auto block_of = [&](int64_t position, const AxisList& cut) {
    int64_t block = 0;
    for (const std::string& axis : cut) {
      int64_t minor = 1;
      for (auto a = step.axes.rbegin(); *a != axis; ++a) minor *= mesh.SizeOf(*a);
      block = block * mesh.SizeOf(axis) + position / minor % mesh.SizeOf(axis);
    }
    return block;
  };
  std::vector<std::vector<int64_t>> holders(mesh.SizeOf(step.have));
  std::vector<std::pair<int64_t, int64_t>> pairs;
  std::vector<int64_t> others;
  for (int64_t p = 0; p < mesh.SizeOf(step.axes); ++p) {
    if (block_of(p, step.have) == block_of(p, step.want)) {
      pairs.emplace_back(p, p);
    } else {
      holders[block_of(p, step.have)].push_back(p);
      others.push_back(p);
    }
  }
  for (const int64_t p : others) {
    std::vector<int64_t>& from = holders[block_of(p, step.want)];
    pairs.emplace_back(from.back(), p);
    from.pop_back();
  }
  return pairs;
}

// Emits the op of the step and returns the shard after it.
Value EmitStep(const Step& step, Value shard) {
  switch (step.kind) {
    case Step::Kind::kSlice:
      return SliceAlong(shard, step.dim, step.axes[0]);
    case Step::Kind::kScatter:
      return ir::PsumScatter(shard, step.axes, step.dim, /*tiled=*/true);
    case Step::Kind::kSum:
      return ir::Psum(shard, step.axes);
    case Step::Kind::kMove:
      return ir::AllToAll(shard, step.axes, step.to, step.dim, /*tiled=*/true);
    case Step::Kind::kPermute:
      return ir::Ppermute(shard, step.axes, BlocksToOwners(shard.builder().mesh(), step));
    case Step::Kind::kGather:
      break;
  }
  return ir::AllGather(shard, step.axes, step.dim, /*tiled=*/true);
}

}  // namespace

Value Reshard(Value shard, DimAxes current, const DimAxes& target, AxisList pending) {
  for (const Step& step :
       StepsOf(shard.builder().mesh(), std::move(current), target, std::move(pending)))
    shard = EmitStep(step, shard);
  return shard;
}

// Computes the size of the shard after each step, because the bytes that a step sends depend on the
// size that the steps before it have left. Sums saturate, as arrays of absent devices may be of any
// size.
int64_t BytesToReshard(const Mesh& mesh, const ir::Type& global, DimAxes current,
                       const DimAxes& target, AxisList pending) {
  if (current == target && pending.empty()) return 0;
  int64_t bytes = global.num_bytes(), sent = 0;  // size of the shard, and bytes sent so far
  for (const AxisList& dim : current) bytes /= mesh.SizeOf(dim);
  for (const Step& step : StepsOf(mesh, std::move(current), target, std::move(pending))) {
    const int64_t n = mesh.SizeOf(step.axes);
    switch (step.kind) {
      case Step::Kind::kSlice:
        bytes /= n;
        break;
      case Step::Kind::kScatter:
        sent = Plus(sent, Times(bytes, n - 1, n));
        bytes /= n;
        break;
      case Step::Kind::kSum:
        sent = Plus(sent, Times(bytes, 2 * (n - 1), n));
        break;
      case Step::Kind::kMove:
        sent = Plus(sent, Times(bytes, n - 1, n));
        break;
      case Step::Kind::kPermute:
        sent = Plus(sent, bytes);
        break;
      case Step::Kind::kGather:
        sent = Plus(sent, Times(bytes, n - 1));
        bytes = Times(bytes, n);
        break;
    }
  }
  return sent;
}

}  // namespace tessera::server::planner
