// Tests that a client's memory and runs on the devices are freed when the client goes, however it
// ends. The clients are other processes: this test program starts itself again with --child or
// --program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "client/remote/json_client.h"
#include "client/tessera.h"
#include "tests/service/cluster.h"
#include "tests/service/fault_proxy.h"

namespace tessera::service {
namespace {

using testing::Eventually;

// The device memory is small, so that filling it is quick on a busy machine. Two arrays of
// kElements do not fit.
constexpr char kDeviceMemory[] = "--device-memory-bytes=4194304";
constexpr int64_t kElements = (5 << 19) / sizeof(float);
constexpr unsigned kChildLifeSeconds = 120;
constexpr char kReady[] = "ready";
// the lease of a program that is stopped for longer than that
constexpr absl::Duration kStoppedLease = absl::Milliseconds(1500);
constexpr int kHandlerExitStatus = 7;  // exit status of a program's own signal handler
// grace period of the coordinator in GraceTest; short, so that the tests are quick
constexpr absl::Duration kGrace = absl::Seconds(2);
// how much longer than promised something may take on a busy machine
constexpr absl::Duration kSlack = absl::Seconds(5);

Array FillDevice() {
  return put(ir::Array(kF32, {kElements}), make_mesh({1}, {"i"}, {AxisType::kAuto}), P());
}

// Runs in another process: fills a device, prints kReady, and ends when SIGTERM arrives.
int Child(const std::string& address, absl::Duration lease) {
  alarm(kChildLifeSeconds);
  // Block the signal before any thread starts, so that sigwait receives it.
  sigset_t end;
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &end, nullptr);
  ConnectOptions options;
  options.lease = lease;
  Session::SetDefault(Session::Connect(address, options));
  {
    const Array large = FillDevice();
    large.wait();
    std::cout << kReady << std::endl;
    int signal = 0;
    sigwait(&end, &signal);
  }
  Session::SetDefault(nullptr);
  return 0;
}

// Starts a run that takes minutes on one device.
Array StartLongRun() {
  const auto steps = jit([](Array x) {
    const auto step = [](Array c, NoneType) {
      return std::make_pair(sin(c) * 0.5, std::tuple<>());
    };
    return scan(step, x, None, {.length = 1'000'000'000}).first;
  });
  return steps(put(ir::Array(kF32, {4}), make_mesh({1}, {"i"}, {AxisType::kAuto}), P()));
}

// Programs as users write them, with the default session. Each of them ends in another way.
namespace programs {

Array kept;  // NOLINT(cert-err58-cpp): as careless programs have them

void SetUpProgram(const std::string& address) {
  alarm(kChildLifeSeconds);
  setenv("TESSERA_ADDRESS", address.c_str(), /*overwrite=*/1);
}
void Fill() {
  kept = FillDevice();
  kept.wait();
}
void Say(const std::string& word) { std::cout << word << std::endl; }
int WaitForSignal() {
  while (true) pause();
}

int Return() {
  Fill();
  Say(kReady);
  return 0;
}
int Exit() {
  Fill();
  Say(kReady);
  std::exit(0);
}
int Wait() {
  Fill();
  Say(kReady);
  return WaitForSignal();
}
int WaitWithTwoSessions() {
  const std::shared_ptr<Session> second_session = Session::Connect(std::getenv("TESSERA_ADDRESS"));
  return Wait();
}
// Installs the program's own signal handler before the SDK is used.
int WaitWithOwnHandler() {
  signal(SIGTERM, [](int) { _exit(kHandlerExitStatus); });
  return Wait();
}
int WaitIgnoringSigint() {
  signal(SIGINT, SIG_IGN);
  return Wait();
}
// Forks children that end by exit and by a signal. Neither may harm what belongs to the parent.
int ForkAndWait() {
  Fill();
  for (const bool by_exit : {true, false}) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kChildLifeSeconds);
      Session::SetDefault(nullptr);
      if (by_exit) std::exit(0);
      kill(getpid(), SIGTERM);
      return WaitForSignal();
    }
    int end = 0;
    if (waitpid(child, &end, 0) != child) return 3;
    if (by_exit ? !WIFEXITED(end) : !WIFSIGNALED(end)) return 4;
  }
  if (kept.value().num_elements() != kElements) return 5;
  Say(kReady);
  return WaitForSignal();
}
// Prints how a call ends that uses what the session had.
template <class F>
void SayEndOf(const std::string& name, const F& call) {
  try {
    call();
    Say(absl::StrCat(name, ": no error"));
  } catch (const Error& e) {
    Say(absl::StrCat(name, ": ", ToAbsl(e.reason()), ": ", e.what()));
  }
}
// Waits until it has been stopped and continued, and then uses everything that its session had.
int UseAfterAStop() {
  // SIGCONT continues the process even while it is blocked, and then ends the wait for it. Block it
  // before any thread starts, so that sigwait receives it.
  sigset_t continued;
  sigemptyset(&continued);
  sigaddset(&continued, SIGCONT);
  pthread_sigmask(SIG_BLOCK, &continued, nullptr);
  ConnectOptions options;
  options.lease = kStoppedLease;
  Session::SetDefault(Session::Connect(std::getenv("TESSERA_ADDRESS"), options));
  const Mesh mesh = make_mesh({1}, {"i"}, {AxisType::kAuto});
  const auto twice = jit([](Array x) { return x * 2.0; });
  const Array given = put(ir::Array::Of(kF32, {2}, {1, 2}), mesh, P());
  const Array made = twice(given);
  if (made.get<float>() != std::vector<float>{2, 4}) return 3;
  const Array running = StartLongRun();
  // The wait has begun when the process is stopped.
  auto waits = std::async(std::launch::async, [&] {
    std::string end;
    try {
      running.wait();
    } catch (const Error& e) {
      end = absl::StrCat(ToAbsl(e.reason()), ": ", e.what());
    }
    return end;
  });
  Say(kReady);
  int signal = 0;
  sigwait(&continued, &signal);
  SayEndOf("read", [&] { given.value(); });
  SayEndOf("read of a result", [&] { made.value(); });
  SayEndOf("shard", [&] { given.shard(0); });
  SayEndOf("run", [&] { twice(given).value(); });
  SayEndOf("wait", [&] { running.wait(); });
  SayEndOf("wait for a result", [&] { made.wait(); });
  SayEndOf("reshard", [&] { put(given, make_mesh({1}, {"j"}, {AxisType::kAuto}), P()).value(); });
  Say(absl::StrCat("begun wait: ", waits.get()));
  SayEndOf("new", [&] {
    if (twice(put(ir::Array::Of(kF32, {2}, {3, 4}), mesh, P())).get<float>() !=
        std::vector<float>{6, 8})
      Say("wrong values");
  });
  Session::SetDefault(nullptr);
  return 0;
}
int RunForLong() {
  kept = StartLongRun();
  Say(kReady);
  return WaitForSignal();
}

const std::map<std::string, int (*)()>& Programs() {
  static const auto* const table =
      new std::map<std::string, int (*)()>{{"return", Return},
                                           {"exit", Exit},
                                           {"wait", Wait},
                                           {"wait-two", WaitWithTwoSessions},
                                           {"handle", WaitWithOwnHandler},
                                           {"ignore", WaitIgnoringSigint},
                                           {"fork", ForkAndWait},
                                           {"stopped", UseAfterAStop},
                                           {"run", RunForLong}};
  return *table;
}

}  // namespace programs

