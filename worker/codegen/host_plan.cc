// PlanHost: decides how a kernel's loops run on a host, before emit_host.cc emits them. It decides
// from the kernel and the target alone, so that compiled code is the same on every machine. The
// lanes and chunks of a vectorised reduction depend on the reduced dims alone, so that the order of
// a float sum does not depend on the number of rows.
#include "worker/codegen/host_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include "worker/codegen/scalar_prim.h"

namespace tessera::worker::codegen {
namespace {

// A block fills this many registers. They hold enough independent operations to hide the latency of
// instructions, and they are few enough for values to stay in registers.
constexpr int64_t kRegistersPerBlock = 4;
// The least number of lanes. Short rows have it too, and leave lanes unused.
constexpr int kLanesMin = 8;
// Non-temporal stores pay for rows of at least this many bytes, where an element counts as 4 bytes.
constexpr int64_t kNontemporalRowBytesMin = 4096;

// Returns whether the node is a function of f32 that is computed in f64.
bool IsComputedInF64(const Node& node) {
  return node.kind == Node::Kind::kScalar && node.dtype == ir::DType::kF32 &&
         InfoOf(node.prim).form == FloatForm::kInF64;
}

int64_t WidestElement(const Kernel& kernel) {
  int64_t widest = 4;
  for (const Node& node : kernel.nodes)
    widest = std::max(
        {widest, ir::ByteWidth(node.dtype), IsComputedInF64(node) ? int64_t{8} : int64_t{0}});
  return widest;
}

// Returns the cost of the loads' steps along `dim`: the sum of their strides, each limited to a
// cache line.
int64_t StepCost(const Kernel& kernel, int dim) {
  int64_t cost = 0;
  for (const Node& node : kernel.nodes) {
    if (node.kind != Node::Kind::kLoad) continue;
    constexpr int64_t kLineElements = 16;  // number of f32s in a cache line
    cost += ShiftsVaryOver(node.access, dim)
                ? kLineElements
                : std::min<int64_t>(std::abs(node.access.strides[dim]), kLineElements);
  }
  return cost;
}

// Returns whether lanes along the dim store to contiguous elements, and each load reads contiguous
// elements or one element for all lanes.
bool StoresBlocksAlong(const Kernel& kernel, int dim) {
  return std::all_of(kernel.stores.begin(), kernel.stores.end(),
                     [&](const Store& store) {
                       return store.access.strides[dim] == 1 && !ShiftsVaryOver(store.access, dim);
                     }) &&
         std::all_of(kernel.nodes.begin(), kernel.nodes.end(), [&](const Node& node) {
           return node.kind != Node::Kind::kLoad || node.access.strides[dim] == 0 ||
                  node.access.strides[dim] == 1;
         });
}

int ChooseLaneDim(const Kernel& kernel) {
  const int parallel_dim = kernel.num_parallel() - 1, reduced_dim = kernel.rank() - 1;
  // A scan has no lanes, unless neighbours along a parallel dim are contiguous.
  if (kernel.scans)
    return parallel_dim >= 0 && StoresBlocksAlong(kernel, parallel_dim) ? parallel_dim : -1;
  if (kernel.num_reduced == 0 || kernel.num_elements() == 0) return parallel_dim;
  if (parallel_dim < 0) return reduced_dim;
  const int64_t parallel_cost = StepCost(kernel, parallel_dim),
                reduced_cost = StepCost(kernel, reduced_dim);
  // If all loads are broadcast along one dim, the lanes are along the other dim, along which memory
  // is read.
  if (parallel_cost == 0) return reduced_dim;
  if (reduced_cost == 0) return parallel_dim;
  return reduced_cost <= parallel_cost ? reduced_dim : parallel_dim;
}

int64_t BytesMoved(const Kernel& kernel) {
  int64_t bytes = 0;
  for (const Node& node : kernel.nodes) {
    if (node.kind != Node::Kind::kLoad) continue;
    const Param& param = kernel.params[node.param];
    bytes += std::min(param.size, kernel.num_elements()) * ir::ByteWidth(param.dtype);
  }
  for (const Store& store : kernel.stores)
    bytes += kernel.num_iterations() * ir::ByteWidth(kernel.params[store.param].dtype);
  return bytes;
}

// Returns whether the node is a load that is contiguous along `dim` and strided along the lane dim.
bool IsContiguousAlong(const Kernel& kernel, const HostPlan& plan, const Node& node, int dim) {
  if (node.kind != Node::Kind::kLoad || dim == plan.lane_dim || ShiftsVaryOver(node.access, dim) ||
      ShiftsVaryOver(node.access, plan.lane_dim))
    return false;
  const ir::Dims& strides = node.access.strides;
  return std::abs(strides[dim]) == 1 && std::abs(strides[plan.lane_dim]) > 1 &&
         kernel.shape[dim] > 1;
}

void PlanTransposedLoads(const Kernel& kernel, HostPlan* plan) {
  plan->transposed.assign(kernel.nodes.size(), false);
  if (plan->lane_dim < 0 || kernel.num_reduced > 0) return;
  for (int dim = 0; dim < kernel.num_parallel() && plan->transpose_dim < 0; ++dim)
    for (size_t n = 0; n < kernel.nodes.size(); ++n)
      if (IsContiguousAlong(kernel, *plan, kernel.nodes[n], dim)) plan->transpose_dim = dim;
  if (plan->transpose_dim < 0) return;
  constexpr int kLineElements = 16;  // number of f32s in a cache line
  plan->transpose_size = kLineElements;
  for (size_t n = 0; n < kernel.nodes.size(); ++n)
    plan->transposed[n] = IsContiguousAlong(kernel, *plan, kernel.nodes[n], plan->transpose_dim);
}

// Returns whether loads a and b differ only in their offsets.
bool ReadsAlike(const Node& a, const Node& b) {
  return b.kind == Node::Kind::kLoad && a.param == b.param &&
         a.access.strides == b.access.strides && a.access.shifts == b.access.shifts;
}

// Finds the groups of 2, 4, 8 or 16 loads that together read memory without gaps. Candidates differ
// only in their offsets, so they are sorted by offset and cut into runs of as many loads as the
// lane stride has elements. Separate loads would read every cache line as many times as the group
// has loads. Loads that are read transposed stay out.
void PlanInterleaved(const Kernel& kernel, HostPlan* plan) {
  constexpr int64_t kLoadsMax = 16;
  plan->group_of.assign(kernel.nodes.size(), -1);
  if (plan->lane_dim < 0 || kernel.scans || kernel.shape[plan->lane_dim] == 1) return;
  std::vector<bool> seen(kernel.nodes.size(), false);
  for (size_t n = 0; n < kernel.nodes.size(); ++n) {
    const Node& node = kernel.nodes[n];
    if (seen[n] || plan->transposed[n] || node.kind != Node::Kind::kLoad ||
        ShiftsVaryOver(node.access, plan->lane_dim))
      continue;
    const int64_t lane_stride = node.access.strides[plan->lane_dim];
    if (lane_stride < 2 || lane_stride > kLoadsMax ||
        !std::has_single_bit(static_cast<uint64_t>(lane_stride)))
      continue;
    std::map<int64_t, int> by_offset;
    for (size_t other = n; other < kernel.nodes.size(); ++other) {
      if (!ReadsAlike(node, kernel.nodes[other])) continue;
      seen[other] = true;
      by_offset.emplace(kernel.nodes[other].access.offset, static_cast<int>(other));
    }
    std::vector<int> group;
    int64_t next = 0;
    for (const auto& [offset, load] : by_offset) {
      if (offset != next) group.clear();
      next = offset + 1;
      group.push_back(load);
      if (static_cast<int64_t>(group.size()) < lane_stride) continue;
      for (const int member : group)
        plan->group_of[member] = static_cast<int>(plan->interleaved_groups.size());
      plan->interleaved_groups.push_back(std::exchange(group, {}));
    }
  }
}

// Finds the pairs of stores that write memory without gaps.
void PlanStorePairs(const Kernel& kernel, HostPlan* plan) {
  if (plan->lane_dim < 0 || kernel.scans || kernel.shape[plan->lane_dim] == 1) return;
  const auto follows = [](const Store& a, const Store& b) {
    return a.param == b.param && a.access.strides == b.access.strides &&
           a.access.shifts == b.access.shifts && b.access.offset == a.access.offset + 1;
  };
  std::vector<bool> paired(kernel.stores.size(), false);
  for (size_t a = 0; a < kernel.stores.size(); ++a) {
    const Access& access = kernel.stores[a].access;
    if (access.strides[plan->lane_dim] != 2 || ShiftsVaryOver(access, plan->lane_dim)) continue;
    for (size_t b = 0; b < kernel.stores.size() && !paired[a]; ++b) {
      if (paired[b] || !follows(kernel.stores[a], kernel.stores[b])) continue;
      paired[a] = paired[b] = true;
      plan->store_pairs.emplace_back(a, b);
    }
  }
}

// Returns how many registers a block fills. All loads of a group are in use together, so a large
// group leaves fewer registers for each load. A vectorised reduction always fills
// kRegistersPerBlock, because its order must not depend on its loads.
int64_t RegistersPerBlock(const HostPlan& plan) {
  if (plan.vectorize_reduction) return kRegistersPerBlock;
  constexpr int64_t kRegistersOfGroup = 16;
  size_t loads = 1;
  for (const std::vector<int>& group : plan.interleaved_groups)
    loads = std::max(loads, group.size());
  return std::clamp<int64_t>(kRegistersOfGroup / static_cast<int64_t>(loads), 1,
                             kRegistersPerBlock);
}

// Splits the longest reduction dim into chunks, so that there are about as many chunks as there are
// steps in a chunk.
void PlanChunks(const Kernel& kernel, HostPlan* plan) {
  if (kernel.scans) return;
  constexpr int64_t kStepsMin = 256;
  int64_t longest = 2 * kStepsMin;
  for (int dim = kernel.num_parallel(); dim < kernel.rank(); ++dim) {
    const int64_t step = dim == plan->lane_dim ? plan->lanes : 1;
    const int64_t steps = kernel.shape[dim] / step;
    if (steps <= longest) continue;
    longest = steps;
    plan->chunk_dim = dim;
    plan->chunk_elements = std::max<int64_t>(kStepsMin, std::llround(std::sqrt(steps))) * step;
  }
}

// If rows share loads, computes as many rows together as have accumulators that fit into half of
// the registers.
void PlanRows(const Kernel& kernel, const HostTarget& target, HostPlan* plan) {
  const int dim = plan->lane_dim - 1;
  if (kernel.num_reduced == 0 || kernel.scans || plan->vectorize_reduction || dim < 0 ||
      plan->nontemporal_stores)
    return;
  int reductions = 0;
  bool shares = false;
  int64_t widest = 1;
  const std::vector<Level> levels = LevelsOf(kernel);
  for (size_t n = 0; n < kernel.nodes.size(); ++n) {
    const Node& node = kernel.nodes[n];
    if (node.kind == Node::Kind::kReduce) {
      ++reductions;
      widest = std::max(widest, ir::ByteWidth(kernel.nodes[node.args[0]].dtype));
    }
    shares = shares || (node.kind == Node::Kind::kLoad && levels[n] == Level::kInner &&
                        !VariesOver(node.access, dim) && node.access.strides[plan->lane_dim] != 0);
  }
  if (!shares) return;
  const int64_t registers = std::max<int64_t>(plan->lanes * widest / target.vector_bytes, 1);
  int64_t rows = std::max<int64_t>(target.num_registers / 2 / (registers * reductions), 1);
  while (kernel.shape[dim] % rows != 0) --rows;
  plan->rows = static_cast<int>(rows);
}

int InstructionsOf(const Node& node) {
  const bool is_arithmetic =
      node.reduce == ir::ReduceKind::kSum || node.reduce == ir::ReduceKind::kProd;
  if (node.kind == Node::Kind::kReduce)
    return is_arithmetic ? 1 : InfoOf(ir::ScalarPrim::kMax).instructions;
  return node.kind == Node::Kind::kScalar ? InfoOf(node.prim).instructions : 0;
}

// Returns whether a block has so many instructions that an out-of-order processor does not reach
// the loads of the next block in time.
bool NeedsPrefetch(const Kernel& kernel, const HostPlan& plan) {
  constexpr int kInstructionsMin = 5;  // in the units of scalar_prims.def
  int instructions = 0;
  for (size_t n = 0; n < kernel.nodes.size(); ++n)
    if (plan.lane_variant[n] || kernel.nodes[n].kind == Node::Kind::kReduce)
      instructions += InstructionsOf(kernel.nodes[n]);
  return instructions >= kInstructionsMin;
}

std::vector<bool> LaneVariantNodes(const Kernel& kernel, const HostPlan& plan) {
  std::vector<bool> lane_variant;
  for (const Node& node : kernel.nodes) {
    const bool reads = node.kind == Node::Kind::kLoad || node.kind == Node::Kind::kIndex;
    bool any = plan.lane_dim >= 0 && reads && VariesOver(node.access, plan.lane_dim);
    for (const int arg : node.args) any = any || lane_variant[arg];
    if (node.kind == Node::Kind::kReduce && plan.vectorize_reduction) any = false;
    lane_variant.push_back(any);
  }
  return lane_variant;
}

}  // namespace

// Makes the plan step by step, as later steps read what earlier ones have set: transposed loads and
// groups depend on the lane dim, the number of lanes depends on the groups, and chunks and rows
// depend on the lanes. Prefetching comes last, because it depends on which nodes differ between
// lanes.
HostPlan PlanHost(const Kernel& kernel, const HostTarget& target) {
  HostPlan plan;
  plan.lane_dim = ChooseLaneDim(kernel);
  plan.vectorize_reduction = plan.lane_dim >= kernel.num_parallel();
  PlanTransposedLoads(kernel, &plan);
  PlanInterleaved(kernel, &plan);
  PlanStorePairs(kernel, &plan);
  const int64_t widest = WidestElement(kernel);
  plan.has_masked_memory_ops = target.has_masked_memory_ops && widest <= 8;
  if (plan.lane_dim >= 0) {
    const auto extent = static_cast<uint64_t>(std::max<int64_t>(kernel.shape[plan.lane_dim], 1));
    const int64_t lanes = RegistersPerBlock(plan) * target.vector_bytes / widest;
    plan.lanes = static_cast<int>(std::max<int64_t>(
        kLanesMin, std::min<int64_t>(lanes, static_cast<int64_t>(std::bit_ceil(extent)))));
    const int64_t row_bytes = static_cast<int64_t>(extent) * 4;
    const bool beyond_caches = BytesMoved(kernel) > target.cache_bytes;
    plan.nontemporal_stores = !plan.vectorize_reduction && !kernel.scans &&
                              row_bytes >= kNontemporalRowBytesMin && beyond_caches;
    plan.prefetch = beyond_caches;
  }
  PlanChunks(kernel, &plan);
  PlanRows(kernel, target, &plan);
  plan.lane_variant = LaneVariantNodes(kernel, plan);
  plan.prefetch = plan.prefetch && NeedsPrefetch(kernel, plan);
  return plan;
}

// The number of lanes along a reduced dim and the chunks depend on the reduced dims alone. So it is
// enough to compare the reduced dims, and whether the lanes are along one of them.
bool ReduceInTheSameOrder(const Kernel& a, const Kernel& b) {
  const auto reduced_dims = [](const Kernel& k) {
    return ir::Dims(k.shape.begin() + k.num_parallel(), k.shape.end());
  };
  const auto has_reduced_lanes = [](const Kernel& k) {
    return ChooseLaneDim(k) >= k.num_parallel();
  };
  return reduced_dims(a) == reduced_dims(b) && has_reduced_lanes(a) == has_reduced_lanes(b);
}

}  // namespace tessera::worker::codegen
