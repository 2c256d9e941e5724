// Test rows of the samplers of client/random.h. Each row has a sampler in C++ and the same call of
// jax.random in Python. scripts/check_samplers runs the Python in an installed JAX. It records a
// few samples of each row in recorded.jsonl, with which rows_test.cc compares, and it also compares
// many samples with those of dump_samplers.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/array.h"

namespace tessera::samplers {

struct Row {
  std::string name;
  std::string python;  // an expression in the key `k` and in `n`, with jr for jax.random, jnp, np
  std::function<Array(const Array& key, int64_t n)> sample;
  // How far a sample may be from JAX's: `ulps` units in the last place of the larger of `scale` and
  // the magnitude of JAX's sample. 0 means that samples must be equal.
  double ulps = 0;
  double scale = 0;
  // How many of a million samples may be quite different from JAX's. They occur where the
  // comparison of two close numbers decides about a sample.
  double other_per_million = 0;
  bool x64 = false;   // whether JAX must have its 64-bit types enabled
  bool rows = false;  // whether a sample is a vector along the last dim of the result
};
const std::vector<Row>& Rows();

}  // namespace tessera::samplers