class SessionsTest : public ::testing::Test {
 protected:
  virtual std::vector<std::string> CoordinatorFlags() const { return {}; }
  void SetUp() override {
    TESSERA_ASSERT_OK_AND_ASSIGN(
        cluster_, Cluster::Start({1, 1, CoordinatorFlags(), {kDeviceMemory}, 0, {}}));
    Session::SetDefault(cluster_->session());
  }
  void TearDown() override {
    Session::SetDefault(nullptr);
    if (HasFailure() && cluster_) std::cerr << cluster_->Logs();
  }

  // Starts Child() in a process. Returns when the child has filled the device.
  absl::StatusOr<std::unique_ptr<Process>> StartChild(absl::Duration lease) const {
    return Start({"--child", cluster_->address(), absl::StrCat(absl::ToInt64Milliseconds(lease))});
  }
  // Starts one of the programs above in a process. Returns when the program says that it has filled
  // the device or started its run.
  absl::StatusOr<std::unique_ptr<Process>> StartProgram(const std::string& name) const {
    return StartProgram(name, cluster_->address());
  }
  static absl::StatusOr<std::unique_ptr<Process>> StartProgram(const std::string& name,
                                                               const std::string& address) {
    return Start({"--program", address, name});
  }
  static std::string LogOfChild() {
    return absl::StrCat(::testing::TempDir(), "/child-", getpid(), ".log");
  }
  static std::string ReadLogOfChild() {
    std::stringstream text;
    text << std::ifstream(LogOfChild()).rdbuf();
    return text.str();
  }
  // With `keep_log`, the caller deletes the log.
  static absl::StatusOr<std::unique_ptr<Process>> Start(const std::vector<std::string>& args,
                                                        bool keep_log = false) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Process> child,
                             Process::Start(self, args, LogOfChild()));
    std::string output;
    const bool ready = Eventually([&] {
      output = ReadLogOfChild();
      return absl::StrContains(output, kReady);
    });
    if (!keep_log) std::filesystem::remove(LogOfChild());
    if (!ready) return absl::DeadlineExceededError(absl::StrCat("the child said ", output));
    return child;
  }
  // Returns the coordinator's answer to a list request, as JSON text.
  std::string List(const std::string& method, const std::string& request) const {
    const auto client = remote::JsonClient::Make(cluster_->address(), {});
    EXPECT_TRUE(client.ok()) << client.status();
    const auto answer = (*client)->Call(method, request, absl::Seconds(20));
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.value_or("");
  }
  static int Count(const std::string& text, const std::string& word) {
    return static_cast<int>(std::vector<std::string>(absl::StrSplit(text, word)).size()) - 1;
  }
  // Returns the number of operations, over all sessions, that have not ended.
  int NumLiveRuns() const {
    return Count(
        List("OperationService/ListOperations", R"({"allSessions": true, "liveOnly": true})"),
        "\"tenant\"");
  }
  int NumSessions() const { return Count(List("SessionService/ListSessions", "{}"), "\"id\""); }
  // Returns whether the device has room for another array like that of FillDevice.
  static bool HasRoom() {
    try {
      FillDevice().wait();
    } catch (const Error& e) {
      EXPECT_THAT(e.status(), ReasonIs("OUT_OF_MEMORY"));
      return false;
    }
    put(ir::Array(kF32, {1}));  // This call also sends the deletion of the array above.
    return true;
  }

  std::unique_ptr<Cluster> cluster_;
};

