// What must hold of the state after every step.
#pragma once
#include <string>

#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

// "" if everything holds; else what does not.
std::string FirstBrokenInvariant(const State& state);

}  // namespace tessera::server::scheduler
