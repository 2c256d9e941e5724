// Reductions as LLVM IR: the identities, and the combination of two partial results. The code is
// the same on hosts and GPUs, for scalars and for vectors. Thread-compatible, as the builder is.
#pragma once
#include "ir/collective.h"
#include "ir/dtype.h"
#include "llvm/IR/IRBuilder.h"

namespace tessera::worker::codegen {

// A partial result. `index` is null except for argmax and argmin.
struct Partial {
  llvm::Value* value = nullptr;
  llvm::Value* index = nullptr;
};

// Returns the scalar partial result that changes no element it is combined with. If the
// result has an index, the index is of type `index_type`.
Partial IdentityOf(llvm::IRBuilderBase& b, ir::ReduceKind kind, ir::DType operand,
                   llvm::Type* index_type);
// Combines two partial results. For max and min, NaN wins, and -0 is less than 0. For argmax and
// argmin, NaN wins, then the larger (or smaller) value, then the lower index. The combination is
// commutative, except for the bits of a NaN.
Partial Combine(llvm::IRBuilderBase& b, ir::ReduceKind kind, ir::DType operand, const Partial& x,
                const Partial& y);

}  // namespace tessera::worker::codegen
