// Plans how a kernel's elements are assigned to the threads of a GPU, and in which order threads
// reduce. Depends on the kernel alone, never on a device, so that every device of a target computes
// the same bits. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

inline constexpr int kWarpSize = 32;

struct GpuPlan {
  enum class Layout : uint8_t {
    kNothing,      // no iterations: one thread, which returns
    kElementwise,  // a thread computes `lanes` consecutive elements
    kRows,         // `threads_per_row` threads reduce a row: part of a warp, a warp or a block
    kColumns,      // a block is block[0] columns wide; block[1] threads reduce a column
    kScan,         // `owners` threads scan for each point of the parallel dims
  };
  Layout layout = Layout::kNothing;
  // How many consecutive elements along `lane_dim` a thread computes at once, by vector loads and
  // stores. 1 if some access does not allow more.
  int lanes = 1;
  int lane_dim = -1;  // -1 if the kernel has no dims
  int threads_per_row = 1;
  // Thread blocks, along grid[1], that share the reduction of each result if there are few results.
  // They combine their partial results in global variables of the module, in the order of their
  // indices; so runs of a kernel must not overlap.
  int blocks_per_result = 1;
  // A scan that updates elements at run-time offsets goes through all its points in each of so many
  // threads, a power of two: a thread leaves out the elements that another one owns. What is done
  // to an element is thus done in order, by one thread, without atomics.
  int owners = 1;
  bool wide_index = false;  // element numbers need 64 bits
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;

  int64_t num_threads() const { return int64_t{block[0]} * block[1] * block[2]; }
};

// Requires Verify(kernel); kernels in normal form get the best plans. NOT_IMPLEMENTED for one that
// needs more blocks than a launch can have.
absl::StatusOr<GpuPlan> PlanGpu(const Kernel& kernel);

// The name of the function of kernel i of a module.
std::string GpuEntryName(int kernel);

// Whether the elements at `lanes` consecutive indices along `dim`, the first a multiple of `lanes`,
// are contiguous in memory and start at a multiple of `lanes`.
bool IsWideAccess(const Kernel& kernel, const Access& access, int dim, int lanes);

}  // namespace tessera::worker::codegen
