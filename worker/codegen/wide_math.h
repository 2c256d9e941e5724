// Emits the functions of floats that math.h does not cover, as LLVM IR in f64, without library
// calls. A function of f32 is computed in f64 and rounded once.
//
// Scalar code may branch and loop: for large angles, which need hundreds of bits of pi, and for
// remainders. Vector code cannot, so for vectors Rem is not covered, and Sin, Cos and Tan are
// unspecified in lanes whose argument is kLargeAngle or larger. Thread-compatible.
#pragma once
#include "ir/dtype.h"
#include "ir/scalar_graph.h"
#include "llvm/IR/IRBuilder.h"

namespace tessera::worker::codegen {

inline constexpr double kLargeAngle = 0x1p50;

// Emits the primitive on f32 or f64, within 2 ulp (Rem exactly), with the special values of IEEE
// 754. Returns null, and emits nothing, if the primitive is not covered. The builder must be at the
// end of a block. Afterwards it may be at the end of another block.
llvm::Value* EmitWidePrim(llvm::IRBuilderBase& b, ir::ScalarPrim prim, ir::DType dtype,
                          llvm::ArrayRef<llvm::Value*> args);

}  // namespace tessera::worker::codegen
