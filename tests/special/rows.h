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
  // How far values in f64 and in f32 may be from those that JAX computes in f64, in units in the
  // last place. A limit above 4 in f32 is the distance that was measured, rounded up; JAX's own f32
  // is about as far away there, since the formula is the same.
  double ulps64 = 16, ulps32 = 4;
  // The points at which f32 is wrong, by their names in failures ("erf(0.500000)"). There the value
  // must be the one that JAX computes in f32.
  struct WrongInF32 {
    std::string point, reason;
  };
  std::vector<WrongInF32> wrong_in_f32 = {};
  // How far derivatives may be, in f64.
  double ulps_derivative = 64;
  // Units are those of these numbers, if they are larger.
  double scale = 0, derivative_scale = 0;
};
const std::vector<Row>& Rows();

}  // namespace tessera::special_rows
