// Measures how far the results of a program are from the results of another program that should
// compute the same.
#pragma once
#include <cmath>
#include <vector>

#include "client/tessera.h"

namespace tessera::examples {

// Returns the largest difference between the elements of two trees. The differences of each array
// are relative to the largest element of that array in `want`.
template <class T>
double LargestRelativeDifference(const T& got, const T& want) {
  const std::vector<Array> a = flatten(got).leaves, b = flatten(want).leaves;
  double worst = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double difference = max(abs(a.at(i) - b[i])).template item<double>();
    // The comparison is written so that a NaN does not count as a small difference.
    const double relative = difference / max(abs(b[i])).template item<double>();
    if (!(relative <= worst)) worst = relative;
  }
  return worst;
}

}  // namespace tessera::examples
