// Emits a kernel as one LLVM function for a host's CPU, in explicit vectors.
//
//   void f(void* const* buffers, int64_t begin, int64_t end)
//
// runs the iterations begin <= i < end (row-major over the parallel dims). SIMD lanes are along the
// innermost parallel dim, or along the innermost reduction dim if accesses are contiguous there; a
// block of about four registers' lanes runs through every node before the next block begins. The
// last, partial block of a row uses the same instructions, with masked loads and stores, so that an
// element's bits do not depend on its position. A reduction's order depends only on the kernel and
// the target. Primitives that math.h does not cover are calls of functions that
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
