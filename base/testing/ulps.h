// Measures how far a computed number is from an expected one, for tests that compare with recorded
// results.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {

// How numbers below the smallest normal number are compared. XLA flushes them to zero, so that a
// result of XLA may be zero in place of such a number.
enum class Subnormals { kAreNumbers, kAreZero };

// Returns the distance of two numbers in units in the last place of `want` or, if that is smaller,
// of `scale`. `digits` is 52 for numbers of type f64 and 23 for those of type f32. The distance of
// two NaNs and of equal numbers is 0. The distance of an infinity or a NaN from any other number is
// infinite.
inline double DistanceInUlps(double got, double want, int digits, double scale,
                             Subnormals subnormals = Subnormals::kAreNumbers) {
  if (got == want || (std::isnan(got) && std::isnan(want))) return 0;
  if (!std::isfinite(got) || !std::isfinite(want)) return std::numeric_limits<double>::infinity();
  const double smallest_normal = digits == 52 ? 0x1p-1022 : 0x1p-126;
  if (subnormals == Subnormals::kAreZero && std::fabs(got) < smallest_normal &&
      std::fabs(want) < smallest_normal)
    return 0;
  return std::fabs(got - want) / std::ldexp(std::max(std::fabs(want), scale), -digits);
}

}  // namespace tessera