// The lease is renewed while the client lives, and expires after the client was killed.
TEST_F(SessionsTest, AClientThatIsKilledGivesBackItsMemory) {
  constexpr absl::Duration kLease = absl::Seconds(1);
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> child, StartChild(kLease));
  EXPECT_FALSE(Eventually(HasRoom, 2.5 * kLease)) << "the client lives and holds the device";
  child->Signal(SIGKILL);
  const absl::Time killed = absl::Now();
  EXPECT_TRUE(Eventually(HasRoom, kLease + absl::Seconds(5)));
  std::cout << "the memory is back after " << absl::ToDoubleSeconds(absl::Now() - killed) << " s\n";
}

// The lease is ten minutes, so its end cannot be what frees the memory.
TEST_F(SessionsTest, AClientThatLeavesGivesBackItsMemoryAtOnce) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> child, StartChild(absl::Minutes(10)));
  EXPECT_FALSE(HasRoom());
  child->Signal(SIGTERM);
  EXPECT_TRUE(Eventually(HasRoom));
  EXPECT_EQ(child->Wait(absl::Seconds(20)), 0);
}

// The lease is one minute, and nothing in these programs ends the session explicitly.
TEST_F(SessionsTest, AProgramThatEndsNormallyGivesBackItsMemory) {
  for (const char* program : {"return", "exit"}) {
    SCOPED_TRACE(program);
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> child, StartProgram(program));
    EXPECT_EQ(child->Wait(absl::Seconds(20)), 0);
    EXPECT_TRUE(Eventually(HasRoom, kSlack));
  }
}

