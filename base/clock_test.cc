#include "base/clock.h"

#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(Clock, TheFakeMovesOnlyWhenTold) {
  FakeClock clock;
  EXPECT_EQ(clock.Now(), absl::UnixEpoch());
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Seconds(2));
}

TEST(Clock, TheRealOneIsPastTheEpoch) { EXPECT_GT(RealClock().Now(), absl::UnixEpoch()); }

}  // namespace
}  // namespace tessera
