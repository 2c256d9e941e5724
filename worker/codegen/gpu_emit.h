// A kernel as one LLVM function for the threads of a GPU, in terms of NVPTX's intrinsics: thread
// numbers, block barriers, butterfly shuffles of a whole warp, and one array of shared memory. It
// calls no library: math.h and wide_math.h have every primitive.
//
//   void entry(ptr addrspace(1) p0, ptr addrspace(1) p1, ...)
//
// The module goes to NVPTX (emit_nvptx.h) or, unchanged, to the emulator (testing/simt.h). What the
// code relies on: buffers are aligned to 16 bytes, and those of distinct params do not overlap (but
// an input may lie where an output does if every load of it has the access of the store: in place).
// Every barrier and shuffle is reached by all threads of the block or warp.
#pragma once
#include <string>

#include "llvm/IR/Module.h"
#include "worker/codegen/gpu_plan.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

// The shared memory of a module's kernels: a launch says how many bytes.
inline constexpr char kSharedArray[] = "tessera_shared";
inline constexpr int kBufferAlign = 16;

// Adds the function. Requires Verify(kernel) and a plan of it.
void EmitGpu(const Kernel& kernel, const GpuPlan& plan, const std::string& entry,
             llvm::Module* module);

}  // namespace tessera::worker::codegen
