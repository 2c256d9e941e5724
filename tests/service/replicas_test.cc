// Tests what is left of arrays when the executor of one of their devices is killed. Each test has a
// cluster of two workers with one device each. An array that both devices have whole is read, moved
// and used as before. An array that is sharded over both devices is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "base/testing/stopwatch.h"
#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "tests/service/cluster.h"

namespace tessera::service {
namespace {

using ::testing::AllOf;
using testing::ErrorOf;
using testing::Eventually;
using ::testing::HasSubstr;

constexpr int kWorkers = 2;
// More bytes than the coordinator relays, and than a run returns with its end.
constexpr int64_t kElements = 1 << 18;
// the longest time in which a read finds the other device, while the coordinator learns only from
// the silence of the daemon that a worker is gone
constexpr absl::Duration kReadWithin = absl::Seconds(8);

ir::Array Ramp(int64_t elements) {
  ir::Array out(kF32, {elements});
  for (int64_t i = 0; i < elements; ++i) out.Set(i, static_cast<double>(i % 1'000));
  return out;
}

bool IsEqual(const ir::Array& a, const ir::Array& b) {
  return a.shape() == b.shape() &&
         std::equal(a.data(), a.data() + a.num_bytes(), b.data(), b.data() + b.num_bytes());
}

class ReplicasTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ClusterOptions options;
    options.workers = kWorkers;
    options.devices_per_worker = 1;
    options.connect.on_bytes = [this](int64_t bytes) {
      bytes_moved_ += bytes;
      if (bytes_moved_ > kill_after_bytes_.load())
        if (const int pid = kill_pid_.exchange(0); pid > 0) kill(pid, SIGKILL);
      return true;
    };
    TESSERA_ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start(options));
    Session::SetDefault(cluster_->session());
    both_ = make_mesh({kWorkers}, {"i"}, {AxisType::kAuto});
    second_ = make_mesh({1}, {"i"}, {AxisType::kAuto});
    second_.devices = {both_.devices[1]};
    first_worker_ = WorkerOf(both_.devices[0]);
  }
  void TearDown() override {
    Session::SetDefault(nullptr);
    if (HasFailure() && cluster_) std::cerr << cluster_->Logs();
  }

  // Returns the number of the worker that has the device.
  int WorkerOf(int64_t device) const {
    for (const api::Device& d : cluster_->session()->devices())
      if (d.id == device) return d.worker == "w0" ? 0 : 1;
    return -1;
  }

  void KillExecutor(int worker) {
    const int pid = cluster_->executor_pid(worker);
    ASSERT_GT(pid, 0);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
  }

