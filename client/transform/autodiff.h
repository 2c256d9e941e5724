// Derivatives: grad, jvp, vjp, linearize and linear_transpose. The header also has checkpoint,
// which makes a gradient recompute intermediate values instead of keeping them.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "client/transform/call.h"
#include "ir/checkpoint_policy.h"
#include "ir/transform/transform.h"

namespace tessera {

struct GradOptions {
  // arguments and loss are complex, and the loss is a holomorphic function of them
  bool holomorphic = false;
  bool allow_int = false;  // arguments may be integers; their gradient is an Array without a value
};

namespace internal {

// Returns for each leaf of the tuple `args` whether it belongs to an argument whose index is in
// `arguments`.
std::vector<bool> ArgumentLeafMask(const TreeNode& args, std::initializer_list<size_t> arguments);

// The body's result 0 is the loss. Returns the body's results, then the gradient of the loss by
// each leaf that `requested` marks. The gradient by an integer is an Array without a value.
std::vector<Array> ValueAndGradFlat(const char* name, const FlatArgs& args,
                                    const std::vector<bool>& requested, const GradOptions& options,
                                    const Site& site, FlatBody body);

// Returns the results of the body, then a tangent for each result. A result that has no tangent,
// such as an integer, gets zeros.
std::vector<Array> JvpFlat(const FlatArgs& primals, const std::vector<Array>& tangents,
                           const Site& site, FlatBody body);

// The derivative of a body at a point, as a linear map from tangents of the arguments to tangents
// of the results. `residuals` are the values at the point that the map is computed from.
struct Linear {
  ir::Linearized parts;
  std::vector<Array> residuals;
  std::vector<Type> in_types, out_types;
  std::vector<std::string> in_paths;
  Mesh mesh;  // the mesh on which the point was computed; empty if there was none, and in a trace
  Site site;
};
struct LinearizedFlat {
  std::vector<Array> results;
  std::shared_ptr<const Linear> linear;
};
inline size_t NoAux() { return 0; }
// Linearizes the body at `args`. `num_aux`, called after the body, returns how many of the body's
// last results are not part of the linear map.
LinearizedFlat LinearizeFlat(const char* name, const FlatArgs& args, const Site& site,
                             FlatBody body, absl::FunctionRef<size_t()> num_aux = NoAux);
// PushForward applies the map to tangents of the arguments. PullBack applies the transpose of the
// map to cotangents of the results.
std::vector<Array> PushForward(const Linear& linear, const std::vector<Array>& tangents);
std::vector<Array> PullBack(const Linear& linear, const std::vector<Array>& cotangents);

// Transposes `body`, which must be linear in all of its arguments, and applies the transpose to
// `cotangents`. The arguments have the types of `like`.
std::vector<Array> LinearTransposeFlat(const FlatArgs& like, const std::vector<Array>& cotangents,
                                       const Site& site, FlatBody body);

std::vector<Array> CheckpointFlat(const FlatArgs& args, const ir::CheckpointPolicy& policy,
                                  const Site& site, FlatBody body);

}  // namespace internal

// ---- grad ---------------------------------------------------------------------------------------

// value_and_grad<I...>(f)(args...) returns {f's result, gradient by argument I}. Without I,
// argument 0 is differentiated. The gradient is a tuple if there are several I. f returns a scalar
// loss, or a pair {loss, aux}.
template <class F, size_t... I>
class ValueAndGrad {
 public:
  ValueAndGrad(F f, const char* name, GradOptions options, Site site)
      : f_(std::move(f)), name_(name), options_(options), site_(site) {}

  template <class... A>
  requires internal::Traceable<F, A...>
  auto operator()(const A&... args) const {
    using Tuple = internal::Traced<F, A...>;
    using R = internal::ResultOf<F, Tuple>;
    static_assert(((I < sizeof...(A)) && ...), "argnums must name an argument");
    static_assert((!std::is_arithmetic_v<std::tuple_element_t<I, Tuple>> && ...),
                  "argnums must name arrays; the function declares a number: declare an Array");
    static_assert(std::is_same_v<R, Array> || tree::IsPair<R>::value,
                  "the function must return its loss, an Array, or a pair {loss, aux}");
    if constexpr (tree::IsPair<R>::value) {
      static_assert(std::is_same_v<typename R::first_type, Array>, "the loss must be an Array");
    }
    const Tuple tuple = internal::TracedArgs<F>(site_, args...);
    const internal::FlatArgs flat = internal::FlattenArgs(tuple, "args");
    std::optional<R> like;
    std::vector<Array> out = internal::ValueAndGradFlat(
        name_, flat, internal::ArgumentLeafMask(flat.tree, {I...}), options_, site_,
        internal::TreeBody<F, Tuple, R>{f_, tuple, &like});
    R value = internal::TakeFront(&out, *like);
    // `out` has the gradients in the order of the arguments.
    Tuple grads = tuple;
    size_t a = 0;
    std::apply([&](auto&... g) { (TakeIf(IsActive(a++), &out, &g), ...); }, grads);
    if constexpr (sizeof...(I) == 1) {
      return std::pair(std::move(value), std::get<I...>(grads));
    } else {
      return std::pair(std::move(value), std::tuple(std::get<I>(grads)...));
    }
  }

