// A kernel as one LLVM function for a host's CPU, in explicit vectors.
//
//   void f(void* const* buffers, int64_t begin, int64_t end)
//
// runs the iterations begin <= i < end (row-major over the kept dims). Lanes lie along the
// innermost kept dim, or along the innermost reduced dim where that is how memory lies; blocks of
// about four registers' lanes run through every node before the next block begins. The last lanes
// of a row run through the same instructions as the others, with loads and stores cut short, so
// that an element's bits do not depend on where it lies. A reduction's order depends on the kernel
// and the target alone. Primitives that math.h does not cover are calls of functions that
// host_runtime.h names.
#pragma once
#include "llvm/IR/Module.h"
#include "worker/codegen/host_target.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

// Adds the function to the module. Requires Verify(kernel).
void EmitHost(const Kernel& kernel, const HostTarget& target, const std::string& name,
              llvm::Module* module);

}  // namespace tessera::worker::codegen
