// Where values lie: which share memory because one ends where the other begins, which are a
// result's or a row of one, and the arena for the rest.
//
// Values that a step could write in place (a copy, or a kernel that reads what it overwrites at the
// same element) share; then the arena is filled greedily, the largest first, into the smallest gap
// that no value alive at the same time touches. Deterministic; pure; any thread.
#pragma once
#include "worker/program/fuse.h"

namespace tessera::worker::program {

DeviceProgram Assign(Lowered lowered, Fused fused);

}  // namespace tessera::worker::program
