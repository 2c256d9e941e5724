// Waits for another thread that spin for a bounded time: about 100 us, longer than it takes to put
// a thread to sleep and wake it. Where threads call each other often and each has a core, they then
// meet awake: one that spins for less would go to sleep just before the other, which it has woken,
// is there, and so would that one in its turn.
#pragma once
#include <algorithm>
#include <chrono>

#include "absl/functional/function_ref.h"

namespace tessera {

// Spins until `over()` is true, or too long. Returns whether it is. Thread-safe.
inline bool SpinUntil(absl::FunctionRef<bool()> over) {
  constexpr std::chrono::microseconds kTime{100};
  constexpr int kLooksAtOnce = 32;  // between two at the clock
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

// Of a thread that waits often, for what may be long in coming. After a wait that did not end while
// it spun (as when the machine is busy with other work, to which a thread that sleeps gives way,
// and before which it is woken), the next wait does not spin; after several in turn the next 31 do
// not. Thread-compatible.
class Spinner {
 public:
  // As SpinUntil, if that is worth it.
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
  int sleeps_ = 0;  // waits left that do not spin
  int next_sleeps_ = 1;
};

}  // namespace tessera
