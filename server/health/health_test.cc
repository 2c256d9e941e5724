// Proves how each check of the verdict follows from readings, canaries and time. The state machine
// is driven directly: the test advances the clock, sets the executors and ends the canaries.
#include "server/health/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera::server::health {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kInterval = absl::Seconds(10), kTimeout = absl::Seconds(2);

class HealthTest : public ::testing::Test {
 protected:
  HealthTest() : health_(Config{.interval = kInterval, .timeout = kTimeout}) {
    health_.LoopReplied(now_);
  }

  static core::ExecutorReading Executor(const std::string& worker, int devices = 2,
                                        uint64_t incarnation = 1) {
    core::ExecutorReading x;
    x.name = worker + "/0";
    x.worker = worker;
    x.device_kind = "cpu";
    x.incarnation = incarnation;
    // Any ids will do, as long as they differ between executors.
    const int64_t first = worker.back() * 10;
    for (int d = 0; d < devices; ++d) x.devices.push_back(first + d);
    x.alive = true;
    return x;
  }

  // Advances the time. Then the loop replies, and the executors are read as they are in `there_`.
  void Pass(absl::Duration time) {
    now_ += time;
    health_.LoopReplied(now_);
    health_.Read(there_, now_);
  }
  // Starts all canaries that are due and ends them with `result`, until none is due.
  std::vector<Canary> RunDue(CanaryResult result = CanaryResult::kOk) {
    std::vector<Canary> all;
    for (std::vector<Canary> due = health_.Due(now_); !due.empty(); due = health_.Due(now_)) {
      for (const Canary& canary : due) {
        health_.End(canary.id, result, "why", now_);
        all.push_back(canary);
      }
    }
    return all;
  }
  Verdict Evaluate() const { return health_.Evaluate(now_); }
  Reason Progress() const { return Evaluate().progressing.reason; }

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::vector<core::ExecutorReading> there_;
  Health health_;
};

TEST_F(HealthTest, WithoutDevicesItLivesAndIsNotReady) {
  Pass(absl::Seconds(1));
  EXPECT_TRUE(Evaluate().live.ok());
  EXPECT_EQ(Evaluate().ready.reason, Reason::kNoDevices);
  EXPECT_EQ(Progress(), Reason::kNoDevices);
  EXPECT_THAT(health_.Due(now_), IsEmpty());
}

TEST_F(HealthTest, ProgressWantsProof) {
  there_ = {Executor("a"), Executor("b")};
  Pass(absl::Seconds(1));
  EXPECT_TRUE(Evaluate().ready.ok());
  EXPECT_EQ(Progress(), Reason::kNoSuccessYet);
  const std::vector<Canary> ran = RunDue();
  // A kernel canary runs on each executor, and only then the collective over both.
  ASSERT_THAT(ran, SizeIs(3));
  EXPECT_EQ(ran[0].kind, CanaryKind::kKernel);
  EXPECT_THAT(ran[0].devices, SizeIs(2));
  EXPECT_EQ(ran[2].kind, CanaryKind::kCollective);
  EXPECT_THAT(ran[2].devices, SizeIs(4));
  EXPECT_EQ(Progress(), Reason::kOk);
}

TEST_F(HealthTest, CanariesComeOncePerInterval) {
  there_ = {Executor("a")};
  Pass(absl::Seconds(1));
  EXPECT_THAT(RunDue(), SizeIs(2));
  Pass(kInterval - absl::Seconds(1));
  EXPECT_THAT(RunDue(), IsEmpty());
  Pass(absl::Seconds(1));
  EXPECT_THAT(RunDue(), SizeIs(2));
}

TEST_F(HealthTest, OneDeviceRunsNoCollective) {
  there_ = {Executor("a", /*devices=*/1)};
  Pass(absl::Seconds(1));
  EXPECT_THAT(RunDue(), SizeIs(1));
  EXPECT_EQ(Progress(), Reason::kOk);
  EXPECT_THAT(health_.Ages(now_), SizeIs(1));
}

