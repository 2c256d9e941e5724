// Computes the statistics of measured times that every benchmark prints: medians and other
// quantiles. Quantile sorts a copy of the samples, and only as far as it needs, so that adding a
// sample is fast.
#include "bench/samples.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"

namespace tessera::bench {

void Samples::Add(const Samples& other) {
  values_.insert(values_.end(), other.values_.begin(), other.values_.end());
}

double Samples::Quantile(double q) const {
  TESSERA_CHECK(!values_.empty());
  std::vector<double> sorted = values_;
  const size_t k = static_cast<size_t>(std::lround(q * static_cast<double>(sorted.size() - 1)));
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<int64_t>(k), sorted.end());
  return sorted[k];
}

}  // namespace tessera::bench
