// Functions with derivative rules of their own: custom_jvp, custom_vjp, custom_linear_solve,
// custom_root.
#pragma once
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/transform/autodiff.h"
#include "client/transform/call.h"

namespace tessera {

namespace internal {

// `rule` takes the arguments, then a tangent for each (zeros for integers). It returns the results,
// then a tangent for each. It is called after `body`.
std::vector<Array> CustomJvpFlat(const FlatArgs& args, const Site& site, FlatBody body,
                                 FlatBody rule);
// `fwd` is like `body`, but returns residuals after the results. `bwd` takes the residuals, then a
// cotangent for each result (zeros for integers). `bwd` returns a cotangent for each argument; an
// Array without a value stands for zero. body, fwd and bwd are called in this order.
std::vector<Array> CustomVjpFlat(const FlatArgs& args, const Site& site, FlatBody body,
                                 FlatBody fwd, FlatBody bwd);
// Each function takes and returns leaves like those of b. Without transpose_solve and
// transpose_matvec there is no gradient.
struct LinearSolveFlat {
  FlatArgs b;
  FlatBody solve, matvec;
  std::optional<FlatBody> transpose_solve, transpose_matvec;
};
std::vector<Array> RunLinearSolve(const LinearSolveFlat& call, const Site& site);
// `f` takes and returns leaves like those of the guess. `solve` takes f and the guess,
// `tangent_solve` a linear function and y; both return leaves like those of the guess.
struct RootFlat {
  FlatArgs guess;
  FlatBody f;
  absl::FunctionRef<std::vector<Array>(FlatBody, const std::vector<Array>&)> solve, tangent_solve;
};
std::vector<Array> RunRoot(const RootFlat& call, const Site& site);

}  // namespace internal

// Returns f with a derivative rule. rule(primals, tangents) returns a pair {f's result, the
// result's tangent}. `primals` is the tuple of f's arguments, `tangents` a tuple of the same types
// with their tangents. The result's tangent is linear in `tangents`. The tangent of an integer is
// zero as an argument of the rule, and ignored as a result. A static value is the same in `primals`
// and `tangents`. grad transposes the rule; vmap maps it. Values that f or the rule captures must
// not be differentiated. The rule must call the function that was given here, not the one that is
// returned.
//   auto log1pexp = custom_jvp(
//       [](const Array& x) { return lax::log1p(lax::exp(x)); },
//       [](const auto& primals, const auto& tangents) {
//         const auto& [x] = primals;
//         const auto& [dx] = tangents;
//         return std::pair(lax::log1p(lax::exp(x)), dx * lax::logistic(x));
//       });
// Errors: TYPE_ERROR if the rule's result or tangent has another structure or type than f's result.
// Differentiation by a captured value throws NOT_IMPLEMENTED. Reference: jax.custom_jvp.
template <class F, class Rule>
auto custom_jvp(F f, Rule rule, Site site = Site::Here()) {
  return [ f = std::move(f), rule = std::move(rule),
           site ](const auto&... args) requires internal::Traceable<F, decltype(args)...> {
    using Tuple = internal::Traced<F, decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    static_assert(std::is_invocable_r_v<std::pair<R, R>, const Rule&, const Tuple&, const Tuple&>,
                  "the rule of custom_jvp must take the tuple of the arguments and the tuple of "
                  "their tangents, and return a pair {result, tangent of the result} of f's type");
    const Tuple tuple = internal::TracedArgs<F>(site, args...);
    std::optional<R> like;
    const auto flat_rule = [&](const std::vector<Array>& in) {
      std::vector<Array> rest = in;
      const Tuple primals = internal::TakeFront(&rest, tuple);
      const std::pair<R, R> got = rule(primals, internal::UnflattenFilled(tuple, rest));
      Flat out = internal::FlattenFilled(got.first);
      const Flat tangent = internal::FlattenFilled(got.second);
      internal::CheckSameStructure(
          internal::FlattenFilled(*like).tree, out.tree, "primal_out", ErrorKind::kTypeError,
          "Custom JVP rule must produce a pair where the first element represents the primal "
          "output (equal in value to the output of the function, and in particular of the same "
          "container/pytree structure); ",
          site);
      internal::CheckSameStructure(
          out.tree, tangent.tree, "tangent_out", ErrorKind::kTypeError,
          "Custom JVP rule must produce primal and tangent outputs with equal container (pytree) "
          "structures; ",
          site);
      out.leaves.insert(out.leaves.end(), tangent.leaves.begin(), tangent.leaves.end());
      return out.leaves;
    };
    const std::vector<Array> out =
        internal::CustomJvpFlat(internal::FlattenArgs(tuple, "args"), site,
                                internal::TreeBody<F, Tuple, R>{f, tuple, &like}, flat_rule);
    return internal::UnflattenFilled(*like, out);
  };
}

// Returns f with rules for its gradient. fwd(args...) returns a pair {f's result, residuals}. The
// residuals are any tree, which is kept for the other rule. bwd(residuals, cotangent of the result)
// returns the tuple of the arguments' cotangents; an Array without a value stands for zero.
// Cotangents of integers and of static values are ignored. In the cotangent that bwd takes, an
// integer is zero and a static value is unchanged. Values that the three functions capture must not
// be differentiated.
//   auto clip_gradient = custom_vjp([](const Array& x) { return x; },
//                                   [](const Array& x) { return std::pair(x, None); },
//                                   [](NoneType, const Array& g) {
//                                     return std::tuple(lax::clamp(-1.0, g, 1.0));
//                                   });
// Errors: TYPE_ERROR if fwd's result has another structure or type than f's, or if bwd's result has
// another structure than the arguments; VALUE_ERROR if a cotangent has another type than its
// argument. jvp throws TYPE_ERROR ("can't apply forward-mode differentiation (jvp) to a custom_vjp
// function."). Differentiation by a captured value throws NOT_IMPLEMENTED. Reference:
// jax.custom_vjp.
template <class F, class Fwd, class Bwd>
auto custom_vjp(F f, Fwd fwd, Bwd bwd, Site site = Site::Here()) {
  return [ f = std::move(f), fwd = std::move(fwd), bwd = std::move(bwd),
           site ](const auto&... args) requires internal::Traceable<F, decltype(args)...> {
    using Tuple = internal::Traced<F, decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    using Pair = internal::ResultOf<Fwd, Tuple>;
    static_assert(tree::IsPair<Pair>::value,
                  "the fwd rule of custom_vjp must return a pair {result, residuals}");
    static_assert(std::is_same_v<typename Pair::first_type, R>,
                  "the fwd rule of custom_vjp must return a result of f's type");
    using Residuals = typename Pair::second_type;
    static_assert(std::is_invocable_r_v<Tuple, const Bwd&, const Residuals&, const R&>,
                  "the bwd rule of custom_vjp must take the residuals and the cotangent of the "
                  "result, and return the tuple of the cotangents of the arguments");
    const Tuple tuple = internal::TracedArgs<F>(site, args...);
    std::optional<R> like;
    std::optional<Pair> fwd_like;
    const internal::TreeBody<Fwd, Tuple, Pair> fwd_body{fwd, tuple, &fwd_like};
    const auto flat_fwd = [&](const std::vector<Array>& in) {
      std::vector<Array> out = fwd_body(in);
      internal::CheckSameStructure(
          internal::FlattenFilled(*like).tree, internal::FlattenFilled(fwd_like->first).tree,
          "primal_out", ErrorKind::kTypeError,
          "Custom VJP fwd rule must produce a pair where the first element represents the primal "
          "output (equal to the output of the function) and the second element represents "
          "residuals; ",
          site);
      return out;
    };
    const auto flat_bwd = [&](const std::vector<Array>& in) {
      std::vector<Array> rest = in;
      const Residuals residuals = internal::TakeFront(&rest, fwd_like->second);
      const Tuple got = bwd(residuals, internal::UnflattenFilled(fwd_like->first, rest));
      const Flat out = flatten(got), arguments = flatten(tuple);
      internal::CheckSameStructure(
          arguments.tree, out.tree, "output", ErrorKind::kTypeError,
          "Custom VJP bwd rule must produce an output with the same container (pytree) structure "
          "as the args tuple of the primal function; ",
          site);
      std::vector<Array> cotangents;  // cotangents of the arguments that are not holes
      for (size_t i = 0; i < out.leaves.size(); ++i)
        if (arguments.leaves[i].valid()) cotangents.push_back(out.leaves[i]);
      return cotangents;
    };
    const std::vector<Array> out = internal::CustomVjpFlat(
        internal::FlattenArgs(tuple, "args"), site,
        internal::TreeBody<F, Tuple, R>{f, tuple, &like}, flat_fwd, flat_bwd);
    return internal::UnflattenFilled(*like, out);
  };
}

namespace lax {

struct LinearSolveOptions {
  bool symmetric = false;  // A is its own transpose; transpose_solve defaults to solve
};
// Returns the x of the linear equation matvec(x) = b that solve(matvec, b) finds. Derivatives are
// found by implicit differentiation: solve itself, which may loop until it has converged, is not
// differentiated. x and b are trees of the same kind. The result has derivatives by b and by values
// that matvec captures, but not by values that only solve captures. A gradient runs
// transpose_solve(vecmat, b), where vecmat is the transpose of matvec. Errors: TYPE_ERROR or
// VALUE_ERROR if the result of one of the functions has another structure or type than b. Without
// transpose_solve, grad throws TYPE_ERROR ("transpose_solve required for backwards mode automatic
// differentiation"). Reference: jax.lax.custom_linear_solve.
template <class M, class B, class S, class T = NoneType>
B custom_linear_solve(const M& matvec, const B& b, const S& solve, const T& transpose_solve = {},
                      LinearSolveOptions options = {}, Site site = Site::Here()) {
  static_assert(std::is_invocable_r_v<B, const M&, const B&>,
                "matvec of custom_linear_solve must return a tree of b's type");
  static_assert(
      std::is_invocable_r_v<B, const S&, const M&, const B&>,
      "solve of custom_linear_solve must take matvec and b, and return a tree of b's type");
  const TreeNode want = internal::FlattenFilled(b).tree;
  const auto flat = [&](const char* name, const auto& fn) {
    return [&want, &b, name, &fn, site](const std::vector<Array>& in) {
      const Flat out = internal::FlattenFilled(B(fn(internal::UnflattenFilled(b, in))));
      internal::CheckSameStructure(want, out.tree, "b", ErrorKind::kTypeError,
                                   std::string(name) + "() output pytree structure must match b; ",
                                   site);
      return out.leaves;
    };
  };
  const auto solved = [&](const B& x) { return solve(matvec, x); };
  const auto flat_solve = flat("solve", solved);
  const auto flat_matvec = flat("matvec", matvec);
  internal::LinearSolveFlat call{internal::FlattenArgs(b, "b"), flat_solve, flat_matvec,
                                 std::nullopt, std::nullopt};
  const auto run = [&] {
    return internal::UnflattenFilled(b, internal::RunLinearSolve(call, site));
  };
  if constexpr (!std::is_same_v<T, NoneType>) {
    const auto vecmat = [&](const B& x) -> B {
      if (options.symmetric) return matvec(x);
      return std::get<0>(linear_transpose(matvec, std::tuple<B>(b), site)(x));
    };
    static_assert(std::is_invocable_r_v<B, const T&, decltype(vecmat)&, const B&>,
                  "transpose_solve of custom_linear_solve takes the transpose of matvec and b");
    const auto transposed = [&](const B& x) { return transpose_solve(vecmat, x); };
    const auto flat_transposed = flat("transpose_solve", transposed);
    const auto flat_vecmat = flat("transpose_matvec", vecmat);
    call.transpose_solve.emplace(flat_transposed);
    call.transpose_matvec.emplace(flat_vecmat);
    return run();
  } else {
    if (options.symmetric) {
      call.transpose_solve.emplace(flat_solve);
      call.transpose_matvec.emplace(flat_matvec);
    }
    return run();
  }
}

// Returns the x of f(x) = 0 that solve(f, initial_guess) finds. The result has derivatives by
// values that f captures, but not by the guess or by values that only solve captures. The
// derivatives are found by implicit differentiation. x, f(x) and y below are trees of the guess's
// type. tangent_solve(g, y) returns the x of g(x) = y, where g is f linearized at the root; for
// scalars that is y / g(1). tangent_solve must not capture anything that is differentiated. First
// and second derivatives do not differentiate solve, which may loop until it has converged; third
// derivatives do. Errors: TYPE_ERROR if one of the functions returns another structure than the
// guess's, VALUE_ERROR if it returns another type. Reference: jax.lax.custom_root.
template <class F, class X, class S, class T>
X custom_root(const F& f, const X& initial_guess, const S& solve, const T& tangent_solve,
              Site site = Site::Here()) {
  static_assert(std::is_invocable_r_v<X, const F&, const X&>,
                "f of custom_root must return a tree of the guess's type");
  const internal::FlatArgs guess = internal::FlattenArgs(initial_guess, "initial_guess");
  const auto checked_leaves = [&](const char* name, const X& x) {
    const Flat out = flatten(x);
    internal::CheckSameStructure(
        guess.tree, out.tree, "initial_guess", ErrorKind::kTypeError,
        std::string(name) + "() output pytree structure must match initial_guess; ", site);
    return out.leaves;
  };
  // Turns a function of leaves into a function of trees.
  const auto tree_function = [&](internal::FlatBody fn) {
    return [&initial_guess, fn](const X& x) -> X {
      return unflatten(initial_guess, fn(flatten(x).leaves));
    };
  };
  const auto flat_f = [&](const std::vector<Array>& x) {
    return checked_leaves("f", f(unflatten(initial_guess, x)));
  };
  const auto flat_solve = [&](internal::FlatBody fn, const std::vector<Array>& x) {
    return checked_leaves("solve", solve(tree_function(fn), unflatten(initial_guess, x)));
  };
  const auto flat_tangent_solve = [&](internal::FlatBody fn, const std::vector<Array>& y) {
    return checked_leaves("tangent_solve",
                          tangent_solve(tree_function(fn), unflatten(initial_guess, y)));
  };
  return unflatten(initial_guess,
                   internal::RunRoot({guess, flat_f, flat_solve, flat_tangent_solve}, site));
}

}  // namespace lax

}  // namespace tessera
