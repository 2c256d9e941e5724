// Functions and arguments for tests of what runs device programs.
#pragma once
#include <cstdint>

#include "ir/array.h"
#include "ir/program.h"

namespace tessera::worker::program {

// A function of up to some dozens of ops on small arrays of whole numbers (s32 or f32), which are
// exact whatever the order: every op reads any values that fit, so that kernels share, overlap and
// end in all the ways there are. Its last param is a start for the dynamic ops. The seed alone
// decides, and the scope: with one axis, of manual lanes, there are sums over it.
ir::FunctionRef RandomProgram(uint32_t seed, const ir::Scope& scope = {});

// Small whole numbers of the type.
ir::Array WholeNumbers(const ir::Type& type, int salt);

}  // namespace tessera::worker::program
