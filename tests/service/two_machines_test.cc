// Tests a cluster of two machines over a network that cuts connections. The machines are network
// namespaces of this one: `tessera up` runs in the first, `tessera join` in the second, and a
// client in the third.
//
//        back 10.77.0.x                         front 10.78.0.x
//   one .1 ----+---- two .2      relay .9 ---- one .1 ----+---- client .3
//              +---------------- relay .9                 +---- relay .9
//
// The client is connected to the front network only. It reaches machine one directly. Machine two
// advertises the relay's address for its data port, as a machine behind NAT would; the relay
// forwards connections to the back network, and cuts one in the middle of the upload and one in the
// middle of the download.
//
// The test needs root and `ip netns`. When it is started with `--relay LISTEN TARGET
// CUT_AFTER_BYTES`, this program is the relay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/testing/datadriven.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "tests/service/cluster.h"
#include "tests/service/fault_proxy.h"

namespace tessera::service {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr char kNamespacePrefix[] = "tsr2m-";
constexpr char kIp[] = "/usr/sbin/ip";
constexpr int64_t kMiB = 1 << 20;

int Shell(const std::string& command) {
  return std::system(absl::StrCat(command, " >/dev/null 2>&1").c_str());
}

std::string ReadText(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Returns the reason why this machine cannot run the test, or an empty string if it can.
std::string ReasonToSkip() {
  if (geteuid() != 0) return "this test makes network namespaces, which needs root";
  if (access(kIp, X_OK) != 0) return "there is no /usr/sbin/ip; install iproute2";
  const std::string probe = absl::StrCat(kNamespacePrefix, getpid(), "-probe");
  if (Shell(absl::StrCat(kIp, " netns add ", probe)) != 0) {
    return "this machine makes no network namespaces (ip netns add)";
  }
  const bool bridges =
      Shell(absl::StrCat(kIp, " -n ", probe, " link add name br0 type bridge")) == 0;
  const bool pairs =
      Shell(absl::StrCat(kIp, " -n ", probe, " link add name v0 type veth peer name v1")) == 0;
  Shell(absl::StrCat(kIp, " netns del ", probe));
  return bridges && pairs ? "" : "this machine has no bridges or veth pairs";
}

// Four connected network namespaces. The destructor removes them, and the constructor removes those
// that a killed test left behind.
class Network {
 public:
  // Builds two bridges in the relay's namespace and plugs every machine into them, so that all
  // traffic between machines passes through links that this test owns. The constructor only notes a
  // failure; the test asks ok().
  Network() {
    RemoveStale();
    bool all_done = true;
    const auto ip = [&](const std::string& rest) {
      all_done = all_done && Shell(absl::StrCat(kIp, " ", rest)) == 0;
    };
    for (const char* name : {"one", "two", "client", "relay"}) {
      ip(absl::StrCat("netns add ", NamespaceOf(name)));
      ip(absl::StrCat("-n ", NamespaceOf(name), " link set lo up"));
    }
    for (const char* bridge : {"back", "front"}) {
      ip(absl::StrCat("-n ", NamespaceOf("relay"), " link add name ", bridge, " type bridge"));
      ip(absl::StrCat("-n ", NamespaceOf("relay"), " link set dev ", bridge, " up"));
    }
    ip(absl::StrCat("-n ", NamespaceOf("relay"), " addr add 10.77.0.9/24 dev back"));
    ip(absl::StrCat("-n ", NamespaceOf("relay"), " addr add 10.78.0.9/24 dev front"));
    const auto plug = [&](const std::string& who, const std::string& bridge,
                          const std::string& address) {
      const std::string relay_end = absl::StrCat(who, "-", bridge);
      ip(absl::StrCat("-n ", NamespaceOf(who), " link add name ", bridge, " type veth peer name ",
                      relay_end, " netns ", NamespaceOf("relay")));
      ip(absl::StrCat("-n ", NamespaceOf("relay"), " link set dev ", relay_end, " master ", bridge,
                      " up"));
      ip(absl::StrCat("-n ", NamespaceOf(who), " addr add ", address, "/24 dev ", bridge));
      ip(absl::StrCat("-n ", NamespaceOf(who), " link set dev ", bridge, " up"));
    };
    plug("one", "back", "10.77.0.1");
    plug("two", "back", "10.77.0.2");
    plug("one", "front", "10.78.0.1");
    // On the front network only executors connect to machine one's peer port. The data port of
    // machine two listens on the back network.
    plug("two", "front", "10.78.0.2");
    plug("client", "front", "10.78.0.3");
    ok_ = all_done;
  }
  ~Network() {
    for (const char* name : {"one", "two", "client", "relay"}) {
      Shell(absl::StrCat(kIp, " netns del ", NamespaceOf(name)));
    }
  }
  bool ok() const { return ok_; }

  // Starts a program on one of the machines.
  absl::StatusOr<std::unique_ptr<Process>> Start(const std::string& machine,
                                                 const std::vector<std::string>& command,
                                                 const fs::path& log) const {
    std::vector<std::string> args = {"netns", "exec", NamespaceOf(machine)};
    args.insert(args.end(), command.begin(), command.end());
    return Process::Start(kIp, args, log.string());
  }

 private:
  static std::string NamespaceOf(const std::string& machine) {
    return absl::StrCat(kNamespacePrefix, getpid(), "-", machine);
  }
  static void RemoveStale() {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator("/run/netns", none)) {
      const std::string name = entry.path().filename().string();
      const std::vector<std::string> parts = absl::StrSplit(name, '-');
      int pid = 0;
      if (parts.size() == 3 && parts[0] + "-" == kNamespacePrefix &&
          absl::SimpleAtoi(parts[1], &pid) && testing::HasEnded(pid)) {
        Shell(absl::StrCat(kIp, " netns del ", name));
      }
    }
  }

  bool ok_ = false;
};

class TwoMachinesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = ReasonToSkip(); !why.empty()) GTEST_SKIP() << why;
    std::string folder = (fs::temp_directory_path() / "tessera-two-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    network_ = std::make_unique<Network>();
    ASSERT_TRUE(network_->ok()) << "the namespaces cannot be joined";
  }
  void TearDown() override {
    // The commands `tessera up` and `tessera join` end the daemons, which are their children.
    for (const auto& process : {relay_.get(), join_.get(), up_.get()}) {
      if (process == nullptr) continue;
      process->Signal(SIGTERM);
      process->Wait(absl::Seconds(10));
    }
    relay_.reset();
    join_.reset();
    up_.reset();
    network_.reset();
    if (folder_.empty()) return;
    if (HasFailure()) {
      for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
        if (entry.path().extension() == ".log") {
          std::cerr << "---- " << entry.path() << "\n" << ReadText(entry.path());
        }
      }
    }
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  fs::path folder_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Process> up_, join_, relay_;
};

