// Tests the health monitor with the real scheduler and planner. Canaries run on reference workers.
// A test can make such a worker hold its launches, and can make its executor die and come back.
#include "server/coordinator/health_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/synchronization/mutex.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "ir/eval/eval.h"
#include "server/planner/planner.h"
#include "server/store/store.h"
#include "server/telemetry/telemetry.h"
#include "server/testing/reference_worker.h"

namespace tessera::server {
namespace {

using health::CanaryKind;
using health::Reason;
using testing::Eventually;

constexpr absl::Duration kPatience = absl::Seconds(30);

TEST(CanaryPrograms, ReturnTheExpectedValuesOnAnyNumberOfDevices) {
  for (const CanaryKind kind : {CanaryKind::kKernel, CanaryKind::kCollective}) {
    for (const int64_t devices : {1, 2, 7, 64}) {
      TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Program program, CanaryProgram(kind, devices));
      TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<ir::Array> results,
                                   ir::Evaluate(*program.entry, {}));
      ASSERT_EQ(results.size(), 1u);
      const absl::Span<const int32_t> values = results[0].As<int32_t>();
      EXPECT_THAT(std::vector<int32_t>(values.begin(), values.end()),
                  ::testing::ElementsAreArray(CanaryValues(kind, devices)));
    }
  }
}

class HealthMonitorTest : public ::testing::Test {
 protected:
  static Options OptionsWithoutHeartbeats() {
    Options options;
    options.lease_ms = 3'600'000;  // The reference worker sends no heartbeats.
    return options;
  }
  HealthMonitorTest()
      : telemetry_(&metrics_),
        coordinator_(OptionsWithoutHeartbeats(), &clock_, planner::MakePlan, &store_, &telemetry_) {
  }
  ~HealthMonitorTest() override {
    monitor_.reset();
    coordinator_.Stop();
  }

  void StartMonitor() {
    health::Config config;
    config.interval = absl::Milliseconds(20);
    config.timeout = absl::Seconds(1);
    config.retry = absl::Milliseconds(20);
    monitor_ = HealthMonitor::Start(config, &coordinator_, &clock_, &metrics_, nullptr);
  }
  ::testing::AssertionResult Becomes(Reason reason) {
    if (Eventually([&] { return monitor_->LastVerdict().progressing.reason == reason; }, kPatience))
      return ::testing::AssertionSuccess();
    const health::Check check = monitor_->LastVerdict().progressing;
    return ::testing::AssertionFailure() << NameOf(check.reason) << ": " << check.text;
  }

  RealClock clock_;
  store::MemoryStore store_;
  Metrics metrics_;
  telemetry::Telemetry telemetry_;
  Coordinator coordinator_;
  std::unique_ptr<HealthMonitor> monitor_;
};

TEST_F(HealthMonitorTest, CanariesRunOnDevicesAndTheirResultsAreDeleted) {
  StartMonitor();
  EXPECT_TRUE(Becomes(Reason::kNoDevices));
  const auto worker = std::make_shared<ReferenceWorker>(&coordinator_, "w0", 4);
  worker->Start();
  EXPECT_TRUE(Becomes(Reason::kOk));
  // Canaries of both kinds run again and again.
  EXPECT_TRUE(Eventually(
      [&] {
        return metrics_.Value(Metric::kCanaries, {"collective", "ok"}) >= 3 &&
               metrics_.Value(Metric::kCanaries, {"kernel", "ok"}) >= 3;
      },
      kPatience));
  EXPECT_GE(metrics_.Value(Metric::kCanarySeconds, {"kernel"}), 3);
  EXPECT_EQ(metrics_.Value(Metric::kHealth, {"progressing", "ok"}), 1);
  EXPECT_GE(metrics_.Value(Metric::kOperationsSubmitted, {"system", "execute"}), 6);
  // Canaries do not count as a user's program.
  EXPECT_EQ(metrics_.Value(Metric::kProgramSteps, {"canary_kernel"}), 0);
  // Older result arrays are deleted: at most those of each kind's last runs are left.
  absl::Mutex mu;
  core::ClusterReading reading;
  bool answered = false;
  coordinator_.Post<core::ClusterReading>(scheduler::ReadTelemetry{},
                                          [&](absl::StatusOr<core::ClusterReading> answer) {
                                            absl::MutexLock lock(&mu);
                                            if (answer.ok()) reading = *std::move(answer);
                                            answered = true;
                                          });
  absl::MutexLock lock(&mu);
  ASSERT_TRUE(mu.AwaitWithTimeout(absl::Condition(&answered), kPatience));
  double arrays = 0;
  for (const core::Reading& r : reading.readings)
    if (r.metric == Metric::kArrays && r.labels[0] == "system") arrays += r.value;
  EXPECT_LE(arrays, 4);
}

TEST_F(HealthMonitorTest, AStuckExecutorIsNotHealthyUntilItRunsAgain) {
  const auto stuck = std::make_shared<ReferenceWorker>(&coordinator_, "w0", 2);
  stuck->Start();
  StartMonitor();
  EXPECT_TRUE(Becomes(Reason::kOk));
  stuck->HoldLaunches(true);
  EXPECT_TRUE(Becomes(Reason::kKernelCanary));
  const health::Verdict verdict = monitor_->LastVerdict();
  EXPECT_TRUE(verdict.live.ok());
  EXPECT_TRUE(verdict.ready.ok());
  EXPECT_THAT(verdict.progressing.text, ::testing::HasSubstr("w0/0 did not pass: timeout"));
  EXPECT_EQ(metrics_.Value(Metric::kHealth, {"progressing", "kernel_canary"}), 0);
  EXPECT_GE(metrics_.Value(Metric::kCanaries, {"kernel", "timeout"}), 1);
  stuck->HoldLaunches(false);
  EXPECT_TRUE(Becomes(Reason::kOk));
}

TEST_F(HealthMonitorTest, AnExecutorThatDiesIsNotReady) {
  const auto worker = std::make_shared<ReferenceWorker>(&coordinator_, "w0", 2);
  worker->Start();
  StartMonitor();
  EXPECT_TRUE(Becomes(Reason::kOk));
  worker->LoseExecutor("killed by signal 9");
  EXPECT_TRUE(Becomes(Reason::kNoDevices));
  worker->RestoreExecutor();
  EXPECT_TRUE(Becomes(Reason::kOk));
}

TEST_F(HealthMonitorTest, AStoppedMonitorReportsStopping) {
  StartMonitor();
  monitor_->Stop();
  EXPECT_EQ(monitor_->LastVerdict().live.reason, Reason::kStopping);
}

TEST_F(HealthMonitorTest, WithoutCanariesOnlyTheLoopIsProbed) {
  health::Config config;
  config.interval = absl::ZeroDuration();
  monitor_ = HealthMonitor::Start(config, &coordinator_, &clock_, &metrics_, nullptr);
  EXPECT_TRUE(Becomes(Reason::kOk));
  EXPECT_TRUE(Eventually([&] { return metrics_.Value(Metric::kEventloopLag, {"scheduler"}) >= 2; },
                         kPatience));
  EXPECT_EQ(metrics_.Value(Metric::kOperationsSubmitted, {"system", "execute"}), 0);
}

}  // namespace
}  // namespace tessera::server
