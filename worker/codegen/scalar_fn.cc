#include "worker/codegen/scalar_fn.h"

#include <cstring>
#include <type_traits>

#include "ir/ops/scalar_eval.h"
#include "ir/ops/scalar_math.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ScalarPrim;
namespace scalar = ir::scalar;
namespace math = ir::scalar::math;

template <DType kD>
scalar::WideOf<kD> Get(Cell cell) {
  typename scalar::Lane<kD>::Stored stored;
  std::memcpy(&stored, &cell, sizeof stored);
  return scalar::Lane<kD>::Load(stored);
}
template <DType kD>
Cell Put(scalar::WideOf<kD> value) {
  const typename scalar::Lane<kD>::Stored stored = scalar::Lane<kD>::Store(value);
  Cell cell = 0;
  std::memcpy(&cell, &stored, sizeof stored);
  return cell;
}

// The primitives whose result has the dtype of the operands, and those that give a bool. A
// primitive is defined for T where scalar_math.h defines it for exactly T.
// clang-format off
#define TESSERA_SAME_1(X)                                                                     \
  X(Neg) X(Abs) X(Exp) X(Expm1) X(Log) X(Log1p) X(Sin) X(Cos) X(Tan) X(Tanh) X(Sqrt) X(Rsqrt) \
  X(Cbrt) X(Erf) X(Floor) X(Ceil) X(RoundEven) X(RoundAway) X(PopCount) X(Clz)
#define TESSERA_SAME_2(X)                                                                     \
  X(Add) X(Sub) X(Mul) X(Div) X(Rem) X(Min) X(Max) X(Atan2) X(Pow) X(And) X(Or) X(Xor) X(Shl) \
  X(ShrA) X(ShrL)
#define TESSERA_BOOL_2(X) X(Eq) X(Ne) X(Lt) X(Le) X(Gt) X(Ge)
// clang-format on

template <DType kD>
ScalarFn FindSame(ScalarPrim prim) {
  using T = scalar::WideOf<kD>;
  switch (prim) {
#define TESSERA_X(Name)                                                           \
  case ScalarPrim::k##Name:                                                       \
    if constexpr (requires(T x) { math::Name<T>(x); })                            \
      return [](const Cell* a) { return Put<kD>(math::Name<T>(Get<kD>(a[0]))); }; \
    break;
    TESSERA_SAME_1(TESSERA_X)
#undef TESSERA_X
#define TESSERA_X(Name)                                                                          \
  case ScalarPrim::k##Name:                                                                      \
    if constexpr (requires(T x) { math::Name<T>(x, x); })                                        \
      return [](const Cell* a) { return Put<kD>(math::Name<T>(Get<kD>(a[0]), Get<kD>(a[1]))); }; \
    break;
    TESSERA_SAME_2(TESSERA_X)
#undef TESSERA_X
    case ScalarPrim::kNot:
      if constexpr (std::is_integral_v<T>)
        return [](const Cell* a) { return Put<kD>(math::Not(Get<kD>(a[0]))); };
      break;
    case ScalarPrim::kSelect:
      return [](const Cell* a) {
        return Put<kD>(math::Select<T>(Get<DType::kBool>(a[0]), Get<kD>(a[1]), Get<kD>(a[2])));
      };
    default:
      break;
  }
  return nullptr;
}

template <DType kD>
ScalarFn FindPredicate(ScalarPrim prim) {
  using T = scalar::WideOf<kD>;
  switch (prim) {
#define TESSERA_X(Name)                                                      \
  case ScalarPrim::k##Name:                                                  \
    return [](const Cell* a) {                                               \
      return Put<DType::kBool>(math::Name<T>(Get<kD>(a[0]), Get<kD>(a[1]))); \
    };
    TESSERA_BOOL_2(TESSERA_X)
#undef TESSERA_X
    case ScalarPrim::kIsFinite:
      if constexpr (std::is_floating_point_v<T>)
        return [](const Cell* a) { return Put<DType::kBool>(math::IsFinite<T>(Get<kD>(a[0]))); };
      break;
    default:
      break;
  }
  return nullptr;
}

template <DType kFrom, DType kTo>
ScalarFn FindChange(ScalarPrim prim) {
  using From = scalar::WideOf<kFrom>;
  using To = scalar::WideOf<kTo>;
  if (prim == ScalarPrim::kConvert)
    return [](const Cell* a) { return Put<kTo>(math::Convert<To>(Get<kFrom>(a[0]))); };
  constexpr bool kPlain =
      kFrom != DType::kBool && kTo != DType::kBool && kFrom != DType::kBF16 && kTo != DType::kBF16;
  if constexpr (kPlain && sizeof(From) == sizeof(To))
    return [](const Cell* a) { return Put<kTo>(math::Bitcast<To>(Get<kFrom>(a[0]))); };
  return nullptr;
}

bool GivesBool(ScalarPrim prim) {
  return (ScalarPrim::kEq <= prim && prim <= ScalarPrim::kGe) || prim == ScalarPrim::kIsFinite;
}

}  // namespace

int ArityOf(ScalarPrim prim) {
  switch (prim) {
#define TESSERA_X(Name) case ScalarPrim::k##Name:
    TESSERA_SAME_1(TESSERA_X)
    case ScalarPrim::kNot:
    case ScalarPrim::kIsFinite:
    case ScalarPrim::kConvert:
    case ScalarPrim::kBitcast:
      return 1;
      TESSERA_SAME_2(TESSERA_X)
      TESSERA_BOOL_2(TESSERA_X)
      return 2;
#undef TESSERA_X
    case ScalarPrim::kSelect:
      return 3;
    case ScalarPrim::kInput:
    case ScalarPrim::kConstant:
      return 0;
  }
  return 0;
}

ScalarFn FindScalarFn(ScalarPrim prim, DType operand, DType result) {
  if (!ir::IsComputable(operand) || !ir::IsComputable(result)) return nullptr;
  ScalarFn fn = nullptr;
  if (prim == ScalarPrim::kConvert || prim == ScalarPrim::kBitcast) {
    scalar::Dispatch<scalar::kAnything>(operand, [&]<DType kFrom>(scalar::DTypeTag<kFrom>) {
      scalar::Dispatch<scalar::kAnything>(
          result, [&]<DType kTo>(scalar::DTypeTag<kTo>) { fn = FindChange<kFrom, kTo>(prim); });
    });
    return fn;
  }
  if (operand == DType::kBF16) return nullptr;
  if (result != (GivesBool(prim) ? DType::kBool : operand)) return nullptr;
  scalar::Dispatch<scalar::kAnything>(operand, [&]<DType kD>(scalar::DTypeTag<kD>) {
    fn = GivesBool(prim) ? FindPredicate<kD>(prim) : FindSame<kD>(prim);
  });
  return fn;
}

}  // namespace tessera::worker::codegen
