// Arithmetic on counts of bytes, of programs whose arrays need not fit any machine: what is beyond
// an int64 is its largest.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>

namespace tessera::server::planner {

// bytes * times / by. Requires: none is negative, by > 0.
inline int64_t Times(int64_t bytes, int64_t times, int64_t by = 1) {
  const __int128 product = static_cast<__int128>(bytes) * times / by;
  return static_cast<int64_t>(std::min<__int128>(product, std::numeric_limits<int64_t>::max()));
}
inline int64_t Plus(int64_t a, int64_t b) {
  const __int128 sum = static_cast<__int128>(a) + b;
  return static_cast<int64_t>(std::min<__int128>(sum, std::numeric_limits<int64_t>::max()));
}

}  // namespace tessera::server::planner
