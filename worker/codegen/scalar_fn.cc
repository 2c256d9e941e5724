// FindScalarFn: wraps each function of ir/scalar_math.h, for each dtype, into one on words of 8
// bytes. The interpreter looks a function up once per node. Verify (kernel_verify.cc) asks whether
// there is one, which makes scalar_math.h the only place that says which dtypes a primitive takes.
#include "worker/codegen/scalar_fn.h"

#include <cstring>
#include <type_traits>

#include "ir/ops/rules/scalar_eval.h"
#include "ir/scalar_math.h"
#include "worker/codegen/scalar_prim.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ScalarPrim;
namespace scalar = ir::scalar;
namespace math = ir::scalar::math;

template <DType kD>
ir::ComputeType<kD> Get(ScalarBits bits) {
  ir::StorageType<kD> stored;
  std::memcpy(&stored, &bits, sizeof stored);
  return ir::Element<kD>::Load(stored);
}
template <class T>
ScalarBits BitsOf(T stored) {
  ScalarBits bits = 0;
  std::memcpy(&bits, &stored, sizeof stored);
  return bits;
}
template <DType kD>
ScalarBits Put(ir::ComputeType<kD> value) {
  return BitsOf(ir::Element<kD>::Store(value));
}

// Returns null unless scalar_math.h defines the primitive for exactly the type T.
template <DType kD>
ScalarFn FindSameType(ScalarPrim prim) {
  using T = ir::ComputeType<kD>;
  switch (prim) {
#define TESSERA_SCALAR_PRIM(name, signature, ...) TESSERA_##signature(name)
#define TESSERA_kUnary(name)                                                            \
  case ScalarPrim::k##name:                                                             \
    if constexpr (requires(T x) { math::name<T>(x); })                                  \
      return [](const ScalarBits* a) { return Put<kD>(math::name<T>(Get<kD>(a[0]))); }; \
    break;
#define TESSERA_kBinary(name)                                        \
  case ScalarPrim::k##name:                                          \
    if constexpr (requires(T x) { math::name<T>(x, x); })            \
      return [](const ScalarBits* a) {                               \
        return Put<kD>(math::name<T>(Get<kD>(a[0]), Get<kD>(a[1]))); \
      };                                                             \
    break;
#define TESSERA_kLeaf(name)
#define TESSERA_kNot(name)
#define TESSERA_kCompare(name)
#define TESSERA_kTest(name)
#define TESSERA_kSelect(name)
#define TESSERA_kCast(name)
#include "worker/codegen/scalar_prims.def"
#undef TESSERA_kUnary
#undef TESSERA_kBinary
#undef TESSERA_kCompare
    case ScalarPrim::kNot:
      if constexpr (std::is_integral_v<T>)
        return [](const ScalarBits* a) { return Put<kD>(math::Not(Get<kD>(a[0]))); };
      break;
    default:
      break;
  }
  return nullptr;
}

template <DType kD>
ScalarFn FindPredicate(ScalarPrim prim) {
  using T = ir::ComputeType<kD>;
  switch (prim) {
#define TESSERA_SCALAR_PRIM(name, signature, ...) TESSERA_##signature(name)
#define TESSERA_kUnary(name)
#define TESSERA_kBinary(name)
#define TESSERA_kCompare(name)                                               \
  case ScalarPrim::k##name:                                                  \
    return [](const ScalarBits* a) {                                         \
      return Put<DType::kBool>(math::name<T>(Get<kD>(a[0]), Get<kD>(a[1]))); \
    };
#include "worker/codegen/scalar_prims.def"
    case ScalarPrim::kIsFinite:
      if constexpr (std::is_floating_point_v<T>)
        return
            [](const ScalarBits* a) { return Put<DType::kBool>(math::IsFinite<T>(Get<kD>(a[0]))); };
      break;
    default:
      break;
  }
  return nullptr;
}

template <DType kFrom, DType kTo>
ScalarFn FindCast(ScalarPrim prim) {
  using From = ir::ComputeType<kFrom>;
  using To = ir::ComputeType<kTo>;
  if (prim == ScalarPrim::kConvert) {
    if constexpr (std::is_same_v<From, double> && std::is_floating_point_v<To>)
      return [](const ScalarBits* a) { return BitsOf(ir::StoreDouble<kTo>(Get<kFrom>(a[0]))); };
    else
      return [](const ScalarBits* a) { return Put<kTo>(math::Convert<To>(Get<kFrom>(a[0]))); };
  }
  constexpr bool kSameWidth = kFrom != DType::kBool && kTo != DType::kBool &&
                              sizeof(ir::StorageType<kFrom>) == sizeof(ir::StorageType<kTo>);
  if constexpr (kSameWidth) return [](const ScalarBits* a) { return a[0]; };
  return nullptr;
}

}  // namespace

ScalarFn FindScalarFn(ScalarPrim prim, DType operand, DType result) {
  if (!ir::IsComputable(operand) || !ir::IsComputable(result)) return nullptr;
  ScalarFn fn = nullptr;
  const ScalarPrimInfo& info = InfoOf(prim);
  if (info.signature == PrimSignature::kCast) {
    scalar::Dispatch<scalar::kAnything>(operand, [&]<DType kFrom>(ir::DTypeTag<kFrom>) {
      scalar::Dispatch<scalar::kAnything>(
          result, [&]<DType kTo>(ir::DTypeTag<kTo>) { fn = FindCast<kFrom, kTo>(prim); });
    });
    return fn;
  }
  if (result != (info.gives_bool() ? DType::kBool : operand)) return nullptr;
  if (prim == ScalarPrim::kSelect)
    return [](const ScalarBits* a) { return Get<DType::kBool>(a[0]) ? a[1] : a[2]; };
  if (ir::ComputeDType(operand) != operand) return nullptr;
  scalar::Dispatch<scalar::kAnything>(operand, [&]<DType kD>(ir::DTypeTag<kD>) {
    fn = info.gives_bool() ? FindPredicate<kD>(prim) : FindSameType<kD>(prim);
  });
  return fn;
}

}  // namespace tessera::worker::codegen
