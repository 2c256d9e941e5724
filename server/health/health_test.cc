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
    health_.RecordLoopReply(now_);
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

  // Advances the time. Then the loop replies, and the executors are read as they are in
  // `executors_`.
  void Advance(absl::Duration time) {
    now_ += time;
    health_.RecordLoopReply(now_);
    health_.RecordExecutors(executors_, now_);
  }
  // Starts all canaries that are due and ends them with `result`, until none is due.
  std::vector<Canary> RunDue(CanaryResult result = CanaryResult::kOk) {
    std::vector<Canary> all;
    for (std::vector<Canary> due = health_.TakeDue(now_); !due.empty();
         due = health_.TakeDue(now_)) {
      for (const Canary& canary : due) {
        health_.EndCanary(canary.id, result, "why", now_);
        all.push_back(canary);
      }
    }
    return all;
  }
  Verdict Evaluate() const { return health_.Evaluate(now_); }
  Reason ProgressReason() const { return Evaluate().progressing.reason; }

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::vector<core::ExecutorReading> executors_;
  Health health_;
};

TEST_F(HealthTest, WithoutDevicesTheServiceIsLiveButNotReady) {
  Advance(absl::Seconds(1));
  EXPECT_TRUE(Evaluate().live.ok());
  EXPECT_EQ(Evaluate().ready.reason, Reason::kNoDevices);
  EXPECT_EQ(ProgressReason(), Reason::kNoDevices);
  EXPECT_THAT(health_.TakeDue(now_), IsEmpty());
}

TEST_F(HealthTest, ProgressNeedsAPassedCanary) {
  executors_ = {Executor("a"), Executor("b")};
  Advance(absl::Seconds(1));
  EXPECT_TRUE(Evaluate().ready.ok());
  EXPECT_EQ(ProgressReason(), Reason::kNoSuccessYet);
  const std::vector<Canary> ran = RunDue();
  // A kernel canary runs on each executor, and only then the collective over both.
  ASSERT_THAT(ran, SizeIs(3));
  EXPECT_EQ(ran[0].kind, CanaryKind::kKernel);
  EXPECT_THAT(ran[0].devices, SizeIs(2));
  EXPECT_EQ(ran[2].kind, CanaryKind::kCollective);
  EXPECT_THAT(ran[2].devices, SizeIs(4));
  EXPECT_EQ(ProgressReason(), Reason::kOk);
}

TEST_F(HealthTest, CanariesComeOncePerInterval) {
  executors_ = {Executor("a")};
  Advance(absl::Seconds(1));
  EXPECT_THAT(RunDue(), SizeIs(2));
  Advance(kInterval - absl::Seconds(1));
  EXPECT_THAT(RunDue(), IsEmpty());
  Advance(absl::Seconds(1));
  EXPECT_THAT(RunDue(), SizeIs(2));
}

TEST_F(HealthTest, ASingleDeviceRunsNoCollectiveCanary) {
  executors_ = {Executor("a", /*devices=*/1)};
  Advance(absl::Seconds(1));
  EXPECT_THAT(RunDue(), SizeIs(1));
  EXPECT_EQ(ProgressReason(), Reason::kOk);
  EXPECT_THAT(health_.SuccessAges(now_), SizeIs(1));
}

TEST_F(HealthTest, AFailedCanaryIsReportedAndRetriedSoon) {
  executors_ = {Executor("a"), Executor("b")};
  Advance(absl::Seconds(1));
  RunDue();
  Advance(kInterval);
  for (const Canary& canary : health_.TakeDue(now_)) {
    const bool stuck = canary.executors[0].first == "b/0";
    health_.EndCanary(canary.id, stuck ? CanaryResult::kTimeout : CanaryResult::kOk, "silence",
                      now_);
  }
  EXPECT_EQ(ProgressReason(), Reason::kKernelCanary);
  EXPECT_THAT(Evaluate().progressing.text,
              HasSubstr("executor b/0 did not pass: timeout: silence"));
  EXPECT_TRUE(Evaluate().ready.ok());
  // No collective is started, because it would wait for b.
  EXPECT_THAT(health_.TakeDue(now_), IsEmpty());
  Advance(absl::Seconds(1));
  EXPECT_THAT(RunDue(), SizeIs(2));  // the kernel on b, then the collective
  EXPECT_EQ(ProgressReason(), Reason::kOk);
}

