// Reads the machine's clocks that nobody can set, for the code below base/clock.h.
#pragma once
#include <time.h>

#include <cstdint>

namespace tessera {

namespace internal {
inline int64_t NanosOf(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
}  // namespace internal

// Returns the time of CLOCK_MONOTONIC in nanoseconds. All processes of the machine share this
// clock, and nobody can set it. The origin of the clock is arbitrary. Async-signal-safe.
inline int64_t SteadyNanos() { return internal::NanosOf(CLOCK_MONOTONIC); }
// Like SteadyNanos, by CLOCK_BOOTTIME, which goes on while the machine sleeps.
inline int64_t BootNanos() { return internal::NanosOf(CLOCK_BOOTTIME); }

}  // namespace tessera
