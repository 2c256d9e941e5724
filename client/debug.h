// debug_nans: finds the op that first produces a NaN.
#pragma once
#include <string>
#include <vector>

#include "client/array.h"

namespace tessera {

// While an object of this class is in scope, every program that this thread runs, by jit or by a
// single op, is checked for NaNs. If a result has a NaN, the program is run again to look at the
// results of each op. Throws FLOATING_POINT_ERROR, whose message names the first op that produced a
// NaN, with its line, the element and the device that holds it, or the argument that already
// contained a NaN. With the check on, every call traces its function anew, and every run waits for
// its results and donates nothing. Outside any such scope, the environment variable
// TESSERA_DEBUG_NANS=1 turns the check on for the process. Reference: jax.debug_nans.
class [[nodiscard]] debug_nans {
 public:
  explicit debug_nans(bool enabled = true);
  ~debug_nans();
  debug_nans(const debug_nans&) = delete;
  debug_nans& operator=(const debug_nans&) = delete;

 private:
  const int saved_;
};

namespace internal {
struct TracedProgram;
// Returns whether runs are checked for NaNs on this thread.
bool DebugNans();
// Runs a program and checks its results. `args` has its arguments, then its captures.
std::vector<Array> RunCheckingNans(const TracedProgram& traced, const std::vector<Array>& args,
                                   const std::string& name, const Site& site);
}  // namespace internal
}  // namespace tessera
