// Clocks that are passed in as arguments. Main functions and embed/ make a RealClock; code that is
// given a Clock reads the time from it alone, so that a test can set the time, and a recorded run
// can be repeated with its own times. Thread-safe. A Clock is owned by main (or the test) and
// outlives its users.
//
// Deadlines use the monotonic clock, which nobody can set. The wall clock is for the dates in
// texts, tokens and certificates.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

// Reads the machine's monotonic clock, which all processes of the machine share. The origin of the
// clock is arbitrary: only differences and comparisons are meaningful.
absl::Time SteadyNow();
// Returns the present time of the wall clock plus `in`. Use it for libraries that take a deadline
// as a date and at once convert the date to a duration.
std::chrono::system_clock::time_point WallDeadline(absl::Duration in);

class Clock {
 public:
  virtual ~Clock() = default;
  // Reads a monotonic clock that does not advance while this process is suspended. After a
  // suspension, therefore, the process still has time to handle the events that arrived meanwhile
  // before its deadlines and leases expire. The origin of the clock is arbitrary.
  virtual absl::Time Now() const = 0;
  // Returns SteadyNow(). Use it for deadlines that other processes check while this one may be
  // suspended.
  virtual absl::Time Steady() const = 0;
  virtual absl::Time Wall() const = 0;
  // The times of all three clocks at one moment.
  struct Moment {
    absl::Time now, steady, wall;
  };
  virtual Moment ReadAll() const { return {Now(), Steady(), Wall()}; }
};

// Measures the uptime of a process without the times in which it was suspended. The owner calls
// Advance every kTickInterval. If the gap between two calls is longer, only kMaxStep of it counts.
class AwakeTime {
 public:
  static constexpr absl::Duration kTickInterval = absl::Milliseconds(50);
  static constexpr int64_t kMaxStepNanos = 200'000'000;
  static constexpr absl::Duration kMaxStep = absl::Nanoseconds(kMaxStepNanos);

  explicit AwakeTime(absl::Time steady) : AwakeTime(absl::ToUnixNanos(steady)) {}
  absl::Time Advance(absl::Time steady) {
    return absl::FromUnixNanos(Advance(absl::ToUnixNanos(steady)));
  }
  // Like the constructor and the Advance above, but with times as integers, in nanoseconds. A
  // difference of integers takes one instruction.
  explicit AwakeTime(int64_t steady) : last_steady_(steady), now_(steady) {}
  int64_t Advance(int64_t steady);

 private:
  int64_t last_steady_, now_;
};

// The real clock. Now() advances an AwakeTime; the scheduler's driver calls Now() every
// kTickInterval. ReadAll() reads the wall clock only once per kWallReadInterval and adds the time
// that has passed since then. This is cheaper than reading the wall clock with each event, and a
// change of the wall clock is noticed at most kWallReadInterval later.
class RealClock final : public Clock {
 public:
  absl::Time Now() const override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Time Steady() const override;
  absl::Time Wall() const override;
  Moment ReadAll() const override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  static constexpr int64_t kWallReadInterval = 1'000'000;  // nanoseconds

  mutable absl::Mutex mu_;
  // The steady time at which the wall clock was last read, if ever, and how far the wall clock was
  // ahead of the steady clock then. Both are in nanoseconds.
  mutable std::optional<int64_t> wall_read_at_ ABSL_GUARDED_BY(mu_);
  mutable int64_t wall_ahead_ ABSL_GUARDED_BY(mu_) = 0;
  mutable AwakeTime awake_time_ ABSL_GUARDED_BY(mu_) = AwakeTime(SteadyNow());
};

// A clock for tests. It advances only when Advance is called.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::UnixEpoch()) : now_(start) {}

  absl::Time Now() const override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Time Steady() const override { return Now(); }
  absl::Time Wall() const override ABSL_LOCKS_EXCLUDED(mu_);
  // Advances all three clocks. `by` must not be negative.
  void Advance(absl::Duration by) ABSL_LOCKS_EXCLUDED(mu_);
  // Sets the wall clock forward or back.
  void StepWall(absl::Duration by) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable absl::Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_);
  absl::Duration wall_ahead_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera
