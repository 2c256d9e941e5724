// One generic lambda defines an elementwise op.  Called on Num<T> it computes; called on Expr<T> it
// records a ScalarGraph.  Included by op files only; everything here is pure.
//
//   Unary<kFloats, [](auto x) { return 1.0 / (1.0 + Exp(-x)); }>("logistic", "logistic", {...})
//
// bf16 is not a type of the lambda: elements are widened to f32, the lambda runs on f32, the result
// is rounded once.  The recorded graph shows the two conversions.
#pragma once
#include <array>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/log.h"
#include "ir/array.h"
#include "ir/dtype.h"
#include "ir/ops/scalar_math.h"
#include "ir/scalar_graph.h"

namespace tessera::ir::scalar {

// ---- The two kinds of scalar a lambda sees. ----------------------------------------------------
template <class T>
struct Num {
  using scalar_type = T;
  T v;
};
template <class T>
struct Expr {
  using scalar_type = T;
  ScalarGraph* graph;
  int id;
};
template <class X>
using TypeOf = typename X::scalar_type;
template <class X>
concept ScalarLike = requires {
  typename X::scalar_type;
};
template <ScalarLike X>
inline constexpr bool kIsFloat = std::is_floating_point_v<TypeOf<X>>;

template <class T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, bool>) return DType::kBool;
  if constexpr (std::is_same_v<T, int32_t>) return DType::kS32;
  if constexpr (std::is_same_v<T, uint32_t>) return DType::kU32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::kS64;
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
}

inline int AddNode(ScalarGraph* graph, ScalarNode node) {
  graph->nodes.push_back(std::move(node));
  return static_cast<int>(graph->nodes.size()) - 1;
}
template <class R, class T, class... U>
Expr<R> Recorded(ScalarPrim prim, Expr<T> x, Expr<U>... rest) {
  return {x.graph, AddNode(x.graph, {prim, DTypeOf<R>(), {x.id, rest.id...}})};
}

// `value` as a scalar like `x`.
template <class T, class V>
Num<T> Like(Num<T>, V value) {
  return {static_cast<T>(value)};
}
template <class T, class V>
Expr<T> Like(Expr<T> x, V value) {
  ScalarNode node{ScalarPrim::kConstant, DTypeOf<T>(), {}};
  if constexpr (std::is_floating_point_v<T>) {
    node.value = static_cast<T>(value);
  } else {
    node.int_value = static_cast<T>(value);
  }
  return {x.graph, AddNode(x.graph, std::move(node))};
}

