// Tests that a compiler process that takes long, that is stopped, or whose executor is gone does
// not disturb anything else. The tests stop the compiler process of a large program and watch the
// rest of the cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "client/tessera.h"
#include "ir/ops.h"
#include "tests/service/cluster.h"

namespace tessera::service {
namespace {

using testing::ChildrenOf;
using testing::Eventually;
using testing::HasEnded;
using ::testing::HasSubstr;

// The compile limit of the tests that reach it. It leaves enough time to see the compiler at work
// before.
constexpr absl::Duration kCompileLimit = absl::Seconds(5);
constexpr int64_t kElements = 64;

// Returns a program that applies sin to f32[64] `ops` times. The worker compiles such a program,
// whereas it evaluates a small program without functions like sin op by op.
api::CompileRequest Sines(int ops) {
  ir::Builder b({ir::Mesh{{{"i", 1}}}, true}, "sines");
  ir::Value x = b.Param(ir::MakeType(ir::DType::kF32, {kElements}));
  for (int i = 0; i < ops; ++i) x = ir::Sin(x);
  api::CompileRequest request;
  request.program.entry = b.Build({x});
  request.name = absl::StrCat("sines", ops);
  return request;
}

// Returns the state of a process, such as "R" if it runs or "T" if it is stopped. Returns an empty
// string once the process is gone.
std::string StateOf(int pid) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/stat"));
  std::string number, name, state;
  in >> number >> name >> state;
  return state;
}

// Returns whether the process has become a compiler. Before, it is a copy of its executor (after
// fork), and the executor waits for it.
bool IsCompiler(int pid) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/cmdline"));
  const std::string words{std::istreambuf_iterator<char>(in), {}};
  return absl::StrContains(words, "--compile-child");
}

class CompileTest : public ::testing::Test {
 protected:
  // A program of this many ops takes much longer to compile than a small kernel, even on a busy
  // machine.
  static constexpr int kLargeOps = 2000;

  static std::string CompileTimeoutFlag() {
    return absl::StrCat("--compile-timeout-ms=", absl::ToInt64Milliseconds(kCompileLimit));
  }
  void Start(std::vector<std::string> worker_flags = {}) {
    worker_flags.push_back("--cache-dir=off");
    TESSERA_ASSERT_OK_AND_ASSIGN(
        cluster_, Cluster::Start({1, 1, {"--canary-interval-ms=0"}, worker_flags, 0, {}}));
  }
  void TearDown() override {
    if (HasFailure() && cluster_) std::cerr << cluster_->Logs();
  }

  // Compiles a large program on a thread and with a session of their own.
  void CompileLarge() {
    large_ = std::thread([this] {
      const auto session = Session::Connect(cluster_->address());
      const absl::Time start = absl::Now();
      large_status_ = session->service().Compile(Sines(kLargeOps)).status();
      large_duration_ = absl::Now() - start;
      large_ended_ = true;
    });
  }
  // Returns the process id of the compiler, or -1 if none runs.
  int CompilerPid() const {
    for (const int pid : ChildrenOf(cluster_->executor_pid(0)))
      if (IsCompiler(pid) && StateOf(pid) == "R") return pid;
    return -1;
  }
  // Stops the compiler process as soon as there is one, and returns its id.
  int StopCompiler() {
    int pid = -1;
    EXPECT_TRUE(Eventually([&] {
      pid = CompilerPid();
      return pid > 0 || large_ended_;
    }));
    EXPECT_FALSE(large_ended_) << large_status_;
    kill(pid, SIGSTOP);
    EXPECT_TRUE(Eventually([&] { return StateOf(pid) == "T"; }));
    return pid;
  }

  std::unique_ptr<Cluster> cluster_;
  std::thread large_;
  // CompileLarge sets these two before large_ended_.
  absl::Status large_status_;
  absl::Duration large_duration_;
  std::atomic<bool> large_ended_{false};
};

TEST_F(CompileTest, ALongCompileDelaysNoOther) {
  Start();
  CompileLarge();
  const int compiler_pid = StopCompiler();
  auto& service = cluster_->session()->service();
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply small, service.Compile(Sines(2)));
  const ir::Array zeros(ir::DType::kF32, {kElements});
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t x, service.Put(zeros, small.in[0].placement));
  api::ExecuteRequest request;
  request.executable = small.executable;
  request.args = {x};
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::ExecuteReply run, service.Execute(request));
  EXPECT_THAT(service.Get(run.outputs[0], absl::Seconds(60)), IsOkAndHolds(zeros));
  // The large compile still waits for its compiler, so the small one did not have to wait for it.
  EXPECT_FALSE(large_ended_) << large_status_;
  kill(compiler_pid, SIGCONT);
  large_.join();
  TESSERA_EXPECT_OK(large_status_);
}

TEST_F(CompileTest, ACompilerThatStandsStillIsStoppedAtTheLimit) {
  Start({CompileTimeoutFlag()});
  CompileLarge();
  const int compiler_pid = StopCompiler();
  large_.join();
  EXPECT_THAT(large_status_, ReasonIs("COMPILE_TIMEOUT", HasSubstr("sines2000")));
  std::cout << "told after " << large_duration_ << ", limit " << kCompileLimit << "\n";
  EXPECT_TRUE(Eventually([&] { return HasEnded(compiler_pid); }));
  TESSERA_EXPECT_OK(cluster_->session()->service().Compile(Sines(2)));
}

TEST_F(CompileTest, TheCoordinatorReportsATimeoutWhileTheCompilerGoesOn) {
  TESSERA_ASSERT_OK_AND_ASSIGN(
      cluster_,
      Cluster::Start(
          {1, 1, {"--canary-interval-ms=0", CompileTimeoutFlag()}, {"--cache-dir=off"}, 0, {}}));
  CompileLarge();
  const int compiler_pid = StopCompiler();
  large_.join();
  EXPECT_THAT(large_status_, ReasonIs("COMPILE_TIMEOUT", HasSubstr("executor w0/0")));
  kill(compiler_pid, SIGCONT);
  auto& service = cluster_->session()->service();
  EXPECT_TRUE(Eventually([&] { return service.Compile(Sines(kLargeOps)).ok(); }));
}

TEST_F(CompileTest, ACompilerEndsWithItsExecutor) {
  Start();
  CompileLarge();
  int compiler_pid = -1;
  ASSERT_TRUE(Eventually([&] {
    compiler_pid = CompilerPid();
    return compiler_pid > 0 || large_ended_;
  }));
  const int executor = cluster_->executor_pid(0);
  kill(executor, SIGKILL);
  EXPECT_TRUE(Eventually([&] { return HasEnded(compiler_pid); }));
  large_.join();
}

}  // namespace
}  // namespace tessera::service
