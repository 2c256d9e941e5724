// Which device holds which part of an array: of one that is there, of the arguments and results of
// a function, and of any value inside a function. Reference: jax.debug.visualize_array_sharding and
// inspect_array_sharding; but what is drawn of a function is what the plan really chose.
//
//   visualize(x);                  // prints a picture of x
//   visualize(step, params, x);    // of a plan, before anything runs
//   jit([](Array x) {
//     const Array h = tanh(matmul(x, w));
//     visualize(h);                // prints one of h, when the function is compiled
//     return sum(h);
//   })(x);
//
// Printed pictures have colours on a terminal, and none elsewhere or where NO_COLOR is set. A
// picture has two dims; of an array that is cut along more each block along the others has its own.
#pragma once
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "client/array.h"
#include "client/jit.h"
#include "client/trace.h"

namespace tessera {

// Prints to stdout which device holds which block of `x`. Inside a function that is being traced,
// of whatever transform, it is printed when the program is compiled, as often as it is planned in
// another way; a value that the program does not compute has no picture. In a vmap it is the whole
// batch, in a shard_map the shard, cut along the other axes. Works on concrete and traced arrays.
void visualize(const Array& x, Site site = Site::Here());
// The same as a text without colours, 100 columns wide, and as an SVG document. Concrete arrays
// only.
std::string visualize_text(const Array& x, Site site = Site::Here());
std::string visualize_svg(const Array& x, Site site = Site::Here());

// Calls `callback` with where `x` lies: at once, or, while tracing, once the program is compiled.
void inspect_array_sharding(const Array& x, std::function<void(const api::Placement&)> callback,
                            Site site = Site::Here());

namespace internal {
std::string DrawPlanOf(const LoweredCall& call);  // for stdout
std::string PlanTextOf(const LoweredCall& call);
std::string PlanSvgOf(const LoweredCall& call);
std::string ExplicitTextOf(const LoweredCall& call);
// The same of a plan with its explain_json, of a program that prints nothing.
std::string PlanTextOf(const ir::Program& program, const api::CompileReply& plan);
std::string PlanSvgOf(const ir::Program& program, const api::CompileReply& plan);
void PrintToStdout(const std::string& text);
template <class F>
Jitted<F> AsJitted(const Jitted<F>& f) {
  return f;
}
template <class F>
Jitted<F> AsJitted(const F& f) {
  JitOptions options;
  options.name = "visualize";
  return Jitted<F>(f, std::move(options), Site{});
}
template <class F>
concept IsFunction = !std::is_same_v<F, Array>;
}  // namespace internal

// Prints the plan of `f`, jitted or not, for these arguments, which may be abstract: the mesh with
// what each device holds, the arguments, results and values that `f` visualizes, what the devices
// exchange, the memory and the time. Nothing runs.
template <internal::IsFunction F, class... A>
void visualize(const F& f, const A&... args) {
  internal::PrintToStdout(internal::DrawPlanOf(internal::AsJitted(f).lower(args...).call()));
}
template <internal::IsFunction F, class... A>
std::string visualize_text(const F& f, const A&... args) {
  return internal::PlanTextOf(internal::AsJitted(f).lower(args...).call());
}
// The arrays of it.
template <internal::IsFunction F, class... A>
std::string visualize_svg(const F& f, const A&... args) {
  return internal::PlanSvgOf(internal::AsJitted(f).lower(args...).call());
}

// The shardings that the planner chose for f's lines, to write down: of each line a
// with_sharding_constraint that fixes what it computes on Auto axes, and the reshards and
// out_shardings that f needs on Explicit axes for the same plan. tessera explain --as-explicit
// prints it.
template <internal::IsFunction F, class... A>
std::string explain_as_explicit(const F& f, const A&... args) {
  return internal::ExplicitTextOf(internal::AsJitted(f).lower(args...).call());
}

}  // namespace tessera
