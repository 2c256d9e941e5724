// Emits a loop of kernels as one LLVM function for a host's CPU. The function contains the loops
// and branches, and between them the code of the kernels (emit_host.h), which LLVM inlines.
//
//   int32_t f(const LoopFrame* frame)
//
// The function returns 0 when all iterations have run. At the end of every iteration it reads the
// cancellation flag, and returns 1 if the flag is set. If a call returns a number other than 0, the
// function returns that number.
#pragma once
#include <string>

#include "llvm/IR/Module.h"
#include "worker/codegen/host_target.h"
#include "worker/codegen/kernel_loop.h"

namespace tessera::worker::codegen {

// Adds the function to the module. Requires that Verify accepts the loop.
void EmitLoop(const KernelLoop& loop, const HostTarget& target, const std::string& name,
              llvm::Module* module);

}  // namespace tessera::worker::codegen
