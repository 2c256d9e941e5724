// Measured times, in microseconds, or other measured numbers, and their quantiles. A Samples can be
// copied. Thread-compatible.
#pragma once
#include <vector>

#include "absl/time/time.h"

namespace tessera::bench {

class Samples {
 public:
  void Add(absl::Duration time) { values_.push_back(absl::ToDoubleMicroseconds(time)); }
  void AddValue(double value) { values_.push_back(value); }
  void Add(const Samples& other);
  // Returns the quantile `q` of the samples: 0 is the smallest, 0.5 the median. Requires at least
  // one sample, and `q` in [0, 1].
  double Quantile(double q) const;
  size_t size() const { return values_.size(); }

 private:
  std::vector<double> values_;
};

}  // namespace tessera::bench
