// PlanGpu: chooses the layout of a kernel's threads. device_code.cc makes a plan for each kernel of
// a program. gpu_emit.cc emits the code of the plan, and the device backend launches the kernel
// with the plan's grid. The numbers below suit large GPUs in general and not one device, because
// the order of a float sum follows from them.
#include "worker/codegen/gpu_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::worker::codegen {
namespace {

constexpr int64_t kBlockThreads = 256;
constexpr int64_t kGridMax = std::numeric_limits<int32_t>::max();
// This many blocks leave no multiprocessor of the largest devices idle.
constexpr int64_t kManyBlocks = 512;
// With fewer blocks than kFewBlocks most multiprocessors are idle. Up to kBlocksPerResultMax blocks
// then share a result, and each of them gets at least kIterationsMin iterations of its loop.
constexpr int64_t kFewBlocks = 64;
constexpr int64_t kBlocksPerResultMax = 128;
constexpr int64_t kIterationsMin = 8;
constexpr int64_t kSharedBytesMax = 32 << 10;
// The threads of a scan do not cooperate, so many multiprocessors serve them better than large
// blocks.
constexpr int64_t kScanThreads = 128;
// Each thread of a scan reads the positions of all updates, so more owners mean more reads. There
// are at most kOwnersMax owners, and at least kPointsPerOwnerMin scanned points for each.
constexpr int64_t kOwnersMax = 1024;
constexpr int64_t kPointsPerOwnerMin = 8;
constexpr int64_t kNarrowIndexThreadsMax = int64_t{1} << 30;
// The size in bytes of a slot of shared memory, which holds a value or an index.
constexpr int kSlotBytes = 8;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// An access to memory by a load or a store.
struct MemoryAccess {
  const Access* access;
  int param;
  bool inner;
};
std::vector<MemoryAccess> MemoryAccessesOf(const Kernel& kernel) {
  std::vector<MemoryAccess> accesses;
  for (const Node& node : kernel.nodes)
    if (node.kind == Node::Kind::kLoad)
      accesses.push_back({&node.access, node.param, VariesOverReduced(kernel, node.access)});
  for (const Store& store : kernel.stores) accesses.push_back({&store.access, store.param, false});
  return accesses;
}

// Returns the number of lanes along `dim` that all accesses which vary over `dim` allow (with
// `inner_only`, only the inner ones count). It is at most 8 if no dtype has more than 2 bytes, and
// otherwise at most 4.
int LanesAlong(const Kernel& kernel, int dim, bool inner_only) {
  if (dim < 0) return 1;
  std::vector<MemoryAccess> accesses = MemoryAccessesOf(kernel);
  std::erase_if(accesses, [&](const MemoryAccess& memory_access) {
    return (inner_only && !memory_access.inner) || !VariesOver(*memory_access.access, dim);
  });
  if (accesses.empty()) return 1;
  int64_t widest = 0;
  for (const MemoryAccess& memory_access : accesses)
    widest = std::max(widest, ir::ByteWidth(kernel.params[memory_access.param].dtype));
  for (int lanes = widest <= 2 ? 8 : 4; lanes > 1; lanes /= 2)
    if (std::all_of(accesses.begin(), accesses.end(), [&](const MemoryAccess& memory_access) {
          return IsWideAccess(kernel, *memory_access.access, dim, lanes);
        }))
      return lanes;
  return 1;
}

// Returns whether element numbers may exceed 31 bits. A margin covers numbers that occur only in
// the computation of addresses.
bool NeedsWideIndex(const Kernel& kernel) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() - (int64_t{1} << 20);
  int64_t elements = 1;
  for (int64_t size : kernel.shape) elements *= std::max<int64_t>(size, 1);
  if (elements > kMax) return true;
  const auto reach_of = [&](int64_t offset, const ir::Dims& strides) {
    double reach = std::abs(static_cast<double>(offset));
    for (size_t d = 0; d < strides.size(); ++d)
      reach += std::abs(static_cast<double>(strides[d])) *
               static_cast<double>(std::max<int64_t>(kernel.shape[d] - 1, 0));
    return reach;
  };
  const auto wide = [&](const Access& access) {
    double reach = reach_of(access.offset, access.strides), widest = 0;
    for (const DynamicOffset& shift : access.shifts) {
      reach += std::abs(static_cast<double>(shift.stride)) * static_cast<double>(shift.max);
      widest =
          std::max({widest, reach_of(shift.offset, shift.strides), static_cast<double>(shift.max)});
    }
    return std::max(reach, widest) > static_cast<double>(kMax);
  };
  return std::any_of(kernel.nodes.begin(), kernel.nodes.end(),
                     [&](const Node& node) { return wide(node.access); }) ||
         std::any_of(kernel.stores.begin(), kernel.stores.end(),
                     [&](const Store& store) { return wide(store.access); });
}