TEST_F(HealthTest, ACanaryThatFailsIsSaidAndTriedAgainSoon) {
  there_ = {Executor("a"), Executor("b")};
  Pass(absl::Seconds(1));
  RunDue();
  Pass(kInterval);
  for (const Canary& canary : health_.Due(now_)) {
    const bool stuck = canary.executors[0].first == "b/0";
    health_.End(canary.id, stuck ? CanaryResult::kTimeout : CanaryResult::kOk, "silence", now_);
  }
  EXPECT_EQ(Progress(), Reason::kKernelCanary);
  EXPECT_THAT(Evaluate().progressing.text,
              HasSubstr("executor b/0 did not pass: timeout: silence"));
  EXPECT_TRUE(Evaluate().ready.ok());
  // No collective is started, because it would wait for b.
  EXPECT_THAT(health_.Due(now_), IsEmpty());
  Pass(absl::Seconds(1));
  EXPECT_THAT(RunDue(), SizeIs(2));  // the kernel on b, then the collective
  EXPECT_EQ(Progress(), Reason::kOk);
}

TEST_F(HealthTest, ACanaryThatDoesNotEndIsNotSentTwice) {
  there_ = {Executor("a")};
  Pass(absl::Seconds(1));
  const std::vector<Canary> due = health_.Due(now_);
  ASSERT_THAT(due, SizeIs(1));
  Pass(kInterval * 3);
  EXPECT_THAT(health_.Due(now_), IsEmpty());
  // A canary that has not ended does not count as passed.
  EXPECT_EQ(Progress(), Reason::kKernelCanary);
}

TEST_F(HealthTest, ACollectiveThatFailsIsSaid) {
  there_ = {Executor("a"), Executor("b")};
  Pass(absl::Seconds(1));
  for (const Canary& canary : health_.Due(now_))
    health_.End(canary.id, CanaryResult::kOk, "", now_);
  const std::vector<Canary> due = health_.Due(now_);
  ASSERT_THAT(due, SizeIs(1));
  health_.End(due[0].id, CanaryResult::kWrong, "3, not 6", now_);
  EXPECT_EQ(Progress(), Reason::kCollectiveCanary);
  EXPECT_THAT(Evaluate().progressing.text, HasSubstr("wrong: 3, not 6"));
}

TEST_F(HealthTest, BusyDevicesGetNoCanaryAndAreProofEnough) {
  there_ = {Executor("a")};
  there_[0].operations = 1;
  Pass(absl::Seconds(1));
  EXPECT_THAT(health_.Due(now_), IsEmpty());
  EXPECT_EQ(Progress(), Reason::kOk);
  Pass(absl::Hours(1));
  EXPECT_THAT(health_.Due(now_), IsEmpty());
  EXPECT_EQ(Progress(), Reason::kOk);
}

TEST_F(HealthTest, WhatStandsStillIsNotProgress) {
  there_ = {Executor("a")};
  there_[0].operations = 1;
  there_[0].progress_age = absl::Seconds(59);
  Pass(absl::Seconds(1));
  EXPECT_EQ(Progress(), Reason::kOk);
  there_[0].progress_age = absl::Seconds(61);
  Pass(absl::Seconds(2));
  EXPECT_EQ(Progress(), Reason::kNotProgressing);
  EXPECT_THAT(Evaluate().progressing.text, HasSubstr("a/0 has made no progress for 1m1s"));
}

TEST_F(HealthTest, LaunchesThatEndAreProof) {
  there_ = {Executor("a")};
  Pass(absl::Seconds(1));
  there_[0].launches_succeeded = 1;
  Pass(absl::Seconds(1));
  EXPECT_EQ(Progress(), Reason::kOk);
  const std::vector<Canary> due = health_.Due(now_);
  // The ended launch counts as a success of the kernel, but not of the collective.
  ASSERT_THAT(due, SizeIs(1));
  EXPECT_EQ(due[0].kind, CanaryKind::kCollective);
}

TEST_F(HealthTest, ANewcomerIsNotHeldAgainstTheOthersUntilItHasHadItsChance) {
  there_ = {Executor("a")};
  Pass(absl::Seconds(1));
  RunDue();
  there_.push_back(Executor("b"));
  Pass(absl::Seconds(1));
  EXPECT_EQ(Progress(), Reason::kOk);
  const std::vector<Canary> due = health_.Due(now_);
  ASSERT_THAT(due, SizeIs(1));
  health_.End(due[0].id, CanaryResult::kError, "no", now_);
  EXPECT_EQ(Progress(), Reason::kKernelCanary);
}

