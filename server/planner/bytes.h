// Saturating arithmetic on counts of bytes: a result beyond an int64 becomes the largest int64. A
// program that is only planned, for absent devices, may have arrays that fit no machine.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>

namespace tessera::server::planner {

// Returns bytes * factor / divisor. Requires: no argument is negative, and divisor > 0.
inline int64_t Times(int64_t bytes, int64_t factor, int64_t divisor = 1) {
  const __int128 product = static_cast<__int128>(bytes) * factor / divisor;
  return static_cast<int64_t>(std::min<__int128>(product, std::numeric_limits<int64_t>::max()));
}
inline int64_t Plus(int64_t a, int64_t b) {
  const __int128 sum = static_cast<__int128>(a) + b;
  return static_cast<int64_t>(std::min<__int128>(sum, std::numeric_limits<int64_t>::max()));
}

}  // namespace tessera::server::planner
