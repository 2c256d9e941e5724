// Tests that arrays arrive intact over a network that fails. The cluster has one worker, whose data
// port a client reaches through a FaultProxy; each test injects a fault into the middle of a
// transfer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "base/testing/stopwatch.h"
#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "tests/service/cluster.h"
#include "tests/service/fault_proxy.h"

namespace tessera::service {
namespace {

using testing::Eventually;
using Direction = FaultProxy::Direction;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kBytes = 48 * kMiB;
// An upper bound of the bytes that can be under way when a connection breaks: those in the buffers
// of the sockets and in HTTP/2's flow-control windows.
constexpr int64_t kUnderWayMax = 16 * kMiB;

ir::Array RandomBytes(int64_t bytes) {
  ir::Array value(ir::DType::kU32, {bytes / 4});
  std::minstd_rand random(7);
  for (uint32_t& word : value.MutableAs<uint32_t>()) word = static_cast<uint32_t>(random());
  return value;
}

class TransferTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TESSERA_ASSERT_OK_AND_ASSIGN(proxy_, FaultProxy::Start());
    port_file_ = std::filesystem::path(::testing::TempDir()) /
                 absl::StrCat("tessera-ports-", getpid(), "-",
                              ::testing::UnitTest::GetInstance()->current_test_info()->name());
    ClusterOptions options;
    options.workers = 1;
    options.devices_per_worker = 1;
    options.worker_flags = {"--advertise-client=" + proxy_->address(),
                            "--port-file=" + port_file_.string(), "--device-memory-bytes=134217728",
                            "--upload-idle-ms=500"};
    TESSERA_ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start(options));
    std::string data_address;
    // The coordinator may know the worker before the worker has written its ports to the file.
    ASSERT_TRUE(Eventually([&] {
      std::ifstream ports(port_file_);
      return static_cast<bool>(std::getline(ports, data_address)) && !ports.eof();
    }));
    proxy_->SetTarget(data_address);
    value_ = RandomBytes(kBytes);
  }
  void TearDown() override {
    if (HasFailure() && cluster_) std::cerr << cluster_->Logs();
    std::error_code ignored;
    std::filesystem::remove(port_file_, ignored);
  }
  std::shared_ptr<Session> Connect(ConnectOptions options = {}) {
    return Session::Connect(cluster_->address(), std::move(options));
  }
  absl::StatusOr<uint64_t> Put(Session& session) {
    return session.service().Put(value_, {ir::Mesh{{{"x", 1}}}, {}, {0}});
  }

  std::unique_ptr<FaultProxy> proxy_;
  std::filesystem::path port_file_;
  std::unique_ptr<Cluster> cluster_;
  ir::Array value_;
};

TEST_F(TransferTest, ACutConnectionResendsOnlyBytesThatWereUnderWay) {
  const auto session = Connect();
  proxy_->CutAfter(Direction::kUp, 15 * kMiB);
  proxy_->CutAfter(Direction::kUp, 40 * kMiB);
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t array, Put(*session));
  EXPECT_EQ(proxy_->num_faults_struck(), 2);
  std::cout << "up, sent twice: " << (proxy_->bytes_passed(Direction::kUp) - kBytes) / kMiB
            << " MiB\n";
  EXPECT_LT(proxy_->bytes_passed(Direction::kUp), kBytes + 2 * kUnderWayMax) << "it started over";
  proxy_->CutAfter(Direction::kDown, 30 * kMiB);
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array back,
                               session->service().Get(array, absl::Seconds(30)));
  EXPECT_TRUE(back == value_);
  EXPECT_EQ(proxy_->num_faults_struck(), 3);
  std::cout << "down, sent twice: " << (proxy_->bytes_passed(Direction::kDown) - kBytes) / kMiB
            << " MiB\n";
  EXPECT_LT(proxy_->bytes_passed(Direction::kDown), kBytes + kUnderWayMax) << "it started over";
}

// The daemon tolerates a silent executor for half a minute. The deadline of the caller is shorter
// than that.
TEST_F(TransferTest, APutIntoAFrozenExecutorEndsAtTheDeadline) {
  const auto session = Connect();
  Session::SetDefault(session);
  const Mesh mesh = make_mesh({1}, {"x"}, {AxisType::kAuto});
  const int executor = cluster_->executor_pid(0);
  ASSERT_EQ(kill(executor, SIGSTOP), 0);
  for (const ir::Array& value : {ir::Array::Of(kF32, {2}, {1, 2}), ir::Array::Of(kF32, {}, {1})}) {
    const testing::Stopwatch watch;
    const Error error = testing::ErrorOf([&] {
      const deadline limit(absl::Seconds(1));
      put(value, mesh, P());
    });
    EXPECT_LT(watch.Unhindered(), absl::Seconds(3)) << value.rank();
    EXPECT_EQ(error.reason(), "DEADLINE_EXCEEDED") << error.what();
    EXPECT_THAT(error.what(), ::testing::HasSubstr(" bytes was not taken within "));
  }
  ASSERT_EQ(kill(executor, SIGCONT), 0);
  EXPECT_EQ(put(ir::Array::Of(kF32, {2}, {1, 2}), mesh, P()).value().ToDoubles(),
            (std::vector<double>{1, 2}));
  Session::SetDefault(nullptr);
}

TEST_F(TransferTest, APutWhoseExecutorRestartsIsRepeated) {
  const int executor = cluster_->executor_pid(0);
  ConnectOptions options;
  std::atomic<int64_t> bytes_moved{0};
  options.on_bytes = [&](int64_t bytes) {
    // True for exactly one call, when a third of the bytes have been sent.
    if ((bytes_moved += bytes) > kBytes / 3 && bytes_moved - bytes <= kBytes / 3)
      kill(executor, SIGKILL);
    return true;
  };
  const auto session = Connect(options);
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t array, Put(*session));
  EXPECT_NE(cluster_->executor_pid(0), executor);
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array back,
                               session->service().Get(array, absl::Seconds(30)));
  EXPECT_TRUE(back == value_);
}

