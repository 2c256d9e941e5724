// The time, passed in: only the edges read the real clock, so everything else can be tested and
// replayed at any time. Thread-safe. A Clock is owned by main (or the test) and outlives its users.
//
// Decisions are made by the monotonic clock, which cannot be set. The wall clock is for what people
// read and for what carries a date: tokens and certificates.
#pragma once
#include <chrono>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

// The machine's monotonic clock, the same in all of its processes. Its origin is arbitrary: only
// differences and orders mean anything.
absl::Time SteadyNow();
// The wall clock's present time plus `in`, for libraries that take a deadline as a date and convert
// it to a duration at once.
std::chrono::system_clock::time_point WallDeadline(absl::Duration in);

class Clock {
 public:
  virtual ~Clock() = default;
  // For deadlines and leases: it does not advance while this process is stopped, so that events
  // that came meanwhile are handled before deadlines expire. Only differences and orders count.
  virtual absl::Time Now() const = 0;
  // SteadyNow, for deadlines that other processes check while this one may be stopped.
  virtual absl::Time Steady() const = 0;
  virtual absl::Time Wall() const = 0;
};

// How long a process has run, without the times that it was stopped: its owner asks every kPulse,
// so of a longer gap only kLateMax is counted. The rest is how late the process itself was.
class AwakeTime {
 public:
  static constexpr absl::Duration kPulse = absl::Milliseconds(50);
  static constexpr absl::Duration kLateMax = absl::Milliseconds(200);

  explicit AwakeTime(absl::Time steady) : asked_(steady), now_(steady) {}
  absl::Time Ask(absl::Time steady);

 private:
  absl::Time asked_, now_;
};

// Now is an AwakeTime, which the scheduler's driver keeps going.
class RealClock final : public Clock {
 public:
  absl::Time Now() const override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Time Steady() const override;
  absl::Time Wall() const override;

 private:
  mutable absl::Mutex mu_;
  mutable AwakeTime awake_ ABSL_GUARDED_BY(mu_) = AwakeTime(SteadyNow());
};

// A clock for tests, which advances only when told to.
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
