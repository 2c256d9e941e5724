// How much work of a step is worth a thread of its own, and how much may run between two polls of
// the cancellation flag.
#pragma once
#include <algorithm>
#include <cstdint>

#include "worker/codegen/kernel.h"
#include "worker/program/step_program.h"

namespace tessera::worker {

// Work is split so that each thread has at least `min` to do, and so that the cancellation flag is
// polled after at most `max`.
struct Grain {
  int64_t min = 0, max = 0;
};
// The unit is one node or store of a kernel at one element.
inline constexpr Grain kKernelGrain = {1 << 18, 1 << 25};
// The unit is one byte.
inline constexpr Grain kCopyGrain = {1 << 19, 1 << 28};
// The unit is one multiplication of two elements.
inline constexpr Grain kMatmulGrain = {1 << 22, int64_t{1} << 33};
// The unit is the same, but the routines of host steps are several times slower than a matmul.
inline constexpr Grain kHostStepGrain = {1 << 22, program::kHostPartMax};

// Returns the work of one iteration of the kernel, in the unit of kKernelGrain.
inline int64_t WorkOfIteration(const codegen::Kernel& kernel) {
  const int64_t elements = kernel.num_elements() / std::max<int64_t>(kernel.num_iterations(), 1);
  return std::max<int64_t>(elements, 1) *
         static_cast<int64_t>(kernel.nodes.size() + kernel.stores.size());
}

}  // namespace tessera::worker
