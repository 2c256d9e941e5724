// Tests that a client of the C++ SDK outlives its coordinator. The coordinator is killed and
// started again with the same state folder while the client holds arrays and a run. The client's
// objects must keep working.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/status_matchers.h"
#include "base/testing/stopwatch.h"
#include "client/tessera.h"
#include "tests/service/cluster.h"

namespace tessera::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The outage is longer than the time for which a client tries to reach a coordinator that it has
// never reached.
constexpr absl::Duration kOutage = absl::Seconds(3);
constexpr absl::Duration kPatience = absl::Seconds(60);
// how long a client with a short reconnect time may take to report that nobody answers
constexpr absl::Duration kReportedWithin = absl::Seconds(15);

class ReconnectTest : public ::testing::Test {
 protected:
  void Start(absl::Duration reconnect) {
    std::string folder = (std::filesystem::temp_directory_path() / "tessera-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    ClusterOptions options;
    options.workers = 1;
    options.coordinator_flags = {absl::StrCat("--state-dir=", folder_, "/state")};
    options.connect.reconnect = reconnect;
    TESSERA_ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start(options));
    Session::SetDefault(cluster_->session());
  }
  ~ReconnectTest() override {
    if (HasFailure() && cluster_) std::puts(cluster_->Logs().c_str());
    Session::SetDefault(nullptr);
    cluster_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  void KillCoordinator() {
    cluster_->coordinator().Signal(SIGKILL);
    ASSERT_TRUE(cluster_->coordinator().Wait(kPatience));
  }

  std::string folder_;
  std::unique_ptr<Cluster> cluster_;
};

// Returns the result of about a second of work, which equals `x`.
Array Steps(const Array& x) {
  static const auto* const steps = new auto(jit([](Array v) {
    const auto step = [](Array c, NoneType) { return std::make_pair(c * 1.0, std::tuple<>()); };
    return scan(step, v, None, {.length = 100'000}).first;
  }));
  return (*steps)(x);
}

TEST_F(ReconnectTest, ArraysAndRunsSurviveAKilledCoordinator) {
  ASSERT_NO_FATAL_FAILURE(Start(absl::Seconds(30)));
  const Mesh mesh = make_mesh({2}, {"x"}, {AxisType::kAuto});
  const Array held = put(array<float>({1, 2}), mesh, P("x"));
  EXPECT_THAT(Steps(held).get<float>(), ElementsAre(1, 2));
  const int executor = cluster_->executor_pid(0);
  for (int i = 0; i < 3; ++i) {
    const Array running = Steps(held);
    ASSERT_NO_FATAL_FAILURE(KillCoordinator());
    // A new run begins while no coordinator is there to accept it.
    auto next = std::async(std::launch::async, [&] { return Steps(held).get<float>(); });
    // The new run neither fails nor ends during the outage.
    ASSERT_EQ(next.wait_for(absl::ToChronoSeconds(kOutage)), std::future_status::timeout);
    TESSERA_ASSERT_OK(cluster_->RestartCoordinator());  // lives as long as this thread
    EXPECT_THAT(next.get(), ElementsAre(1, 2));
    EXPECT_THAT(running.get<float>(), ElementsAre(1, 2));
    EXPECT_THAT(held.get<float>(), ElementsAre(1, 2));
  }
  EXPECT_EQ(cluster_->executor_pid(0), executor);
}

// The array is a pending sum. A coordinator that forgot this would return one summand as the whole
// value.
TEST_F(ReconnectTest, AnArrayStaysUnreducedAfterAKilledCoordinator) {
  ASSERT_NO_FATAL_FAILURE(Start(absl::Seconds(30)));
  const Mesh mesh = make_mesh({2}, {"x"});
  set_mesh context(mesh);
  const auto as_unreduced = jit([&](Array a) {
    return shard_map([](Array b) { return lax::pcast(b, "x", "unreduced"); }, mesh, {P("x")},
                     unreduced("x"))(a);
  });
  const Array t = as_unreduced(put(array<float>({1, 2}), mesh, P("x")));
  EXPECT_EQ(t.shard(1).ToDoubles(), std::vector<double>{2});
  ASSERT_NO_FATAL_FAILURE(KillCoordinator());
  TESSERA_ASSERT_OK(cluster_->RestartCoordinator());
  EXPECT_EQ(t.shard(0).ToDoubles(), std::vector<double>{1});
  EXPECT_EQ(t.shard(1).ToDoubles(), std::vector<double>{2});
  try {
    t.value();
    ADD_FAILURE() << "a summand was given for the whole";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("terms of a sum"));
  }
  EXPECT_EQ(put(t, mesh, P()).value().ToDoubles(), std::vector<double>{3});
  EXPECT_EQ(jit([](Array u) { return reshard(u + u, P()); })(t).value().ToDoubles(),
            std::vector<double>{6});
}

TEST_F(ReconnectTest, ACoordinatorThatStaysAwayIsReportedWithinTheBound) {
  ASSERT_NO_FATAL_FAILURE(Start(absl::Seconds(2)));
  ASSERT_NO_FATAL_FAILURE(KillCoordinator());
  for (int i = 0; i < 2; ++i) {
    const testing::Stopwatch watch;
    EXPECT_EQ(ReasonOf(cluster_->session()->service().ListDevices().status()), "UNREACHABLE");
    EXPECT_LT(watch.Unhindered(), kReportedWithin);
  }
  // The session works again when the coordinator is back.
  TESSERA_ASSERT_OK(cluster_->RestartCoordinator());
  EXPECT_THAT(cluster_->AwaitHealthyDevices(2), IsOk());
}

}  // namespace
}  // namespace tessera::service