  std::unique_ptr<Cluster> cluster_;
  // The process that is killed once the client has moved so many bytes; 0 if there is none.
  std::atomic<int> kill_pid_ = 0;
  std::atomic<int64_t> bytes_moved_ = 0, kill_after_bytes_ = 0;
  Mesh both_, second_;    // the mesh of both devices, and the mesh of the second one
  int first_worker_ = 0;  // the worker of the first device
};

TEST_F(ReplicasTest, AnArrayOnTwoWorkersOutlivesTheFirst) {
  const ir::Array large_value = Ramp(kElements), small_value = Ramp(8);
  const Array large = put(large_value, both_, P()), small = put(small_value, both_, P());
  const Array result = jit([](Array x) { return x + 1; })(large);
  result.wait(absl::Seconds(60));
  ASSERT_EQ(result.devices(), both_.devices);
  ASSERT_NO_FATAL_FAILURE(KillExecutor(first_worker_));
  // It is read while the coordinator learns of the loss.
  EXPECT_TRUE(IsEqual(large.value(), large_value));
  EXPECT_TRUE(IsEqual(small.value(), small_value));
  ir::Array wanted = large_value;
  for (int64_t i = 0; i < kElements; ++i) wanted.Set(i, wanted.At(i) + 1);
  EXPECT_TRUE(IsEqual(result.value(), wanted));

  // The coordinator has noticed the loss when the executor is back, or before.
  ASSERT_TRUE(Eventually([&] {
    return cluster_->executor_pid(first_worker_) > 0 && cluster_->AwaitHealthyDevices(2).ok();
  }));
  const Array moved = put(large, second_, P());
  EXPECT_EQ(moved.devices(), second_.devices);
  EXPECT_TRUE(IsEqual(moved.value(), large_value));
  EXPECT_TRUE(IsEqual(jit([](Array x) { return x + 1; })(moved).value(), wanted));
  // Each shard is read from where it is, also the shard of the device whose executor has restarted.
  EXPECT_TRUE(IsEqual(large.shard(0), large_value));

  // A run on both devices first copies the array to the device that has lost it.
  const Array again = jit([](Array x) { return x + 1; })(large);
  EXPECT_EQ(again.devices(), both_.devices);
  EXPECT_TRUE(IsEqual(again.value(), wanted));
  EXPECT_TRUE(IsEqual(again.shard(0), wanted));

  // The last holder takes the array with it. The later result is on both devices.
  ASSERT_NO_FATAL_FAILURE(KillExecutor(1 - first_worker_));
  const Error lost = ErrorOf([&] { put(large, second_, P()).value(); });
  EXPECT_EQ(lost.reason(), "WORKER_LOST");
  EXPECT_THAT(ErrorOf([&] { large.shard(1); }).what(),
              AllOf(HasSubstr("is lost with its shards on worker"), HasSubstr("make it again")));
  EXPECT_TRUE(IsEqual(again.shard(1), wanted));
}

TEST_F(ReplicasTest, AnArrayShardedOverTwoWorkersIsLostAndItsShardIsNamed) {
  const Array sharded = put(Ramp(kElements), both_, P("i"));
  const Array replicated = put(Ramp(kElements), both_, P());
  ASSERT_NO_FATAL_FAILURE(KillExecutor(first_worker_));
  const Error lost = ErrorOf([&] { sharded.value(); });
  EXPECT_EQ(lost.reason(), "WORKER_LOST");
  EXPECT_THAT(
      lost.what(),
      AllOf(HasSubstr(absl::StrCat("is lost with its shard [0:", kElements / 2,
                                   "], which was only on device ", both_.devices[0], " of worker w",
                                   first_worker_, ": executor w", first_worker_, "/0")),
            HasSubstr("killed by signal 9"), HasSubstr("make it again")));
  EXPECT_TRUE(IsEqual(replicated.value(), Ramp(kElements)));
}

// An executor dies while the array is uploaded to it and to the other one. The put need not begin
// again, and the array is read from the other one.
TEST_F(ReplicasTest, APutGoesOnWithoutAnExecutorThatDies) {
  constexpr int64_t kLarge = 2 << 20;
  const ir::Array value = Ramp(kLarge);
  for (const int64_t part : {1, 4, 7}) {
    SCOPED_TRACE(part);
    kill_after_bytes_ = bytes_moved_ + value.num_bytes() * part / 4;
    kill_pid_ = cluster_->executor_pid(first_worker_);
    const testing::Stopwatch watch;
    const Array large = put(value, both_, P());
    EXPECT_EQ(kill_pid_, 0) << "the executor was not killed";
    EXPECT_LT(watch.Unhindered(), kReadWithin);
    EXPECT_TRUE(IsEqual(large.value(), value));
    ASSERT_TRUE(Eventually([&] { return cluster_->executor_pid(first_worker_) > 0; }));
    TESSERA_ASSERT_OK(cluster_->AwaitHealthyDevices(kWorkers));
  }
}

// The daemon stands still, so that it does not tell the coordinator of the executor's death. The
// client gets a ticket for the dead executor, and asks for another one until the coordinator knows.
TEST_F(ReplicasTest, AReadWithATicketForADeadExecutorGoesOnElsewhere) {
  // When the run has ended, the coordinator knows that both devices have its result.
  const Array large = jit([](Array x) { return x * 1; })(put(Ramp(kElements), both_, P()));
  large.wait(absl::Seconds(60));
  ASSERT_EQ(large.devices(), both_.devices);
  const int pid = cluster_->executor_pid(first_worker_);
  ASSERT_GT(pid, 0);
  cluster_->worker(first_worker_).Signal(SIGSTOP);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  const testing::Stopwatch watch;
  EXPECT_TRUE(IsEqual(large.value(), Ramp(kElements)));
  const absl::Duration read_after = watch.Unhindered();
  std::cout << "read after " << absl::ToDoubleSeconds(read_after) << " s\n";
  EXPECT_LT(read_after, kReadWithin);
  cluster_->worker(first_worker_).Signal(SIGCONT);
  TESSERA_EXPECT_OK(cluster_->AwaitHealthyDevices(kWorkers));
}

}  // namespace
}  // namespace tessera::service
