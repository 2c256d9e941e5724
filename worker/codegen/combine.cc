// Identities and combinations of reductions as LLVM IR. The emitters of hosts (emit_host.cc) and of
// GPUs (gpu_emit.cc) call them to start accumulators, to add elements, and to join the partial
// results of lanes and threads.
#include "worker/codegen/combine.h"

#include <limits>

#include "worker/codegen/kernel.h"
#include "worker/codegen/lanes.h"
#include "worker/codegen/math.h"

namespace tessera::worker::codegen {

using ir::DType;
using ir::ReduceKind;
using ir::ScalarPrim;
using llvm::IRBuilderBase;
using llvm::Value;

// Returns the identity of each kind for the given dtype. Integer limits are computed from the width
// of the dtype, so that one function serves all integers. The identity of a sum is +0. A scan of
// floats needs -0 instead, and the emitters choose that themselves.
Partial IdentityOf(IRBuilderBase& b, ReduceKind kind, DType dtype, llvm::Type* index_type) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const unsigned bits = dtype == DType::kBool ? 1 : static_cast<unsigned>(8 * ir::ByteWidth(dtype));
  const uint64_t ones = ~uint64_t{0} >> (64 - bits);
  const bool is_signed = ir::IsSignedInt(dtype);
  const auto biggest = static_cast<int64_t>(is_signed ? ones >> 1 : ones);
  const auto constant = [&](double real, int64_t integer) {
    return ConstantOf(b, dtype, real, integer);
  };
  // Every element has a lower index than the identity of argmax and argmin, so that an element wins
  // even if it equals the identity's value.
  const auto no_index = [&] {
    return llvm::ConstantInt::get(index_type,
                                  llvm::APInt::getSignedMaxValue(index_type->getIntegerBitWidth()));
  };
  switch (kind) {
    case ReduceKind::kProd:
      return {constant(1, 1)};
    case ReduceKind::kMax:
      return {constant(-kInf, is_signed ? -biggest - 1 : 0)};
    case ReduceKind::kMin:
      return {constant(kInf, biggest)};
    case ReduceKind::kArgMax:
      return {constant(-kInf, is_signed ? -biggest - 1 : 0), no_index()};
    case ReduceKind::kArgMin:
      return {constant(kInf, biggest), no_index()};
    case ReduceKind::kAnd:
      return {constant(0, -1)};
    default:
      return {constant(0, 0)};
  }
}

namespace {

// Returns the primitive that combines two elements, for each kind except argmax and argmin.
ScalarPrim PrimOf(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
      return ScalarPrim::kAdd;
    case ReduceKind::kProd:
      return ScalarPrim::kMul;
    case ReduceKind::kMax:
      return ScalarPrim::kMax;
    case ReduceKind::kMin:
      return ScalarPrim::kMin;
    case ReduceKind::kAnd:
      return ScalarPrim::kAnd;
    default:
      return ScalarPrim::kOr;
  }
}

}  // namespace

Partial Combine(IRBuilderBase& b, ReduceKind kind, DType dtype, const Partial& x,
                const Partial& y) {
  if (!IsArgReduction(kind)) return {EmitPrim(b, PrimOf(kind), dtype, dtype, {x.value, y.value})};
  const auto compare = [&](ScalarPrim prim) {
    return V(b, EmitPrim(b, prim, dtype, DType::kBool, {y.value, x.value}));
  };
  const V first(b, b.CreateICmpSLT(y.index, x.index));
  V better = compare(kind == ReduceKind::kArgMax ? ScalarPrim::kGt : ScalarPrim::kLt) |
             (compare(ScalarPrim::kEq) & first);
  if (ir::IsFloat(dtype)) {
    const V y_nan = IsNan(V(b, y.value)), x_nan = IsNan(V(b, x.value));
    better = better | (y_nan & (~x_nan | first));
  }
  return {b.CreateSelect(better.get(), y.value, x.value),
          b.CreateSelect(better.get(), y.index, x.index)};
}

}  // namespace tessera::worker::codegen
