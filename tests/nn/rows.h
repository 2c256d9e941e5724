// The rows of scripts/record_nn.py, written in C++: functions of nn.h and optim.h that have a
// counterpart in jax.nn or Optax. The script records the counterpart's results in recorded.jsonl,
// and rows_test.cc compares.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "client/array.h"

namespace tessera::nn_rows {

struct Row {
  std::string name;
  // Takes the dtype in which the row computes, and its inputs.
  std::function<Array(DType, const std::vector<Array>&)> f;
  // How far values and f64 derivatives may be from the recorded ones, in units in the last place.
  double ulps64 = 4, ulps32 = 4, ulps_grads = 16;
  // If a recorded value is smaller than this number, the unit is that of this number.
  double scale = 0;
};
const std::vector<Row>& Rows();

}  // namespace tessera::nn_rows
