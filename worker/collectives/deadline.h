// A point in monotonic time by which a call must have ended. Deadline is a value type.
#pragma once
#include <algorithm>
#include <chrono>

#include "absl/time/time.h"

namespace tessera::worker {

class Deadline {
 public:
  explicit Deadline(absl::Duration from_now)
      : at_(std::chrono::steady_clock::now() +
            absl::ToChronoNanoseconds(
                std::clamp(from_now, absl::ZeroDuration(), absl::Hours(24 * 365)))) {}

  // Never negative.
  absl::Duration Left() const {
    return std::max(absl::ZeroDuration(), absl::FromChrono(at_ - std::chrono::steady_clock::now()));
  }
  bool Passed() const { return std::chrono::steady_clock::now() >= at_; }

  // The time left, for poll(2). It is rounded up, so that a wait that times out has passed the
  // deadline.
  int PollMillis() const {
    const int64_t millis = absl::ToInt64Milliseconds(absl::Ceil(Left(), absl::Milliseconds(1)));
    return static_cast<int>(std::min<int64_t>(millis, 1 << 30));
  }

 private:
  std::chrono::steady_clock::time_point at_;
};

}  // namespace tessera::worker
