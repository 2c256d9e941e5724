// Debian's Abseil runs its deadlock detection at every lock, gRPC's included, which is too slow for
// release builds; builds with assertions keep it, as other builds of Abseil do. A program that
// wants it in its release turns it on once it has a session.
#pragma once
#include "absl/synchronization/mutex.h"

namespace tessera {

// Called first by benchmarks that are run in builds with assertions, too.
inline void SkipDeadlockDetection() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

// Called first in main, and by the SDK before a program's first session.
inline void SkipDeadlockDetectionInRelease() {
#ifdef NDEBUG
  SkipDeadlockDetection();
#endif
}

}  // namespace tessera
