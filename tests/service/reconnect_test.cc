// Tests that a client of the C++ SDK outlives its coordinator, and its link to the coordinator. The
// coordinator is killed and started again with the same state folder, or the link is cut, while the
// client holds arrays and a run. The client's objects must keep working.
//
// TESSERA_CUT_SECONDS sets how long the link is cut; 3 by default.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

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

using ::testing::ElementsAre;
using testing::ErrorOf;
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

// How the link between the client and the coordinator is cut.
enum class Cut {
  kRefused,  // connections are reset, and new ones as well
  kSilent,   // nothing comes through, and nobody is told
};

class LinkTest : public ::testing::TestWithParam<Cut> {
 protected:
  static absl::Duration CutTime() {
    const char* const seconds = std::getenv("TESSERA_CUT_SECONDS");
    return absl::Seconds(seconds != nullptr ? std::atoi(seconds) : 3);
  }
  void Start(const ConnectOptions& options = {}) {
    ClusterOptions cluster;
    cluster.workers = 1;
    // The coordinator sees that connections are reset, and would cancel the client's runs.
    cluster.coordinator_flags = {"--session-grace-ms=60000", "--canary-interval-ms=0"};
    TESSERA_ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start(cluster));
    TESSERA_ASSERT_OK_AND_ASSIGN(proxy_, FaultProxy::Start(cluster_->address()));
    Session::SetDefault(Session::Connect(proxy_->address(), options));
    mesh_ = make_mesh({2}, {"x"}, {AxisType::kAuto});
  }
  ~LinkTest() override {
    if (HasFailure() && cluster_) std::puts(cluster_->Logs().c_str());
    Session::SetDefault(nullptr);
  }
  void SetCut(bool on) {
    if (GetParam() == Cut::kRefused) {
      proxy_->SetRefusing(on);
    } else {
      proxy_->SetBlackhole(on);
    }
  }
  // Lets time pass. No event marks the end of this wait, so it uses a timeout.
  static void PassTime(absl::Duration time) {
    const absl::Notification never;
    never.WaitForNotificationWithTimeout(time);
  }

  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<FaultProxy> proxy_;
  Mesh mesh_;
};
INSTANTIATE_TEST_SUITE_P(Cuts, LinkTest, ::testing::Values(Cut::kRefused, Cut::kSilent),
                         [](const auto& info) {
                           return info.param == Cut::kRefused ? "Refused" : "Silent";
                         });

// Every kind of call begins while the link is cut, and ends well when the link is back.
TEST_P(LinkTest, CallsGoOnAfterTheLinkWasCut) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const Array held = put(array<float>({1, 2}), mesh_, P("x"));
  EXPECT_THAT(Steps(held).get<float>(), ElementsAre(1, 2));
  const Array running = Steps(held);
  SetCut(true);
  std::vector<std::future<std::vector<float>>> calls;
  const auto begin = [&](auto call) { calls.push_back(std::async(std::launch::async, call)); };
  begin([&] {
    running.wait();
    return running.get<float>();
  });
  begin([&] { return held.get<float>(); });
  begin([&] { return Steps(held).get<float>(); });
  begin([&] { return put(array<float>({1, 2}), mesh_, P("x")).get<float>(); });
  begin([&] { return jit([](Array x) { return x * 1.0 + 0.0; })(held).get<float>(); });
  begin([&] { return put(held, mesh_, P()).get<float>(); });
  begin([&] { return std::vector<float>(Session::Default()->devices().size(), 1); });
  PassTime(CutTime());
  SetCut(false);
  for (size_t i = 0; i + 1 < calls.size(); ++i)
    EXPECT_THAT(calls[i].get(), ElementsAre(1, 2)) << "call " << i;
  EXPECT_THAT(calls.back().get(), ElementsAre(1, 1));
}

// A wait with a timeout of its own ends at that time, with what is known.
TEST_P(LinkTest, ACallsOwnTimeoutEndsItWhileTheLinkIsCut) {
  ConnectOptions options;
  options.keepalive = {absl::Seconds(1), absl::Seconds(1)};
  ASSERT_NO_FATAL_FAILURE(Start(options));
  const Array held = put(array<float>({1, 2}), mesh_, P("x"));
  const Array running = Steps(Steps(Steps(Steps(held))));
  SetCut(true);
  PassTime(absl::Seconds(3));  // the client has noticed that the link is cut
  const testing::Stopwatch watch;
  const Error e = ErrorOf([&] { running.wait(absl::Seconds(1)); });
  EXPECT_EQ(e.reason(), "DEADLINE_EXCEEDED") << e.what();
  EXPECT_THAT(e.what(), HasSubstr(absl::StrCat("the coordinator at ", proxy_->address())));
  EXPECT_LT(watch.Unhindered(), absl::Seconds(4));
  SetCut(false);
  EXPECT_THAT(running.get<float>(), ElementsAre(1, 2));
}

TEST_P(LinkTest, ALinkThatStaysCutIsReportedWithTheCallItsTimeAndTheAddress) {
  ConnectOptions options;
  options.reconnect = absl::Seconds(2);
  options.keepalive = {absl::Seconds(1), absl::Seconds(1)};
  ASSERT_NO_FATAL_FAILURE(Start(options));
  const Array held = put(array<float>({1, 2}), mesh_, P("x"));
  const Array running = Steps(held);
  SetCut(true);
  const testing::Stopwatch watch;
  const absl::Status end = Session::Default()->service().ListDevices().status();
  EXPECT_THAT(end, ReasonIs("UNREACHABLE", absl::StrCat("the coordinator at ", proxy_->address(),
                                                        " does not answer: ")));
  EXPECT_THAT(std::string(end.message()), HasSubstr("ListDevices has waited for it for "));
  EXPECT_GE(watch.Elapsed(), absl::Seconds(2));
  EXPECT_LT(watch.Unhindered(), kReportedWithin);
  const Error e = ErrorOf([&] { running.wait(); });
  EXPECT_EQ(e.reason(), "UNREACHABLE") << e.what();
  EXPECT_THAT(e.what(), HasSubstr("WaitOperation has waited for it for "));
  EXPECT_LT(watch.Unhindered(), 2 * kReportedWithin);
  SetCut(false);
  EXPECT_TRUE(
      testing::Eventually([&] { return Session::Default()->service().ListDevices().ok(); }));
  EXPECT_THAT(held.get<float>(), ElementsAre(1, 2));
}

}  // namespace
}  // namespace tessera::service
