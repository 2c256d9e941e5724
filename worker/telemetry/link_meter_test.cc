// Proves that latency and bandwidth are taken from the fastest exchanges, and that TakeChanges
// returns only links that have really changed. The exchanges are made-up numbers.
#include "worker/telemetry/link_meter.h"

#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

TEST(LinkMeter, SmallExchangesGiveTheLatencyAndLargeOnesTheBandwidth) {
  LinkMeter meter;
  EXPECT_TRUE(meter.TakeChanges().empty());
  meter.Record(/*between_executors=*/true, 128, 2, absl::Microseconds(80));
  meter.Record(true, 1 << 20, 2, absl::Milliseconds(1));
  // A size that counts as neither small nor large.
  meter.Record(true, 64 << 10, 2, absl::Seconds(9));
  const std::vector<api::LinkSpeed> changes = meter.TakeChanges();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_TRUE(changes[0].between_executors);
  EXPECT_DOUBLE_EQ(changes[0].latency_seconds, 40e-6);
  EXPECT_DOUBLE_EQ(changes[0].bytes_per_second, (1 << 20) / 1e-3);
  EXPECT_TRUE(meter.TakeChanges().empty()) << "no change is returned twice";
}

TEST(LinkMeter, AFasterExchangeCountsAtOnceAndASlowerOneLittle) {
  LinkMeter meter;
  meter.Record(false, 0, 1, absl::Microseconds(10));
  ASSERT_EQ(meter.TakeChanges().size(), 1u);
  meter.Record(false, 0, 1, absl::Milliseconds(20));
  EXPECT_TRUE(meter.TakeChanges().empty()) << "the latency has risen by at most a hundredth";
  meter.Record(false, 0, 1, absl::Microseconds(5));
  std::vector<api::LinkSpeed> changes = meter.TakeChanges();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_FALSE(changes[0].between_executors);
  EXPECT_DOUBLE_EQ(changes[0].latency_seconds, 5e-6);
  EXPECT_EQ(changes[0].bytes_per_second, 0) << "unknown";
  // A link that has become slower is noticed after a while.
  for (int i = 0; i < 100; ++i) meter.Record(false, 0, 1, absl::Microseconds(8));
  changes = meter.TakeChanges();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_DOUBLE_EQ(changes[0].latency_seconds, 8e-6);
}

}  // namespace
}  // namespace tessera::worker
