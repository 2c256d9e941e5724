// Tests what a user of the SDK sees when processes of a cluster are killed or told to stop in the
// middle of a step. Each test has a cluster of two workers with two devices each; the step is a
// long loop of collectives over all devices.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "base/testing/stopwatch.h"
#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "tests/service/cluster.h"
#include "worker/telemetry/in_flight.h"

namespace tessera::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using testing::Eventually;
using testing::HasEnded;
using ::testing::HasSubstr;

constexpr int kWorkers = 2;
constexpr int kDevices = 2;  // number of devices of each worker
// time limits that the service promises after a kill
constexpr absl::Duration kToldWithin = absl::Seconds(2);
constexpr absl::Duration kBackWithin = absl::Seconds(3);
// how long the client tries to reach a coordinator that has gone away
constexpr absl::Duration kReconnect = absl::Seconds(1);
// time within which the executors of a killed daemon must have ended
constexpr absl::Duration kChildrenGoneWithin = absl::Seconds(1);
// time within which a daemon that was told to stop must have ended
constexpr absl::Duration kStopsWithin = absl::Seconds(5);

// Returns the op that an executor of this daemon is running, read from the memory page that the two
// processes share.
worker::InFlightOp OpInFlight(int daemon_pid) {
  std::error_code gone;
  const std::string folder = absl::StrCat("/proc/", daemon_pid, "/fd");
  for (const auto& entry : std::filesystem::directory_iterator(folder, gone)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!absl::StrContains(target, "memfd:tessera-in-flight")) continue;
    const int fd = open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) continue;
    const worker::InFlightPage page(fd, kDevices);
    close(fd);
    return page.LikelyCulprit();
  }
  return {};
}

class FaultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ClusterOptions options;
    options.workers = kWorkers;
    options.devices_per_worker = kDevices;
    options.connect.reconnect = kReconnect;
    TESSERA_ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start(options));
    Session::SetDefault(cluster_->session());
    mesh_ = make_mesh({kWorkers * kDevices}, {"i"}, {AxisType::kAuto});
  }
  void TearDown() override {
    Session::SetDefault(nullptr);
    if (HasFailure() && cluster_) std::cerr << cluster_->Logs();
  }

  Array Ramp(const Mesh& mesh) {
    std::vector<double> values(8);
    for (int i = 0; i < 8; ++i) values[i] = i;
    return put(ir::Array::Of(kF32, {8}, values), mesh, P("i"));
  }

  // Returns a step that runs for minutes and sums over all devices in each iteration.
  auto LongSteps() {
    first_line_ = __LINE__;
    return jit([mesh = mesh_](Array x) {
      return shard_map(
          [](Array b) {
            const auto step = [](Array c, NoneType) {
              return std::make_pair(sin(c) + lax::psum(c, "i") * 0.1, std::tuple<>());
            };
            return scan(step, b, None, {.length = 100'000'000}).first;
          },
          mesh, {P("i")}, P("i"))(x);
    });
  }
  int first_line_ = 0;
  static constexpr int kLines = 12;

  // Returns a step that sums once over all devices of the mesh.
  static auto ShortStep(const Mesh& mesh) {
    return jit([mesh](Array x) {
      return shard_map([](Array b) { return lax::psum(b, "i"); }, mesh, {P("i")}, P())(x);
    });
  }

  // Returns whether `text` names an op with a source line of LongSteps.
  bool NamesALineOfLongSteps(absl::string_view text) const {
    for (int line = first_line_; line < first_line_ + kLines; ++line) {
      if (absl::StrContains(text, absl::StrCat(" (faults_test.cc:", line, ")"))) return true;
    }
    return false;
  }

  // Waits until LongSteps runs on every worker. Another program, a canary, may run before it.
  void AwaitMidStep() {
    for (int w = 0; w < kWorkers; ++w) {
      ASSERT_TRUE(Eventually([&] {
        return NamesALineOfLongSteps(OpInFlight(cluster_->worker(w).pid()).op);
      })) << "worker "
          << w << " runs " << OpInFlight(cluster_->worker(w).pid()).op;
    }
  }

  // Expects the error message to name an op of LongSteps and its source line.
  void ExpectNamesTheOp(const Error& e) {
    const std::string message = e.what();
    const size_t op = message.find(", op ");
    ASSERT_NE(op, std::string::npos) << message;
    EXPECT_TRUE(NamesALineOfLongSteps(message.substr(op))) << message;
  }

  // Kills one executor in the middle of a step. The caller that waits must be told, the other
  // executor must become free, and the next step must run.
  void KillAnExecutor(int victim) {
    const int peer = 1 - victim;
    const auto step = ShortStep(mesh_);
    EXPECT_THAT(step(Ramp(mesh_)).get<float>(), ElementsAre(12, 16));
    const auto steps = LongSteps();
    const Array kept = Ramp(mesh_);
    const Array y = steps(kept);
    ASSERT_NO_FATAL_FAILURE(AwaitMidStep());
    const int killed_pid = cluster_->executor_pid(victim);
    ASSERT_GT(killed_pid, 0);

    const testing::Stopwatch watch;
    ASSERT_EQ(kill(killed_pid, SIGKILL), 0);
    const Error e = ErrorOf([&] { y.wait(absl::Seconds(60)); });
    const absl::Duration told_after = watch.Unhindered();
    std::cout << "told after " << absl::ToDoubleSeconds(told_after) << " s\n";
    EXPECT_LT(told_after, kToldWithin);
    EXPECT_EQ(e.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(e.reason(), "WORKER_LOST");
    EXPECT_THAT(e.what(), AllOf(HasSubstr(absl::StrCat("worker w", victim)),
                                HasSubstr("killed by signal 9")));
    ExpectNamesTheOp(e);

    // The next step needs all devices, so it waits until the executor is back.
    const Array z = step(Ramp(mesh_));
    EXPECT_THAT(z.get<float>(), ElementsAre(12, 16));
    EXPECT_LT(watch.Unhindered(), kBackWithin);
    EXPECT_TRUE(Eventually([&] { return OpInFlight(cluster_->worker(peer).pid()).launch == 0; },
                           kToldWithin))
        << "the peer still runs " << OpInFlight(cluster_->worker(peer).pid()).op;

    // The array that had a shard on the killed executor is lost, and its error says so.
    const Error lost = ErrorOf([&] { kept.value(); });
    EXPECT_EQ(lost.reason(), "WORKER_LOST");
    EXPECT_THAT(lost.what(), HasSubstr("make it again"));
    // The result carries the error that its producer ended with.
    EXPECT_EQ(ErrorOf([&] { y.value(); }).reason(), "WORKER_LOST");
    EXPECT_EQ(ErrorOf([&] { (y + 1).value(); }).reason(), "WORKER_LOST");
  }

  std::unique_ptr<Cluster> cluster_;
  Mesh mesh_;
};

