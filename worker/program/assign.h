// Buffer assignment: which values share memory, which values lie in a result (or in one row of it),
// and the arena offsets of the others.
//
// Two values may share memory if one step can write the second in place of the first. That step is
// a copy, or a kernel that reads each element of the first only to write the same element of the
// second. The arena, one block of memory for all other values, is then filled greedily: the largest
// value first, each into the smallest gap between the values that are alive at the same time.
// Deterministic; stateless; thread-safe.
#pragma once
#include "worker/program/fuse.h"

namespace tessera::worker::program {

StepProgram Assign(LoweredFunction lowered, FusedFunction fused);

}  // namespace tessera::worker::program
