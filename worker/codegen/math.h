// Scalar primitives as LLVM IR, written once for one lane and for many: a value is a float or an
// int, or a vector of them, and every lane is computed alike, so an element has the same bits
// wherever it lies, on every x86 target and on NVPTX (fused multiply-adds stand where they are
// written and nowhere else; no fast-math flags).
//
// What is covered, with no library of functions needed at run time:
//   every primitive of integers and bools, comparisons, conversions between bool, integers, bf16,
//     f32 and f64: as ir/ops/scalar_math.h, bit for bit;
//   f32 and f64: Add Sub Mul Div Neg Abs Min Max Sqrt Floor Ceil RoundEven RoundAway IsFinite: bit
//     for bit; Rsqrt within 2 ulp;
//   f32: Exp Log Tanh Erf: within 2 ulp, special values as IEEE functions give them.
// The other functions of floats are wide_math.h's; on hosts those of f64, and Rem, are calls of
// what host_runtime.h offers.
//
// llvm.fma, sqrt, floor, ceil, trunc, nearbyint, fabs, copysign, ctpop, ctlz are the only
// intrinsics used: NVPTX has an instruction for each (exact: fma.rn, sqrt.rn, div.rn; nearbyint is
// cvt.rni). Functions of the builder they are given; thread-compatible.
#pragma once
#include "ir/dtype.h"
#include "ir/scalar_graph.h"
#include "llvm/IR/IRBuilder.h"

namespace tessera::worker::codegen {

// How a dtype is held in registers: bool as i1, bf16 (and other narrow floats) as its bits, complex
// as its bits. In memory a bool is a byte.
llvm::Type* RegisterType(llvm::LLVMContext& context, ir::DType dtype, int lanes = 1);
llvm::Type* MemoryType(llvm::LLVMContext& context, ir::DType dtype, int lanes = 1);
// Between the two. Only bool differs; any other byte than 0 reads as true.
llvm::Value* FromMemory(llvm::IRBuilderBase& b, ir::DType dtype, llvm::Value* stored);
llvm::Value* ToMemory(llvm::IRBuilderBase& b, ir::DType dtype, llvm::Value* value);
// The same number in every lane. For floats `value`, else `int_value`.
llvm::Value* ConstantOf(llvm::IRBuilderBase& b, ir::DType dtype, double value, int64_t int_value,
                        int lanes = 1);

// The primitive on register values; null, with nothing emitted, where it is not covered. `operand`
// is the dtype of the last argument.
llvm::Value* EmitPrim(llvm::IRBuilderBase& b, ir::ScalarPrim prim, ir::DType operand,
                      ir::DType result, llvm::ArrayRef<llvm::Value*> args);

}  // namespace tessera::worker::codegen
