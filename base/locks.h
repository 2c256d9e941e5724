// Called first in main. Debian's Abseil runs its deadlock detection at every lock, gRPC's included,
// which is too slow for release builds; builds with assertions keep it. Libraries leave the choice
// to the program.
#pragma once
#include "absl/synchronization/mutex.h"

namespace tessera {

inline void SkipDeadlockDetectionInRelease() {
#ifdef NDEBUG
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
}

}  // namespace tessera
