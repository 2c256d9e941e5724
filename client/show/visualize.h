// Shows which device holds which part of an array: of a concrete array, of a function's arguments
// and results, or of any value inside a function. Reference: jax.debug.visualize_array_sharding and
// inspect_array_sharding. Unlike JAX's, the picture of a function shows the actual plan.
//
//   visualize(x);                  // prints a picture of x
//   visualize(step, params, x);    // prints a picture of step's plan; nothing runs
//   jit([](Array x) {
//     const Array h = tanh(matmul(x, w));
//     visualize(h);                // prints a picture of h, when the function is compiled
//     return sum(h);
//   })(x);
//
// Printed pictures have colours on a terminal, but not elsewhere and not if NO_COLOR is set. A
// picture has two dims. An array that is cut along more dims has one picture for each block along
// the others.
#pragma once
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "client/array.h"
#include "client/trace/trace.h"
#include "client/transform/jit.h"

namespace tessera {

// Prints to stdout which device holds which block of `x`. Works on concrete and traced arrays.
//
// Inside a function that is traced by any transform, the picture is printed when the program is
// compiled, once for each different placement in the plan. A value that the program does not
// compute has no picture. In a vmap the picture shows the whole batch. In a shard_map it shows the
// shard, cut along the other axes.
void visualize(const Array& x, Site site = Site::Here());
// Return the picture as text without colours, 100 columns wide, and as an SVG document. Only for
// arrays with a placement, such as concrete ones; TYPE_ERROR for others.
std::string visualize_text(const Array& x, Site site = Site::Here());
std::string visualize_svg(const Array& x, Site site = Site::Here());

// Calls `callback` with the placement of `x`: at once, or, while tracing, once the program is
// compiled.
void inspect_array_sharding(const Array& x, std::function<void(const api::Placement&)> callback,
                            Site site = Site::Here());

namespace internal {
std::string PlanPictureOf(const LoweredCall& call);  // for stdout: with its width and colours
std::string PlanTextOf(const LoweredCall& call);
std::string PlanSvgOf(const LoweredCall& call);
std::string ExplicitTextOf(const LoweredCall& call);
// Like the functions above, for a plan that has its explain_json and a program that prints nothing.
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

// Prints the plan of `f`, jitted or not, for these arguments, which may be abstract. The plan shows
// the mesh with the contents of each device, the arguments, results and values that `f` visualizes,
// the exchanges between devices, the memory and the time. The call runs nothing.
template <internal::IsFunction F, class... A>
void visualize(const F& f, const A&... args) {
  internal::PrintToStdout(internal::PlanPictureOf(internal::AsJitted(f).lower(args...).call()));
}
template <internal::IsFunction F, class... A>
std::string visualize_text(const F& f, const A&... args) {
  return internal::PlanTextOf(internal::AsJitted(f).lower(args...).call());
}
// Returns only the arrays of the plan, as an SVG document.
template <internal::IsFunction F, class... A>
std::string visualize_svg(const F& f, const A&... args) {
  return internal::PlanSvgOf(internal::AsJitted(f).lower(args...).call());
}

// Returns the shardings that the planner chose for f's lines, as source to write down: for each
// line a with_sharding_constraint that fixes its results on Auto axes, and the reshards and
// out_shardings that f needs on Explicit axes for the same plan. `tessera explain --as-explicit`
// prints this text.
template <internal::IsFunction F, class... A>
std::string explain_as_explicit(const F& f, const A&... args) {
  return internal::ExplicitTextOf(internal::AsJitted(f).lower(args...).call());
}

}  // namespace tessera
