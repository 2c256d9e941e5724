// Numbers that look random, and a GPT made of them. bench/compile_jax.py makes the same numbers.
#pragma once
#include <cstdint>

#include "client/tessera.h"
#include "examples/gpt_model.h"

namespace tessera::bench {

// Returns numbers in [from, to). Another `salt` gives other numbers.
Array Numbers(uint32_t salt, const ir::Dims& shape, double from = -1, double to = 1,
              DType dtype = kF32);
// Returns integers in [0, limit), of dtype s32.
ir::Array IntegersOnHost(uint32_t salt, int64_t limit, const ir::Dims& shape);

// Returns the state with which a training of the model of examples/gpt.cc begins, with `layers`
// layers and parameters made by Numbers.
examples::State GptState(int64_t layers);

}  // namespace tessera::bench
