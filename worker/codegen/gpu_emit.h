// Emits a kernel as one LLVM function for the threads of a GPU. The function uses NVPTX's
// intrinsics: thread indices, block barriers, butterfly shuffles of a whole warp, and one array of
// shared memory. It calls no library, since math.h and wide_math.h cover every primitive.
//
//   void entry(ptr addrspace(1) p0, ptr addrspace(1) p1, ...)
//
// The module is compiled for NVPTX (emit_nvptx.h) or, unchanged, for the emulator (testing/simt.h).
// A launch must pass buffers that are aligned to kBufferAlign bytes (gpu_thread.h). The buffers of
// distinct params must not overlap, except in place, where every load of the input has the access
// of the store. All threads of a block reach every barrier, and all threads of a warp reach every
// shuffle.
#pragma once
#include <string>

#include "llvm/IR/Module.h"
#include "worker/codegen/gpu_plan.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

// Adds the function to the module. Requires that Verify accepts the kernel, and that the plan was
// made for the kernel.
void EmitGpu(const Kernel& kernel, const GpuPlan& plan, const std::string& entry,
             llvm::Module* module);

}  // namespace tessera::worker::codegen
