// For the first line of a main. Abseil as Debian builds it looks for deadlocks whenever a lock is
// taken, gRPC's locks included, which no release build should pay for; builds with assertions keep
// it. A library leaves the choice to the program that it is linked to.
#pragma once
#include "absl/synchronization/mutex.h"

namespace tessera {

inline void SkipDeadlockDetectionInRelease() {
#ifdef NDEBUG
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
}

}  // namespace tessera
