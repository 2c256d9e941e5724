// Tests that the C++ SDK compiles a program again when the coordinator has dropped its executable:
// because it keeps only a few executables, or because it was restarted without a state folder. The
// coordinator and the worker are real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/testing/status_matchers.h"
#include "client/remote/json_client.h"
#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "tests/service/cluster.h"

namespace tessera::service {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;

constexpr absl::Duration kPatience = absl::Seconds(60);

class ExecutablesTest : public ::testing::Test {
 protected:
  void Start(const std::vector<std::string>& coordinator_flags) {
    ClusterOptions options;
    options.workers = 1;
    options.coordinator_flags = coordinator_flags;
    options.coordinator_flags.push_back("--canary-interval-ms=0");
    TESSERA_ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start(options));
    Session::SetDefault(cluster_->session());
    mesh_ = make_mesh({2}, {"x"}, {AxisType::kAuto});
  }
  ~ExecutablesTest() override {
    if (HasFailure() && cluster_) std::cerr << cluster_->Logs();
    Session::SetDefault(nullptr);
  }
  Array Put() { return put(ir::Array::Of(kF32, {2}, {1, 2}), mesh_, P("x")); }
  // Runs two other programs, which fill the coordinator's cache.
  void Evict() {
    for (int i = 0; i < 2; ++i) {
      const float n = static_cast<float>(++num_others_);
      EXPECT_THAT(jit([n](Array x) { return x * n; })(Put()).get<float>(), ElementsAre(n, 2 * n));
    }
  }
  // Returns the number of runs that the coordinator has accepted.
  int NumRuns() {
    const auto client = remote::JsonClient::Make(cluster_->address(), {});
    EXPECT_THAT(client, IsOk());
    const auto answer = (*client)->Call("OperationService/ListOperations",
                                        R"({"allSessions": true, "pageSize": 1000})", kPatience);
    EXPECT_THAT(answer, IsOk());
    const std::string text = answer.value_or("");
    int count = 0;
    for (size_t at = text.find("\"tenant\""); at != std::string::npos;
         at = text.find("\"tenant\"", at + 1))
      ++count;
    return count;
  }

  std::unique_ptr<Cluster> cluster_;
  Mesh mesh_;
  int num_others_ = 1;
};

TEST_F(ExecutablesTest, AnEvictedProgramIsCompiledAgain) {
  ASSERT_NO_FATAL_FAILURE(Start({"--executables-max=2"}));
  const auto f = jit([](Array x) { return x + 1.0; });
  const Array x = Put();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(f(x).get<float>(), ElementsAre(2, 3));
    Evict();
  }
  EXPECT_EQ(NumRuns(), 9) << "no run happens twice";
}

// A donated argument is consumed by the run that is accepted, and by no other.
TEST_F(ExecutablesTest, AnEvictedProgramTakesItsDonatedArgumentOnce) {
  ASSERT_NO_FATAL_FAILURE(Start({"--executables-max=2"}));
  const auto f = jit([](Array x) { return x + 1.0; }, {.donate_argnums = {0}});
  Array x = Put();
  for (int i = 0; i < 3; ++i) {
    x = f(x);
    Evict();
  }
  EXPECT_THAT(x.get<float>(), ElementsAre(4, 5));
}

TEST_F(ExecutablesTest, CallsAtTheSameTimeCompileAnEvictedProgramOnce) {
  ASSERT_NO_FATAL_FAILURE(Start({"--executables-max=2"}));
  const auto f = jit([](Array x) { return x + 1.0; });
  const Array x = Put();
  EXPECT_THAT(f(x).get<float>(), ElementsAre(2, 3));
  Evict();
  std::vector<std::future<std::vector<float>>> calls;
  for (int i = 0; i < 8; ++i)
    calls.push_back(std::async(std::launch::async, [&] { return f(x).get<float>(); }));
  for (auto& call : calls) EXPECT_THAT(call.get(), ElementsAre(2, 3));
}

TEST_F(ExecutablesTest, ProgramsComeBackAfterARestartWithoutState) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  const auto f = jit([](Array x) { return x + 1.0; });
  const auto number = jit([]() { return ones({2}) * 8.0; });
  const Array x = Put();
  EXPECT_THAT(f(x).get<float>(), ElementsAre(2, 3));
  EXPECT_THAT(number().get<float>(), ElementsAre(8, 8));
  TESSERA_ASSERT_OK(cluster_->RestartCoordinator());
  // The calls wait for the workers, which have to find the coordinator again.
  EXPECT_THAT(number().get<float>(), ElementsAre(8, 8));
  EXPECT_THAT(f(Put()).get<float>(), ElementsAre(2, 3));
  // The arrays of the old session are gone.
  EXPECT_EQ(ErrorOf([&] { f(x); }).reason(), "ARRAY_NOT_FOUND");
}

// Each step takes the result of the step before it, and they are sent before they are accepted.
TEST_F(ExecutablesTest, AnEvictedProgramThatRunsAheadKeepsItsOrder) {
  ASSERT_NO_FATAL_FAILURE(Start({"--executables-max=2"}));
  Session::SetDefault(nullptr);
  const std::shared_ptr<Session> ahead = Session::Connect(cluster_->address());
  ahead->RunAhead();
  Session::SetDefault(ahead);
  const auto f = jit([](Array x) { return x + 1.0; }, {.donate_argnums = {0}});
  const auto g = jit([](Array x) { return x * 2.0; }, {.donate_argnums = {0}});
  const auto h = jit([](Array x) { return x - 3.0; }, {.donate_argnums = {0}});
  Array x = Put();
  std::vector<float> want = {1, 2};
  // With room for two executables, each call finds that the others have taken its place.
  for (int i = 0; i < 8; ++i) {
    x = h(g(f(x)));
    for (float& w : want) w = (w + 1) * 2 - 3;
  }
  EXPECT_EQ(x.get<float>(), want);
  EXPECT_EQ(NumRuns(), 24) << "no run happens twice";
}

TEST_F(ExecutablesTest, AProgramThatCannotBeCompiledAgainGivesTheErrorOfTheCompiler) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  const auto f = jit([]() { return ones({2}) * 8.0; });
  EXPECT_THAT(f().get<float>(), ElementsAre(8, 8));
  cluster_->worker(0).Signal(SIGKILL);
  ASSERT_TRUE(cluster_->worker(0).Wait(kPatience));
  TESSERA_ASSERT_OK(cluster_->RestartCoordinator());
  deadline limit(absl::Seconds(5));  // the call would wait longer for the worker
  const Error e = ErrorOf([&] { f(); });
  EXPECT_EQ(e.reason(), "NOT_ENOUGH_DEVICES") << e.what();
}

}  // namespace
}  // namespace tessera::service
