// What a client holds on the devices is given back when the client goes, however it goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "client/tessera.h"
#include "tests/service/cluster.h"

namespace tessera::service {
namespace {

using testing::Eventually;

// Small, so that a look is quick on a busy machine; two arrays do not fit.
constexpr char kDeviceMemory[] = "--device-memory-bytes=4194304";
constexpr int64_t kElements = (5 << 19) / sizeof(float);
constexpr unsigned kChildLifeSeconds = 120;
constexpr char kFull[] = "full";

Array FillDevice() {
  return put(ir::Array(kF32, {kElements}), make_mesh({1}, {"i"}, {AxisType::kAuto}), P());
}

// The other process: fills a device, says so, and leaves when it is told to.
int Child(const std::string& address, absl::Duration lease) {
  alarm(kChildLifeSeconds);
  // Blocked before any thread starts, so that sigwait gets it.
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
    std::cout << kFull << std::endl;
    int signal = 0;
    sigwait(&end, &signal);
  }
  Session::SetDefault(nullptr);
  return 0;
}

class SessionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TESSERA_ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start({1, 1, {}, {kDeviceMemory}, 0, {}}));
    Session::SetDefault(cluster_->session());
  }
  void TearDown() override {
    Session::SetDefault(nullptr);
    if (HasFailure() && cluster_) std::cerr << cluster_->Logs();
  }

  // Returns when the child has filled the device.
  absl::StatusOr<std::unique_ptr<Process>> StartChild(absl::Duration lease) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string log = absl::StrCat(::testing::TempDir(), "/child-", getpid(), ".log");
    TESSERA_ASSIGN_OR_RETURN(
        std::unique_ptr<Process> child,
        Process::Start(
            self, {"--child", cluster_->address(), absl::StrCat(absl::ToInt64Milliseconds(lease))},
            log));
    std::string said;
    const bool full = Eventually([&] {
      std::stringstream text;
      text << std::ifstream(log).rdbuf();
      said = text.str();
      return absl::StrContains(said, kFull);
    });
    std::filesystem::remove(log);
    if (!full) return absl::DeadlineExceededError(absl::StrCat("the child said ", said));
    return child;
  }
  // Whether the device has room for another such array.
  static bool Fits() {
    try {
      FillDevice().wait();
    } catch (const Error& e) {
      EXPECT_THAT(e.status(), ReasonIs("OUT_OF_MEMORY"));
      return false;
    }
    return true;
  }

  std::unique_ptr<Cluster> cluster_;
};

// The lease is renewed while the client lives, and runs out when it is killed.
TEST_F(SessionsTest, AClientThatIsKilledGivesBackItsMemory) {
  constexpr absl::Duration kLease = absl::Seconds(1);
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> child, StartChild(kLease));
  EXPECT_FALSE(Eventually(Fits, 2.5 * kLease)) << "it lives and holds the device";
  child->Signal(SIGKILL);
  EXPECT_TRUE(Eventually(Fits, kLease + absl::Seconds(5)));
}

// The lease would hold for minutes.
TEST_F(SessionsTest, AClientThatLeavesGivesBackItsMemoryAtOnce) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Process> child, StartChild(absl::Minutes(10)));
  EXPECT_FALSE(Fits());
  child->Signal(SIGTERM);
  EXPECT_TRUE(Eventually(Fits));
  EXPECT_EQ(child->Wait(absl::Seconds(20)), 0);
}

}  // namespace
}  // namespace tessera::service

int main(int argc, char** argv) {
  int64_t lease_ms = 0;
  if (argc == 4 && std::strcmp(argv[1], "--child") == 0 && absl::SimpleAtoi(argv[3], &lease_ms))
    return tessera::service::Child(argv[2], absl::Milliseconds(lease_ms));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
