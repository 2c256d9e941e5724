// Functions and arguments for tests of the code that runs device programs.
#pragma once
#include <cstdint>

#include "ir/array.h"
#include "ir/program.h"

namespace tessera::worker::program {

// Returns a function of up to some dozens of ops on small arrays of whole numbers (s32 or f32),
// whose sums are exact in any order of addition. Every op reads values that are drawn from all
// earlier ones that fit, so that kernels share, overlap and end in all possible ways. The last
// param, an s32, is an index at which dynamic slices and updates may start. The result depends only
// on the seed and the scope. If the mesh of the scope has one Manual axis, the function also has
// sums over this axis.
ir::FunctionRef RandomProgram(uint32_t seed, const ir::Scope& scope = {});

// Returns an array of the type with small whole numbers, which depend on `salt`.
ir::Array WholeNumbers(const ir::Type& type, int salt);

}  // namespace tessera::worker::program
