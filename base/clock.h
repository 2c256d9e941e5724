// The time, passed in: only the edges read the real clock, so everything else can be tested and
// replayed at any time. Thread-safe. A Clock is owned by main (or the test) and outlives its users.
//
// Deadlines use the monotonic clock, which cannot be set. The wall clock is for dates: in texts,
// tokens and certificates.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

// The machine's monotonic clock, shared by all its processes. Its origin is arbitrary: only
// differences and comparisons are meaningful.
absl::Time SteadyNow();
// The wall clock's present time plus `in`, for libraries that take a deadline as a date and convert
// it to a duration at once.
std::chrono::system_clock::time_point WallDeadline(absl::Duration in);

class Clock {
 public:
  virtual ~Clock() = default;
  // A monotonic clock that does not advance while this process is suspended, so that events
  // received meanwhile are handled before deadlines and leases expire. Its origin is arbitrary.
  virtual absl::Time Now() const = 0;
  // SteadyNow(), for deadlines that other processes check while this one may be suspended.
  virtual absl::Time Steady() const = 0;
  virtual absl::Time Wall() const = 0;
  // All three at one moment.
  struct Moment {
    absl::Time now, steady, wall;
  };
  virtual Moment Look() const { return {Now(), Steady(), Wall()}; }
};

// The uptime of a process without the times in which it was suspended: the owner calls Advance
// every kTickInterval, and of a longer gap only kMaxStep counts.
class AwakeTime {
 public:
  static constexpr absl::Duration kTickInterval = absl::Milliseconds(50);
  static constexpr int64_t kMaxStepNanos = 200'000'000;
  static constexpr absl::Duration kMaxStep = absl::Nanoseconds(kMaxStepNanos);

  explicit AwakeTime(absl::Time steady) : AwakeTime(absl::ToUnixNanos(steady)) {}
  absl::Time Advance(absl::Time steady) {
    return absl::FromUnixNanos(Advance(absl::ToUnixNanos(steady)));
  }
  // The same in nanoseconds, of which a difference takes one instruction.
  explicit AwakeTime(int64_t steady) : last_steady_(steady), now_(steady) {}
  int64_t Advance(int64_t steady);

 private:
  int64_t last_steady_, now_;
};

// Now() is an AwakeTime; the scheduler's driver calls it every kTickInterval. Look() reads the wall
// clock once in kWallEvery, and adds to that what has passed since: it is cheaper than to read it
// with each event, and a change of the wall clock is seen that much later.
class RealClock final : public Clock {
 public:
  absl::Time Now() const override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Time Steady() const override;
  absl::Time Wall() const override;
  Moment Look() const override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  static constexpr int64_t kWallEvery = 1'000'000;  // nanoseconds

  mutable absl::Mutex mu_;
  // In nanoseconds: when the wall clock was read, if ever, and how far it was ahead of the steady
  // one.
  mutable std::optional<int64_t> wall_read_ ABSL_GUARDED_BY(mu_);
  mutable int64_t wall_ahead_ ABSL_GUARDED_BY(mu_) = 0;
  mutable AwakeTime awake_ ABSL_GUARDED_BY(mu_) = AwakeTime(SteadyNow());
};

// A clock for tests, which advances only by Advance.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::UnixEpoch()) : now_(start) {}

  absl::Time Now() const override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Time Steady() const override { return Now(); }
  absl::Time Wall() const override ABSL_LOCKS_EXCLUDED(mu_);
  // `by` must not be negative.
  void Advance(absl::Duration by) ABSL_LOCKS_EXCLUDED(mu_);
  // Sets the wall clock forward or back.
  void StepWall(absl::Duration by) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable absl::Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_);
  absl::Duration wall_ahead_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera
