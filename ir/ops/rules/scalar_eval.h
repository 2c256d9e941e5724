// One generic lambda defines an elementwise op. Called with arguments Num<T>, the lambda computes
// numbers. Called with arguments Expr<T>, it records a ScalarGraph. Included by op files only;
// everything here is pure.
//
//   Unary<kFloats, [](auto x) { return 1.0 / (1.0 + Exp(-x)); }>("logistic", "logistic", {...})
//
// The lambda is never called with bf16 or f16. Elements of these dtypes are widened to f32, the
// lambda runs on f32, and the result is rounded once. The recorded graph shows both conversions.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ir/convert.h"
#include "ir/dtype.h"
#include "ir/element.h"
#include "ir/scalar_graph.h"
#include "ir/scalar_math.h"

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

template <DType kD, class T>
constexpr bool IsDTypeOf() {
  return kIsComputable<kD> && std::is_same_v<ComputeType<kD>, T> &&
         (sizeof(StorageType<kD>) == sizeof(T));
}
// The dtype whose elements are both stored and computed as T.
template <class T>
inline constexpr DType kDTypeOf = [] {
  DType found = DType::kBool;
  [&]<int... kI>(std::integer_sequence<int, kI...>) {
    ((found = IsDTypeOf<static_cast<DType>(kI), T>() ? static_cast<DType>(kI) : found), ...);
  }
  (std::make_integer_sequence<int, kNumDTypes>());
  return found;
}();

template <class R, class T, class... U>
Expr<R> Recorded(ScalarPrim prim, Expr<T> x, Expr<U>... rest) {
  return {x.graph, x.graph->Add(prim, kDTypeOf<R>, {x.id, rest.id...})};
}

