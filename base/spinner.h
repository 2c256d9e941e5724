// Waits for another thread by spinning (testing a condition in a loop without sleeping) for a
// bounded time: about 100 us, which is longer than it takes to put a thread to sleep and wake it.
// If two threads A and B call each other often and each has a core, each then finds the other
// awake. With a shorter spin, A would wake B and fall asleep before B runs and answers. B would
// then have to wake A in turn, and so on.
#pragma once
#include <algorithm>
#include <chrono>

#include "absl/functional/function_ref.h"

namespace tessera {

// Spins until `over()` is true or 100 us have passed. Returns whether `over()` was true.
// Thread-safe.
inline bool SpinUntil(absl::FunctionRef<bool()> over) {
  constexpr std::chrono::microseconds kSpinTime{100};
  constexpr int kCallsPerClockRead =
      32;  // number of calls of `over` between two reads of the clock
  std::chrono::steady_clock::time_point end{};
  while (true) {
    for (int i = 0; i < kCallsPerClockRead; ++i) {
      if (over()) return true;
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#endif
    }
    const auto now = std::chrono::steady_clock::now();
    if (end == decltype(end){}) end = now + kSpinTime;
    if (now >= end) return false;
  }
}

// Decides whether spinning is worthwhile for a thread that waits often, for events that may take
// long. After a spin that ended without success, the next wait does not spin; after further such
// spins in a row, the next 3, 7, 15 and at last 31 waits do not. If the machine is busy with other
// work, sleeping is better than spinning: a sleeping thread leaves its core to that work, and the
// kernel lets a thread that wakes run before it. Thread-compatible.
class Spinner {
 public:
  // Like SpinUntil, but returns `over()` at once if spinning is not worthwhile now.
  bool Until(absl::FunctionRef<bool()> over) {
    if (sleeps_left_ > 0) {
      --sleeps_left_;
      return over();
    }
    if (SpinUntil(over)) {
      sleeps_after_next_failure_ = 1;
      return true;
    }
    sleeps_left_ = sleeps_after_next_failure_;
    sleeps_after_next_failure_ = std::min(2 * sleeps_after_next_failure_ + 1, kSleepsMax);
    return false;
  }

 private:
  static constexpr int kSleepsMax = 31;
  int sleeps_left_ = 0;  // how many of the next waits do not spin
  int sleeps_after_next_failure_ = 1;
};

}  // namespace tessera
