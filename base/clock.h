// The time, passed in: only the edges read the real clock, so everything else can be tested and
// replayed at any time. Thread-safe. A Clock is owned by main (or the test) and outlives its users.
//
// What is decided is decided by a clock that nobody can set. The wall clock is for what people read
// and for what carries a date: tokens and certificates.
#pragma once
#include <chrono>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

// The machine's time that only goes forward, at one pace, the same in all of its processes. Where
// it began means nothing: only differences and orders do.
absl::Time SteadyNow();
// `in` from now as the wall clock has it at this moment, for libraries that take a date and turn it
// into a time to wait at once.
std::chrono::system_clock::time_point WallDeadline(absl::Duration in);

class Clock {
 public:
  virtual ~Clock() = default;
  // For deadlines and leases: it stands still while this process does, so that what came meanwhile
  // is looked at before anybody is judged to be late. Only differences and orders mean anything.
  virtual absl::Time Now() const = 0;
  // As SteadyNow, for deadlines that others check while we may stand still.
  virtual absl::Time Steady() const = 0;
  virtual absl::Time Wall() const = 0;
};

// How long a process has run, without the times that it stood still: somebody asks every kPulse, so
// of a longer silence only kLateMax is counted. The rest is how late the process was itself.
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

// Stands still until it is told to move.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::UnixEpoch()) : now_(start) {}

  absl::Time Now() const override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Time Steady() const override { return Now(); }
  absl::Time Wall() const override ABSL_LOCKS_EXCLUDED(mu_);
  // `by` must not be negative.
  void Advance(absl::Duration by) ABSL_LOCKS_EXCLUDED(mu_);
  // Somebody sets the wall clock; either way.
  void StepWall(absl::Duration by) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable absl::Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_);
  absl::Duration wall_ahead_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera
