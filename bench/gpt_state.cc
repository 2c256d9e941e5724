// Makes the numbers and the model that bench-compile, bench-jit and bench-trace start with. The
// numbers come from a hash of their position instead of a random generator, so that
// bench/compile_jax.py can compute the same numbers.
#include "bench/gpt_state.h"

#include <cmath>

namespace tessera::bench {
namespace {

using examples::Block;
using examples::Gpt;

double NumberAt(uint32_t salt, int64_t i) {
  const auto h = (static_cast<uint32_t>(i) + salt * 7919U) * 2654435761U;
  return (h >> 8) * 0x1p-24;  // [0, 1)
}

}  // namespace

Array Numbers(uint32_t salt, const ir::Dims& shape, double from, double to, DType dtype) {
  ir::Array a(dtype, shape);
  for (int64_t i = 0; i < a.num_elements(); ++i) a.Set(i, from + (to - from) * NumberAt(salt, i));
  return put(a);
}

ir::Array IntegersOnHost(uint32_t salt, int64_t limit, const ir::Dims& shape) {
  ir::Array a(kS32, shape);
  for (int64_t i = 0; i < a.num_elements(); ++i)
    a.Set(i, std::floor(NumberAt(salt, i) * static_cast<double>(limit)));
  return a;
}

examples::State GptState(int64_t layers) {
  using namespace examples;  // NOLINT(google-build-using-namespace): the sizes of the model
  uint32_t salt = 0;
  const auto weights = [&](const ir::Dims& shape) { return Numbers(++salt, shape, -0.1, 0.1); };
  const auto norm_scale = [&] { return Numbers(++salt, {kWidth}, 0.9, 1.1); };
  Gpt p;
  p.tokens = weights({kVocabulary, kWidth});
  p.positions = weights({kLength, kWidth});
  for (int64_t i = 0; i < layers; ++i) {
    Block block;
    block.norm1 = norm_scale();
    block.qkv = weights({kWidth, 3, kHeads, kHeadWidth});
    block.out = weights({kHeads, kHeadWidth, kWidth});
    block.norm2 = norm_scale();
    block.up = weights({kWidth, kHidden});
    block.down = weights({kHidden, kWidth});
    p.blocks.push_back(block);
  }
  p.norm = norm_scale();
  return {p, Optimizer().init(p)};
}

}  // namespace tessera::bench
