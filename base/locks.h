// Turns Abseil's deadlock detection off. Debian's Abseil runs it at every lock, also at gRPC's
// locks, which is too slow for release builds. Builds with assertions keep it, as other builds of
// Abseil do. A program that wants it in its release build can turn it on again after it has opened
// a session.
#pragma once
#include "absl/synchronization/mutex.h"

namespace tessera {

// Benchmarks call this first in main, because they may also run in builds with assertions.
inline void DisableDeadlockDetection() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

// The daemons call this first in main, and the SDK calls it before a program's first session.
inline void DisableDeadlockDetectionInRelease() {
#ifdef NDEBUG
  DisableDeadlockDetection();
#endif
}

}  // namespace tessera
