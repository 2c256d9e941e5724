// What reductions are made of, as LLVM IR: identities, and how two partial results become one. The
// same on hosts and GPUs, on one lane and on many.
//
// Functions of the builder they are given; thread-compatible.
#pragma once
#include "ir/dtype.h"
#include "ir/op_def.h"
#include "llvm/IR/IRBuilder.h"

namespace tessera::worker::codegen {

inline bool IsArg(ir::ReduceKind kind) {
  return kind == ir::ReduceKind::kArgMax || kind == ir::ReduceKind::kArgMin;
}

// Of one lane. For argmax and argmin: of the value.
llvm::Value* IdentityOf(llvm::IRBuilderBase& b, ir::ReduceKind kind, ir::DType operand);
// Beyond every index: gives way to any element, even one equal to the identity.
llvm::Value* NoIndex(llvm::IRBuilderBase& b, ir::DType index);

// Sums to or's. NaN wins in max and min, and -0 is less than 0.
llvm::Value* Combine(llvm::IRBuilderBase& b, ir::ReduceKind kind, ir::DType operand, llvm::Value* x,
                     llvm::Value* y);

struct Best {
  llvm::Value* value;
  llvm::Value* index;
};
// Argmax and argmin: a NaN before all else, then the larger (or smaller), then the first. Any
// grouping of the elements gives the same.
Best Better(llvm::IRBuilderBase& b, ir::ReduceKind kind, ir::DType operand, const Best& x,
            const Best& y);

}  // namespace tessera::worker::codegen
