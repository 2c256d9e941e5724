// Printing values when a program runs.
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

// Prints a line to stdout: `format` with the arguments, arrays and numbers, in place of its
// replacement fields, "{}", "{1}" or "{:.3f}", whose specification is fmt's and goes for each
// element; "{{" is a brace. Arrays print as to_string does, long ones elided.
//
//   auto step = jit([](const Array& w) {
//     const Array norm = linalg::norm(w);
//     debug_print("|w| = {:.4f}", norm);
//     return w / norm;
//   });
//
// In a function that is traced it prints when that runs, in every transform: once for each member
// of a vmap (but once in all if no argument is batched), on each device of a shard_map, in each
// turn of a loop, in the branch that is taken; under grad with the values of the forward pass, and
// not again where checkpoint computes something twice. Of a function of tangents that is
// transposed, what depends on these is not printed. A call of a program that prints returns when
// its lines are printed, in the order in which the ops stand; of a run that fails none is. What is
// printed are results of the program, which lie in the devices' memory until then: of a scan for
// all of its steps; of a while_loop, whose steps nobody knows before, for the first 999 and the
// last, or for fewer if they are large.
//
// Errors: VALUE_ERROR for a format that does not fit the arguments, also one that leaves one out;
// NOT_IMPLEMENTED in the cond_fun of a while_loop. Reference: jax.debug.print.
template <class... Args>
void debug_print(const internal::PrintFormat& format, const Args&... args) {
  internal::DebugPrint(format, {Arg(args, format.site)...});
}

}  // namespace tessera
