// Jacobians and Hessians: all derivatives of a function's results by its arguments.
#pragma once
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/transform/autodiff.h"

namespace tessera {

namespace internal {

// Returns the blocks of a Jacobian, then the results that are not differentiated. There is one
// block for each pair of a result and an active argument, in the order of the results and then of
// the arguments. A block has the result's dims, then the argument's. `num_results`, called after
// `body`, returns how many results are differentiated. With `reverse`, rows are found from the
// results' cotangents, else columns from the arguments' tangents.
std::vector<Array> JacobianFlat(const char* name, bool reverse, bool holomorphic,
                                const FlatArgs& args, const std::vector<bool>& active,
                                const Site& site, FlatBody body,
                                absl::FunctionRef<size_t()> num_results);

template <class T>
T WithHolesOnly(T tree) {
  for_each_leaf(tree, [](Array& a) { a = Array(); });
  return tree;
}

// The tree of the blocks: R with X in place of each array. TakeBlocks removes the arrays of the
// tree from the front of `blocks`.
template <class R, class X>
struct JacobianTree {
  static_assert(std::is_same_v<X, Array>,
                "a Jacobian of a struct by several arrays has no type in C++: let the function "
                "return, or take, an Array, or vectors, maps, tuples and pairs of arrays");
  using Type = R;
  static Type TakeBlocks(const R& like, const X& x, std::vector<Array>* blocks) {
    return x.valid() ? TakeFront(blocks, like) : WithHolesOnly(like);
  }
};
template <class X>
struct JacobianTree<Array, X> {
  using Type = X;
  static Type TakeBlocks(const Array& r, const X& like, std::vector<Array>* blocks) {
    return r.valid() ? TakeFront(blocks, like) : WithHolesOnly(like);
  }
};
template <>
struct JacobianTree<Array, Array> {
  using Type = Array;
  static Type TakeBlocks(const Array& r, const Array& like, std::vector<Array>* blocks) {
    return r.valid() ? TakeFront(blocks, like) : Array();
  }
};
template <class R, class X>
concept ManyByMany = !std::is_same_v<X, Array> && !std::is_same_v<R, Array>;
template <class T, class X>
requires ManyByMany<std::vector<T>, X>
struct JacobianTree<std::vector<T>, X> {
  using Type = std::vector<typename JacobianTree<T, X>::Type>;
  static Type TakeBlocks(const std::vector<T>& like, const X& x, std::vector<Array>* blocks) {
    Type out;
    for (const T& r : like) out.push_back(JacobianTree<T, X>::TakeBlocks(r, x, blocks));
    return out;
  }
};
template <class T, class X>
requires ManyByMany<std::map<std::string, T>, X>
struct JacobianTree<std::map<std::string, T>, X> {
  using Type = std::map<std::string, typename JacobianTree<T, X>::Type>;
  static Type TakeBlocks(const std::map<std::string, T>& like, const X& x,
                         std::vector<Array>* blocks) {
    Type out;
    for (const auto& [key, r] : like)
      out.emplace(key, JacobianTree<T, X>::TakeBlocks(r, x, blocks));
    return out;
  }
};
template <class... T, class X>
requires ManyByMany<std::tuple<T...>, X>
struct JacobianTree<std::tuple<T...>, X> {
  using Type = std::tuple<typename JacobianTree<T, X>::Type...>;
  static Type TakeBlocks(const std::tuple<T...>& like, const X& x, std::vector<Array>* blocks) {
    // Braces evaluate their elements from left to right.
    return std::apply(
        [&](const T&... r) { return Type{JacobianTree<T, X>::TakeBlocks(r, x, blocks)...}; }, like);
  }
};
template <class A, class B, class X>
requires(ManyByMany<std::pair<A, B>, X>) struct JacobianTree<std::pair<A, B>, X> {
  using Type = std::pair<typename JacobianTree<A, X>::Type, typename JacobianTree<B, X>::Type>;
  static Type TakeBlocks(const std::pair<A, B>& like, const X& x, std::vector<Array>* blocks) {
    auto first = JacobianTree<A, X>::TakeBlocks(like.first, x, blocks);
    return Type{std::move(first), JacobianTree<B, X>::TakeBlocks(like.second, x, blocks)};
  }
};

template <size_t... I, class Tuple>
auto PickArguments(const Tuple& args) {
  if constexpr (sizeof...(I) == 1) {
    return std::get<I...>(args);
  } else {
    return std::tuple(std::get<I>(args)...);
  }
}

struct Differentiation {
  const char* name;
  bool reverse, holomorphic;
};

// A function that returns the Jacobian of f's result. With `kHasAux`, f returns a pair; the
// function returns {Jacobian of the first element, second element}.
template <bool kHasAux, class F, size_t... I>
class Jacobian {
 public:
  Jacobian(F f, Differentiation how, Site site) : f_(std::move(f)), how_(how), site_(site) {}

