// The rules by which a Lease tells the end of its lease in a pause of this process from an end for
// any other reason.
#include "client/remote/lease_clock.h"

#include "base/steady_nanos.h"

namespace tessera::remote {
namespace {

// A thread may come back from its wait this much later because the machine is busy.
constexpr absl::Duration kLateAtMost = absl::Milliseconds(100);

}  // namespace

absl::Time LeaseClock::Now() { return absl::FromUnixNanos(BootNanos()); }

void LeaseClock::BeginWait(absl::Time now, absl::Duration bound) {
  ran_at_ = now;
  runs_again_by_ = now + bound;
}

void LeaseClock::EndWait(absl::Time now) {
  if (now > runs_again_by_ + kLateAtMost) {
    pause_begin_ = ran_at_;
    pause_end_ = now;
  }
  BeginWait(now, absl::InfiniteDuration());
}

// Another thread may ask before the thread that renews has run again. In that case the pause lasts
// until now.
bool LeaseClock::EndedInPause(absl::Time now) const {
  if (now < lease_end_) return false;
  if (now > runs_again_by_ + kLateAtMost && ran_at_ < lease_end_) return true;
  return pause_begin_ < lease_end_ && lease_end_ <= pause_end_;
}

}  // namespace tessera::remote
