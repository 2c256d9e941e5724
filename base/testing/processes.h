// Helpers for tests that watch processes: they read /proc, and wait for a condition with a time
// limit.
//
// The functions only read /proc; any thread may call them.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tessera::testing {

// Returns the pids of the children of a process, whichever of its threads started them.
std::vector<int> ChildrenOf(int pid);
// Returns the children of a process, their children, and so on.
std::vector<int> DescendantsOf(int pid);

// Returns whether the process no longer exists, or is dead and not yet reaped by its parent.
bool HasEnded(int pid);

// Returns the processor time that the process has used, in units of 1/100 s.
int64_t CpuTicks(int pid);

// Calls `condition()` every few milliseconds until it returns true. Returns false if that does not
// happen within `patience`.
template <class F>
bool Eventually(F condition, absl::Duration patience = absl::Seconds(20)) {
  const absl::Time end = absl::Now() + patience;
  absl::Notification never;
  while (!condition()) {
    if (absl::Now() > end) return false;
    never.WaitForNotificationWithTimeout(absl::Milliseconds(2));
  }
  return true;
}

}  // namespace tessera::testing
