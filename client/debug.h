// Finding out where numbers go wrong.
#pragma once
#include <string>
#include <vector>

#include "client/array.h"

namespace tessera {

// In scope, on this thread, what jit and ops outside of it run is checked for NaNs: if a result has
// one, the program is run again with a look at what each op answers, and an error names the first
// op that made one, with its line, the element and the device that holds it, or the argument that
// had one already. Every call traces its function anew. Errors: FLOATING_POINT_ERROR. Every run
// waits for its results, and donates nothing. Without a scope the environment variable
// TESSERA_DEBUG_NANS=1 says so for the process. Reference: jax.debug_nans.
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
// Whether runs are checked for NaNs here.
bool DebugNans();
// Runs a program and checks its results. `args`: its arguments, then what it captures.
std::vector<Array> RunCheckingNans(const TracedProgram& traced, const std::vector<Array>& args,
                                   const std::string& name, const Site& site);
}  // namespace internal
}  // namespace tessera
