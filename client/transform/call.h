// How a transform calls a callable. Arguments and result are trees, and arguments may be C++
// numbers.
//
// A number that is an argument of jit, grad, jvp, linearize, vjp, linear_transpose, custom_jvp or
// custom_vjp is traced as a weakly typed scalar if the callable takes an Array (`Array`, `Arg`,
// `auto`). One program then serves every value. A number is static if the callable declares a
// number (`int n`), which C++ must know while it traces. Numbers inside structs and containers, and
// arguments of the other transforms, are static too. Each static value is a separate program.
#pragma once
#include <bit>
#include <functional>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/transform/flat.h"
#include "client/tree.h"

namespace tessera {
namespace internal {

template <class... A>
using ArgTuple = std::tuple<std::decay_t<const A&>...>;  // "text" is a const char*

template <class F, class Tuple>
struct TakesTuple;
template <class F, class... A>
struct TakesTuple<F, std::tuple<A...>> : std::is_invocable<const F&, const A&...> {
  using Result = std::invoke_result<const F&, const A&...>;
};
// Whether F is callable with a tuple's values.
template <class F, class Tuple>
inline constexpr bool kTakes = TakesTuple<F, Tuple>::value;
// The type of the result of such a call.
template <class F, class Tuple>
using ResultOf = std::decay_t<typename TakesTuple<F, Tuple>::Result::type>;

// The types of the arguments that F is called with, for arguments of types A. A number becomes an
// Array if F takes one.
template <class F, class... A>
class TracedAs {
  // Returns the set of the arguments that are numbers. Bit i stands for argument i.
  static constexpr uint64_t Numbers() {
    uint64_t numbers = 0, bit = 1;
    ((numbers |= std::is_arithmetic_v<A> ? bit : 0, bit <<= 1), ...);
    return numbers;
  }
  static constexpr uint64_t kNumbers = Numbers();
  static_assert(std::popcount(kNumbers) <= 8,
                "at most 8 numbers may be arguments of a traced function; give an array of them");

  // Numbers that are not in the set `kStatic` become Arrays.
  template <uint64_t kStatic, size_t... I>
  static auto Types(std::index_sequence<I...>)
      -> std::tuple<std::conditional_t<(((kNumbers & ~kStatic) >> I) & 1) != 0, Array, A>...>;
  template <uint64_t kStatic>
  using TypesWithStatic = decltype(Types<kStatic>(std::index_sequence_for<A...>{}));

  // Finds the smallest set kStatic of numbers that must stay static for F to be callable, and
  // returns the tuple of the arguments' types for this set. Tries the subsets of kNumbers in
  // ascending order, in which each subset follows its own subsets. The subset after kStatic is
  // (kStatic - kNumbers) & kNumbers.
  template <uint64_t kStatic>
  static auto FindTuple() {
    if constexpr (kStatic == kNumbers || kTakes<F, TypesWithStatic<kStatic>>) {
      return std::type_identity<TypesWithStatic<kStatic>>{};
    } else {
      return FindTuple<(kStatic - kNumbers) & kNumbers>();
    }
  }

 public:
  using Tuple = typename decltype(FindTuple<0>())::type;
};
template <class F, class... A>
using Traced = typename TracedAs<F, std::decay_t<const A&>...>::Tuple;
template <class F, class... A>
concept Traceable = kTakes<F, Traced<F, A...>>;
// Whether F is callable with the arguments as they are. Transforms in which all numbers are static
// require this concept instead of Traceable.
template <class F, class... A>
concept Callable = kTakes<F, ArgTuple<A...>>;

template <class To, class A>
To TracedArg(const A& arg, bool use_f64, const Site& site) {
  if constexpr (std::is_arithmetic_v<A> && std::is_same_v<To, Array>) {
    return NumberArgument(Arg(arg, site), use_f64);
  } else {
    return arg;
  }
}
// Returns the arguments that F is called with.
template <class F, class... A>
Traced<F, A...> TracedArgs(const Site& site, const A&... args) {
  using Tuple = Traced<F, A...>;
  if constexpr (std::is_same_v<Tuple, ArgTuple<A...>>) {
    return Tuple(args...);
  } else {
    const bool use_f64 = HasFloat64(flatten(std::tie(args...)).leaves);
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return Tuple{TracedArg<std::tuple_element_t<I, Tuple>>(args, use_f64, site)...};
    }
    (std::index_sequence_for<A...>{});
  }
}
template <class F, class... A>
Traced<F, A...> TracedTuple(const std::tuple<A...>& args, const Site& site) {
  return std::apply([&](const A&... a) { return TracedArgs<F>(site, a...); }, args);
}

template <class T>
FlatArgs FlattenArgs(const T& t, std::string_view root) {
  return {FlattenFilled(t), root};
}

// Calls f with `like`, whose arrays are replaced by the given ones. Stores the result in `*out` and
// returns the arrays of the result.
template <class F, class Tuple, class R>
struct TreeBody {
  const F& f;
  const Tuple& like;
  std::optional<R>* out;
  std::vector<Array> operator()(const std::vector<Array>& leaves) const {
    const Tuple args = UnflattenFilled(like, leaves);
    out->emplace(std::apply([&](const auto&... a) -> R { return std::invoke(f, a...); }, args));
    return ResultLeaves(flatten(**out));
  }
};
// Removes as many arrays from the front of `leaves` as `like` has, and returns `like` with them.
template <class T>
T TakeFront(std::vector<Array>* leaves, T like) {
  size_t next = 0;
  tree::WalkLeaves(like, LeafReplacer{*leaves, /*holes=*/false, next});
  DropFront(leaves, next);
  return like;
}

}  // namespace internal

}  // namespace tessera
