// How far a program's results are from those of another one that should give the same.
#pragma once
#include <cmath>
#include <vector>

#include "client/tessera.h"

namespace tessera::examples {

// The largest difference of two trees' elements, of each array in parts of its largest element.
template <class T>
double Difference(const T& got, const T& want) {
  const std::vector<Array> a = flatten(got).leaves, b = flatten(want).leaves;
  double worst = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double off = max(abs(a.at(i) - b[i])).template item<double>();
    // Written so that a NaN is no small difference.
    const double relative = off / max(abs(b[i])).template item<double>();
    if (!(relative <= worst)) worst = relative;
  }
  return worst;
}

}  // namespace tessera::examples
