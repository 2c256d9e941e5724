// Test rows of functions of nn.h and optim.h that have a counterpart in jax.nn or Optax. Each row
// exists twice under one name: here in C++, and in scripts/record_nn.py with the counterpart in
// Python. The script records the counterpart's results in recorded.jsonl, and rows_test.cc compares
// the C++ results with them.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "client/array.h"

namespace tessera::nn_rows {

struct Row {
  std::string name;
  // The function to test. It takes the dtype in which the row computes, and the recorded inputs.
  std::function<Array(DType, const std::vector<Array>&)> f;
  // How far values in f64, values in f32, and derivatives in f64 may be from the recorded ones, in
  // units in the last place of the recorded number.
  double ulps64 = 4, ulps32 = 4, ulps_grads = 16;
  // If a recorded number is smaller than `scale`, the unit is that of `scale`.
  double scale = 0;
};
const std::vector<Row>& Rows();

}  // namespace tessera::nn_rows
