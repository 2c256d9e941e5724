// Emits transcendental functions of f32 as LLVM IR, for math.h. Thread-compatible.
#pragma once
#include "worker/codegen/lanes.h"

namespace tessera::worker::codegen {

V ExpF32(V x);
V LogF32(V x);
V TanhF32(V x);
V ErfF32(V x);

}  // namespace tessera::worker::codegen
