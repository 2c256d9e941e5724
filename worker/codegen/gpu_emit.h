// Emits a kernel as one LLVM function for the threads of a GPU, with NVPTX's intrinsics: thread
// indices, block barriers, butterfly shuffles of a whole warp, and one array of shared memory. It
// calls no library: math.h and wide_math.h have every primitive.
//
//   void entry(ptr addrspace(1) p0, ptr addrspace(1) p1, ...)
//
// The module is compiled for NVPTX (emit_nvptx.h) or, unchanged, for the emulator (testing/simt.h).
// Requires of a launch: buffers are aligned to 16 bytes, and those of distinct params do not
// overlap (except in place: every load of the input has the access of the store). Every barrier and
// shuffle is reached by all threads of the block or warp.
#pragma once
#include <string>

#include "llvm/IR/Module.h"
#include "worker/codegen/gpu_plan.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

// The dynamic shared memory of a module's kernels.
inline constexpr char kSharedArray[] = "tessera_shared";
inline constexpr int kBufferAlign = 16;

// Adds the function. Requires Verify(kernel) and a plan of it.
void EmitGpu(const Kernel& kernel, const GpuPlan& plan, const std::string& entry,
             llvm::Module* module);

}  // namespace tessera::worker::codegen