// Returns the number of slots that the accumulators of one thread take.
int SlotsPerThread(const Kernel& kernel) {
  int slots = 0;
  for (const Node& node : kernel.nodes) {
    if (node.kind != Node::Kind::kReduce) continue;
    slots += IsArgReduction(node.reduce) ? 2 : 1;
  }
  return slots;
}

void PlanElementwise(const Kernel& kernel, GpuPlan* plan) {
  plan->layout = GpuPlan::Layout::kElementwise;
  plan->lane_dim = kernel.rank() - 1;
  plan->lanes = LanesAlong(kernel, plan->lane_dim, /*inner_only=*/false);
  const int64_t threads = CeilDiv(kernel.num_iterations(), plan->lanes);
  plan->block[0] =
      static_cast<uint32_t>(std::min(kBlockThreads, CeilDiv(threads, kWarpSize) * kWarpSize));
  plan->grid[0] = static_cast<uint32_t>(std::min(CeilDiv(threads, plan->block[0]), kGridMax + 1));
}

// If there are few blocks, lets several blocks share each result, with at least
// `elements_min` reduced elements for each block.
void ShareResults(int64_t reduced, int64_t elements_min, GpuPlan* plan) {
  const int64_t blocks = plan->grid[0];
  if (blocks >= kFewBlocks) return;
  const int64_t sharing =
      std::min({kBlocksPerResultMax, kManyBlocks / blocks, reduced / elements_min});
  if (sharing < 2) return;
  plan->blocks_per_result = static_cast<int>(sharing);
  plan->grid[1] = static_cast<uint32_t>(sharing);
}

// Returns whether the reduced elements of one result lie closer together than elements of
// neighbouring results.
bool ReducesRows(const Kernel& kernel) {
  if (kernel.num_iterations() == 1) return true;
  int64_t rows = 0, columns = 0;
  for (const MemoryAccess& memory_access : MemoryAccessesOf(kernel)) {
    if (!memory_access.inner) continue;
    const int64_t width = ir::ByteWidth(kernel.params[memory_access.param].dtype);
    if (std::abs(memory_access.access->strides.back()) == 1) rows += width;
    if (kernel.num_parallel() > 0 &&
        std::abs(memory_access.access->strides[kernel.num_parallel() - 1]) == 1)
      columns += width;
  }
  return rows >= columns;
}

void PlanRows(const Kernel& kernel, int64_t reduced, GpuPlan* plan) {
  plan->layout = GpuPlan::Layout::kRows;
  plan->lane_dim = kernel.rank() - 1;
  plan->lanes = LanesAlong(kernel, plan->lane_dim, /*inner_only=*/true);
  // A thread makes about eight wide loads, or two if there are few rows.
  const int64_t work = CeilDiv(reduced, plan->lanes);
  const int64_t per_thread = kernel.num_iterations() >= 16 * kManyBlocks ? 8 : 2;
  int64_t threads = 1;
  while (threads < 1024 && threads * (threads < kWarpSize ? 1 : per_thread) < work) threads *= 2;
  plan->threads_per_row = static_cast<int>(threads);
  int64_t block = std::max<int64_t>(threads, kWarpSize);
  while (block < kBlockThreads && block / threads < kernel.num_iterations()) block *= 2;
  plan->block[0] = static_cast<uint32_t>(block);
  if (threads > kWarpSize) {
    // There is one row per block.
    plan->block[0] = static_cast<uint32_t>(threads);
    plan->shared_bytes =
        static_cast<uint32_t>(threads / kWarpSize * SlotsPerThread(kernel) * kSlotBytes);
  }
  plan->grid[0] = static_cast<uint32_t>(std::min(
      CeilDiv(kernel.num_iterations(), plan->block[0] / plan->threads_per_row), kGridMax + 1));
  if (threads > kWarpSize) ShareResults(reduced, threads * plan->lanes * kIterationsMin, plan);
}

