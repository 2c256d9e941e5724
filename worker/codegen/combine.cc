#include "worker/codegen/combine.h"

#include <limits>

#include "worker/codegen/lanes.h"
#include "worker/codegen/math.h"

namespace tessera::worker::codegen {

using ir::DType;
using ir::ReduceKind;
using ir::ScalarPrim;
using llvm::IRBuilderBase;
using llvm::Value;

Value* IdentityOf(IRBuilderBase& b, ReduceKind kind, DType dtype) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const unsigned bits = dtype == DType::kBool ? 1 : static_cast<unsigned>(8 * ir::ByteWidth(dtype));
  const uint64_t ones = ~uint64_t{0} >> (64 - bits);
  const bool is_signed = ir::IsSignedInt(dtype);
  const auto biggest = static_cast<int64_t>(is_signed ? ones >> 1 : ones);
  const auto constant = [&](double real, int64_t integer) {
    return ConstantOf(b, dtype, real, integer);
  };
  switch (kind) {
    case ReduceKind::kProd:
      return constant(1, 1);
    case ReduceKind::kMax:
    case ReduceKind::kArgMax:
      return constant(-kInf, is_signed ? -biggest - 1 : 0);
    case ReduceKind::kMin:
    case ReduceKind::kArgMin:
      return constant(kInf, biggest);
    case ReduceKind::kAnd:
      return constant(0, -1);
    default:
      return constant(0, 0);
  }
}
Value* NoIndex(IRBuilderBase& b, DType dtype) {
  return ConstantOf(b, dtype, 0,
                    dtype == DType::kS32 ? std::numeric_limits<int32_t>::max()
                                         : std::numeric_limits<int64_t>::max());
}

Value* Combine(IRBuilderBase& b, ReduceKind kind, DType dtype, Value* x, Value* y) {
  const auto emit = [&](ScalarPrim prim) { return EmitPrim(b, prim, dtype, dtype, {x, y}); };
  switch (kind) {
    case ReduceKind::kSum:
      return emit(ScalarPrim::kAdd);
    case ReduceKind::kProd:
      return emit(ScalarPrim::kMul);
    case ReduceKind::kMax:
      return emit(ScalarPrim::kMax);
    case ReduceKind::kMin:
      return emit(ScalarPrim::kMin);
    case ReduceKind::kAnd:
      return emit(ScalarPrim::kAnd);
    default:
      return emit(ScalarPrim::kOr);
  }
}

ValueIndex CombineArgReduction(IRBuilderBase& b, ReduceKind kind, DType dtype, const ValueIndex& x,
                               const ValueIndex& y) {
  const bool want_max = kind == ReduceKind::kArgMax;
  const auto compare = [&](ScalarPrim prim) {
    return V(b, EmitPrim(b, prim, dtype, DType::kBool, {y.value, x.value}));
  };
  const V first(b, b.CreateICmpSLT(y.index, x.index));
  V better =
      compare(want_max ? ScalarPrim::kGt : ScalarPrim::kLt) | (compare(ScalarPrim::kEq) & first);
  if (ir::IsFloat(dtype)) {
    const V y_nan = IsNan(V(b, y.value)), x_nan = IsNan(V(b, x.value));
    better = better | (y_nan & (~x_nan | first));
  }
  return {b.CreateSelect(better.get(), y.value, x.value),
          b.CreateSelect(better.get(), y.index, x.index)};
}

}  // namespace tessera::worker::codegen
