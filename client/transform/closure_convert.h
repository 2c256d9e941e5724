// closure_convert: turns values that a function captures into arguments of the function.
#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/transform/call.h"

namespace tessera {

namespace internal {

// A function that was traced for arguments of certain types. A hoisted value is a captured value
// that has become an argument.
struct Closure {
  ir::FunctionRef fn;           // params are the arguments, then the captures
  TreeNode args;                // structure of the arguments
  std::vector<Type> types;      // types of the arguments' leaves, then of the hoisted values
  std::vector<Array> captures;  // a hoisted capture has no value here
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

// The function that closure_convert returns. A value; thread-compatible.
template <class R, class... A>
class ConvertedFn {
 public:
  ConvertedFn(std::shared_ptr<const internal::Closure> closure, R like)
      : closure_(std::move(closure)), like_(std::move(like)) {}
  // `hoisted` has one value for each hoisted value that closure_convert returned. Throws TYPE_ERROR
  // for another number of values, and for arguments whose structure or types differ from the
  // example's.
  R operator()(const A&... args, const std::vector<Array>& hoisted) const {
    return internal::UnflattenFilled(
        like_, internal::CallClosure(*closure_, internal::FlattenArgs(std::tie(args...), "args"),
                                     hoisted));
  }

 private:
  std::shared_ptr<const internal::Closure> closure_;
  R like_;
};

// Returns {g, hoisted} for a function f and example arguments, which are concrete, traced or
// abstract (a tuple for several). g(args..., hoisted) is f(args...). If f, or a function that f
// calls, captures values of functions that are being traced, g takes these values as the argument
// `hoisted`. So g can be passed through custom_jvp and custom_vjp, whose functions must not capture
// anything that is differentiated. f runs once, in this call. g is the recorded function: it takes
// only arguments with the types and static values of the example.
//   const auto [g, hoisted] = closure_convert(objective, x0);
//   return minimize_by_rule(x0, hoisted);  // a custom_vjp, in which g(x, hoisted) is objective(x)
// Only traced arrays of floats or complex numbers are hoisted. Other captures, including concrete
// arrays, have no derivative and stay captured. JAX also leaves traced values captured if it knows
// that they do not depend on what is differentiated. Reference: jax.closure_convert.
template <class F, class... A>
auto closure_convert(const F& f, const std::tuple<A...>& args, Site site = Site::Here()) {
  using Tuple = internal::Traced<F, A...>;
  using R = internal::ResultOf<F, Tuple>;
  const Tuple tuple = internal::TracedTuple<F>(args, site);
  std::optional<R> like;
  internal::ClosureFlat flat = internal::ConvertClosure(
      internal::FlattenArgs(tuple, "args"), site, internal::TreeBody<F, Tuple, R>{f, tuple, &like});
  const Array none = abstract({});  // an array that keeps no memory on a device alive
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
