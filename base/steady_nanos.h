// Reads the machine's monotonic clock, for the code below base/clock.h.
#pragma once
#include <time.h>

#include <cstdint>

namespace tessera {

// Returns the time of CLOCK_MONOTONIC in nanoseconds. All processes of the machine share this
// clock, and nobody can set it. The origin of the clock is arbitrary. Async-signal-safe.
inline int64_t SteadyNanos() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace tessera
