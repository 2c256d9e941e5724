// Replaces the function by which Abseil lets a thread wait. Abseil's mutexes and notifications call
// it, and so does gRPC through them.
//
// Abseil lets the kernel wait until a date. Versions before 20230802 always do so; later ones do so
// if the caller gives a date, as gRPC does for its timers. When the wall clock is set back by an
// hour, a wait of one second would then take an hour. The function below defines Abseil's extension
// point for the wait of a thread. It turns the date back into a duration, which the kernel then
// measures by the monotonic clock. Reference: docs/decisions/0033.
#include "base/steady_wait.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/base/config.h"
#include "absl/synchronization/internal/create_thread_identity.h"
#include "absl/synchronization/internal/per_thread_sem.h"
#include "absl/synchronization/internal/waiter.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/steady_nanos.h"

namespace tessera::internal {

const bool kWaitsAreSteady = true;

}  // namespace tessera::internal

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
    until = absl::ToTimespec(absl::FromUnixNanos(tessera::SteadyNanos()) +
                             std::max(wait, absl::ZeroDuration()));
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
