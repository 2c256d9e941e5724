// Emits a loop of kernels as one LLVM function for a host's CPU: the loops and branches, with the
// code of the kernels (emit_host.h) between them, for LLVM to inline.
//
//   int32_t f(const LoopFrame* frame)
//
// returns 0 when all iterations have run. It reads the cancellation flag at the end of every
// iteration, and returns 1 if it is set; and returns what a call returns if that is not 0.
#pragma once
#include <string>

#include "llvm/IR/Module.h"
#include "worker/codegen/host_target.h"
#include "worker/codegen/kernel_loop.h"

namespace tessera::worker::codegen {

// Adds the function to the module. Requires Verify(loop).
void EmitLoop(const KernelLoop& loop, const HostTarget& target, const std::string& name,
              llvm::Module* module);

}  // namespace tessera::worker::codegen