  template <class... A>
  requires Traceable<F, A...>
  auto operator()(const A&... args) const {
    using Tuple = Traced<F, A...>;
    using R = ResultOf<F, Tuple>;
    static_assert(((I < sizeof...(A)) && ...), "argnums must name an argument");
    static_assert(!kHasAux || tree::IsPair<R>::value,
                  "with has_aux the function must return a pair {result, aux}");
    const Tuple tuple = TracedArgs<F>(site_, args...);
    const FlatArgs flat = FlattenArgs(tuple, "args");
    std::vector<bool> active;
    for (size_t a = 0; a < flat.tree.children.size(); ++a) {
      active.insert(active.end(), flat.tree.children[a].num_leaves(), ((a == I) || ...));
    }
    std::optional<R> like;
    const auto differentiated = [&like]() -> const auto& {
      if constexpr (kHasAux) {
        return like->first;
      } else {
        return *like;
      }
    };
    std::vector<Array> blocks = JacobianFlat(
        how_.name, how_.reverse, how_.holomorphic, flat, active, site_,
        TreeBody<F, Tuple, R>{f_, tuple, &like},
        [&] { return static_cast<size_t>(FlattenFilled(differentiated()).tree.num_leaves()); });
    const auto x = PickArguments<I...>(tuple);
    using Tree = JacobianTree<std::decay_t<decltype(differentiated())>, std::decay_t<decltype(x)>>;
    auto jacobian = Tree::TakeBlocks(differentiated(), x, &blocks);
    if constexpr (kHasAux) {
      return std::pair(std::move(jacobian), TakeFront(&blocks, like->second));
    } else {
      return jacobian;
    }
  }

 private:
  F f_;
  Differentiation how_;
  Site site_;
};

template <bool kHasAux, size_t... I, class F>
auto MakeJacobian(F f, Differentiation how, Site site) {
  if constexpr (sizeof...(I) == 0) {
    return Jacobian<kHasAux, F, 0>(std::move(f), how, site);
  } else {
    return Jacobian<kHasAux, F, I...>(std::move(f), how, site);
  }
}

}  // namespace internal

struct JacobianOptions {
  bool holomorphic = false;  // arguments and results are complex, and f is holomorphic
};
// In the functions below with has_aux, f returns a pair {result, aux}; aux is not differentiated.

// jacfwd<I...>(f)(args...) returns the Jacobian of f by argument I (a tuple for several I; argument
// 0 for none). It is found column by column by jvp, which is best for few input numbers and many
// results. If f takes and returns an Array, the Jacobian is an Array with the result's dims, then
// the argument's. Otherwise it is a tree of such blocks: the result's tree, with the argument's
// tree in place of each array.
//
// Errors: TYPE_ERROR for an argument that is no float or a result that is an integer; with
// `holomorphic`, for an argument or result that is not complex. Reference: jax.jacfwd.
template <size_t... I, class F>
auto jacfwd(F f, JacobianOptions options = {}, Site site = Site::Here()) {
  return internal::MakeJacobian<false, I...>(std::move(f), {"jacfwd", false, options.holomorphic},
                                             site);
}
template <size_t... I, class F>
auto jacfwd(F f, HasAux, JacobianOptions options = {}, Site site = Site::Here()) {
  return internal::MakeJacobian<true, I...>(std::move(f), {"jacfwd", false, options.holomorphic},
                                            site);
}
// Like jacfwd, but found row by row by vjp, which is best for many input numbers and few results.
//
// Errors: TYPE_ERROR for an argument that is an integer or a result that is no float; with
// `holomorphic`, for an argument or result that is not complex. Reference: jax.jacrev.
template <size_t... I, class F>
auto jacrev(F f, JacobianOptions options = {}, Site site = Site::Here()) {
  return internal::MakeJacobian<false, I...>(std::move(f), {"jacrev", true, options.holomorphic},
                                             site);
}
template <size_t... I, class F>
auto jacrev(F f, HasAux, JacobianOptions options = {}, Site site = Site::Here()) {
  return internal::MakeJacobian<true, I...>(std::move(f), {"jacrev", true, options.holomorphic},
                                            site);
}
// Another name of jacrev.
template <size_t... I, class F>
auto jacobian(F f, JacobianOptions options = {}, Site site = Site::Here()) {
  return jacrev<I...>(std::move(f), options, site);
}
// Returns the second derivatives of f, as jacfwd of jacrev: an Array with the dims of f's result,
// of the argument and of the argument again, or trees of such blocks. Reference: jax.hessian.
template <size_t... I, class F>
auto hessian(F f, JacobianOptions options = {}, Site site = Site::Here()) {
  return jacfwd<I...>(jacrev<I...>(std::move(f), options, site), options, site);
}
template <size_t... I, class F>
auto hessian(F f, HasAux, JacobianOptions options = {}, Site site = Site::Here()) {
  return jacfwd<I...>(jacrev<I...>(std::move(f), has_aux, options, site), has_aux, options, site);
}

}  // namespace tessera
