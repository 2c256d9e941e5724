// Tests that no worker, array, run or session is lost when the coordinator stands still for ten
// seconds, or when the wall clock of the machines is set by an hour.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/testing/datadriven.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "base/testing/stopwatch.h"
#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "tests/service/cluster.h"

namespace tessera::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(60);
// The pause is longer than every lease, and longer than every time for which silence is tolerated,
// except on the link to the workers.
constexpr absl::Duration kPause = absl::Seconds(10);
constexpr absl::Duration kLease = absl::Milliseconds(1500);

class PauseTest : public ::testing::Test {
 protected:
  void Start() {
    TESSERA_ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start());
    Session::SetDefault(cluster_->session());
    mesh_ = make_mesh({4}, {"i"}, {AxisType::kAuto});
    members_ = cluster_->member_pids();
    kept_ = std::make_unique<Array>(Ramp());
    kept_->wait();
  }
  void TearDown() override {
    kept_.reset();
    Session::SetDefault(nullptr);
    if (HasFailure() && cluster_) std::cerr << cluster_->Logs();
  }

  Array Ramp() { return put(ir::Array::Of(kF32, {8}, {0, 1, 2, 3, 4, 5, 6, 7}), mesh_, P("i")); }
  // Returns a program that sums over all devices `steps` times.
  auto Sums(int64_t steps) {
    return jit([mesh = mesh_, steps](Array x) {
      return shard_map(
          [steps](Array b) {
            const auto step = [](Array c, NoneType) {
              return std::make_pair(c * 0.0 + lax::psum(c, "i") * 0.25, std::tuple<>());
            };
            return scan(step, b, None, {.length = steps}).first;
          },
          mesh, {P("i")}, P("i"))(x);
    });
  }
  // Returns the processor time that each executor has used.
  std::vector<int64_t> ExecutorTicks() const {
    return {testing::CpuTicks(cluster_->executor_pid(0)),
            testing::CpuTicks(cluster_->executor_pid(1))};
  }
  // Lets time pass. No event marks the end of this wait, so it uses a timeout.
  static void PassTime(absl::Duration time) {
    const absl::Notification never;
    never.WaitForNotificationWithTimeout(time);
  }
  // Expects that the array and the processes are still there and that new work runs.
  void ExpectNothingLost() {
    for (const api::Device& d : cluster_->session()->devices())
      EXPECT_TRUE(d.healthy) << "device " << d.id << ": " << d.reason;
    EXPECT_THAT(kept_->get<float>(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_THAT(Sums(1)(*kept_).get<float>(), ElementsAre(3, 4, 3, 4, 3, 4, 3, 4));
    EXPECT_EQ(cluster_->member_pids(), members_);
    EXPECT_THAT(cluster_->Logs(), Not(HasSubstr("executor lost")));
  }

  std::unique_ptr<Cluster> cluster_;
  Mesh mesh_;
  std::vector<int> members_;
  std::unique_ptr<Array> kept_;
};

TEST_F(PauseTest, ACoordinatorThatStandsStillLosesNothing) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const auto sums = Sums(5'000);
  sums(*kept_).wait();  // compiles the program
  for (const absl::Duration pause : {absl::Milliseconds(2500), kPause}) {
    SCOPED_TRACE(absl::FormatDuration(pause));
    const std::vector<int64_t> ticks = ExecutorTicks();
    const Array running = sums(*kept_);
    // Wait until both executors run it. If the coordinator stood still after it had sent the run to
    // only one of them, the collective would reach its timeout.
    ASSERT_TRUE(testing::Eventually([&] {
      const std::vector<int64_t> now = ExecutorTicks();
      return now[0] >= ticks[0] + 3 && now[1] >= ticks[1] + 3;
    }));
    cluster_->coordinator().Signal(SIGSTOP);
    PassTime(pause);
    cluster_->coordinator().Signal(SIGCONT);
    running.wait(kPatience);
    ASSERT_NO_FATAL_FAILURE(ExpectNothingLost());
  }
  // A worker that is really silent is declared lost as quickly as ever.
  cluster_->worker(1).Signal(SIGSTOP);
  const testing::Stopwatch stopped;
  EXPECT_TRUE(testing::Eventually([&] {
    for (const api::Device& d : cluster_->session()->devices())
      if (!d.healthy) return absl::StrContains(d.reason, "silent");
    return false;
  }));
  EXPECT_LT(stopped.Unhindered(), 2 * kLease);
}

// Sets the wall clock of every process of the cluster, but of no other process.
class ClockTest : public PauseTest {
 protected:
  void SetUp() override {
    step_file_ = (std::filesystem::temp_directory_path() / "tessera-step-XXXXXX").string();
    const int fd = mkstemp(step_file_.data());
    ASSERT_GE(fd, 0);
    close(fd);
    StepWallClock(absl::ZeroDuration());
    setenv("LD_PRELOAD", SourcePath(CLOCK_STEP_LIBRARY).c_str(), 1);
    setenv("CLOCK_STEP_FILE", step_file_.c_str(), 1);
    Start();
    unsetenv("LD_PRELOAD");
  }
  void TearDown() override {
    PauseTest::TearDown();
    cluster_.reset();
    std::filesystem::remove(step_file_);
  }
  void StepWallClock(absl::Duration by) {
    const int64_t seconds = absl::ToInt64Seconds(by);
    const int fd = open(step_file_.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(pwrite(fd, &seconds, sizeof(seconds), 0), sizeof(seconds));
    close(fd);
  }
  void ExpectNothingLostAfterAStepOf(absl::Duration by) {
    const Array running = Sums(5'000)(*kept_);
    StepWallClock(by);
    running.wait(kPatience);
    // The runs go on long enough for leases to be renewed and heartbeats to be sent several times.
    for (const absl::Time end = absl::Now() + 3 * kLease; absl::Now() < end;)
      ASSERT_THAT(Sums(1)(*kept_).get<float>(), ElementsAre(3, 4, 3, 4, 3, 4, 3, 4));
    ASSERT_NO_FATAL_FAILURE(ExpectNothingLost());
    // Tickets of a transfer are written and checked by the same clock.
    EXPECT_THAT(Ramp().get<float>(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  }
  std::string step_file_;
};

TEST_F(ClockTest, AnHourForwardLosesNothing) { ExpectNothingLostAfterAStepOf(absl::Hours(1)); }
TEST_F(ClockTest, AnHourBackLosesNothing) { ExpectNothingLostAfterAStepOf(-absl::Hours(1)); }

}  // namespace
}  // namespace tessera::service
