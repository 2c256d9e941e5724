// Buffer assignment: which values share memory, which values lie in a result (or in one row of it),
// and the arena offsets of the others.
//
// Two values share memory if a step can write one in place of the other. That step is a copy, or a
// kernel that reads each element where it writes it. The arena is then filled greedily: the largest
// value first, into the smallest gap that no value uses at the same time. Deterministic; stateless;
// thread-safe.
#pragma once
#include "worker/program/fuse.h"

namespace tessera::worker::program {

StepProgram Assign(Lowered lowered, Fused fused);

}  // namespace tessera::worker::program
