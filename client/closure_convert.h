// closure_convert: a function whose captured values become arguments.
#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/call.h"

namespace tessera {

namespace internal {

// A function that was traced for arguments of some types.
struct Closure {
  ir::FunctionRef fn;           // params: the arguments, then the captures
  TreeNode args;                // the structure of the arguments
  std::vector<Type> types;      // of their leaves, then of what was hoisted
  std::vector<Array> captures;  // one that was hoisted has no value
  Site site;
};
struct ClosureFlat {
  std::shared_ptr<const Closure> closure;
  std::vector<Array> hoisted;
};
ClosureFlat ConvertClosure(const FlatArgs& args, const Site& site, FlatBody body);
std::vector<Array> CallClosure(const Closure& closure, const FlatArgs& args,
                               const std::vector<Array>& hoisted);

}  // namespace internal

// What closure_convert made of a function. A value; thread-compatible.
template <class R, class... A>
class ConvertedFn {
 public:
  ConvertedFn(std::shared_ptr<const internal::Closure> closure, R like)
      : closure_(std::move(closure)), like_(std::move(like)) {}
  // `hoisted` has a value for each that closure_convert returned. Errors: TYPE_ERROR for another
  // number of them, and for arguments of other structures or types than those it was converted for.
  R operator()(const A&... args, const std::vector<Array>& hoisted) const {
    return internal::UnflattenFilled(
        like_, internal::CallClosure(*closure_, internal::FlattenArgs(std::tie(args...), "args"),
                                     hoisted));
  }

 private:
  std::shared_ptr<const internal::Closure> closure_;
  R like_;
};

// {g, hoisted} of a function f of arguments like these, concrete, traced or abstract (a tuple for
// several), where g(args..., hoisted) is f(args...): what f, or a function that it calls, captures
// of the functions that are being traced is an argument of g. So it passes through custom_jvp and
// custom_vjp, whose functions may capture nothing that is differentiated. f runs once, here; g is
// what was recorded then, for arguments of these types alone, with the same static values.
//   const auto [g, hoisted] = closure_convert(objective, x0);
//   return minimize_by_rule(x0, hoisted);  // a custom_vjp, in which g(x, hoisted) is objective(x)
// Hoisted are floats and complex numbers that are traced. What else f captures, concrete arrays
// among it, has no derivative and stays captured; so do in JAX traced values of which it knows that
// they do not depend on what is differentiated. Reference: jax.closure_convert.
template <class F, class... A>
auto closure_convert(const F& f, const std::tuple<A...>& args, Site site = Site::Here()) {
  using Tuple = internal::Traced<F, A...>;
  using R = internal::ResultOf<F, Tuple>;
  const Tuple tuple = internal::TracedTuple<F>(args, site);
  std::optional<R> like;
  internal::ClosureFlat flat = internal::ConvertClosure(
      internal::FlattenArgs(tuple, "args"), site, internal::TreeBody<F, Tuple, R>{f, tuple, &like});
  const Array none = abstract({});  // an array, but none that is kept alive
  for_each_leaf(*like, [&](Array& a) {
    if (a.valid()) a = none;
  });
  auto converted = [&]<class... T>(std::type_identity<std::tuple<T...>>) {
    return ConvertedFn<R, T...>(std::move(flat.closure), *std::move(like));
  }(std::type_identity<Tuple>{});
  return std::pair(std::move(converted), std::move(flat.hoisted));
}
template <class F, class A>
auto closure_convert(const F& f, const A& x, Site site = Site::Here()) {
  return closure_convert(f, std::tuple<A>(x), site);
}

}  // namespace tessera