 private:
  static bool IsActive(size_t argument) { return ((argument == I) || ...); }
  template <class G>
  static void TakeIf(bool active, std::vector<Array>* out, G* g) {
    if (active) *g = internal::TakeFront(out, *g);
  }
  F f_;
  const char* name_;
  GradOptions options_;
  Site site_;
};
namespace internal {
template <size_t... I, class F>
auto MakeValueAndGrad(F f, const char* name, GradOptions options, Site site) {
  if constexpr (sizeof...(I) == 0) {
    return ValueAndGrad<F, 0>(std::move(f), name, options, site);
  } else {
    return ValueAndGrad<F, I...>(std::move(f), name, options, site);
  }
}
}  // namespace internal
template <size_t... I, class F>
auto value_and_grad(F f, GradOptions options, Site site = Site::Here()) {
  return internal::MakeValueAndGrad<I...>(std::move(f), "value_and_grad", options, site);
}
template <size_t... I, class F>
auto value_and_grad(F f, Site site = Site::Here()) {
  return value_and_grad<I...>(std::move(f), GradOptions(), site);
}
// grad<I...>(f)(args...) returns the gradient, or {gradient, aux} if f returns {loss, aux}. For a
// complex argument z = x + iy the gradient is, as in JAX, dL/dx - i dL/dy, where L is the loss.
template <size_t... I, class F>
auto grad(F f, GradOptions options, Site site = Site::Here()) {
  return [value_and_grad_fn =
              internal::MakeValueAndGrad<I...>(std::move(f), "grad", options, site)](
      const auto&... args) requires internal::Traceable<F, decltype(args)...> {
    auto [value, gradient] = value_and_grad_fn(args...);
    if constexpr (tree::IsPair<std::decay_t<decltype(value)>>::value) {
      return std::pair(std::move(gradient), std::move(value.second));
    } else {
      return gradient;
    }
  };
}
template <size_t... I, class F>
auto grad(F f, Site site = Site::Here()) {
  return grad<I...>(std::move(f), GradOptions(), site);
}

// ---- jvp, vjp, linearize, linear_transpose ------------------------------------------------------

// jvp(f, std::tuple(primals...), std::tuple(tangents...)) returns {result, tangent of the result}.
template <class F, class... A, class... T>
auto jvp(F f, const std::tuple<A...>& primals, const std::tuple<T...>& tangents,
         Site site = Site::Here()) {
  static_assert(std::is_same_v<std::tuple<A...>, std::tuple<T...>>,
                "primals and tangents must be trees of the same kind");
  using Tuple = internal::Traced<F, A...>;
  using R = internal::ResultOf<F, Tuple>;
  const Tuple tuple = internal::TracedTuple<F>(primals, site);
  const internal::FlatArgs p = internal::FlattenArgs(tuple, "primals");
  const Flat t = internal::FlattenFilled(internal::TracedTuple<F>(tangents, site));
  internal::CheckSameStructure(
      p.tree, t.tree, "tangents", ErrorKind::kTypeError,
      "primal and tangent arguments to jvp must have the same tree structure; ", site);
  std::optional<R> like;
  std::vector<Array> out =
      internal::JvpFlat(p, t.leaves, site, internal::TreeBody<F, Tuple, R>{f, tuple, &like});
  R value = internal::TakeFront(&out, *like);
  return std::pair(std::move(value), internal::TakeFront(&out, *like));
}

// A linear map between trees, returned by linearize. Takes tangents of the arguments and returns
// the tangent of the result. Throws TYPE_ERROR if the tangents have another tree than the
// arguments, VALUE_ERROR if they have other types.
template <class R, class... A>
class LinearFn {
 public:
  LinearFn(std::shared_ptr<const internal::Linear> linear, R like, std::tuple<A...> args)
      : linear_(std::move(linear)), like_(std::move(like)), args_(std::move(args)) {}
  R operator()(const A&... tangents) const {
    const Flat got = internal::FlattenFilled(std::tie(tangents...));
    internal::CheckSameStructure(internal::FlattenFilled(args_).tree, got.tree, "tangents",
                                 ErrorKind::kTypeError, "linearized function: ", linear_->site);
    return internal::UnflattenFilled(like_, internal::PushForward(*linear_, got.leaves));
  }

