// Implements the clocks that are passed to the rest of the program. A program that links this file
// also gets the waits of base/steady_wait.h.
#include "base/clock.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "base/check.h"
#include "base/steady_nanos.h"
#include "base/steady_wait.h"

namespace tessera {
namespace {

// Links base/steady_wait.cc, as its header explains.
[[gnu::used]] const bool* const kSteadyWait = &internal::kWaitsAreSteady;

}  // namespace

absl::Time SteadyNow() { return absl::FromUnixNanos(SteadyNanos()); }

std::chrono::system_clock::time_point WallDeadline(absl::Duration in) {
  // The duration is clamped so that the sum does not overflow.
  return std::chrono::system_clock::now() +
         absl::ToChronoNanoseconds(std::clamp(in, absl::ZeroDuration(), absl::Hours(24 * 365)));
}

int64_t AwakeTime::Advance(int64_t steady) {
  now_ += std::clamp<int64_t>(steady - last_steady_, 0, kMaxStepNanos);
  last_steady_ = std::max(last_steady_, steady);
  return now_;
}

absl::Time RealClock::Now() const {
  absl::MutexLock lock(&mu_);
  return awake_time_.Advance(SteadyNow());
}

Clock::Moment RealClock::ReadAll() const {
  absl::MutexLock lock(&mu_);
  const int64_t steady = SteadyNanos();
  if (!wall_read_at_ || steady - *wall_read_at_ >= kWallReadInterval) {
    wall_read_at_ = steady;
    wall_ahead_ = absl::GetCurrentTimeNanos() - steady;
  }
  return {absl::FromUnixNanos(awake_time_.Advance(steady)), absl::FromUnixNanos(steady),
          absl::FromUnixNanos(steady + wall_ahead_)};
}

absl::Time RealClock::Steady() const { return SteadyNow(); }
absl::Time RealClock::Wall() const { return absl::Now(); }

absl::Time FakeClock::Now() const {
  absl::MutexLock lock(&mu_);
  return now_;
}

absl::Time FakeClock::Wall() const {
  absl::MutexLock lock(&mu_);
  return now_ + wall_ahead_;
}

void FakeClock::Advance(absl::Duration by) {
  TESSERA_CHECK(by >= absl::ZeroDuration()) << "by=" << by;
  absl::MutexLock lock(&mu_);
  now_ += by;
}

void FakeClock::StepWall(absl::Duration by) {
  absl::MutexLock lock(&mu_);
  wall_ahead_ += by;
}

}  // namespace tessera
