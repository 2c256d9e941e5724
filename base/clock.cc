// Implements the clocks that are passed to the rest of the program. It also replaces the function
// by which Abseil lets a thread wait, so that setting the wall clock neither delays nor shortens
// waits in this process.
#include "base/clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "absl/base/config.h"
#include "absl/time/clock.h"
#include "base/check.h"

namespace tessera {

namespace {

int64_t SteadyNanos() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

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
  return awake_.Advance(SteadyNow());
}

Clock::Moment RealClock::Look() const {
  absl::MutexLock lock(&mu_);
  const int64_t steady = SteadyNanos();
  if (!wall_read_ || steady - *wall_read_ >= kWallEvery) {
    wall_read_ = steady;
    wall_ahead_ = absl::GetCurrentTimeNanos() - steady;
  }
  return {absl::FromUnixNanos(awake_.Advance(steady)), absl::FromUnixNanos(steady),
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

// Abseil lets the kernel wait until a date. Versions before 20230802 always do so; later ones do so
// if the caller gives a date, as gRPC does for its timers. When the wall clock is set back by an
// hour, a wait of one second would then take an hour. The function below defines Abseil's extension
// point for the wait of a thread. It turns the date back into a duration, which the kernel then
// measures by the monotonic clock.
#include "absl/synchronization/internal/create_thread_identity.h"
#include "absl/synchronization/internal/per_thread_sem.h"
#include "absl/synchronization/internal/waiter.h"

static_assert(ABSL_WAITER_MODE == ABSL_WAITER_MODE_FUTEX);
static_assert(sizeof(absl::synchronization_internal::Waiter) == sizeof(std::atomic<int32_t>));

// Waits until the calling thread's semaphore is posted or the timeout passes, and returns whether
// it was posted. This repeats the futex loop of Abseil's own waiter, because Abseil offers no way
// to replace only the clock; the static_asserts above check that its layout is still the same.
extern "C" __attribute__((visibility("default"))) bool ABSL_INTERNAL_C_SYMBOL(
    AbslInternalPerThreadSemWait)(absl::synchronization_internal::KernelTimeout timeout) {
  namespace internal = absl::synchronization_internal;
  auto* const identity = internal::GetOrCreateCurrentThreadIdentity();
  // The only member of absl's Waiter is the number of posts that are not yet consumed.
  auto* const posts =
      reinterpret_cast<std::atomic<int32_t>*>(internal::Waiter::GetWaiter(identity));
  timespec until = {};
  if (timeout.has_timeout()) {
    // The caller computed the date either from the kernel's time, as gRPC does, or from Abseil's
    // time, which follows a change of the clock up to two seconds later. We cannot tell which, so
    // we assume the clock that gives the shorter wait.
    const absl::Time date = absl::TimeFromTimespec(timeout.MakeAbsTimespec());
    const absl::Duration by_absl = date - absl::Now();
    const absl::Duration by_kernel = date - absl::FromChrono(std::chrono::system_clock::now());
    const absl::Duration wait =
        absl::AbsDuration(by_absl) < absl::AbsDuration(by_kernel) ? by_absl : by_kernel;
    until = absl::ToTimespec(tessera::SteadyNow() + std::max(wait, absl::ZeroDuration()));
  }
  while (true) {
    int32_t n = posts->load(std::memory_order_relaxed);
    while (n != 0) {
      if (posts->compare_exchange_weak(n, n - 1, std::memory_order_acquire,
                                       std::memory_order_relaxed))
        return true;
    }
    // The kernel reads `until` as an absolute time of CLOCK_MONOTONIC, since FUTEX_CLOCK_REALTIME
    // is not set.
    const int64_t error =
        syscall(SYS_futex, reinterpret_cast<int32_t*>(posts), FUTEX_WAIT_BITSET_PRIVATE, 0,
                timeout.has_timeout() ? &until : nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
    if (error != 0 && errno == ETIMEDOUT) return false;
  }
}
