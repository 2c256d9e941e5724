// Proves that the fake clock moves only when told, that the real clock goes forward, and that
// AwakeTime leaves out pauses of the process. clock_step_test.cc sets the wall clock during waits.
#include "base/clock.h"

#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(Clock, TheFakeClockMovesOnlyWhenTold) {
  FakeClock clock;
  EXPECT_EQ(clock.Now(), absl::UnixEpoch());
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Seconds(2));
}

TEST(Clock, OnlyTheWallClockCanBeSet) {
  FakeClock clock;
  clock.StepWall(-absl::Hours(1));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch());
  EXPECT_EQ(clock.Steady(), absl::UnixEpoch());
  EXPECT_EQ(clock.Wall(), absl::UnixEpoch() - absl::Hours(1));
}

TEST(Clock, TheRealClockGoesForward) {
  const RealClock clock;
  const absl::Time now = clock.Now(), steady = clock.Steady();
  EXPECT_GE(clock.Now(), now);
  EXPECT_GE(clock.Steady(), steady);
  EXPECT_GT(clock.Wall(), absl::FromUnixSeconds(1'000'000'000));
}

TEST(AwakeTime, LeavesOutPausesOfTheProcess) {
  const absl::Time start = absl::UnixEpoch() + absl::Hours(5);
  AwakeTime awake(start);
  absl::Time steady = start;
  for (int i = 0; i < 20; ++i) awake.Advance(steady += AwakeTime::kTickInterval);
  EXPECT_EQ(awake.Advance(steady) - start, absl::Seconds(1));
  // The process is stopped for ten seconds, for example by a debugger, a hypervisor or a disk.
  EXPECT_EQ(awake.Advance(steady += absl::Seconds(10)) - start,
            absl::Seconds(1) + AwakeTime::kMaxStep);
  EXPECT_EQ(awake.Advance(steady += AwakeTime::kTickInterval) - start,
            absl::Seconds(1) + AwakeTime::kMaxStep + AwakeTime::kTickInterval);
}

}  // namespace
}  // namespace tessera
