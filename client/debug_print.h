// debug_print: prints values when a program runs.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "client/array.h"

namespace tessera {

namespace internal {
struct PrintFormat {
  std::string text;
  Site site;
  // NOLINTNEXTLINE(google-explicit-constructor): conversion is intended
  PrintFormat(const char* t, Site s = Site::Here()) : text(t), site(s) {}
  // NOLINTNEXTLINE(google-explicit-constructor): conversion is intended
  PrintFormat(std::string t, Site s = Site::Here()) : text(std::move(t)), site(s) {}
};
void DebugPrint(const PrintFormat& format, const std::vector<Arg>& args);
}  // namespace internal

// Prints a line to stdout: `format`, with the arguments (arrays and numbers) in place of its
// replacement fields "{}", "{1}" or "{:.3f}". A field's specification is fmt's and applies to each
// element; "{{" is a brace. Arrays print as in to_string, with long ones shortened.
//
//   auto step = jit([](const Array& w) {
//     const Array norm = linalg::norm(w);
//     debug_print("|w| = {:.4f}", norm);
//     return w / norm;
//   });
//
// In a traced function it prints when the program runs, under every transform: once for each member
// of a vmap (but only once if no argument is batched), on each device of a shard_map, in each turn
// of a loop, and in the branch that is taken. Under grad it prints the values of the forward pass,
// and does not print again when checkpoint recomputes them. If a function of tangents is
// transposed, values that depend on the tangents are not printed.
//
// A call of a program that prints returns after its lines have been printed, in the order of the
// ops. A run that fails prints nothing. Printed values are results of the program, and stay in the
// devices' memory until then. A scan keeps the values of all its steps. The number of steps of a
// while_loop is not known in advance, so a debug_print in it may be called 10,000 times in a run,
// with at most 64 MiB of values. The 64 MiB also hold for a debug_print in a branch of a scan. A
// run that prints more than that fails and prints nothing. Only steps in which the debug_print is
// called count, and only values that may differ between steps.
//
// Errors: VALUE_ERROR if the format does not fit the arguments, or does not use one of them;
// NOT_IMPLEMENTED in the cond_fun of a while_loop; CALLBACKS_DROPPED for a run that prints too
// much. Reference: jax.debug.print.
template <class... Args>
void debug_print(const internal::PrintFormat& format, const Args&... args) {
  internal::DebugPrint(format, {Arg(args, format.site)...});
}

}  // namespace tessera
