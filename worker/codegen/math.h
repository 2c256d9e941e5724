// Emits scalar primitives as LLVM IR, on scalars and vectors alike, so that an element has the same
// bits in every lane, on every x86 target and on NVPTX (multiply-adds are fused only where written;
// no fast-math flags).
//
// The primitives that are covered without library calls:
//   every primitive of integers and bools, comparisons, and conversions between bool, integers,
//     f16, bf16, f32 and f64: the bits of ir/scalar_math.h;
//   f32 and f64: Add Sub Mul Div Neg Abs Min Max Sqrt Floor Ceil RoundEven RoundAway IsFinite: the
//     bits of ir/scalar_math.h; Rsqrt: within 2 ulp;
//   f32: Exp Log Tanh Erf: within 2 ulp, with the special values of IEEE functions.
// wide_math.h covers the other functions of floats. On hosts, the functions of f64 and Rem are
// calls of the functions in host_runtime.h.
//
// The only intrinsics used are llvm.fma, sqrt, floor, ceil, trunc, nearbyint, fabs, copysign, ctpop
// and ctlz. NVPTX has an exact instruction for each of them (fma.rn, sqrt.rn; nearbyint is
// cvt.rni), and for division (div.rn). Thread-compatible, as the builder is.
#pragma once
#include "ir/dtype.h"
#include "ir/scalar_graph.h"
#include "llvm/IR/IRBuilder.h"

namespace tessera::worker::codegen {

// Return LLVM's types of a dtype in registers and in memory. A bool is an i1 in registers and a
// byte in memory. f16, bf16, other narrow floats and complex numbers are represented by their bits.
llvm::Type* RegisterType(llvm::LLVMContext& context, ir::DType dtype, int lanes = 1);
llvm::Type* MemoryType(llvm::LLVMContext& context, ir::DType dtype, int lanes = 1);
// Convert a value between its form in memory and in registers. A bool is read as true if its byte
// is not 0.
llvm::Value* FromMemory(llvm::IRBuilderBase& b, ir::DType dtype, llvm::Value* stored);
llvm::Value* ToMemory(llvm::IRBuilderBase& b, ir::DType dtype, llvm::Value* value);
// Returns the same number in every lane: `value` for floats, and `int_value` for all other dtypes.
llvm::Value* ConstantOf(llvm::IRBuilderBase& b, ir::DType dtype, double value, int64_t int_value,
                        int lanes = 1);

// Emits the primitive on register values. Returns null, and emits nothing, if the primitive is not
// covered. `operand` is the dtype of the last argument.
llvm::Value* EmitPrim(llvm::IRBuilderBase& b, ir::ScalarPrim prim, ir::DType operand,
                      ir::DType result, llvm::ArrayRef<llvm::Value*> args);

}  // namespace tessera::worker::codegen
