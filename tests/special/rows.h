// Special functions beside those of JAX: what each row computes here, the same in Python, and
// where. rows_test.cc compares with recorded.jsonl, which scripts/record_special.py writes.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "client/array.h"

namespace tessera::special_rows {

using Columns = std::vector<std::vector<double>>;  // the points, one vector for each argument

struct Row {
  std::string name;
  std::string python;  // of arguments x[0], x[1], ..., with jsp for jax.scipy.special, and lax
  std::function<Array(const std::vector<Array>&)> f;
  Columns points;
  std::vector<int> derivatives;  // the arguments by which it has derivatives
  // How far values may be from those that JAX computes in f64, in units in the last place: in f64;
  // and in f32 at least so far as JAX is in f32.
  double ulps64 = 16, ulps32 = 4;
  // And derivatives, in f64.
  double ulps_derivative = 64;
  // Units are those of these numbers, if they are larger.
  double scale = 0, derivative_scale = 0;
};
const std::vector<Row>& Rows();

}  // namespace tessera::special_rows
