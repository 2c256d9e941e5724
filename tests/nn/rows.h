// Functions of nn.h and optim.h beside those of jax.nn and Optax: the rows of
// scripts/record_nn.py, in C++. rows_test.cc compares with recorded.jsonl.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "client/array.h"

namespace tessera::nn_rows {

struct Row {
  std::string name;
  // Of the dtype in which the row computes, and its inputs.
  std::function<Array(DType, const std::vector<Array>&)> f;
  // How far values may be from those recorded, in units in the last place, and derivatives in f64.
  double ulps64 = 4, ulps32 = 4, ulps_grads = 16;
  // Units are those of this number, if it is larger.
  double scale = 0;
};
const std::vector<Row>& Rows();

}  // namespace tessera::nn_rows
