// Functions of floats as LLVM IR in f64, for machines that have no library of functions: those
// that math.h leaves to its caller. f32 goes through f64 and is rounded once.
//
// Where a branch saves much (arguments that need hundreds of bits of pi), or a loop is needed
// (remainders), the code has blocks of its own; that is for one lane. Of vectors there is no Rem,
// and Sin, Cos and Tan are of lanes below kLargeAngle, the others unspecified. Thread-compatible.
#pragma once
#include "ir/dtype.h"
#include "ir/scalar_graph.h"
#include "llvm/IR/IRBuilder.h"

namespace tessera::worker::codegen {

inline constexpr double kLargeAngle = 0x1p50;

// The primitive on lanes of f32 or f64, within 2 ulp, special values as IEEE functions give them;
// Rem exactly. Null, with nothing emitted, for what is no function of floats. The builder stands at
// the end of a block, and afterwards at the end of another one.
llvm::Value* EmitWidePrim(llvm::IRBuilderBase& b, ir::ScalarPrim prim, ir::DType dtype,
                          llvm::ArrayRef<llvm::Value*> args);

}  // namespace tessera::worker::codegen