TEST_F(HealthTest, AnotherIncarnationHasProvedNothing) {
  there_ = {Executor("a")};
  Pass(absl::Seconds(1));
  RunDue();
  Pass(kInterval);
  const std::vector<Canary> old = health_.Due(now_);
  there_ = {Executor("a", 2, /*incarnation=*/2)};
  Pass(absl::Milliseconds(1));
  EXPECT_EQ(Progress(), Reason::kNoSuccessYet);
  // The end of the old incarnation's canary says nothing about the new one.
  health_.End(old[0].id, CanaryResult::kError, "lost", now_);
  EXPECT_EQ(Progress(), Reason::kNoSuccessYet);
  RunDue();
  EXPECT_EQ(Progress(), Reason::kOk);
}

TEST_F(HealthTest, CordonedAndLostDevicesDoNotCount) {
  there_ = {Executor("a"), Executor("b"), Executor("c")};
  there_[1].cordoned = true;
  there_[2].alive = false;
  Pass(absl::Seconds(1));
  for (const Canary& canary : RunDue()) EXPECT_EQ(canary.executors[0].first, "a/0");
  EXPECT_EQ(Progress(), Reason::kOk);
  there_[0].cordoned = true;
  Pass(absl::Seconds(1));
  EXPECT_EQ(Evaluate().ready.reason, Reason::kNoDevices);
}

TEST_F(HealthTest, ALoopThatDoesNotAnswerIsNotAlive) {
  there_ = {Executor("a")};
  Pass(absl::Seconds(1));
  RunDue();
  now_ += absl::Seconds(6);
  EXPECT_EQ(Evaluate().live.reason, Reason::kLoopStuck);
  EXPECT_EQ(Progress(), Reason::kLoopStuck);
  Pass(absl::Seconds(1));
  EXPECT_EQ(Progress(), Reason::kOk);
}

TEST_F(HealthTest, WhatWasNotTakenSaysNothing) {
  there_ = {Executor("a", 1)};
  Pass(absl::Seconds(1));
  RunDue();
  Pass(kInterval);
  EXPECT_THAT(health_.Due(now_), SizeIs(1));
  health_.End(2, CanaryResult::kSkipped, "QUEUE_FULL", now_);
  EXPECT_EQ(Progress(), Reason::kOk);
  EXPECT_THAT(health_.Due(now_), IsEmpty());
  Pass(absl::Seconds(1));
  EXPECT_THAT(health_.Due(now_), SizeIs(1));
}

TEST_F(HealthTest, AgesCountFromTheLastProof) {
  there_ = {Executor("a")};
  Pass(absl::Seconds(1));
  Pass(absl::Seconds(3));
  ASSERT_THAT(health_.Ages(now_), SizeIs(4));  // two devices, two kinds
  for (const SuccessAge& age : health_.Ages(now_)) EXPECT_EQ(age.age, absl::Seconds(3));
  RunDue();
  for (const SuccessAge& age : health_.Ages(now_)) EXPECT_EQ(age.age, absl::ZeroDuration());
}

TEST_F(HealthTest, WithoutCanariesItIsThatTheLoopAnswers) {
  Health health(Config{.interval = absl::ZeroDuration()});
  health.LoopReplied(now_);
  health.Read({Executor("a")}, now_);
  EXPECT_THAT(health.Due(now_), IsEmpty());
  EXPECT_TRUE(health.Evaluate(now_).progressing.ok());
  EXPECT_EQ(health.Evaluate(now_ + absl::Seconds(6)).progressing.reason, Reason::kLoopStuck);
}

TEST_F(HealthTest, StoppingIsSaid) {
  there_ = {Executor("a")};
  Pass(absl::Seconds(1));
  RunDue();
  health_.Stop();
  EXPECT_EQ(Evaluate().live.reason, Reason::kStopping);
  EXPECT_EQ(Progress(), Reason::kStopping);
  EXPECT_THAT(health_.Due(now_ + kInterval), IsEmpty());
}

}  // namespace
}  // namespace tessera::server::health
