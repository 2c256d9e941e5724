// Emits a kernel as one LLVM function for a host's CPU, in explicit vectors.
//
//   void f(void* const* buffers, int64_t begin, int64_t end)
//
// runs the iterations begin <= i < end (row-major over the parallel dims). SIMD lanes are along the
// innermost parallel dim, or along the innermost reduction dim if accesses are contiguous there; a
// block of about four registers' lanes runs through every node before the next block begins. The
// last, partial block of a row uses the same instructions, with masked loads and stores, so that an
// element's bits do not depend on its position. A reduction's order depends only on the kernel and
// the target. Rows that share what they reduce, as those of a product of matrices, are computed
// several together. A sum of products rounds each product with its addition, on targets that can.
// Primitives that math.h does not cover are calls of functions that host_runtime.h names.
#pragma once
#include <string>

#include "llvm/IR/Module.h"
#include "worker/codegen/host_target.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

// Adds the function to the module. Requires Verify(kernel).
void EmitHost(const Kernel& kernel, const HostTarget& target, const std::string& name,
              llvm::Module* module);

// Adds a function of this module alone that runs all iterations: void f(void* param0, ...). As
// there is one range, a row's last block, if it is not whole, has code of its own, and a loop of
// one iteration is none. The elements have the same bits.
llvm::Function* EmitWhole(const Kernel& kernel, const HostTarget& target, const std::string& name,
                          llvm::Module* module);

}  // namespace tessera::worker::codegen
