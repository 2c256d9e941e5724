// Test rows of the special functions of the SDK. Each row has a function in C++, the same
// expression in Python, and the points at which both are computed. scripts/record_special.py runs
// the Python in an installed JAX and writes recorded.jsonl; rows_test.cc compares the C++ results
// with it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "client/array.h"

namespace tessera::special_rows {

using Columns = std::vector<std::vector<double>>;  // the points, one vector for each argument

struct Row {
  std::string name;
  std::string python;  // an expression in x[0], x[1], ...; jsp is jax.scipy.special, lax jax.lax
  std::function<Array(const std::vector<Array>&)> f;
  Columns points;
  std::vector<int> derivatives;  // indices of the arguments by which derivatives exist
  // How far values in f64 and in f32 may be from the values that JAX computes in f64, in units in
  // the last place. A limit above 4 for f32 is the distance that was measured, rounded up. JAX's
  // own f32 values are about as far off at these points, because JAX uses the same formula.
  double ulps64 = 16, ulps32 = 4;
  // The points at which a value in f32 is wrong, written as in the messages of failures
  // ("erf(0.500000)"). At these points the value must equal the value that JAX computes in f32.
  struct WrongInF32 {
    std::string point, reason;
  };
  std::vector<WrongInF32> wrong_in_f32 = {};
  // How far f64 derivatives may be from JAX's, in units in the last place.
  double ulps_derivative = 64;
  // If an expected value or derivative is smaller than this number, the unit is that of this
  // number.
  double scale = 0, derivative_scale = 0;
};
const std::vector<Row>& Rows();

}  // namespace tessera::special_rows
