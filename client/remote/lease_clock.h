// Finds out whether a lease ended while this process did not run: the process was stopped by a
// signal or a debugger, or its machine slept.
//
// The thread that renews the lease says before each wait how long it waits at most. If it comes
// back far later, the process did not run in between. All times are those of one clock that goes on
// while the machine sleeps. Thread-compatible.
#pragma once
#include "absl/time/time.h"

namespace tessera::remote {

class LeaseClock {
 public:
  // Returns the present time of the clock.
  static absl::Time Now();

  // Notes that the lease was opened or renewed by a call that was sent at `sent`.
  void Renewed(absl::Time sent, absl::Duration lease) { lease_end_ = sent + lease; }
  // Notes that the thread begins to wait, for at most `bound`, or that it runs again.
  void BeginWait(absl::Time now, absl::Duration bound);
  void EndWait(absl::Time now);

  // Returns when the lease ends unless it is renewed. The server counts from when it receives the
  // call, so at the server the lease ends a little later.
  absl::Time lease_end() const { return lease_end_; }
  // Returns whether the lease ended while this process did not run.
  bool EndedInPause(absl::Time now) const;

 private:
  absl::Time lease_end_ = absl::InfiniteFuture();
  absl::Time ran_at_ = absl::InfinitePast();           // when the thread last ran
  absl::Time runs_again_by_ = absl::InfiniteFuture();  // when its wait ends at the latest
  // The last time in which the process did not run.
  absl::Time pause_begin_ = absl::InfinitePast(), pause_end_ = absl::InfinitePast();
};

}  // namespace tessera::remote