TEST_F(HealthTest, ACanaryThatDoesNotEndIsNotSentTwice) {
  executors_ = {Executor("a")};
  Advance(absl::Seconds(1));
  const std::vector<Canary> due = health_.TakeDue(now_);
  ASSERT_THAT(due, SizeIs(1));
  Advance(kInterval * 3);
  EXPECT_THAT(health_.TakeDue(now_), IsEmpty());
  // A canary that has not ended does not count as passed.
  EXPECT_EQ(ProgressReason(), Reason::kKernelCanary);
}

TEST_F(HealthTest, AFailedCollectiveCanaryIsReported) {
  executors_ = {Executor("a"), Executor("b")};
  Advance(absl::Seconds(1));
  for (const Canary& canary : health_.TakeDue(now_))
    health_.EndCanary(canary.id, CanaryResult::kOk, "", now_);
  const std::vector<Canary> due = health_.TakeDue(now_);
  ASSERT_THAT(due, SizeIs(1));
  health_.EndCanary(due[0].id, CanaryResult::kWrong, "3, not 6", now_);
  EXPECT_EQ(ProgressReason(), Reason::kCollectiveCanary);
  EXPECT_THAT(Evaluate().progressing.text, HasSubstr("wrong: 3, not 6"));
}

TEST_F(HealthTest, BusyDevicesGetNoCanaryAndCountAsWorking) {
  executors_ = {Executor("a")};
  executors_[0].operations = 1;
  Advance(absl::Seconds(1));
  EXPECT_THAT(health_.TakeDue(now_), IsEmpty());
  EXPECT_EQ(ProgressReason(), Reason::kOk);
  Advance(absl::Hours(1));
  EXPECT_THAT(health_.TakeDue(now_), IsEmpty());
  EXPECT_EQ(ProgressReason(), Reason::kOk);
}

TEST_F(HealthTest, ALaunchWithoutProgressFailsTheCheck) {
  executors_ = {Executor("a")};
  executors_[0].operations = 1;
  executors_[0].progress_age = absl::Seconds(59);
  Advance(absl::Seconds(1));
  EXPECT_EQ(ProgressReason(), Reason::kOk);
  executors_[0].progress_age = absl::Seconds(61);
  Advance(absl::Seconds(2));
  EXPECT_EQ(ProgressReason(), Reason::kNotProgressing);
  EXPECT_THAT(Evaluate().progressing.text, HasSubstr("a/0 has made no progress for 1m1s"));
}

TEST_F(HealthTest, AnEndedLaunchCountsAsAPassedKernelCanary) {
  executors_ = {Executor("a")};
  Advance(absl::Seconds(1));
  executors_[0].launches_succeeded = 1;
  Advance(absl::Seconds(1));
  EXPECT_EQ(ProgressReason(), Reason::kOk);
  const std::vector<Canary> due = health_.TakeDue(now_);
  // The ended launch counts as a success of the kernel, but not of the collective.
  ASSERT_THAT(due, SizeIs(1));
  EXPECT_EQ(due[0].kind, CanaryKind::kCollective);
}

TEST_F(HealthTest, ANewExecutorDoesNotFailTheCheckBeforeItsFirstCanary) {
  executors_ = {Executor("a")};
  Advance(absl::Seconds(1));
  RunDue();
  executors_.push_back(Executor("b"));
  Advance(absl::Seconds(1));
  EXPECT_EQ(ProgressReason(), Reason::kOk);
  const std::vector<Canary> due = health_.TakeDue(now_);
  ASSERT_THAT(due, SizeIs(1));
  health_.EndCanary(due[0].id, CanaryResult::kError, "no", now_);
  EXPECT_EQ(ProgressReason(), Reason::kKernelCanary);
}