// Starts both machines, then runs two_machines_client on the third, while the relay cuts one
// connection in each direction.
TEST_F(TwoMachinesTest, ADemoAndAGigabyteTransferSurviveCutConnections) {
  const std::string tessera = SourcePath(TESSERA_CLI_BINARY);
  // The array has shards of 256 MiB, two on each machine.
  setenv("TESSERA_CACHE_DIR", (folder_ / "cache").c_str(), 1);
  TESSERA_ASSERT_OK_AND_ASSIGN(
      up_, network_->Start("one",
                           {tessera, "up", "--dir", folder_ / "one", "--listen", "0.0.0.0:8470",
                            "--advertise", "10.78.0.1", "--name", "one", "--devices", "2"},
                           folder_ / "up.log"));
  std::string join_token;
  ASSERT_TRUE(Eventually(
      [&] {
        const std::string output = ReadText(folder_ / "up.log");
        const size_t at = output.find("--token ");
        if (at == std::string::npos || output.find('\n', at) == std::string::npos) return false;
        join_token = output.substr(at + 8, output.find('\n', at) - at - 8);
        return true;
      },
      absl::Seconds(40)))
      << ReadText(folder_ / "up.log");

  // Machine two advertises the relay's address as that of its data port.
  TESSERA_ASSERT_OK_AND_ASSIGN(
      relay_, network_->Start("relay",
                              {fs::read_symlink("/proc/self/exe"), "--relay", "10.78.0.9:18471",
                               "10.77.0.2:8471", absl::StrCat(200 * kMiB)},
                              folder_ / "relay.log"));
  TESSERA_ASSERT_OK_AND_ASSIGN(
      join_, network_->Start("two",
                             {tessera, "join", "10.77.0.1:8470", "--token", join_token, "--dir",
                              folder_ / "two", "--name", "two", "--devices", "2",
                              "--advertise-client", "10.78.0.9:18471"},
                             folder_ / "join.log"));
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const auto client,
      network_->Start("client",
                      {SourcePath(TWO_MACHINES_CLIENT), "10.78.0.1:8470",
                       folder_ / "one/client/ca.pem", folder_ / "one/client/token", "1024"},
                      folder_ / "client.log"));
  const std::optional<int> wait_status = client->Wait(absl::Seconds(100));
  const std::string output = ReadText(folder_ / "client.log");
  ASSERT_TRUE(wait_status.has_value()) << "the client does not end: " << output;
  EXPECT_EQ(*wait_status, 0) << output;
  EXPECT_THAT(output, HasSubstr("demo: 2x2 agrees"));
  EXPECT_THAT(output, HasSubstr("array: 1024 MiB"));
  relay_->Signal(SIGTERM);
  relay_->Wait(absl::Seconds(10));
  EXPECT_THAT(ReadText(folder_ / "relay.log"), HasSubstr("struck 2"))
      << "a cut connection each way";
  std::cerr << output << ReadText(folder_ / "relay.log");
}

// Runs the relay until SIGTERM arrives, then prints how much it has forwarded and cut.
int Relay(const std::string& listen, const std::string& target, int64_t cut_after) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto proxy = FaultProxy::Start(target, listen);
  if (!proxy.ok()) {
    std::fprintf(stderr, "relay: %s\n", std::string(proxy.status().message()).c_str());
    return 1;
  }
  (*proxy)->CutAfter(FaultProxy::Direction::kUp, cut_after);
  (*proxy)->CutAfter(FaultProxy::Direction::kDown, cut_after);
  int signal = 0;
  sigwait(&signals, &signal);
  std::fprintf(stderr, "relay: struck %lld, %lld MiB up, %lld MiB down, %lld connections\n",
               static_cast<long long>((*proxy)->num_faults_struck()),
               static_cast<long long>((*proxy)->bytes_passed(FaultProxy::Direction::kUp) / kMiB),
               static_cast<long long>((*proxy)->bytes_passed(FaultProxy::Direction::kDown) / kMiB),
               static_cast<long long>((*proxy)->num_accepted()));
  return 0;
}

}  // namespace
}  // namespace tessera::service

int main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "--relay") == 0) {
    return tessera::service::Relay(argv[2], argv[3], std::atoll(argv[4]));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
