// Functions of ufuncs.h, shapes.h, statistics.h, products.h and linalg.h beside those of jax.numpy:
// the rows of scripts/record_numpy.py, in C++. rows_test.cc compares with recorded.jsonl.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "client/array.h"

namespace tessera::numpy_rows {

struct Row {
  std::string name;
  std::function<std::vector<Array>(const std::vector<Array>&)> f;
  // How far values may be from those recorded, in units in the last place, and derivatives in f64.
  double ulps64 = 4, ulps32 = 4, ulps_grads = 16;
  // Units are those of this number, if it is larger.
  double scale = 0;
};
const std::vector<Row>& Rows();

}  // namespace tessera::numpy_rows
