// Proves which ends of a lease count as ends in a pause of the process. The times are given, so the
// tests do not depend on the speed of the machine.
#include "client/remote/lease_clock.h"

#include <gtest/gtest.h>

namespace tessera::remote {
namespace {

constexpr absl::Duration kLease = absl::Seconds(60);

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

// Returns the clock of a lease that was renewed at 0. The thread ran last at 5, when it began to
// wait for at most a second.
LeaseClock WaitingClock() {
  LeaseClock clock;
  clock.Renewed(At(0), kLease);
  clock.BeginWait(At(5), absl::Seconds(1));
  return clock;
}

TEST(LeaseClockTest, ALeaseThatHasNotEndedEndedInNoPause) {
  EXPECT_FALSE(WaitingClock().EndedInPause(At(59)));
  EXPECT_EQ(WaitingClock().lease_end(), At(60));
}

// The thread that renews has not run yet when another thread asks.
TEST(LeaseClockTest, APauseIsSeenBeforeTheThreadRunsAgain) {
  EXPECT_TRUE(WaitingClock().EndedInPause(At(70)));
}

TEST(LeaseClockTest, APauseIsRememberedAfterTheThreadHasRunAgain) {
  LeaseClock clock = WaitingClock();
  clock.EndWait(At(70));
  clock.BeginWait(At(70), absl::Seconds(1));
  EXPECT_TRUE(clock.EndedInPause(At(70.5)));
  clock.EndWait(At(71));
  EXPECT_TRUE(clock.EndedInPause(At(72)));
}

TEST(LeaseClockTest, ARenewalAfterAPauseShowsThatTheLeaseHasNotEnded) {
  LeaseClock clock = WaitingClock();
  clock.EndWait(At(70));
  clock.Renewed(At(70), kLease);
  EXPECT_FALSE(clock.EndedInPause(At(71)));
}

// The renewals failed while the process ran, say because the network was away.
TEST(LeaseClockTest, ALeaseThatEndsWhileTheProcessRunsEndsInNoPause) {
  LeaseClock clock;
  clock.Renewed(At(0), kLease);
  for (int second = 1; second < 70; ++second) {
    clock.BeginWait(At(second - 1), absl::Seconds(1));
    clock.EndWait(At(second + 0.05));
  }
  EXPECT_FALSE(clock.EndedInPause(At(70)));
}

TEST(LeaseClockTest, APauseAfterTheEndOfTheLeaseIsNotItsReason) {
  LeaseClock clock;
  clock.Renewed(At(0), kLease);
  clock.BeginWait(At(61), absl::Seconds(1));
  EXPECT_FALSE(clock.EndedInPause(At(100)));
  clock.EndWait(At(100));
  EXPECT_FALSE(clock.EndedInPause(At(101)));
}

}  // namespace
}  // namespace tessera::remote