// Returns the constant `value` as a scalar of the same kind and type as the other argument.
template <class T, class V>
Num<T> Like(Num<T>, V value) {
  return {static_cast<T>(value)};
}
template <class T, class V>
Expr<T> Like(Expr<T> x, V value) {
  double of_float = 0;
  int64_t of_int = 0;
  if constexpr (std::is_floating_point_v<T>) {
    of_float = static_cast<T>(value);
  } else {
    of_int = static_cast<T>(value);
  }
  return {x.graph, x.graph->Add(ScalarPrim::kConstant, kDTypeOf<T>, {}, of_float, of_int)};
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
// Returns the set to which the dtype belongs, or 0 for a dtype without kernels.
template <DType kD>
constexpr int DomainOf() {
  using C = ComputeType<kD>;
  if constexpr (!kIsComputable<kD>) return 0;
  if constexpr (std::is_same_v<C, bool>) return kBools;
  if constexpr (std::is_floating_point_v<C>) return kFloats;
  return std::is_signed_v<C> ? kSignedInts : kUnsignedInts;
}

// Ends the process. Called when inference let `dtype` pass for an op that is not defined on it,
// which is a bug of ours.
[[noreturn]] void CrashAfterWrongInference(DType dtype);

// Calls f with the tag of `dtype`. Requires: `dtype` is computable and in the domain; inference
// checks both.
template <int kDomain, class F>
void Dispatch(DType dtype, F f) {
  VisitDType(dtype, [&]<DType kD>(DTypeTag<kD> tag) {
    if constexpr ((kDomain & DomainOf<kD>()) != 0)
      f(tag);
    else
      CrashAfterWrongInference(kD);
  });
}
// Like Dispatch, but calls f with the tag of the dtype in which `dtype` is computed: the dtype of a
// lambda's scalars.
template <int kDomain, class F>
void DispatchCompute(DType dtype, F f) {
  VisitDType(ComputeDType(dtype), [&]<DType kD>(DTypeTag<kD> tag) {
    if constexpr ((kDomain & DomainOf<kD>()) != 0 && IsDTypeOf<kD, ComputeType<kD>>())
      f(tag);
    else
      CrashAfterWrongInference(kD);
  });
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

// The arrays on which a lambda runs. in[j] is operand j and out[k] is result k, each with `n`
// elements. The last operand has dtype `operand_dtype`, and the results have dtype `result_dtype`.
struct Elements {
  DType operand_dtype, result_dtype;
  const void* const* in;
  void* const* out;
  int64_t n;
};
// The number of elements in a chunk, so few that the widened copies of a chunk stay in the nearest
// cache.
inline constexpr int64_t kChunkElements = 1024;
// Memory for the widened copies of a chunk. It is left uninitialised, also as a member of a tuple,
// which would set the elements of a plain array to zero.
template <DType kD>
struct ChunkBuffer {
  ChunkBuffer() {}  // NOLINT(modernize-use-equals-default): that would be cleared, too
  std::array<StorageType<kD>, kChunkElements> elements;
};

// Returns elements [begin, begin + n) of an operand in the form that a lambda on dtype kD takes.
// bf16 and f16 are widened into `buffer`.
template <DType kD>
const StorageType<kD>* Widened(DType dtype, const void* in, int64_t begin, int64_t n,
                               StorageType<kD>* buffer) {
  if constexpr (kD == DType::kF32) {
    if (dtype != kD) {
      ConvertElements(dtype, static_cast<const std::byte*>(in) + begin * ByteWidth(dtype), kD,
                      buffer, n);
      return buffer;
    }
  }
  return static_cast<const StorageType<kD>*>(in) + begin;
}

// Computes out[k][i] = body(in[0][i], in[1][i], ...)[k]. The lambda takes scalars of dtypes kIn and
// returns scalars of dtype kOut. These are dtypes in which ops compute (ComputeDType), so never
// bf16 or f16. Works chunk by chunk, so that narrow floats are widened and rounded in the cache.
template <DType kOut, DType... kIn, class Body>
void Loop(const Body& body, const Elements& e) {
  // An operand has the dtype of the last operand. Only a predicate, which the lambda takes as a
  // bool, may have another dtype than that.
  const auto dtype_of = [&](DType computed) {
    return computed == ComputeDType(e.operand_dtype) ? e.operand_dtype : computed;
  };
  const bool narrow_result = ComputeDType(e.result_dtype) != e.result_dtype;
  constexpr size_t kResults =
      std::tuple_size_v<decltype(AsArray(body(Num<ComputeType<kIn>>{}...)))>;
  std::tuple<ChunkBuffer<kIn>...> buffers;
  std::array<ChunkBuffer<kOut>, kResults> wide_results;
  [&]<size_t... kJ>(std::index_sequence<kJ...>) {
    for (int64_t begin = 0; begin < e.n; begin += kChunkElements) {
      const int64_t count = std::min(kChunkElements, e.n - begin);
      const std::tuple<const StorageType<kIn>*...> in{Widened<kIn>(
          dtype_of(kIn), e.in[kJ], begin, count, std::get<kJ>(buffers).elements.data())...};
      StorageType<kOut>* out[kResults];
      for (size_t k = 0; k < kResults; ++k)
        out[k] = narrow_result ? wide_results[k].elements.data()
                               : static_cast<StorageType<kOut>*>(e.out[k]) + begin;
      for (int64_t i = 0; i < count; ++i) {
        const auto results =
            AsArray(body(Num<ComputeType<kIn>>{Element<kIn>::Load(std::get<kJ>(in)[i])}...));
        for (size_t k = 0; k < kResults; ++k) out[k][i] = Element<kOut>::Store(results[k].v);
      }
      for (size_t k = 0; narrow_result && k < kResults; ++k)
        ConvertElements(kOut, out[k], e.result_dtype,
                        static_cast<std::byte*>(e.out[k]) + begin * ByteWidth(e.result_dtype),
                        count);
    }
  }
  (std::make_index_sequence<sizeof...(kIn)>());
}

// Adds an input node for operand `index` of dtype `from`, and a conversion if the lambda sees it as
// another dtype `to`. Returns the node that the lambda uses.
int AddInput(ScalarGraph* graph, int index, DType from, DType to);
// Makes the node, converted to dtype `to` if needed, the next root of the graph: the next result.
void AddRoot(ScalarGraph* graph, int node, DType to);

// Returns the graph of the lambda that Loop runs.
template <DType kOut, DType... kIn, class Body>
ScalarGraph Record(const Body& body, DType operand_dtype, DType result_dtype) {
  ScalarGraph graph;
  const auto dtype_of = [&](DType computed) {
    return computed == ComputeDType(operand_dtype) ? operand_dtype : computed;
  };
  [&]<int... kJ>(std::integer_sequence<int, kJ...>) {
    const std::tuple<Expr<ComputeType<kIn>>...> args{
        Expr<ComputeType<kIn>>{&graph, AddInput(&graph, kJ, dtype_of(kIn), kIn)}...};
    for (const auto& root : AsArray(std::apply(body, args))) AddRoot(&graph, root.id, result_dtype);
  }
  (std::make_integer_sequence<int, sizeof...(kIn)>());
  return Canonical(graph);
}

}  // namespace tessera::ir::scalar
