// Reductions as LLVM IR: identities, and how two partial results are combined. The same on hosts
// and GPUs, for scalars and for vectors. Functions of the builder they are given;
// thread-compatible.
#pragma once
#include "ir/dtype.h"
#include "ir/op_def.h"
#include "llvm/IR/IRBuilder.h"

namespace tessera::worker::codegen {

inline bool IsArgReduction(ir::ReduceKind kind) {
  return kind == ir::ReduceKind::kArgMax || kind == ir::ReduceKind::kArgMin;
}

// A scalar. For argmax and argmin: the identity of the value.
llvm::Value* IdentityOf(llvm::IRBuilderBase& b, ir::ReduceKind kind, ir::DType operand);
// An index greater than all others, so that any element wins, even one equal to the identity.
llvm::Value* NoIndex(llvm::IRBuilderBase& b, ir::DType index);

// Combines by any kind but argmax and argmin. NaN wins in max and min, and -0 is less than 0.
llvm::Value* Combine(llvm::IRBuilderBase& b, ir::ReduceKind kind, ir::DType operand, llvm::Value* x,
                     llvm::Value* y);

struct ValueIndex {
  llvm::Value* value;
  llvm::Value* index;
};
// Argmax and argmin: NaN wins, then the larger (or smaller) value, then the lower index.
// Associative.
ValueIndex CombineArgReduction(llvm::IRBuilderBase& b, ir::ReduceKind kind, ir::DType operand,
                               const ValueIndex& x, const ValueIndex& y);

}  // namespace tessera::worker::codegen
