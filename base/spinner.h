// Waits for another thread by spinning (testing a condition in a loop without sleeping) for a
// bounded time: about 100 us, which is longer than it takes to put a thread to sleep and wake it.
// If two threads call each other often and each has a core, each then finds the other one awake.
// With a shorter spin, a thread that has just woken the other one would fall asleep before the
// other one runs and answers. The other one would then have to wake it in turn, and so on.
#pragma once
#include <algorithm>
#include <chrono>

#include "absl/functional/function_ref.h"

namespace tessera {

// Spins until `over()` is true or 100 us have passed. Returns whether `over()` was true.
// Thread-safe.
inline bool SpinUntil(absl::FunctionRef<bool()> over) {
  constexpr std::chrono::microseconds kTime{100};
  constexpr int kLooksAtOnce = 32;  // number of calls of `over` between two looks at the clock
  std::chrono::steady_clock::time_point end{};
  while (true) {
    for (int i = 0; i < kLooksAtOnce; ++i) {
      if (over()) return true;
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#endif
    }
    const auto now = std::chrono::steady_clock::now();
    if (end == decltype(end){}) end = now + kTime;
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
    if (sleeps_ > 0) {
      --sleeps_;
      return over();
    }
    if (SpinUntil(over)) {
      next_sleeps_ = 1;
      return true;
    }
    sleeps_ = next_sleeps_;
    next_sleeps_ = std::min(2 * next_sleeps_ + 1, kSleepsMax);
    return false;
  }

 private:
  static constexpr int kSleepsMax = 31;
  int sleeps_ = 0;  // how many of the next waits do not spin
  int next_sleeps_ = 1;
};

}  // namespace tessera
