// Proves that recorded values appear under the right metric and labels, and that the time of a
// device is split into busy, waiting and idle. The page is collected as the daemon collects it.
#include "worker/telemetry/executor_metrics.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/testing/processes.h"
#include "worker/telemetry/in_flight.h"

namespace tessera::worker {
namespace {

using testing::Eventually;

class ExecutorMetricsTest : public ::testing::Test {
 protected:
  ExecutorMetricsTest() : page_(2), executor_metrics_(&page_, "cpu", 1000) {
    metrics_.AddCollector([this](SampleSink& sink) { page_.Collect(sink, "w", 0); });
  }
  double Value(Metric metric, std::vector<std::string> labels) {
    labels.insert(labels.begin(), "w");
    return metrics_.Value(metric, std::move(labels));
  }

  MetricsPage page_;
  const ExecutorMetrics executor_metrics_;
  Metrics metrics_;
};

// Two launches run on device 1, the first of which waits for a peer for a while.
TEST_F(ExecutorMetricsTest, TimeOfADeviceIsBusyOrWaitingOrIdle) {
  InFlightSlot slot;
  const int64_t began = AgeGauge::Now();
  InFlightQueue queue(&slot, &executor_metrics_.device(1));
  const auto pass_two_milliseconds = [] {
    const int64_t until = AgeGauge::Now() + 2'000'000;
    EXPECT_TRUE(Eventually([until] { return AgeGauge::Now() >= until; }));
  };
  pass_two_milliseconds();
  InFlightQueue::Launch* const first = queue.Begin(1);
  InFlightQueue::Launch* const second = queue.Begin(2);
  pass_two_milliseconds();
  EXPECT_GT(Value(Metric::kDeviceProgressAge, {"1"}), 0.001);
  EXPECT_EQ(Value(Metric::kDeviceProgressAge, {"0"}), 0);
  first->SetOp("psum (m.cc:1)", /*waiting=*/true);
  pass_two_milliseconds();
  second->SetOp("behind it", /*waiting=*/false);  // has no effect while `first` is the oldest
  queue.End(first);
  pass_two_milliseconds();
  queue.End(second);
  const double total = static_cast<double>(AgeGauge::Now() - began) * 1e-9;
  const double busy = Value(Metric::kDeviceBusy, {"1"}),
               idle = Value(Metric::kDeviceIdle, {"1", "no_work"}),
               waiting = Value(Metric::kDeviceIdle, {"1", "waiting_peer"});
  EXPECT_GE(busy, 0.004);
  EXPECT_GE(idle, 0.002);
  EXPECT_GE(waiting, 0.002);
  EXPECT_LE(busy + idle + waiting, total);
  // No launch runs, so none is stuck.
  EXPECT_EQ(Value(Metric::kDeviceProgressAge, {"1"}), 0);
}

TEST_F(ExecutorMetricsTest, CollectiveBandwidthIsTheBusBandwidth) {
  // Four ranks reduce 1 MiB in 1 ms, and each link carries 2 * 3/4 of it.
  executor_metrics_.RecordCollective(ir::CollectiveKind::kAllReduce, CollectiveBackend::kTcp,
                                     1 << 20, 1.5, absl::Milliseconds(1));
  EXPECT_EQ(Value(Metric::kCollectiveBandwidth, {"all_reduce", "1Mi"}), 1.5 * (1 << 20) * 1000);
  EXPECT_EQ(Value(Metric::kCollectiveSeconds, {"all_reduce", "tcp", "1Mi"}), 1);
  EXPECT_EQ(Value(Metric::kCollectiveBytes, {"all_reduce", "tcp"}), 1 << 20);
  executor_metrics_.RecordCollective(ir::CollectiveKind::kBarrier, CollectiveBackend::kTcp, 0, 0,
                                     absl::Milliseconds(1));
  EXPECT_EQ(Value(Metric::kCollectiveSeconds, {"barrier", "tcp", "1Ki"}), 1);
  EXPECT_EQ(Value(Metric::kCollectiveBandwidth, {"barrier", "1Ki"}), 0);
}

TEST_F(ExecutorMetricsTest, SizeAndRanksClassesIncludeTheirLimits) {
  for (const int64_t bytes : {int64_t{1} << 30, int64_t{256} << 20, int64_t{1024}, int64_t{1025}}) {
    executor_metrics_.RecordCollective(ir::CollectiveKind::kPermute, CollectiveBackend::kInproc,
                                       bytes, 1, absl::Milliseconds(1));
  }
  EXPECT_EQ(Value(Metric::kCollectiveSeconds, {"permute", "inproc", "more"}), 1);
  EXPECT_EQ(Value(Metric::kCollectiveSeconds, {"permute", "inproc", "256Mi"}), 1);
  EXPECT_EQ(Value(Metric::kCollectiveSeconds, {"permute", "inproc", "1Ki"}), 1);
  EXPECT_EQ(Value(Metric::kCollectiveSeconds, {"permute", "inproc", "64Ki"}), 1);
  for (const int ranks : {1, 2, 3, 8, 9, 65}) {
    executor_metrics_.RecordCommunicatorInit(CollectiveBackend::kTcp, ranks, absl::Milliseconds(1));
  }
  EXPECT_EQ(Value(Metric::kCommunicatorInit, {"tcp", "2"}), 2);
  EXPECT_EQ(Value(Metric::kCommunicatorInit, {"tcp", "8"}), 2);
  EXPECT_EQ(Value(Metric::kCommunicatorInit, {"tcp", "64"}), 1);
  EXPECT_EQ(Value(Metric::kCommunicatorInit, {"tcp", "more"}), 1);
}

TEST_F(ExecutorMetricsTest, MemoryAndTransfersAreCollected) {
  EXPECT_EQ(Value(Metric::kDeviceMemory, {"1", "total"}), 1000);
  executor_metrics_.device(0).reserved_bytes.Add(10);
  executor_metrics_.RecordTransfer(TransferKind::kGet, TransferPath::kTicket, 7,
                                   absl::Milliseconds(1));
  executor_metrics_.RecordTransferRetry();
  executor_metrics_.RecordChecksumError(TransferKind::kPut);
  EXPECT_EQ(Value(Metric::kDeviceMemory, {"0", "reserved"}), 10);
  EXPECT_EQ(Value(Metric::kTransferBytes, {"get", "ticket"}), 7);
  EXPECT_EQ(Value(Metric::kTransferSeconds, {"get", "ticket"}), 1);
  EXPECT_EQ(Value(Metric::kTransferRetries, {"put"}), 1);
  EXPECT_EQ(Value(Metric::kChecksumErrors, {"put"}), 1);
}

TEST(DisabledExecutorMetricsTest, RecordingWithoutAPageHasNoEffect) {
  const ExecutorMetrics none;
  none.device(5).busy_time.Add(1);
  none.RecordCompile(absl::Seconds(1), true);
  none.RecordCollective(ir::CollectiveKind::kAllReduce, CollectiveBackend::kTcp, 1, 1,
                        absl::Seconds(1));
  none.RecordCommunicatorInit(CollectiveBackend::kNccl, 4, absl::Seconds(1));
  none.RecordTransfer(TransferKind::kPut, TransferPath::kRelay, 1, absl::Seconds(1));
}

}  // namespace
}  // namespace tessera::worker
