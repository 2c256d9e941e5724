// Plans how a kernel's elements are assigned to the threads of a GPU, and in which order threads
// reduce. The plan depends on the kernel alone and never on a device, so that every device of a
// target computes the same bits. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

inline constexpr int kWarpSize = 32;

struct GpuPlan {
  enum class Layout : uint8_t {
    kNothing,      // no iterations: one thread returns at once
    kElementwise,  // a thread computes `lanes` consecutive elements
    kRows,         // `threads_per_row` threads reduce a row: part of a warp, a warp or a block
    kColumns,      // a block has block[0] * lanes columns; block[1] threads reduce each
    kScan,         // `owners` threads scan for each point of the parallel dims
  };
  Layout layout = Layout::kNothing;
  // The number of consecutive elements along `lane_dim` that a thread computes at once, by vector
  // loads and stores. It is 1 if some access does not allow more.
  int lanes = 1;
  int lane_dim = -1;  // -1 if the kernel has no dims
  int threads_per_row = 1;
  // The number of thread blocks, along grid[1], that share the reduction of each result if there
  // are few results. They combine their partial results in global variables of the module, in the
  // order of their indices, so runs of a kernel must not overlap.
  int blocks_per_result = 1;
  // The number of threads, a power of two, that each go through all points of a scan that updates
  // elements at run-time offsets. Each element has one of these threads as its owner, and only the
  // owner updates it. So the updates of an element happen in order and without atomics.
  int owners = 1;
  bool wide_index = false;  // whether element numbers need 64 bits
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;

  int64_t num_threads() const { return int64_t{block[0]} * block[1] * block[2]; }
};

// Plans a kernel. Requires that Verify accepts the kernel. Kernels in normal form get the best
// plans. Returns NOT_IMPLEMENTED for a kernel that needs more blocks than a launch can have.
absl::StatusOr<GpuPlan> PlanGpu(const Kernel& kernel);

// Returns the name of the function of kernel number `kernel` of a module.
std::string GpuEntryName(int kernel);

// Returns whether, at every `lanes` consecutive indices along `dim` of which the first is a
// multiple of `lanes`, the elements are contiguous in memory and start at a multiple of `lanes`.
bool IsWideAccess(const Kernel& kernel, const Access& access, int dim, int lanes);

}  // namespace tessera::worker::codegen
