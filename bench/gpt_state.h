// Numbers that look random, the same as in bench/compile_jax.py, and a GPT made of them.
#pragma once
#include <cstdint>

#include "client/tessera.h"
#include "examples/gpt_model.h"

namespace tessera::bench {

// In [from, to).
Array Numbers(uint32_t salt, const ir::Dims& shape, double from = -1, double to = 1,
              DType dtype = kF32);
// Whole, in [0, limit), of s32.
ir::Array IntegersOnHost(uint32_t salt, int64_t limit, const ir::Dims& shape);

// The state of examples/gpt.cc with more layers: its first numbers.
examples::State GptState(int64_t layers);

}  // namespace tessera::bench