TEST_F(FaultsTest, AKilledExecutorIsNamedAndTheNextStepRuns) { KillAnExecutor(1); }

TEST_F(FaultsTest, EitherExecutorMayBeKilledAgainAndAgain) {
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    ASSERT_NO_FATAL_FAILURE(KillAnExecutor(i % kWorkers));
  }
}

// After a daemon is killed, the rest of the cluster works at once and the worker can come back.
TEST_F(FaultsTest, AKilledWorkerIsNamedAndTheOtherGoesOn) {
  const auto steps = LongSteps();
  const Array y = steps(Ramp(mesh_));
  ASSERT_NO_FATAL_FAILURE(AwaitMidStep());
  const int executor = cluster_->executor_pid(1);
  const testing::Stopwatch watch;
  cluster_->worker(1).Signal(SIGKILL);
  const Error e = ErrorOf([&] { y.wait(absl::Seconds(60)); });
  const absl::Duration told_after = watch.Unhindered();
  std::cout << "told after " << absl::ToDoubleSeconds(told_after) << " s\n";
  EXPECT_LT(told_after, kToldWithin);
  EXPECT_EQ(e.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(e.reason(), "WORKER_LOST");
  EXPECT_THAT(e.what(), AllOf(HasSubstr("worker w1"), HasSubstr("its daemon has ended"),
                              HasSubstr("(faults_test.cc:")));
  EXPECT_TRUE(Eventually([&] { return HasEnded(executor); }))
      << "the executor of the killed worker lives on";

  // The worker that is left runs steps at once.
  const Mesh half = make_mesh({kDevices}, {"i"}, {AxisType::kAuto});
  EXPECT_THAT(ShortStep(half)(Ramp(half)).get<float>(), ElementsAre(4, 6, 8, 10));
  EXPECT_LT(watch.Unhindered(), kBackWithin);

  // A step that needs the lost worker is refused, and the error says what the caller has to wait
  // for.
  for (const api::Device& device : cluster_->session()->devices()) {
    EXPECT_EQ(device.healthy, device.worker == "w0") << device.id;
    EXPECT_THAT(device.reason, HasSubstr(device.healthy ? "" : "its daemon has ended"));
  }
  const Error refusal = ErrorOf([&] { ShortStep(mesh_)(Ramp(mesh_)).value(); });
  EXPECT_EQ(refusal.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(refusal.reason(), "WORKER_LOST");
  EXPECT_THAT(refusal.what(),
              AllOf(HasSubstr("executor w1/0 of worker w1 is lost"),
                    HasSubstr("not back within 3s"), HasSubstr("(faults_test.cc:")));

  // The worker comes back under its old name, with the same devices.
  TESSERA_ASSERT_OK(cluster_->RestartWorker(1));
  TESSERA_ASSERT_OK(cluster_->AwaitHealthyDevices(kWorkers * kDevices));
  EXPECT_THAT(ShortStep(mesh_)(Ramp(mesh_)).get<float>(), ElementsAre(12, 16));
}

// A coordinator that gets SIGTERM tells waiting clients, and workers outlive it until they are
// stopped.
TEST_F(FaultsTest, ACoordinatorToldToStopTellsItsClients) {
  const Array y = LongSteps()(Ramp(mesh_));
  ASSERT_NO_FATAL_FAILURE(AwaitMidStep());
  const std::vector<int> all = cluster_->pids();
  ASSERT_EQ(all.size(), 1u + 2u * kWorkers);
  std::thread stop([&] { cluster_->coordinator().Signal(SIGTERM); });
  const testing::Stopwatch watch;
  const Error e = ErrorOf([&] { y.value(); });
  stop.join();
  EXPECT_LT(watch.Unhindered(), kToldWithin);
  EXPECT_EQ(e.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(e.reason(), "SERVER_STOPPING") << e.what();
  EXPECT_TRUE(IsRetryable(e.status()));
  EXPECT_THAT(e.what(), HasSubstr("(faults_test.cc:"));

  const std::optional<int> end = cluster_->coordinator().Wait(kStopsWithin);
  ASSERT_TRUE(end) << "the coordinator does not stop";
  EXPECT_TRUE(WIFEXITED(*end) && WEXITSTATUS(*end) == 0) << *end;
  const Error after = ErrorOf([&] { array<float>({1}); });
  EXPECT_EQ(after.reason(), "UNREACHABLE");
  EXPECT_THAT(after.what(), AllOf(HasSubstr(cluster_->address()), HasSubstr("Check that it runs")));

  // Workers keep looking for the coordinator until they are told to stop too. Then no process is
  // left.
  for (int w = 0; w < kWorkers; ++w) cluster_->worker(w).Signal(SIGTERM);
  for (int w = 0; w < kWorkers; ++w) {
    const std::optional<int> status = cluster_->worker(w).Wait(kStopsWithin);
    ASSERT_TRUE(status) << "worker " << w << " does not stop";
    EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0) << *status;
  }
  EXPECT_TRUE(Eventually([&] { return std::all_of(all.begin(), all.end(), HasEnded); }));
}

TEST_F(FaultsTest, AWorkerToldToStopInMidStepLeavesNoProcess) {
  const Array y = LongSteps()(Ramp(mesh_));
  ASSERT_NO_FATAL_FAILURE(AwaitMidStep());
  const int executor = cluster_->executor_pid(1);
  const testing::Stopwatch watch;
  cluster_->worker(1).Signal(SIGTERM);
  const Error e = ErrorOf([&] { y.wait(absl::Seconds(60)); });
  EXPECT_LT(watch.Unhindered(), kToldWithin);
  EXPECT_EQ(e.reason(), "WORKER_LOST");
  const std::optional<int> end = cluster_->worker(1).Wait(kStopsWithin);
  ASSERT_TRUE(end) << "the worker does not stop";
  EXPECT_TRUE(WIFEXITED(*end) && WEXITSTATUS(*end) == 0) << *end;
  EXPECT_TRUE(Eventually([&] { return HasEnded(executor); }));
}

}  // namespace
}  // namespace tessera::service