// ---- Primitives, lifted to both kinds. ---------------------------------------------------------
#define TESSERA_LIFT(Name)                                                               \
  template <class T, class... U>                                                         \
  auto Name(Num<T> x, Num<U>... rest) {                                                  \
    return Num<decltype(math::Name(x.v, rest.v...))>{math::Name(x.v, rest.v...)};        \
  }                                                                                      \
  template <class T, class... U>                                                         \
  auto Name(Expr<T> x, Expr<U>... rest) {                                                \
    return Recorded<decltype(math::Name(T{}, U{}...))>(ScalarPrim::k##Name, x, rest...); \
  }
TESSERA_SCALAR_FUNCTIONS(TESSERA_LIFT)
#undef TESSERA_LIFT

template <class To, class From>
Num<To> Convert(Num<From> x) {
  return {math::Convert<To>(x.v)};
}
template <class To, class From>
Expr<To> Convert(Expr<From> x) {
  if constexpr (std::is_same_v<To, From>) return x;
  return Recorded<To>(ScalarPrim::kConvert, x);
}
template <class To, class From>
Num<To> Bitcast(Num<From> x) {
  return {math::Bitcast<To>(x.v)};
}
template <class To, class From>
Expr<To> Bitcast(Expr<From> x) {
  return Recorded<To>(ScalarPrim::kBitcast, x);
}

// ---- Operators, with literals on either side. --------------------------------------------------
template <ScalarLike X>
X operator-(X x) {
  return Neg(x);
}
template <ScalarLike X>
X operator~(X x) {
  return Not(x);
}
#define TESSERA_OPERATOR(op, Name)                           \
  template <ScalarLike X>                                    \
  auto operator op(X x, X y) {                               \
    return Name(x, y);                                       \
  }                                                          \
  template <ScalarLike X, class V>                           \
  requires std::is_arithmetic_v<V>                           \
  auto operator op(X x, V y) { return Name(x, Like(x, y)); } \
  template <ScalarLike X, class V>                           \
  requires std::is_arithmetic_v<V>                           \
  auto operator op(V x, X y) { return Name(Like(y, x), y); }
TESSERA_OPERATOR(+, Add)
TESSERA_OPERATOR(-, Sub)
TESSERA_OPERATOR(*, Mul)
TESSERA_OPERATOR(/, Div)
TESSERA_OPERATOR(&, And)
TESSERA_OPERATOR(|, Or)
TESSERA_OPERATOR(^, Xor)
TESSERA_OPERATOR(<<, Shl)
TESSERA_OPERATOR(==, Eq)
TESSERA_OPERATOR(!=, Ne)
TESSERA_OPERATOR(<, Lt)
TESSERA_OPERATOR(<=, Le)
TESSERA_OPERATOR(>, Gt)
TESSERA_OPERATOR(>=, Ge)
#undef TESSERA_OPERATOR

// ---- The storage type and the compute type of an element of a dtype. ---------------------------
template <class T>
struct Unconverted {
  using Storage = T;
  using Compute = T;
  static T Load(T x) { return x; }
  static T Store(T x) { return x; }
};
template <DType>
struct ElementTraits;
template <>
struct ElementTraits<DType::kBool> {
  using Storage = uint8_t;
  using Compute = bool;
  static bool Load(uint8_t x) { return x != 0; }
  static uint8_t Store(bool x) { return x; }
};
template <>
struct ElementTraits<DType::kBF16> {
  using Storage = uint16_t;
  using Compute = float;
  static float Load(uint16_t x) { return Bf16ToFloat(x); }
  static uint16_t Store(float x) { return FloatToBf16(x); }
};
template <>
struct ElementTraits<DType::kS32> : Unconverted<int32_t> {};
template <>
struct ElementTraits<DType::kU32> : Unconverted<uint32_t> {};
template <>
struct ElementTraits<DType::kS64> : Unconverted<int64_t> {};
template <>
struct ElementTraits<DType::kF32> : Unconverted<float> {};
template <>
struct ElementTraits<DType::kF64> : Unconverted<double> {};
template <DType kD>
using ComputeType = typename ElementTraits<kD>::Compute;

// ---- Sets of dtypes. ---------------------------------------------------------------------------
enum Domain : int {
  kBools = 1,
  kSignedInts = 2,
  kUnsignedInts = 4,
  kFloats = 8,
  kInts = kSignedInts | kUnsignedInts,
  kBits = kBools | kInts,
  kSignedNumbers = kSignedInts | kFloats,
  kNumbers = kInts | kFloats,
  kAnything = kBools | kNumbers,
};
constexpr int DomainOf(DType d) {
  return d == DType::kBool                                           ? kBools
         : d == DType::kS32 || d == DType::kS64                      ? kSignedInts
         : d == DType::kU32                                          ? kUnsignedInts
         : d == DType::kBF16 || d == DType::kF32 || d == DType::kF64 ? kFloats
                                                                     : 0;
}

template <DType kD>
struct DTypeTag {
  static constexpr DType kDType = kD;
};
// Calls f with the tag of `dtype`.  Requires: `dtype` is computable and in the domain, which
// inference has checked.
template <int kDomain, class F>
void Dispatch(DType dtype, F f) {
#define TESSERA_CASE(kD)                                                   \
  case kD:                                                                 \
    if constexpr ((kDomain & DomainOf(kD)) != 0) return f(DTypeTag<kD>{}); \
    break;
  switch (dtype) {
    TESSERA_CASE(DType::kBool)
    TESSERA_CASE(DType::kS32)
    TESSERA_CASE(DType::kU32)
    TESSERA_CASE(DType::kS64)
    TESSERA_CASE(DType::kBF16)
    TESSERA_CASE(DType::kF32)
    TESSERA_CASE(DType::kF64)
    default:
      break;
  }
#undef TESSERA_CASE
  TESSERA_CHECK(false) << "dtype " << std::string(DTypeName(dtype)) << " passed inference";
}

// ---- Running a lambda. -------------------------------------------------------------------------
template <ScalarLike X>
std::array<X, 1> AsArray(X x) {
  return {x};
}
template <class X, size_t kN>
std::array<X, kN> AsArray(std::array<X, kN> x) {
  return x;
}

// out[k][i] = body(in[0][i], in[1][i], ...)[k], operand j of dtype kIn[j], every result of kOut.
template <DType kOut, DType... kIn, class Body>
void Loop(const Body& body, const void* const* in, void* const* out, int64_t n) {
  [&]<size_t... kJ>(std::index_sequence<kJ...>) {
    for (int64_t i = 0; i < n; ++i) {
      const auto results = AsArray(body(Num<ComputeType<kIn>>{ElementTraits<kIn>::Load(
          static_cast<const typename ElementTraits<kIn>::Storage*>(in[kJ])[i])}...));
      for (size_t k = 0; k < results.size(); ++k)
        static_cast<typename ElementTraits<kOut>::Storage*>(out[k])[i] =
            ElementTraits<kOut>::Store(results[k].v);
    }
  }
  (std::make_index_sequence<sizeof...(kIn)>());
}

// Operand `index` of dtype kD as the lambda sees it.
template <DType kD>
Expr<ComputeType<kD>> InputExpr(ScalarGraph* graph, int index) {
  int id = AddNode(graph, {ScalarPrim::kInput, kD, {}, static_cast<double>(index)});
  constexpr DType kWide = DTypeOf<ComputeType<kD>>();
  if (kWide != kD) id = AddNode(graph, {ScalarPrim::kConvert, kWide, {id}});
  return {graph, id};
}

// The same lambda as a graph.
template <DType kOut, DType... kIn, class Body>
ScalarGraph Record(const Body& body) {
  ScalarGraph graph;
  [&]<size_t... kJ>(std::index_sequence<kJ...>) {
    const std::tuple<Expr<ComputeType<kIn>>...> args{InputExpr<kIn>(&graph, kJ)...};
    for (const auto& result : AsArray(std::apply(body, args))) {
      int id = result.id;
      if (DTypeOf<ComputeType<kOut>>() != kOut)
        id = AddNode(&graph, {ScalarPrim::kConvert, kOut, {id}});
      graph.roots.push_back(id);
    }
  }
  (std::make_index_sequence<sizeof...(kIn)>());
  return Canonical(graph);
}

}  // namespace tessera::ir::scalar
