// For tests that watch processes: what /proc says of them, and waiting for it with a bound.
//
// Pure readers of /proc; any thread may call them.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tessera::testing {

// Pids of the children of a process, whichever of its threads started them.
std::vector<int> ChildrenOf(int pid);
// The children, theirs, and so on.
std::vector<int> DescendantsOf(int pid);

// Gone, or dead and not yet reaped by its parent.
bool HasEnded(int pid);

// What the process has used of the CPUs, in 1/100 s.
int64_t CpuTicks(int pid);

// Looks until `there()` holds; false when it does not within `patience`.
template <class F>
bool Eventually(F there, absl::Duration patience = absl::Seconds(20)) {
  const absl::Time end = absl::Now() + patience;
  absl::Notification never;
  while (!there()) {
    if (absl::Now() > end) return false;
    never.WaitForNotificationWithTimeout(absl::Milliseconds(2));
  }
  return true;
}

}  // namespace tessera::testing
