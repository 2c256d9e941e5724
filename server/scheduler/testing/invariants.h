// The invariants of the state, which must hold after every step.
#pragma once
#include <string>

#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

// Returns "" if everything holds; otherwise describes what does not hold.
std::string FirstBrokenInvariant(const State& state);

}  // namespace tessera::server::scheduler