 private:
  std::shared_ptr<const internal::Linear> linear_;
  R like_;
  std::tuple<A...> args_;
};
// The transpose of the linear map at a point, returned by vjp. Takes cotangents of the result and
// returns the tuple of cotangents of the arguments. Throws VALUE_ERROR if the cotangents have
// another tree or other types than the result.
template <class R, class... A>
class VjpFn {
 public:
  VjpFn(std::shared_ptr<const internal::Linear> linear, R like, std::tuple<A...> args)
      : linear_(std::move(linear)), like_(std::move(like)), args_(std::move(args)) {}
  std::tuple<A...> operator()(const R& cotangents) const {
    const Flat got = internal::FlattenFilled(cotangents);
    internal::CheckSameStructure(
        internal::FlattenFilled(like_).tree, got.tree, "cotangents", ErrorKind::kValueError,
        "unexpected tree structure of argument to VJP function: ", linear_->site);
    return internal::UnflattenFilled(args_, internal::PullBack(*linear_, got.leaves));
  }

 private:
  std::shared_ptr<const internal::Linear> linear_;
  R like_;
  std::tuple<A...> args_;
};

namespace internal {
template <template <class, class...> class Fn, class F, class... A>
auto LinearizeTree(const char* name, const F& f, const std::tuple<A...>& primals,
                   const Site& site) {
  using R = ResultOf<F, std::tuple<A...>>;
  std::optional<R> like;
  const LinearizedFlat out = LinearizeFlat(name, FlattenArgs(primals, "primals"), site,
                                           TreeBody<F, std::tuple<A...>, R>{f, primals, &like});
  R value = internal::UnflattenFilled(*like, out.results);
  return std::pair(value, Fn<R, A...>(out.linear, value, primals));
}
}  // namespace internal

// linearize(f, x) returns {f(x), the derivative of f at x as a function of tangents}.
template <class F, class... A>
auto linearize(const F& f, const std::tuple<A...>& primals, Site site = Site::Here()) {
  return internal::LinearizeTree<LinearFn>("linearize", f, internal::TracedTuple<F>(primals, site),
                                           site);
}
template <class F, class A>
auto linearize(const F& f, const A& x, Site site = Site::Here()) {
  return linearize(f, std::tuple<A>(x), site);
}
// vjp(f, x) returns {f(x), a function from cotangents to the tuple of cotangents of the arguments}.
template <class F, class... A>
auto vjp(const F& f, const std::tuple<A...>& primals, Site site = Site::Here()) {
  return internal::LinearizeTree<VjpFn>("vjp", f, internal::TracedTuple<F>(primals, site), site);
}
template <class F, class A>
auto vjp(const F& f, const A& x, Site site = Site::Here()) {
  return vjp(f, std::tuple<A>(x), site);
}

// With has_aux as the last argument, f returns a pair {result, aux}. aux is any tree, and is not
// differentiated. jvp then returns {result, tangent, aux}; linearize and vjp return {f(x), the
// function, aux}.
struct HasAux {};
inline constexpr HasAux has_aux;

namespace internal {
template <template <class, class...> class Fn, class F, class... A>
auto LinearizeTreeWithAux(const char* name, const F& f, const std::tuple<A...>& primals,
                          const Site& site) {
  using R = ResultOf<F, std::tuple<A...>>;
  static_assert(tree::IsPair<R>::value,
                "with has_aux the function must return a pair {result, aux}");
  std::optional<R> like;
  const auto num_aux = [&] { return flatten(like->second).leaves.size(); };
  const LinearizedFlat out =
      LinearizeFlat(name, FlattenArgs(primals, "primals"), site,
                    TreeBody<F, std::tuple<A...>, R>{f, primals, &like}, num_aux);
  R result_and_aux = unflatten(*like, out.results);
  using First = typename R::first_type;
  return std::tuple(result_and_aux.first,
                    Fn<First, A...>(out.linear, result_and_aux.first, primals),
                    result_and_aux.second);
}
}  // namespace internal

template <class F, class... A, class... T>
auto jvp(F f, const std::tuple<A...>& primals, const std::tuple<T...>& tangents, HasAux,
         Site site = Site::Here()) {
  auto [result_and_aux, tangent] = jvp(std::move(f), primals, tangents, site);
  static_assert(tree::IsPair<decltype(result_and_aux)>::value,
                "with has_aux the function must return a pair {result, aux}");
  return std::tuple(std::move(result_and_aux.first), std::move(tangent.first),
                    std::move(result_and_aux.second));
}
template <class F, class... A>
auto linearize(const F& f, const std::tuple<A...>& primals, HasAux, Site site = Site::Here()) {
  return internal::LinearizeTreeWithAux<LinearFn>("linearize", f,
                                                  internal::TracedTuple<F>(primals, site), site);
}
template <class F, class A>
auto linearize(const F& f, const A& x, HasAux aux, Site site = Site::Here()) {
  return linearize(f, std::tuple<A>(x), aux, site);
}
template <class F, class... A>
auto vjp(const F& f, const std::tuple<A...>& primals, HasAux, Site site = Site::Here()) {
  return internal::LinearizeTreeWithAux<VjpFn>("vjp", f, internal::TracedTuple<F>(primals, site),
                                               site);
}
template <class F, class A>
auto vjp(const F& f, const A& x, HasAux aux, Site site = Site::Here()) {
  return vjp(f, std::tuple<A>(x), aux, site);
}

// linear_transpose(f, x) takes a linear f. It returns a function from the cotangents of f's result
// to the tuple of cotangents of f's arguments. Only the types of x are used.
template <class F, class... A>
auto linear_transpose(F f, const std::tuple<A...>& like, Site site = Site::Here()) {
  using Tuple = internal::Traced<F, A...>;
  using R = internal::ResultOf<F, Tuple>;
  return [f = std::move(f), like = internal::TracedTuple<F>(like, site),
          site](const R& cotangents) {
    std::optional<R> out_like;
    return internal::UnflattenFilled(
        like, internal::LinearTransposeFlat(internal::FlattenArgs(like, "primals"),
                                            internal::FlattenFilled(cotangents).leaves, site,
                                            internal::TreeBody<F, Tuple, R>{f, like, &out_like}));
  };
}
template <class F, class A>
auto linear_transpose(F f, const A& like, Site site = Site::Here()) {
  return linear_transpose(std::move(f), std::tuple<A>(like), site);
}

// ---- checkpoint ---------------------------------------------------------------------------------

using ir::CheckpointPolicy;
// A policy says which intermediate values of f `checkpoint` keeps for the gradient. Reference:
// jax.checkpoint_policies.
namespace checkpoint_policies {
inline const CheckpointPolicy nothing_saveable = {CheckpointPolicy::kNothing};
inline const CheckpointPolicy everything_saveable = {CheckpointPolicy::kEverything};
// Keeps the results of products: matmul and other contractions, and convolutions.
inline const CheckpointPolicy dots_saveable = {CheckpointPolicy::kDots};
// Keeps the results of products without batch dims.
inline const CheckpointPolicy dots_with_no_batch_dims_saveable = {
    CheckpointPolicy::kDotsWithoutBatch};
// Keeps the values that checkpoint_name gives one of these names.
inline CheckpointPolicy save_only_these_names(std::vector<std::string> names) {
  return {CheckpointPolicy::kNames, std::move(names)};
}
// Keeps the values that checkpoint_name gives any other name.
inline CheckpointPolicy save_any_names_but_these(std::vector<std::string> names) {
  return {CheckpointPolicy::kOtherNames, std::move(names)};
}
// Keeps all values, named or not, except those with one of these names.
inline CheckpointPolicy save_anything_except_these_names(std::vector<std::string> names) {
  return {CheckpointPolicy::kExceptNames, std::move(names)};
}
}  // namespace checkpoint_policies

// Returns `x`, an array or a tree of arrays, and gives it a name that policies refer to.
Array checkpoint_name(const Arg& x, const std::string& name);
template <class T>
requires(!std::is_convertible_v<const T&, Arg>) T
    checkpoint_name(const T& tree, const std::string& name, Site site = Site::Here()) {
  return tree_map([&](const Array& a) { return checkpoint_name(Arg(a, site), name); }, tree);
}

struct CheckpointOptions {
  CheckpointPolicy policy = {};
};
// Returns a function with f's results and derivatives. A gradient computes the intermediate values
// of f again, except for those that the policy keeps. Reference: jax.checkpoint.
template <class F>
auto checkpoint(F f, CheckpointOptions options = {}, Site site = Site::Here()) {
  return [ f = std::move(f), options = std::move(options),
           site ](const auto&... args) requires internal::Callable<F, decltype(args)...> {
    using Tuple = internal::ArgTuple<decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    const Tuple tuple(args...);
    std::optional<R> like;
    const std::vector<Array> out =
        internal::CheckpointFlat(internal::FlattenArgs(tuple, "args"), options.policy, site,
                                 internal::TreeBody<F, Tuple, R>{f, tuple, &like});
    return internal::UnflattenFilled(*like, out);
  };
}

}  // namespace tessera