TEST_F(SessionsTest, AProgramThatIsStoppedGivesBackItsMemoryAndDiesOfTheSignal) {
  for (const auto& [program, signal] :
       {std::pair("wait", SIGINT), std::pair("wait", SIGTERM), std::pair("wait-two", SIGINT)}) {
    SCOPED_TRACE(absl::StrCat(program, " ", signal));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> child, StartProgram(program));
    EXPECT_FALSE(HasRoom());
    child->Signal(signal);
    const std::optional<int> end = child->Wait(absl::Seconds(20));
    ASSERT_TRUE(end.has_value());
    EXPECT_TRUE(WIFSIGNALED(*end) && WTERMSIG(*end) == signal) << *end;
    EXPECT_TRUE(Eventually(HasRoom, kSlack));
  }
}

TEST_F(SessionsTest, AProgramKeepsItsOwnSignalHandler) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> handles, StartProgram("handle"));
  handles->Signal(SIGTERM);
  const std::optional<int> end = handles->Wait(absl::Seconds(20));
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(WIFEXITED(*end) && WEXITSTATUS(*end) == kHandlerExitStatus) << *end;
  EXPECT_EQ(NumSessions(), 2)
      << "the program did not end its session, which remains beside this test's";
  EXPECT_FALSE(HasRoom());
}

TEST_F(SessionsTest, AnIgnoredSignalStaysIgnored) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> ignores, StartProgram("ignore"));
  ignores->Signal(SIGINT);
  EXPECT_EQ(ignores->Wait(absl::Seconds(1)), std::nullopt);
  EXPECT_FALSE(HasRoom());
  ignores->Signal(SIGTERM);
  EXPECT_TRUE(ignores->Wait(absl::Seconds(20)).has_value());
  EXPECT_TRUE(Eventually(HasRoom, kSlack));
}

TEST_F(SessionsTest, AForkedChildDoesNotEndItsParentsSession) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> child, StartProgram("fork"));
  EXPECT_FALSE(HasRoom());
  child->Signal(SIGTERM);
  EXPECT_TRUE(child->Wait(absl::Seconds(20)).has_value());
  EXPECT_TRUE(Eventually(HasRoom, kSlack));
}

// The program is stopped for longer than its lease. Every call that uses what the session had says
// so, and new work goes on in a new session.
TEST_F(SessionsTest, AProgramThatWasStoppedForLongerThanItsLeaseIsTold) {
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Process> child,
      Start({"--program", cluster_->address(), "stopped"}, /*keep_log=*/true));
  child->Signal(SIGSTOP);
  EXPECT_TRUE(Eventually([this] { return NumSessions() == 1; }, kStoppedLease + kSlack))
      << "the session of the program has ended";
  child->Signal(SIGCONT);
  EXPECT_EQ(child->Wait(absl::Seconds(60)), 0);
  const std::string said = ReadLogOfChild();
  std::filesystem::remove(LogOfChild());
  std::cout << said;
  for (const char* const call : {"read", "read of a result", "shard", "run", "wait",
                                 "wait for a result", "reshard", "begun wait"})
    EXPECT_THAT(said, ::testing::ContainsRegex(absl::StrCat(
                          "\n", call,
                          ": SESSION_NOT_FOUND: [^\n]*the lease \\(1.5 s\\) of session [0-9]+ "
                          "ended while this process did not run")));
  EXPECT_THAT(said, ::testing::HasSubstr("new: no error"));
}

// Tests the runs of clients that have gone. The lease is one minute, and the grace period two
// seconds.
class GraceTest : public SessionsTest {
 protected:
  std::vector<std::string> CoordinatorFlags() const override {
    return {absl::StrCat("--session-grace-ms=", absl::ToInt64Milliseconds(kGrace)),
            "--keepalive-ms=1000", "--keepalive-timeout-ms=1000", "--canary-interval-ms=0"};
  }
  // Waits until all runs have ended.
  void ExpectEndOfRunsWithin(absl::Duration bound) const {
    const absl::Time start = absl::Now();
    EXPECT_TRUE(Eventually([&] { return NumLiveRuns() == 0; }, bound));
    std::cout << "the runs ended after " << absl::ToDoubleSeconds(absl::Now() - start)
              << " s, promised " << bound << "\n";
  }
};

