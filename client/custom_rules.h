// Functions with derivative rules of their own: custom_jvp, custom_vjp, custom_linear_solve.
#pragma once
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/autodiff.h"
#include "client/call.h"

namespace tessera {

namespace internal {

// `rule`: the arguments, then a tangent for each (zeros for integers) -> the results, then a
// tangent for each. Called after `body`.
std::vector<Array> CustomJvpFlat(const FlatArgs& args, const Site& site, FlatBody body,
                                 FlatBody rule);
// `fwd`: as `body`, with residuals after the results. `bwd`: the residuals, then a cotangent for
// each result (zeros for integers) -> a cotangent for each argument; one without a value is zero.
// Called in this order.
std::vector<Array> CustomVjpFlat(const FlatArgs& args, const Site& site, FlatBody body,
                                 FlatBody fwd, FlatBody bwd);
// Each function: leaves like those of b -> the same. Without the transposed ones there is no
// gradient.
struct LinearSolveFlat {
  FlatArgs b;
  FlatBody solve, matvec;
  std::optional<FlatBody> transpose_solve, transpose_matvec;
};
std::vector<Array> RunLinearSolve(const LinearSolveFlat& call, const Site& site);
// `f`: leaves like those of the guess -> the same. `solve`, of f and the guess, and
// `tangent_solve`, of a linear function and y, -> the same.
struct RootFlat {
  FlatArgs guess;
  FlatBody f;
  absl::FunctionRef<std::vector<Array>(FlatBody, const std::vector<Array>&)> solve, tangent_solve;
};
std::vector<Array> RunRoot(const RootFlat& call, const Site& site);

}  // namespace internal

// f with a rule for its derivative: rule(primals, tangents) -> pair{f's result, its tangent}, where
// both arguments are the tuple of f's arguments, and the tangent is linear in `tangents`. The
// tangent of an integer, and of what is static, is ignored: as an argument it is zero, and the same
// static value. grad transposes the rule; vmap maps it. Values that f or the rule captures
// must not be differentiated. The rule calls the function that was given here, not the one that is
// returned.
//   auto log1pexp = custom_jvp(
//       [](const Array& x) { return lax::log1p(lax::exp(x)); },
//       [](const auto& primals, const auto& tangents) {
//         const auto& [x] = primals;
//         const auto& [dx] = tangents;
//         return std::pair(lax::log1p(lax::exp(x)), dx * lax::logistic(x));
//       });
// Errors: TYPE_ERROR if the rule's result or tangent has another structure or type than f's result.
// Of differentiation: NOT_IMPLEMENTED by a captured value.
template <class F, class Rule>
auto custom_jvp(F f, Rule rule, Site site = Site::Here()) {
  return [ f = std::move(f), rule = std::move(rule),
           site ](const auto&... args) requires internal::Traceable<F, decltype(args)...> {
    using Tuple = internal::Traced<F, decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    static_assert(std::is_invocable_r_v<std::pair<R, R>, const Rule&, const Tuple&, const Tuple&>,
                  "the rule of custom_jvp takes the tuple of the arguments and that of their "
                  "tangents, and answers a pair {result, tangent of the result} of f's type");
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

// f with rules for its gradient: fwd(args...) -> pair{f's result, residuals}, any tree, which is
// kept for bwd(residuals, cotangent of the result) -> the tuple of the arguments' cotangents. One
// that is an Array without a value is zero; those of integers, and what is static, are ignored: in
// the cotangent that bwd takes they are zero, and the same static value. What the three
// functions capture must not be differentiated.
//   auto clip_gradient = custom_vjp([](const Array& x) { return x; },
//                                   [](const Array& x) { return std::pair(x, None); },
//                                   [](NoneType, const Array& g) {
//                                     return std::tuple(lax::clamp(-1.0, g, 1.0));
//                                   });
// Errors: TYPE_ERROR if fwd's result has another structure or type than f's, or bwd's another
// structure than the arguments; VALUE_ERROR if a cotangent has another type than its argument. Of
// differentiation: TYPE_ERROR by jvp ("can't apply forward-mode differentiation (jvp) to a
// custom_vjp function."), NOT_IMPLEMENTED by a captured value.
template <class F, class Fwd, class Bwd>
auto custom_vjp(F f, Fwd fwd, Bwd bwd, Site site = Site::Here()) {
  return [ f = std::move(f), fwd = std::move(fwd), bwd = std::move(bwd),
           site ](const auto&... args) requires internal::Traceable<F, decltype(args)...> {
    using Tuple = internal::Traced<F, decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    using Pair = internal::ResultOf<Fwd, Tuple>;
    static_assert(tree::IsPair<Pair>::value,
                  "the fwd rule of custom_vjp answers a pair {result, residuals}");
    static_assert(std::is_same_v<typename Pair::first_type, R>,
                  "the fwd rule of custom_vjp answers a result of f's type");
    using Residuals = typename Pair::second_type;
    static_assert(std::is_invocable_r_v<Tuple, const Bwd&, const Residuals&, const R&>,
                  "the bwd rule of custom_vjp takes the residuals and the cotangent of the result, "
                  "and answers the tuple of the cotangents of the arguments");
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
      const Flat out = flatten(got), given = flatten(tuple);
      internal::CheckSameStructure(
          given.tree, out.tree, "output", ErrorKind::kTypeError,
          "Custom VJP bwd rule must produce an output with the same container (pytree) structure "
          "as the args tuple of the primal function; ",
          site);
      std::vector<Array> cotangents;  // of what is no hole
      for (size_t i = 0; i < out.leaves.size(); ++i)
        if (given.leaves[i].valid()) cotangents.push_back(out.leaves[i]);
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
  bool symmetric = false;  // A is its own transpose: transpose_solve is solve unless it is given
};
// x of matvec(x) = b, a linear equation, as solve(matvec, b) finds it, with derivatives by implicit
// differentiation: solve itself, which may loop until it has converged, is not differentiated.
// x and b are trees of the same kind; what matvec captures has derivatives, what only solve
// captures none. transpose_solve(vecmat, b), where vecmat is the transpose of matvec, is what a
// gradient runs; without it there is none. Errors: TYPE_ERROR or VALUE_ERROR if the result of one
// of the functions has another structure or type than b; TYPE_ERROR by grad without
// transpose_solve ("transpose_solve required for backwards mode automatic differentiation").
template <class M, class B, class S, class T = NoneType>
B custom_linear_solve(const M& matvec, const B& b, const S& solve, const T& transpose_solve = {},
                      LinearSolveOptions options = {}, Site site = Site::Here()) {
  static_assert(std::is_invocable_r_v<B, const M&, const B&>,
                "matvec of custom_linear_solve answers a tree of b's type");
  static_assert(std::is_invocable_r_v<B, const S&, const M&, const B&>,
                "solve of custom_linear_solve takes matvec and b, and answers a tree of b's type");
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

// x of f(x) = 0 as solve(f, initial_guess) finds it, with derivatives by implicit differentiation:
// by what f captures, not by what only solve does, nor by the guess. All are trees of the guess's
// type. tangent_solve(g, y) is the x of g(x) = y, where g is f linearized at the root: of scalars
// y / g(1); it must capture nothing that is differentiated. First and second derivatives do not
// differentiate solve, which may loop until it has converged; third ones do. Errors: TYPE_ERROR if
// one of the functions answers another structure, VALUE_ERROR another type, than the guess's.
// Reference: jax.lax.custom_root.
template <class F, class X, class S, class T>
X custom_root(const F& f, const X& initial_guess, const S& solve, const T& tangent_solve,
              Site site = Site::Here()) {
  static_assert(std::is_invocable_r_v<X, const F&, const X&>,
                "f of custom_root answers a tree of the guess's type");
  const internal::FlatArgs guess = internal::FlattenArgs(initial_guess, "initial_guess");
  const auto checked = [&](const char* name, const X& x) {
    const Flat out = flatten(x);
    internal::CheckSameStructure(
        guess.tree, out.tree, "initial_guess", ErrorKind::kTypeError,
        std::string(name) + "() output pytree structure must match initial_guess; ", site);
    return out.leaves;
  };
  // A function of leaves as one of trees.
  const auto of_trees = [&](internal::FlatBody fn) {
    return [&initial_guess, fn](const X& x) -> X {
      return unflatten(initial_guess, fn(flatten(x).leaves));
    };
  };
  const auto flat_f = [&](const std::vector<Array>& x) {
    return checked("f", f(unflatten(initial_guess, x)));
  };
  const auto flat_solve = [&](internal::FlatBody fn, const std::vector<Array>& x) {
    return checked("solve", solve(of_trees(fn), unflatten(initial_guess, x)));
  };
  const auto flat_tangent_solve = [&](internal::FlatBody fn, const std::vector<Array>& y) {
    return checked("tangent_solve", tangent_solve(of_trees(fn), unflatten(initial_guess, y)));
  };
  return unflatten(initial_guess,
                   internal::RunRoot({guess, flat_f, flat_solve, flat_tangent_solve}, site));
}

}  // namespace lax

}  // namespace tessera
