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

  // Returns the time until the deadline, or zero if it has passed.
  absl::Duration Left() const {
    return std::max(absl::ZeroDuration(), absl::FromChrono(at_ - std::chrono::steady_clock::now()));
  }
  bool Passed() const { return std::chrono::steady_clock::now() >= at_; }

  friend bool operator<(const Deadline& a, const Deadline& b) { return a.at_ < b.at_; }
  // Returns the deadline that is later by `by`, which may be negative.
  friend Deadline operator+(Deadline deadline, absl::Duration by) {
    deadline.at_ +=
        absl::ToChronoNanoseconds(std::clamp(by, -absl::Hours(24 * 365), absl::Hours(24 * 365)));
    return deadline;
  }
  friend absl::Duration operator-(const Deadline& a, const Deadline& b) {
    return absl::FromChrono(a.at_ - b.at_);
  }

  // Returns the time left, for poll(2). It is rounded up, so that the deadline has passed when a
  // poll(2) of this length times out.
  int PollMillis() const {
    const int64_t millis = absl::ToInt64Milliseconds(absl::Ceil(Left(), absl::Milliseconds(1)));
    return static_cast<int>(std::min<int64_t>(millis, 1 << 30));
  }

 private:
  std::chrono::steady_clock::time_point at_;
};

}  // namespace tessera::worker