TEST_F(GraceTest, TheRunsOfAClientThatIsKilledEndWithItsConnection) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> child, StartProgram("run"));
  ASSERT_EQ(NumLiveRuns(), 1);
  child->Signal(SIGKILL);
  ExpectEndOfRunsWithin(kGrace + kSlack);
}

TEST_F(GraceTest, TheRunsOfAClientThatIsInterruptedEndAtOnce) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> child, StartProgram("run"));
  ASSERT_EQ(NumLiveRuns(), 1);
  child->Signal(SIGINT);
  ASSERT_TRUE(child->Wait(absl::Seconds(20)).has_value());
  EXPECT_TRUE(Eventually([&] { return NumLiveRuns() == 0; }, kSlack));
}

// A stopped client looks like one whose machine has lost its power: its connection ends by
// keepalive.
TEST_F(GraceTest, TheRunsOfAClientThatSaysNothingEndByKeepalive) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> child, StartProgram("run"));
  ASSERT_EQ(NumLiveRuns(), 1);
  child->Signal(SIGSTOP);
  ExpectEndOfRunsWithin(absl::Seconds(2) + kGrace + kSlack);
}

// The client's machine is gone: no byte arrives from it, not even the end of its connection.
TEST_F(GraceTest, TheRunsOfAClientThatVanishesEndByKeepalive) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<FaultProxy> proxy,
                               FaultProxy::Start(cluster_->address()));
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> child,
                               StartProgram("run", proxy->address()));
  ASSERT_EQ(NumLiveRuns(), 1);
  proxy->SetBlackhole(true);
  child->Signal(SIGKILL);
  ExpectEndOfRunsWithin(absl::Seconds(2) + kGrace + kSlack);
}

// Cuts off the answers at many positions. Each call is then repeated and must still happen only
// once.
TEST_F(GraceTest, CallsWhoseAnswersAreLostHappenOnce) {
  constexpr int kRuns = 40;
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<FaultProxy> proxy,
                               FaultProxy::Start(cluster_->address()));
  Session::SetDefault(Session::Connect(proxy->address()));
  {
    const Array x = put(ir::Array(kF32, {4}), make_mesh({1}, {"i"}, {AxisType::kAuto}), P());
    const auto f = jit([](Array a) { return a + 1; });
    EXPECT_EQ(f(x).get<float>()[0], 1);
    const auto runs = [&] {
      return Count(
          List("OperationService/ListOperations", R"({"allSessions": true, "pageSize": 1000})"),
          "\"tenant\"");
    };
    const int before = runs();
    for (int i = 0; i < kRuns; ++i) {
      proxy->CutAfter(FaultProxy::Direction::kDown, 1 + 13 * i);
      EXPECT_EQ(f(x).get<float>()[3], 1) << i;
    }
    EXPECT_GE(proxy->num_faults_struck(), kRuns / 2);
    EXPECT_EQ(runs(), before + kRuns);
  }
  Session::SetDefault(cluster_->session());
}

TEST_F(GraceTest, AConnectionThatBreaksAndComesBackLosesNothing) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<FaultProxy> proxy,
                               FaultProxy::Start(cluster_->address()));
  Session::SetDefault(Session::Connect(proxy->address()));
  {
    const Array run = StartLongRun();
    for (int cut = 0; cut < 3; ++cut) {
      const int64_t before = proxy->num_accepted();
      proxy->CutAll();
      EXPECT_TRUE(Eventually([&] { return proxy->num_accepted() > before; }, kGrace));
    }
    EXPECT_FALSE(Eventually([&] { return NumLiveRuns() == 0; }, kGrace + absl::Seconds(1)));
    EXPECT_FALSE(run.is_ready());
    run.cancel();
  }
  Session::SetDefault(cluster_->session());
}

}  // namespace
}  // namespace tessera::service

int main(int argc, char** argv) {
  int64_t lease_ms = 0;
  if (argc == 4 && std::strcmp(argv[1], "--child") == 0 && absl::SimpleAtoi(argv[3], &lease_ms))
    return tessera::service::Child(argv[2], absl::Milliseconds(lease_ms));
  if (argc == 4 && std::strcmp(argv[1], "--program") == 0) {
    tessera::service::programs::SetUpProgram(argv[2]);
    return tessera::service::programs::Programs().at(argv[3])();
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
