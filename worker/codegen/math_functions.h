// Transcendental functions as LLVM IR. See math.h, which decides what is offered; here are the
// formulas. Pure functions of the builder.
#pragma once
#include "worker/codegen/lanes.h"

namespace tessera::worker::codegen {

// Of f32 lanes.
V ExpF32(V x);
V LogF32(V x);
V TanhF32(V x);
V ErfF32(V x);

}  // namespace tessera::worker::codegen