TEST_F(HealthTest, ANewIncarnationHasNoSuccessYet) {
  executors_ = {Executor("a")};
  Advance(absl::Seconds(1));
  RunDue();
  Advance(kInterval);
  const std::vector<Canary> old = health_.TakeDue(now_);
  executors_ = {Executor("a", 2, /*incarnation=*/2)};
  Advance(absl::Milliseconds(1));
  EXPECT_EQ(ProgressReason(), Reason::kNoSuccessYet);
  // The end of the old incarnation's canary says nothing about the new one.
  health_.EndCanary(old[0].id, CanaryResult::kError, "lost", now_);
  EXPECT_EQ(ProgressReason(), Reason::kNoSuccessYet);
  RunDue();
  EXPECT_EQ(ProgressReason(), Reason::kOk);
}

TEST_F(HealthTest, CordonedAndLostDevicesDoNotCount) {
  executors_ = {Executor("a"), Executor("b"), Executor("c")};
  executors_[1].cordoned = true;
  executors_[2].alive = false;
  Advance(absl::Seconds(1));
  for (const Canary& canary : RunDue()) EXPECT_EQ(canary.executors[0].first, "a/0");
  EXPECT_EQ(ProgressReason(), Reason::kOk);
  executors_[0].cordoned = true;
  Advance(absl::Seconds(1));
  EXPECT_EQ(Evaluate().ready.reason, Reason::kNoDevices);
}

TEST_F(HealthTest, ALoopThatDoesNotAnswerIsNotLive) {
  executors_ = {Executor("a")};
  Advance(absl::Seconds(1));
  RunDue();
  now_ += absl::Seconds(6);
  EXPECT_EQ(Evaluate().live.reason, Reason::kLoopStuck);
  EXPECT_EQ(ProgressReason(), Reason::kLoopStuck);
  Advance(absl::Seconds(1));
  EXPECT_EQ(ProgressReason(), Reason::kOk);
}

TEST_F(HealthTest, ASkippedCanarySaysNothingAboutItsDevices) {
  executors_ = {Executor("a", 1)};
  Advance(absl::Seconds(1));
  RunDue();
  Advance(kInterval);
  EXPECT_THAT(health_.TakeDue(now_), SizeIs(1));
  health_.EndCanary(2, CanaryResult::kSkipped, "QUEUE_FULL", now_);
  EXPECT_EQ(ProgressReason(), Reason::kOk);
  EXPECT_THAT(health_.TakeDue(now_), IsEmpty());
  Advance(absl::Seconds(1));
  EXPECT_THAT(health_.TakeDue(now_), SizeIs(1));
}

TEST_F(HealthTest, AgesCountFromTheLastSuccess) {
  executors_ = {Executor("a")};
  Advance(absl::Seconds(1));
  Advance(absl::Seconds(3));
  ASSERT_THAT(health_.SuccessAges(now_), SizeIs(4));  // two devices, two kinds
  for (const SuccessAge& age : health_.SuccessAges(now_)) EXPECT_EQ(age.age, absl::Seconds(3));
  RunDue();
  for (const SuccessAge& age : health_.SuccessAges(now_)) EXPECT_EQ(age.age, absl::ZeroDuration());
}

TEST_F(HealthTest, WithoutCanariesOnlyTheLoopCounts) {
  Health health(Config{.interval = absl::ZeroDuration()});
  health.RecordLoopReply(now_);
  health.RecordExecutors({Executor("a")}, now_);
  EXPECT_THAT(health.TakeDue(now_), IsEmpty());
  EXPECT_TRUE(health.Evaluate(now_).progressing.ok());
  EXPECT_EQ(health.Evaluate(now_ + absl::Seconds(6)).progressing.reason, Reason::kLoopStuck);
}

TEST_F(HealthTest, StoppingFailsAllChecks) {
  executors_ = {Executor("a")};
  Advance(absl::Seconds(1));
  RunDue();
  health_.Stop();
  EXPECT_EQ(Evaluate().live.reason, Reason::kStopping);
  EXPECT_EQ(ProgressReason(), Reason::kStopping);
  EXPECT_THAT(health_.TakeDue(now_ + kInterval), IsEmpty());
}

}  // namespace
}  // namespace tessera::server::health
