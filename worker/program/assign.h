// Buffer assignment: which values share memory, which are in a result (or in one row of it), and
// the arena offsets of the others.
//
// Two values share memory if a step can write one in place of the other: a copy, or a kernel that
// reads each element where it writes it. The arena is then filled greedily: the largest value
// first, into the smallest gap that no value alive at the same time uses. Deterministic; stateless;
// thread-safe.
#pragma once
#include "worker/program/fuse.h"

namespace tessera::worker::program {

StepProgram Assign(Lowered lowered, Fused fused);

}  // namespace tessera::worker::program
