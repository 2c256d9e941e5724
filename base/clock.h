// The time, passed in: only the edges read the real clock, so everything else can be tested and
// replayed at any time. Thread-safe. A Clock is owned by main (or the test) and outlives its users.
#ifndef TESSERA_BASE_CLOCK_H_
#define TESSERA_BASE_CLOCK_H_

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

// The machine's wall clock.
class RealClock final : public Clock {
 public:
  absl::Time Now() const override;
};

// Stands still until it is told to move.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::UnixEpoch()) : now_(start) {}

  absl::Time Now() const override ABSL_LOCKS_EXCLUDED(mu_);
  // `by` must not be negative.
  void Advance(absl::Duration by) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable absl::Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera

#endif  // TESSERA_BASE_CLOCK_H_