void PlanColumns(const Kernel& kernel, int64_t reduced, GpuPlan* plan) {
  plan->layout = GpuPlan::Layout::kColumns;
  plan->lane_dim = kernel.num_parallel() - 1;
  const int64_t columns = kernel.num_iterations();
  const int lanes = LanesAlong(kernel, plan->lane_dim, /*inner_only=*/false);
  if (columns % lanes == 0 && columns / lanes >= kManyBlocks * kWarpSize) plan->lanes = lanes;
  const int64_t groups = CeilDiv(columns, plan->lanes);
  // More threads share a column if there are few columns.
  int64_t split = 1;
  while (split < 32 && reduced / split >= 16 && groups * split < kManyBlocks * kBlockThreads &&
         2 * split * kWarpSize * plan->lanes * SlotsPerThread(kernel) * kSlotBytes <=
             kSharedBytesMax)
    split *= 2;
  plan->block[0] = split > 1 ? kWarpSize : static_cast<uint32_t>(kBlockThreads);
  plan->block[1] = static_cast<uint32_t>(split);
  if (split > 1)
    plan->shared_bytes = static_cast<uint32_t>(split * kWarpSize * plan->lanes *
                                               SlotsPerThread(kernel) * kSlotBytes);
  plan->grid[0] = static_cast<uint32_t>(std::min(CeilDiv(groups, plan->block[0]), kGridMax + 1));
  ShareResults(reduced, split * kIterationsMin, plan);
}

// Returns whether the threads of a point may share the scan's stores by owning elements. This is so
// if the kernel has no reduction, all stores and all loads of stored params have the same access,
// and a shift of that access varies over the scanned dims.
bool HasOwners(const Kernel& kernel) {
  const auto is_reduction = [](const Node& node) { return node.kind == Node::Kind::kReduce; };
  if (kernel.stores.empty() || absl::c_any_of(kernel.nodes, is_reduction)) return false;
  const Access& element = kernel.stores[0].access;
  const auto loads_another = [&](const Node& node) {
    return node.kind == Node::Kind::kLoad && kernel.params[node.param].output &&
           node.access != element;
  };
  const auto stores_another = [&](const Store& store) { return store.access != element; };
  if (absl::c_any_of(kernel.nodes, loads_another) || absl::c_any_of(kernel.stores, stores_another))
    return false;
  for (int d = kernel.num_parallel(); d < kernel.rank(); ++d)
    if (ShiftsVaryOver(element, d)) return true;
  return false;
}

void PlanScan(const Kernel& kernel, int64_t scanned, GpuPlan* plan) {
  plan->layout = GpuPlan::Layout::kScan;
  const int64_t points = kernel.num_iterations();
  if (HasOwners(kernel))
    while (plan->owners < kOwnersMax && 2 * plan->owners * kPointsPerOwnerMin <= scanned &&
           2 * plan->owners * points <= kManyBlocks * kScanThreads)
      plan->owners *= 2;
  const int64_t threads = points * plan->owners;
  plan->wide_index |= threads > kNarrowIndexThreadsMax;
  plan->block[0] =
      static_cast<uint32_t>(std::min(kScanThreads, CeilDiv(threads, kWarpSize) * kWarpSize));
  plan->grid[0] = static_cast<uint32_t>(std::min(CeilDiv(threads, plan->block[0]), kGridMax + 1));
}

}  // namespace

std::string GpuEntryName(int kernel) { return absl::StrCat("tessera_kernel_", kernel); }

bool IsWideAccess(const Kernel& kernel, const Access& access, int dim, int lanes) {
  if (access.strides[dim] != 1 || access.offset % lanes != 0 || kernel.shape[dim] == 0 ||
      ShiftsVaryOver(access, dim))
    return false;
  for (int d = 0; d < kernel.rank(); ++d)
    if (d != dim && kernel.shape[d] > 1 && access.strides[d] % lanes != 0) return false;
  // Each row of the dim must start at a multiple of `lanes`, unless there is only one row.
  for (int d = 0; d < kernel.rank(); ++d)
    if (d != dim && kernel.shape[d] > 1 && kernel.shape[dim] % lanes != 0) return false;
  return std::all_of(access.shifts.begin(), access.shifts.end(),
                     [lanes](const DynamicOffset& shift) { return shift.stride % lanes == 0; });
}

absl::StatusOr<GpuPlan> PlanGpu(const Kernel& kernel) {
  GpuPlan plan;
  if (kernel.num_iterations() == 0) return plan;
  plan.wide_index = NeedsWideIndex(kernel);
  const int64_t reduced = kernel.num_reduced_elements();
  if (kernel.scans) {
    PlanScan(kernel, reduced, &plan);
  } else if (kernel.num_reduced == 0) {
    PlanElementwise(kernel, &plan);
  } else if (ReducesRows(kernel)) {
    PlanRows(kernel, reduced, &plan);
  } else {
    PlanColumns(kernel, reduced, &plan);
  }
  if (plan.grid[0] > kGridMax)
    return MakeError(
        ErrorKind::kNotImplemented,
        absl::StrCat("gpu code: a kernel of ", kernel.num_iterations(),
                     " elements needs more than ", kGridMax, " blocks; split the array"));
  return plan;
}

}  // namespace tessera::worker::codegen
