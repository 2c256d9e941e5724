// Functions and arguments for tests of the code that runs device programs.
#pragma once
#include <cstdint>

#include "ir/array.h"
#include "ir/program.h"

namespace tessera::worker::program {

// Returns a function of up to some dozens of ops on small arrays of whole numbers (s32 or f32),
// which are exact in any order. Every op reads any values that fit, so that kernels share, overlap
// and end in all possible ways. The last param is a start for the dynamic ops. The result depends
// only on the seed and the scope. If the scope has one axis, of manual lanes, there are sums over
// it.
ir::FunctionRef RandomProgram(uint32_t seed, const ir::Scope& scope = {});

// Returns an array of the type with small whole numbers.
ir::Array WholeNumbers(const ir::Type& type, int salt);

}  // namespace tessera::worker::program
