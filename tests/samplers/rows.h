// The samplers of client/random.h beside those of jax.random: what each row computes here, and the
// same in Python. rows_test.cc compares a few samples of each with recorded.jsonl;
// scripts/check_samplers records them, and compares many with an installed JAX.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/array.h"

namespace tessera::samplers {

struct Row {
  std::string name;
  std::string python;  // of key `k` and `n`, with jr for jax.random, jnp and np
  std::function<Array(const Array& key, int64_t n)> sample;
  // How far a sample may be from JAX's, in units in the last place of the larger of its size and
  // `scale`. 0: not at all.
  double ulps = 0;
  double scale = 0;
  // Of a million samples so many may be others: where a comparison of close numbers decides.
  double other_per_million = 0;
  bool x64 = false;   // JAX needs its 64-bit types
  bool rows = false;  // the last dim of the result is no sample of its own
};
const std::vector<Row>& Rows();

}  // namespace tessera::samplers
