// Emits a kernel as one LLVM function for a host's CPU, in explicit vectors.
//
//   void f(void* const* buffers, int64_t begin, int64_t end)
//
// The function runs the iterations begin <= i < end (row-major over the parallel dims). SIMD lanes
// are along the innermost parallel dim, or along the innermost reduction dim if accesses are
// contiguous there. The lanes of about four registers form a block. Every node is computed for one
// block before the next block begins. The last, partial block of a row uses the same instructions,
// with masked loads and stores, so that an element's bits do not depend on its position. The order
// of a reduction depends only on the kernel and the target. Rows that share the elements they
// reduce, as in a product of matrices, are computed several at a time. On targets with fused
// multiply-adds, a sum of products rounds each product together with its addition. Primitives that
// math.h does not cover are calls of the functions that host_runtime.h names.
#pragma once
#include <string>

#include "llvm/IR/Module.h"
#include "worker/codegen/host_target.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

// Adds the function to the module. Requires that Verify accepts the kernel.
void EmitHost(const Kernel& kernel, const HostTarget& target, const std::string& name,
              llvm::Module* module);

// Adds a function void f(void* param0, ...) that runs all iterations and is internal to the module.
// Since the range is always the same, the partial block at the end of a row has code of its own,
// and a loop of one iteration needs no loop code. The elements have the same bits as those of
// EmitHost.
llvm::Function* EmitAllIterations(const Kernel& kernel, const HostTarget& target,
                                  const std::string& name, llvm::Module* module);

}  // namespace tessera::worker::codegen