TEST_F(TransferTest, AByteThatChangesIsNoticedAndSentAgain) {
  const auto session = Connect();
  proxy_->CorruptAfter(Direction::kUp, 20 * kMiB + 12345);
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t array, Put(*session));
  proxy_->CorruptAfter(Direction::kDown, 20 * kMiB + 12345);
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array back,
                               session->service().Get(array, absl::Seconds(30)));
  EXPECT_TRUE(back == value_);
  EXPECT_EQ(proxy_->num_faults_struck(), 2);
}

TEST_F(TransferTest, AHalfClosedConnectionIsReplaced) {
  const auto session = Connect();
  proxy_->CloseHalfAfter(Direction::kUp, 20 * kMiB);
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t array, Put(*session));
  proxy_->CloseHalfAfter(Direction::kDown, 20 * kMiB);
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array back,
                               session->service().Get(array, absl::Seconds(30)));
  EXPECT_TRUE(back == value_);
  EXPECT_EQ(proxy_->num_faults_struck(), 2);
}

// Pulls the cable after a third of the bytes, and plugs it in again four seconds later.
TEST_F(TransferTest, ATransferOutlivesACableThatWasPulledForAWhile) {
  ConnectOptions options;
  options.keepalive = {absl::Seconds(1), absl::Seconds(1)};
  std::atomic<int64_t> bytes_moved{0};
  options.on_bytes = [&](int64_t bytes) {
    // True for exactly one call, when a third of the bytes have been sent.
    if ((bytes_moved += bytes) > kBytes / 3 && bytes_moved - bytes <= kBytes / 3)
      proxy_->SetBlackhole(true);
    return true;
  };
  const auto session = Connect(options);
  std::thread cable([&] {
    Eventually([&] { return bytes_moved > kBytes / 3; });
    // This is longer than the client takes to give the connection up.
    absl::Notification never;
    never.WaitForNotificationWithTimeout(absl::Seconds(4));
    proxy_->SetBlackhole(false);
  });
  const testing::Stopwatch watch;
  const absl::StatusOr<uint64_t> array = Put(*session);
  cable.join();
  ASSERT_THAT(array, IsOk());
  EXPECT_LT(watch.Unhindered(), absl::Seconds(20));
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array back,
                               session->service().Get(*array, absl::Seconds(30)));
  EXPECT_TRUE(back == value_);
}

// The coordinator has not lost the executor, so the client looks for it as long as it looks for a
// coordinator.
TEST_F(TransferTest, ATransferLooksForAnExecutorAsLongAsItIsTold) {
  ConnectOptions options;
  options.reconnect = absl::Seconds(2);
  const auto session = Connect(options);
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t array, Put(*session));
  proxy_->SetRefusing(true);
  std::thread link([&] {
    absl::Notification never;
    never.WaitForNotificationWithTimeout(absl::Seconds(1));
    proxy_->SetRefusing(false);
  });
  const absl::StatusOr<ir::Array> back = session->service().Get(array, absl::Seconds(30));
  link.join();
  ASSERT_THAT(back, IsOk());
  EXPECT_TRUE(*back == value_);
  proxy_->SetRefusing(true);
  const testing::Stopwatch watch;
  const absl::Status end = session->service().Get(array, absl::Seconds(30)).status();
  EXPECT_THAT(end, ReasonIs("WORKER_LOST", "moving a shard: no progress for 2"));
  EXPECT_THAT(end, ReasonIs("WORKER_LOST", "after 0 bytes: the executor at "));
  EXPECT_GE(watch.Elapsed(), absl::Seconds(2));
  EXPECT_LT(watch.Unhindered(), absl::Seconds(10));
}

TEST_F(TransferTest, AnUploadThatIsCutForIdlingGoesOn) {
  ConnectOptions options;
  std::atomic<bool> paused{false};
  options.on_bytes = [&](int64_t) {
    absl::Notification never;
    // The pause is longer than the worker's idle limit for an upload.
    if (!paused.exchange(true)) never.WaitForNotificationWithTimeout(absl::Milliseconds(1500));
    return true;
  };
  const auto session = Connect(options);
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t array, Put(*session));
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array back,
                               session->service().Get(array, absl::Seconds(30)));
  EXPECT_TRUE(back == value_);
}

TEST_F(TransferTest, AnUnansweredCallEndsWithinTheKeepaliveTime) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto to_coordinator, FaultProxy::Start(cluster_->address()));
  ConnectOptions options;
  options.keepalive = {absl::Seconds(1), absl::Seconds(1)};
  options.reconnect = absl::Seconds(1);
  const auto session = Session::Connect(to_coordinator->address(), options);
  ASSERT_THAT(session->service().ListDevices(), IsOk());
  to_coordinator->SetBlackhole(true);
  const testing::Stopwatch watch;
  EXPECT_THAT(session->service().ListDevices(), ReasonIs("UNREACHABLE", "does not answer"));
  // The bound covers the keepalive's time and timeout (2 s), the wait for another connection (1.6
  // s) and a margin for a busy machine. Without keepalive pings the call would take 30 s.
  EXPECT_LT(watch.Unhindered(), absl::Seconds(8));
  to_coordinator->SetBlackhole(false);
  EXPECT_TRUE(Eventually([&] { return session->service().ListDevices().ok(); }));
}

}  // namespace
}  // namespace tessera::service
