// Emits scalar primitives as LLVM IR, on scalars and vectors alike, so that an element has the same
// bits in every lane, on every x86 target and on NVPTX (multiply-adds are fused only where written;
// no fast-math flags).
//
// What is covered, without calls of a library:
//   every primitive of integers and bools, comparisons, conversions between bool, integers, f16,
//     bf16, f32 and f64: as ir/ops/scalar_math.h, bit for bit;
//   f32 and f64: Add Sub Mul Div Neg Abs Min Max Sqrt Floor Ceil RoundEven RoundAway IsFinite: bit
//     for bit; Rsqrt within 2 ulp;
//   f32: Exp Log Tanh Erf: within 2 ulp, special values as IEEE functions give them.
// The other functions of floats are wide_math.h's; on hosts those of f64, and Rem, are calls of
// what host_runtime.h offers.
//
// llvm.fma, sqrt, floor, ceil, trunc, nearbyint, fabs, copysign, ctpop, ctlz are the only
// intrinsics used: NVPTX has an instruction for each (exact: fma.rn, sqrt.rn, div.rn; nearbyint is
// cvt.rni). Thread-compatible, as the builder is.
#pragma once
#include "ir/dtype.h"
#include "ir/scalar_graph.h"
#include "llvm/IR/IRBuilder.h"

namespace tessera::worker::codegen {

// The types of a dtype in registers and in memory. In registers a bool is an i1, in memory a byte;
// f16, bf16, other narrow floats and complex numbers are their bits.
llvm::Type* RegisterType(llvm::LLVMContext& context, ir::DType dtype, int lanes = 1);
llvm::Type* MemoryType(llvm::LLVMContext& context, ir::DType dtype, int lanes = 1);
// Convert between the two. Any byte but 0 is read as true.
llvm::Value* FromMemory(llvm::IRBuilderBase& b, ir::DType dtype, llvm::Value* stored);
llvm::Value* ToMemory(llvm::IRBuilderBase& b, ir::DType dtype, llvm::Value* value);
// The same number in every lane. For floats `value`, else `int_value`.
llvm::Value* ConstantOf(llvm::IRBuilderBase& b, ir::DType dtype, double value, int64_t int_value,
                        int lanes = 1);

// Emits the primitive on register values. Returns null, and emits nothing, if it is not covered.
// `operand` is the dtype of the last argument.
llvm::Value* EmitPrim(llvm::IRBuilderBase& b, ir::ScalarPrim prim, ir::DType operand,
                      ir::DType result, llvm::ArrayRef<llvm::Value*> args);

}  // namespace tessera::worker::codegen
