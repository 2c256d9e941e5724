// Emits transcendental functions of f32 as LLVM IR, for math.h. They compute in f32 and are within
// 2 ulp. Thread-compatible.
#pragma once
#include "worker/codegen/lanes.h"

namespace tessera::worker::codegen {

V ExpF32(V x);
V LogF32(V x);
V TanhF32(V x);
V ErfF32(V x);

}  // namespace tessera::worker::codegen
