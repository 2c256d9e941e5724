// Reductions as LLVM IR: identities, and how two partial results are combined. The same on hosts
// and GPUs, for scalars and for vectors. Thread-compatible, as the builder is.
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

// Combining it with an element gives that element. Scalars; the index is of type `index`.
Partial IdentityOf(llvm::IRBuilderBase& b, ir::ReduceKind kind, ir::DType operand,
                   llvm::Type* index);
// Max and min: NaN wins, and -0 is less than 0. Argmax and argmin: NaN wins, then the larger (or
// smaller) value, then the lower index. Commutative, except for the bits of a NaN.
Partial Combine(llvm::IRBuilderBase& b, ir::ReduceKind kind, ir::DType operand, const Partial& x,
                const Partial& y);

}  // namespace tessera::worker::codegen
