// Tests the command line against real daemons: each command, its JSON, its exit code, and its
// output on a terminal. The tests named Cli start the processes that they need; the tests named
// CliTest share one cluster.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/testing/datadriven.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "client/cli/json.h"
#include "client/cli/terminal.h"
#include "client/cli/values.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/cluster.h"

namespace tessera::service {
namespace {

using cli::IntOf;
using cli::Json;
using cli::TextOf;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr char kEscape[] = "\x1b";

struct CommandResult {
  int code = -1;  // -1 if the command did not end by itself
  std::string out, err;
};

struct CommandSetting {
  std::string address;                   // TESSERA_ADDRESS
  std::vector<std::string> environment;  // "NAME=value"
  bool terminal = false;                 // whether stdout and stderr are one terminal
};

std::string Slurp(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// A running tessera command. Only one may be started at a time, because its environment is set in
// this process.
class RunningCommand {
 public:
  // Starts the command with a fixed environment, so that the result does not depend on the caller's
  // variables. On a terminal both outputs go to a pseudo-terminal, which a thread reads because the
  // command would block once the terminal's buffer is full.
  RunningCommand(const std::vector<std::string>& args, const CommandSetting& setting) {
    folder_ = ::testing::TempDir() + "/tessera-cli-XXXXXX";
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    std::vector<std::pair<std::string, std::string>> variables = {
        {"TESSERA_ADDRESS", setting.address},
        {"NO_COLOR", ""},
        {"TERM", "xterm"},
        {"LC_ALL", "C.UTF-8"},
        {"COLUMNS", ""},
        {"TESSERA_TOKEN", ""},
        {"TESSERA_CA_FILE", ""}};
    for (const std::string& v : setting.environment) {
      const size_t equals = v.find('=');
      variables.emplace_back(v.substr(0, equals), v.substr(equals + 1));
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    int out = -1;
    std::string err = folder_ + "/err";
    if (setting.terminal) {
      char name[256];
      winsize window{.ws_row = 40, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
      EXPECT_EQ(openpty(&master_, &out, name, nullptr, &window), 0);
      err = name;
    } else {
      out = open((folder_ + "/out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    }
    auto started = Process::Start(SourcePath(TESSERA_BINARY), args, err, out);
    close(out);
    for (const auto& [name, value] : variables) unsetenv(name.c_str());
    EXPECT_THAT(started, IsOk());
    if (started.ok()) process_ = *std::move(started);
    if (setting.terminal) reader_ = std::thread([this] { ReadTerminal(); });
  }
  ~RunningCommand() {
    process_.reset();
    if (reader_.joinable()) reader_.join();
    if (master_ >= 0) close(master_);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void Signal(int signal) { process_->Signal(signal); }
  // Returns what the command has printed so far.
  std::string Output() const { return Slurp(folder_ + "/out") + Slurp(folder_ + "/err"); }

  CommandResult Wait() {
    CommandResult result;
    const std::optional<int> end = process_->Wait(kPatience);
    if (end && WIFEXITED(*end)) result.code = WEXITSTATUS(*end);
    if (reader_.joinable()) {
      process_.reset();
      reader_.join();
      result.out = terminal_output_;
    } else {
      result.out = Slurp(folder_ + "/out");
      result.err = Slurp(folder_ + "/err");
    }
    return result;
  }

 private:
  // Reads until the last writer has closed its end of the terminal.
  void ReadTerminal() {
    char bytes[4096];
    while (true) {
      const ssize_t got = read(master_, bytes, sizeof(bytes));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return;
      terminal_output_.append(bytes, static_cast<size_t>(got));
    }
  }

  std::string folder_, terminal_output_;
  int master_ = -1;
  std::unique_ptr<Process> process_;
  std::thread reader_;
};

CommandResult RunTessera(const std::vector<std::string>& args, const CommandSetting& setting = {}) {
  return RunningCommand(args, setting).Wait();
}

constexpr char kMatmul[] = "examples/matmul.txt";

// Returns a program that runs for minutes unless it is stopped. Each call returns a different
// program, because the coordinator calls equal programs by the name of the first.
std::string LongProgram() {
  static int trips = 1'000'000'000;
  return absl::StrCat(
      "func long(%c: f32[4096]) -> (f32[4096]) {\n"
      "  %last = scan(%c) {num_consts=0, num_carry=1, length=",
      ++trips,
      ", reverse=false} with\n"
      "    func step(%carry: f32[4096]) -> (f32[4096]) {\n"
      "      %next = sine(%carry)\n"
      "      return %next\n"
      "    }\n"
      "  return %last\n"
      "}\n");
}

class CliTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    files_dir_ = new std::string(::testing::TempDir() + "/tessera-files-XXXXXX");
    ASSERT_NE(mkdtemp(files_dir_->data()), nullptr);
    ClusterOptions options;
    options.worker_flags = {absl::StrCat("--files-dir=", *files_dir_)};
    auto cluster = Cluster::Start(options);
    ASSERT_THAT(cluster, IsOk());
    cluster_ = cluster->release();
  }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
    std::error_code ignored;
    std::filesystem::remove_all(*files_dir_, ignored);
  }

  static CommandSetting ClusterSetting() {
    return {.address = cluster_->address(), .environment = {}};
  }
  static CommandResult RunOnCluster(const std::vector<std::string>& args) {
    return RunTessera(args, ClusterSetting());
  }
  // Runs a command that is expected to end with `code` and returns the one JSON document that
  // --json promises.
  static Json RunForJson(std::vector<std::string> args, int code = 0) {
    args.push_back("--json");
    const CommandResult result = RunOnCluster(args);
    EXPECT_EQ(result.code, code) << args[0] << ": " << result.err;
    const auto json = cli::ParseJson(result.out, args[0]);
    EXPECT_THAT(json, IsOk()) << result.out;
    EXPECT_THAT(result.out, Not(HasSubstr(kEscape)));
    return json.ok() ? *json : Json();
  }
  std::string WriteFile(const std::string& name, const std::string& bytes) {
    const std::string path = absl::StrCat(*files_dir_, "/", name);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::string WriteCountingArray(const std::string& name, int64_t rows, int64_t columns) {
    ir::Array value(ir::DType::kF32, {rows, columns});
    for (int64_t i = 0; i < rows * columns; ++i) value.Set(i, static_cast<double>(i));
    const std::string path = absl::StrCat(*files_dir_, "/", name);
    EXPECT_THAT(cli::WriteNpy(path, value), IsOk());
    return path;
  }
  // Returns the id of one of the worker's devices.
  static std::string DeviceOf(const std::string& worker) {
    const Json devices = RunForJson({"devices"});
    for (const Json& d : cli::ChildOf(devices, "devices")) {
      if (TextOf(d, "worker") == worker) return TextOf(d, "id");
    }
    return "";
  }
  // Returns the id of the running operation with this name.
  static std::string AwaitRunningOperation(const std::string& name) {
    std::string id;
    EXPECT_TRUE(Eventually(
        [&] {
          const Json live = RunForJson({"ps"});
          for (const Json& o : cli::ChildOf(live, "operations")) {
            if (TextOf(o, "name") == name && absl::EndsWith(TextOf(o, "state"), "RUNNING")) {
              id = TextOf(o, "id");
            }
          }
          return !id.empty();
        },
        kPatience));
    return id;
  }

  static Cluster* cluster_;
  static std::string* files_dir_;
};
Cluster* CliTest::cluster_ = nullptr;
std::string* CliTest::files_dir_ = nullptr;

// ---- Without a cluster.

TEST(Cli, WithoutAnAddressRunAndExplainWork) {
  const CommandResult run = RunTessera({"run", kMatmul});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("a cluster inside this process, with 4 CPU devices"),
                             HasSubstr("every parameter is filled with")));
  EXPECT_THAT(run.out, AllOf(StartsWith("result 0 f32[8,6]"), HasSubstr("result 1 f32[] ")));
  const CommandResult explain = RunTessera({"explain", kMatmul});
  EXPECT_EQ(explain.code, 0) << explain.err;
  EXPECT_THAT(explain.out, AllOf(HasSubstr("data=0"), HasSubstr("collectives")));
}

// Explains programs for meshes of devices that do not exist, without a cluster.
TEST(Cli, ExplainPlansForDevicesThatAreAbsent) {
  const std::string mesh = "data=8,model=6";
  const CommandResult small =
      RunTessera({"explain", kMatmul, "--mesh", mesh, "--device-memory", "80GiB"});
  EXPECT_EQ(small.code, 0) << small.err;
  EXPECT_THAT(small.out, AllOf(HasSubstr("main on mesh (data=8, model=6), 48 devices, absent"),
                               HasSubstr("of 80.0 GiB"), HasSubstr("psum over")));
  const std::string wide =
      "mesh (data=2, model=2)\nfunc main(%x: f32[8192,64] P('data','model')) -> "
      "(f32[8192]) {\n  %s = reduce_sum(%x) {dimensions=[1]}\n  return %s\n}\n";
  const std::string file = ::testing::TempDir() + "/wide.txt";
  std::ofstream(file) << wide;
  const std::vector<std::string> explain = {"explain", file, "--mesh", "64x8"};
  const CommandResult missing = RunTessera(explain);
  EXPECT_NE(missing.code, 0);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("512 devices are needed"), HasSubstr("at most 256"),
                                 HasSubstr("--device-memory")));
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), explain.begin(), explain.end());
    return RunTessera(more);
  };
  const CommandResult large = with({"--device-memory", "1MiB"});
  EXPECT_EQ(large.code, 0) << large.err;
  EXPECT_THAT(large.out, AllOf(HasSubstr("512 devices, absent"), HasSubstr("of 1.0 MiB")));
  for (absl::string_view line : absl::StrSplit(large.out, '\n')) {
    EXPECT_LE(cli::WidthOf(std::string(line)), 100) << line;
  }
  EXPECT_LT(std::count(large.out.begin(), large.out.end(), '\n'), 100);
  const CommandResult full = with({"--device-memory", "64"});
  EXPECT_NE(full.code, 0);
  EXPECT_THAT(full.err, HasSubstr("OUT_OF_MEMORY"));
  EXPECT_THAT(with({"--device-memory", "much"}).err, HasSubstr("80GiB, 512MiB"));
  EXPECT_THAT(with({"--device-memory", "0"}).err, HasSubstr("80GiB, 512MiB"));
  EXPECT_THAT(with({"--device-memory", "1MiB", "--devices", "0-511"}).err, HasSubstr("absent"));
}

TEST(Cli, OtherCommandsWithoutAnAddressSayWhatToDo) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"devices"}, {"ps"}, {"get", "1"}, {"arrays"}, {"top", "--once"}}) {
    const CommandResult result = RunTessera(args);
    EXPECT_EQ(result.code, 2) << args[0];
    EXPECT_THAT(result.err, AllOf(HasSubstr("TESSERA_ADDRESS"), HasSubstr("tessera up")))
        << args[0];
    EXPECT_EQ(result.out, "");
  }
}

TEST(Cli, AnUnreachableAddressIsExitCodeThree) {
  const CommandResult result = RunTessera({"devices", "--address", "127.0.0.1:1", "--json"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("127.0.0.1:1 does not answer"),
                                HasSubstr("reason: UNREACHABLE"), HasSubstr("to do:")));
  const auto json = cli::ParseJson(result.out, "out");
  ASSERT_THAT(json, IsOk());
  EXPECT_EQ(IntOf(cli::ChildOf(*json, "error"), "code"), 14);
  EXPECT_EQ(RunTessera({"doctor", "--health", "127.0.0.1:1"}).code, 1);
  EXPECT_EQ(RunTessera({"doctor", "--health", "http://127.0.0.1:1/healthz"}).code, 1);
  const CommandResult doctor = RunTessera({"doctor", "-a", "127.0.0.1:1"});
  EXPECT_EQ(doctor.code, 1);
  EXPECT_THAT(doctor.out, AllOf(ContainsRegex("FAILED +address"), HasSubstr("to do: check that")));
}

// A server that accepts connections and never answers.
class SilentServer {
 public:
  SilentServer() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~SilentServer() { close(fd_); }
  const std::string& address() const { return address_; }
  // Returns whether a client has connected.
  bool HasClient() const {
    pollfd entry{fd_, POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  }

 private:
  const int fd_;
  std::string address_;
};

TEST(Cli, AServerThatNeverAnswersIsGivenUp) {
  const SilentServer server;
  const CommandResult late = RunTessera({"devices", "-a", server.address(), "--timeout", "500ms"});
  EXPECT_EQ(late.code, 3) << late.err;
  const CommandResult health =
      RunTessera({"doctor", "--health", server.address(), "--timeout", "500ms"});
  EXPECT_EQ(health.code, 1) << health.err;
  const CommandResult page =
      RunTessera({"doctor", "--health", absl::StrCat("http://", server.address(), "/healthz"),
                  "--timeout", "500ms"});
  EXPECT_EQ(page.code, 1) << page.err;
}

TEST(Cli, CtrlCEndsACall) {
  const SilentServer server;
  RunningCommand call({"devices", "-a", server.address()}, {});
  EXPECT_TRUE(Eventually([&] { return server.HasClient(); }, kPatience));
  call.Signal(SIGINT);
  const CommandResult ended = call.Wait();
  EXPECT_EQ(ended.code, 130) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("interrupted"));
}

TEST(Cli, PlainTextBeyondThisMachineIsRefused) {
  const CommandResult result = RunTessera({"devices", "--address", "192.0.2.1:8470"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("reason: TLS_MISMATCH"), HasSubstr("set TESSERA_CA_FILE")));
}

TEST(Cli, WrongCommandLinesAreExitCodeTwo) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{},
                                               {"frobnicate"},
                                               {"run"},
                                               {"ps", "--timeout", "soon"},
                                               {"mesh"},
                                               {"get", "x", "-a", "127.0.0.1:1"},
                                               {"run", kMatmul, "--mesh", "2x2x2"},
                                               {"run", kMatmul, "--input", "count"},
                                               {"run", kMatmul, "--keep"}}) {
    EXPECT_EQ(RunTessera(args).code, 2) << (args.empty() ? "nothing" : args.back());
  }
}

TEST(Cli, AnErrorInAProgramNamesItsReason) {
  const std::string path = ::testing::TempDir() + "/tessera_cli_wrong.txt";
  std::ofstream(path) << "func main(%x: f32[2]) -> (f32[2]) {\n  %y = frob(%x)\n  return %y\n}\n";
  const CommandResult result = RunTessera({"run", path});
  std::filesystem::remove(path);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("frob"), HasSubstr("reason: UNKNOWN_OP")));
  EXPECT_THAT(RunTessera({"run", "/nowhere/x.txt"}).err, HasSubstr("reason: FILE_NOT_FOUND"));
}

std::string Artifact(const std::string& name) {
  return SourcePath("tests/fuzz/stablehlo/" + name + ".mlirbc");
}

TEST(Cli, ArtifactsRunAndExplainLikeTextPrograms) {
  const CommandResult run =
      RunTessera({"run", Artifact("affine"), "-i", "zeros", "-i", "ones", "-i", "[0, 9]"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(StartsWith("result 0 f32[4,2]"), HasSubstr("[0, 1]")));
  const CommandResult explain = RunTessera({"explain", Artifact("affine")});
  EXPECT_EQ(explain.code, 0) << explain.err;
  EXPECT_THAT(explain.out, HasSubstr("jit_affine"));
  const CommandResult unsupported = RunTessera({"run", Artifact("custom_call")});
  EXPECT_EQ(unsupported.code, 1);
  EXPECT_THAT(unsupported.err, AllOf(HasSubstr("'nobodys_factors'"), HasSubstr("(model.py:3)"),
                                     HasSubstr("reason: NOT_IMPLEMENTED")));
  const CommandResult placed = RunTessera({"run", Artifact("affine"), "--mesh", "2"});
  EXPECT_EQ(placed.code, 2);
  EXPECT_THAT(placed.err, HasSubstr("is a StableHLO artifact"));
}

TEST(Cli, RunAcceptsWhatExportWrites) {
  const std::string file = ::testing::TempDir() + "/exported.mlirbc";
  const CommandResult exported = RunTessera({"export", kMatmul, "-o", file});
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.out, AllOf(StartsWith(file), HasSubstr("for StableHLO 1.11.0 or newer")));
  const CommandResult inspected = RunTessera({"inspect", file});
  EXPECT_THAT(inspected.out, AllOf(HasSubstr("dot_general"), HasSubstr("Tessera runs it.")));
  EXPECT_EQ(RunTessera({"run", file}).out, RunTessera({"run", kMatmul}).out);
  EXPECT_EQ(RunTessera({"export", kMatmul}).code, 2) << "a file is wanted";
  EXPECT_THAT(RunTessera({"export", kMatmul, "-o", "/nowhere/x.mlirbc"}).err,
              HasSubstr("/nowhere"));
}

// Compares the whole output for one artifact and looks for the main parts in others.
TEST(Cli, InspectShowsSignatureOpsAndMesh) {
  const CommandResult affine = RunTessera({"inspect", Artifact("affine")});
  EXPECT_EQ(affine.code, 0) << affine.err;
  EXPECT_EQ(affine.out, R"(jit_affine: a StableHLO artifact for StableHLO 1.15.0 or newer, 848 bytes

signature
            name    type      sharding
argument 0  x       f32[4,3]
argument 1  w       f32[3,2]
argument 2  b       f32[2]
result 0    result  f32[4,2]

5 ops
times  op
    2  broadcast_in_dim
    1  add
    1  dot_general
    1  tanh

Tessera runs it.
)");
  const CommandResult unsupported = RunTessera({"inspect", Artifact("custom_call")});
  EXPECT_EQ(unsupported.code, 0) << "what it lacks is an answer";
  EXPECT_THAT(unsupported.out, AllOf(HasSubstr("\nops that Tessera lacks\n"),
                                     HasSubstr("2  custom_call @nobodys_factors\n"),
                                     HasSubstr("Tessera does not run it: StableHLO: custom_call")));
  const CommandResult placed = RunTessera({"inspect", Artifact("placed")});
  EXPECT_THAT(placed.out, AllOf(HasSubstr("\nmesh\nname   axes\n@mesh  (x=2, y=2)\n"),
                                HasSubstr("@mesh, [{x, y}, {}]")));
  const CommandResult text = RunTessera({"inspect", kMatmul});
  EXPECT_THAT(text.out, AllOf(StartsWith("main: a program in the text form, "),
                              HasSubstr("(data=2, model=2)")));
  const Json document = Json::parse(RunTessera({"inspect", Artifact("affine"), "--json"}).out);
  EXPECT_EQ(TextOf(document, "stablehloVersion"), "1.15.0");
  EXPECT_EQ(document["params"][1]["type"], "f32[3,2]");
  const std::string path = ::testing::TempDir() + "/tessera_cli_cut.mlirbc";
  std::ofstream(path) << Slurp(Artifact("affine")).substr(0, 100);
  const CommandResult cut = RunTessera({"inspect", path});
  std::filesystem::remove(path);
  EXPECT_EQ(cut.code, 1);
  EXPECT_THAT(cut.err, AllOf(HasSubstr("tessera_cli_cut.mlirbc"), HasSubstr("MALFORMED_PROGRAM")));
}

TEST(Cli, CompletionScriptsComplete) {
  const CommandResult bash = RunTessera({"completion", "bash"});
  ASSERT_EQ(bash.code, 0);
  const std::string path = ::testing::TempDir() + "/tessera_cli_completion.bash";
  std::ofstream(path) << bash.out
                      << "try() { COMP_WORDS=(\"$@\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1));\n"
                         "  COMPREPLY=(); _tessera; echo \"${COMPREPLY[*]}\"; }\n"
                         "try tessera dev\ntry tessera mesh ''\ntry tessera -a x:1 expl\n"
                         "try tessera token create t --role w\ntry tessera run --ke\n";
  const std::string out = ::testing::TempDir() + "/tessera_cli_completion.out";
  // The completion script calls tessera.
  const std::string folder = std::filesystem::path(SourcePath(TESSERA_BINARY)).parent_path();
  EXPECT_EQ(std::system(absl::StrCat("PATH='", folder, ":'$PATH bash ", path, " > ", out).c_str()),
            0);
  EXPECT_EQ(Slurp(out), "devices\ncreate list rm\nexplain\nworker\n--keep\n");
  std::filesystem::remove(path);
  std::filesystem::remove(out);
}

// ---- On a cluster with TLS and tokens.

// Starts `tessera up` and calls the doctor with the right credentials and with some missing.
TEST(Cli, DoctorNamesMissingCredentials) {
  std::string folder = ::testing::TempDir() + "/tessera-up-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  RunningCommand up({"up", "--dir", folder, "--listen", "127.0.0.1:0", "--devices", "1"}, {});
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(up.Output(), "Ctrl-C"); }, kPatience));
  const std::string ca = "TESSERA_CA_FILE=" + folder + "/client/ca.pem";
  const std::string token = "TESSERA_TOKEN=" + Slurp(folder + "/client/token");
  const std::string address = Slurp(folder + "/address");
  const auto setting = [&](std::vector<std::string> environment) {
    return CommandSetting{.address = std::string(absl::StripAsciiWhitespace(address)),
                          .environment = std::move(environment)};
  };
  const CommandSetting complete_setting =
      setting({ca, std::string(absl::StripAsciiWhitespace(token))});
  // The coordinator counts as healthy when a program has run on devices that have registered.
  ASSERT_TRUE(Eventually(
      [&] {
        return RunTessera({"doctor", "--health", complete_setting.address}, complete_setting)
                   .code == 0;
      },
      kPatience));
  const CommandResult complete = RunTessera({"doctor"}, complete_setting);
  EXPECT_EQ(complete.code, 0) << complete.out << complete.err;
  EXPECT_THAT(complete.out,
              AllOf(ContainsRegex("ok +tls +TLS"), ContainsRegex("ok +token +accepted"),
                    HasSubstr("put and get in")));
  const CommandResult plain = RunTessera({"doctor"}, setting({"TESSERA_CA_FILE="}));
  EXPECT_EQ(plain.code, 1);
  EXPECT_THAT(plain.out,
              AllOf(ContainsRegex("FAILED +tls +plain text"), HasSubstr("set TESSERA_CA_FILE")));
  const CommandResult without_token = RunTessera({"doctor"}, setting({ca}));
  EXPECT_EQ(without_token.code, 1);
  EXPECT_THAT(without_token.out,
              AllOf(ContainsRegex("FAILED +token"), HasSubstr("Set TESSERA_TOKEN")));
  const CommandResult unknown_token =
      RunTessera({"devices"}, setting({ca, "TESSERA_TOKEN=tsr_unknown"}));
  EXPECT_EQ(unknown_token.code, 1);
  EXPECT_THAT(unknown_token.err, HasSubstr("reason: TOKEN_UNKNOWN"));

  const CommandResult made =
      RunTessera({"token", "create", "ci", "--role", "viewer"}, complete_setting);
  ASSERT_EQ(made.code, 0) << made.err;
  const CommandSetting viewer =
      setting({ca, "TESSERA_TOKEN=" + std::string(absl::StripAsciiWhitespace(made.out))});
  EXPECT_EQ(RunTessera({"devices"}, viewer).code, 0);
  EXPECT_THAT(RunTessera({"run", kMatmul, "--mesh", "1x1"}, viewer).err,
              HasSubstr("reason: ROLE_MISSING"));
  EXPECT_THAT(RunTessera({"token", "list"}, complete_setting).out,
              AllOf(HasSubstr("ci"), HasSubstr("viewer")));
  EXPECT_EQ(RunTessera({"token", "revoke", "ci"}, complete_setting).code, 0);
  EXPECT_THAT(RunTessera({"devices"}, viewer).err, HasSubstr("reason: TOKEN_REVOKED"));
  up.Signal(SIGINT);
  EXPECT_GE(up.Wait().code, 0);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

// ---- On a cluster.

TEST_F(CliTest, DevicesAndWorkersAreListed) {
  const CommandResult devices = RunOnCluster({"devices"});
  EXPECT_EQ(devices.code, 0) << devices.err;
  EXPECT_THAT(devices.out, AllOf(HasSubstr("DEVICE  KIND"), HasSubstr("w0/0"), HasSubstr("w1/0"),
                                 HasSubstr("ready"), Not(HasSubstr(kEscape))));
  EXPECT_THAT(devices.err, HasSubstr("4 of 4 devices are healthy"));
  const Json json = RunForJson({"devices"});
  ASSERT_EQ(json["devices"].size(), 4u);
  std::set<std::string> on;
  for (const Json& d : json["devices"]) on.insert(TextOf(d, "executor"));
  EXPECT_EQ(on, (std::set<std::string>{"w0/0", "w1/0"}));
  const Json workers = RunForJson({"workers"});
  ASSERT_EQ(workers["workers"].size(), 2u);
  EXPECT_EQ(TextOf(workers["workers"][0], "state"), "WORKER_STATE_READY");
  EXPECT_THAT(RunOnCluster({"workers"}).out,
              AllOf(HasSubstr("w0"), HasSubstr("READY"), HasSubstr("127.0.0.1:")));
}

TEST_F(CliTest, RunGivesTheSameValuesOnEveryMesh) {
  const Json one_device = RunForJson({"run", kMatmul, "--mesh", "1x1"});
  ASSERT_EQ(one_device["outputs"].size(), 2u);
  EXPECT_EQ(one_device["types"], Json::parse(R"(["f32[8,6]", "f32[]"])"));
  for (const char* mesh : {"2x2", "4x1", "data=1,model=2"}) {
    EXPECT_EQ(RunForJson({"run", kMatmul, "--mesh", mesh})["outputs"], one_device["outputs"])
        << mesh;
  }
  const Json zeros = RunForJson({"run", kMatmul, "--input", "zeros", "-i", "ones"});
  EXPECT_EQ(zeros["outputs"][1], Json(0.0));
}

TEST_F(CliTest, RunReadsAndWritesFiles) {
  const std::string x = WriteCountingArray("x.npy", 8, 4);
  const std::string w =
      WriteFile("w.json", "[[1,0,0,0,0,0],[0,1,0,0,0,0],[0,0,1,0,0,0],[0,0,0,1,0,0]]");
  const std::string out = *files_dir_ + "/out";
  const CommandResult result = RunOnCluster({"run", kMatmul, "-i", x, "-i", w, "--out", out});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(out + "/result0.npy"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array y, cli::ReadNpy(out + "/result0.npy"));
  EXPECT_EQ(y.At(0 * 6 + 3), 3);
  EXPECT_EQ(y.At(7 * 6 + 0), 28);
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array t, cli::ReadNpy(out + "/result1.npy"));
  EXPECT_EQ(t.At(0), 31 * 32 * 63 / 6);
  EXPECT_THAT(RunOnCluster({"run", kMatmul, "-i", x, "-i", x}).err,
              AllOf(HasSubstr("input 1 (f32[4,6])"), HasSubstr("holds f32[8,4]")));
}

TEST_F(CliTest, AnArtifactRunsOnTheCluster) {
  const std::string x = WriteCountingArray("artifact_x.npy", 4, 3);
  const Json result =
      RunForJson({"run", Artifact("affine"), "-i", x, "-i", "zeros", "-i", "[0, 1000]"});
  EXPECT_EQ(result["types"], Json::parse(R"(["f32[4,2]"])"));
  EXPECT_EQ(result["outputs"][0][3], Json::parse("[0.0, 1.0]"));
  EXPECT_THAT(RunOnCluster({"explain", Artifact("affine")}).out, HasSubstr("jit_affine"));
}

// Looks at a plan as a drawing, as ASCII, as text and as JSON.
TEST_F(CliTest, ExplainDrawsWhatEachDeviceHolds) {
  const CommandResult result = RunOnCluster({"explain", kMatmul});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("main on mesh (data=2, model=2), 4 devices"),
                                ContainsRegex("device 3 w[01]"), HasSubstr("%x [4:8, :]"),
                                HasSubstr("psum over"), HasSubstr("╭")));
  for (absl::string_view line : absl::StrSplit(result.out, '\n')) {
    EXPECT_LE(cli::WidthOf(std::string(line)), 100) << line;
  }
  const CommandResult ascii = RunTessera(
      {"explain", kMatmul}, {.address = cluster_->address(), .environment = {"LC_ALL=C"}});
  EXPECT_TRUE(std::all_of(ascii.out.begin(), ascii.out.end(),
                          [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
  // The text names the lines of the file, as it does without a cluster.
  const std::string text = RunOnCluster({"explain", kMatmul, "--text"}).out;
  EXPECT_THAT(text, AllOf(StartsWith("plan of main on mesh"), HasSubstr("(matmul.txt:10)")));
  // Everything but the predicted time is the same; the prediction depends on what the devices have
  // measured so far.
  const std::string own = RunTessera({"explain", kMatmul, "--text"}).out;
  const size_t time = own.find("predicted time: ");
  ASSERT_NE(time, std::string::npos);
  EXPECT_THAT(text, StartsWith(own.substr(0, time)));
  const Json json = RunForJson({"explain", kMatmul});
  EXPECT_EQ(json["devices"].size(), 4u);
  EXPECT_THAT(cli::ParseJson(json["json"].get<std::string>(), "plan"), IsOk());
}

TEST_F(CliTest, ExplainPlansForDevicesThatTheClusterDoesNotHave) {
  const CommandResult missing = RunOnCluster({"explain", kMatmul, "--mesh", "8x6"});
  EXPECT_NE(missing.code, 0);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("needs 48 devices"), HasSubstr("--device-memory")));
  const std::vector<std::string> absent = {"explain", kMatmul,           "--mesh",
                                           "8x6",     "--device-memory", "80GiB"};
  const CommandResult result = RunOnCluster(absent);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("48 devices, absent"), HasSubstr("of 80.0 GiB"),
                                Not(HasSubstr("it would wait"))));
  const Json json = RunForJson(absent);
  EXPECT_EQ(json["devices"].size(), 0u);
  std::vector<std::string> text = absent;
  text.push_back("--text");
  EXPECT_THAT(RunOnCluster(text).out, HasSubstr("for absent devices"));
}

TEST_F(CliTest, AnArrayIsPutReadAndRemoved) {
  const std::string file = WriteCountingArray("a.npy", 4, 6);
  const CommandResult put = RunOnCluster({"put", file, "--mesh", "2x2", "--spec", "x,y"});
  ASSERT_EQ(put.code, 0) << put.err;
  EXPECT_THAT(put.out, StartsWith("arrays/"));
  const std::string id = put.out.substr(7, put.out.size() - 8);
  const Json list = RunForJson({"arrays"});
  ASSERT_EQ(list["arrays"].size(), 1u);
  EXPECT_EQ(TextOf(list["arrays"][0], "id"), id);
  EXPECT_THAT(RunOnCluster({"arrays"}).out, AllOf(HasSubstr("f32[4,6]"), HasSubstr("P('x', 'y')"),
                                                  HasSubstr("READY"), HasSubstr("0-3")));
  const std::string back = *files_dir_ + "/back.npy";
  EXPECT_EQ(RunOnCluster({"get", "arrays/" + id, "-o", back}).code, 0);
  EXPECT_EQ(Slurp(back), Slurp(file));
  EXPECT_EQ(RunForJson({"get", id})["value"][1], Json::parse("[6.0,7.0,8.0,9.0,10.0,11.0]"));
  EXPECT_EQ(RunOnCluster({"rm", id}).code, 0);
  const CommandResult gone = RunOnCluster({"get", id});
  EXPECT_EQ(gone.code, 1);
  EXPECT_THAT(gone.err, HasSubstr("reason: ARRAY_DELETED"));
  const CommandResult indivisible = RunOnCluster({"put", file, "--mesh", "4", "--spec", "-,x"});
  EXPECT_EQ(indivisible.code, 1);
  EXPECT_THAT(indivisible.err, HasSubstr("reason: INDIVISIBLE"));
  EXPECT_THAT(RunOnCluster({"put", file, "--mesh", "64"}).err,
              HasSubstr("reason: NOT_ENOUGH_DEVICES"));
}

TEST_F(CliTest, ArraysMoveBetweenDevices) {
  const std::string id =
      TextOf(RunForJson({"put", WriteCountingArray("m.npy", 4, 6), "--mesh", "2x2", "-s", "x,y"}),
             "array");
  const CommandResult moved =
      RunOnCluster({"reshard", id, "--mesh", "y=2", "--spec", "-,y", "--devices", "3,0"});
  ASSERT_EQ(moved.code, 0) << moved.err;
  ASSERT_THAT(moved.out, StartsWith("arrays/"));
  const std::string there = moved.out.substr(7, moved.out.size() - 8);
  EXPECT_NE(there, id);
  EXPECT_EQ(RunForJson({"get", there})["value"], RunForJson({"get", id})["value"]);
  EXPECT_EQ(RunOnCluster({"rm", id, there}).code, 0);
  EXPECT_THAT(RunOnCluster({"reshard", id}).err, HasSubstr("reason: ARRAY_DELETED"));
}

TEST_F(CliTest, ResultsThatAreKeptCanBeReadAndRemoved) {
  const Json kept = RunForJson({"run", kMatmul, "--keep"});
  ASSERT_EQ(kept["arrays"].size(), 2u);
  EXPECT_EQ(TextOf(RunForJson({"wait", TextOf(kept, "operation")}), "state"),
            "OPERATION_STATE_DONE");
  const Json value = RunForJson({"get", kept["arrays"][1].get<std::string>()});
  EXPECT_EQ(TextOf(value, "type"), "f32[]");
  EXPECT_EQ(RunOnCluster(
                {"rm", kept["arrays"][0].get<std::string>(), kept["arrays"][1].get<std::string>()})
                .code,
            0);
  EXPECT_EQ(RunForJson({"arrays"})["arrays"].size(), 0u);
}

TEST_F(CliTest, ASavedArrayIsLoaded) {
  const std::string file = WriteCountingArray("s.npy", 4, 6);
  const std::string id =
      TextOf(RunForJson({"put", file, "--mesh", "2x2", "--spec", "x,y"}), "array");
  const CommandResult saved = RunOnCluster({"save", "saved.safetensors", "-n", "w=" + id});
  ASSERT_EQ(saved.code, 0) << saved.err;
  const CommandResult again = RunOnCluster({"save", "saved.safetensors", "-n", "w=" + id});
  EXPECT_EQ(again.code, 1) << "a file was replaced without --overwrite";
  const Json loaded = RunForJson({"load", "saved.safetensors", "-n", "w", "-m", "4", "-s", "x"});
  ASSERT_EQ(loaded["arrays"].size(), 1u);
  const std::string copy = TextOf(loaded["arrays"][0], "id");
  EXPECT_EQ(RunForJson({"get", copy})["value"], RunForJson({"get", id})["value"]);
  const CommandResult listed = RunOnCluster({"ls-file", "saved.safetensors"});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_THAT(listed.out, AllOf(HasSubstr("w "), HasSubstr("f32[4,6]")));
  EXPECT_THAT(RunOnCluster({"ls-file", "no.safetensors"}).err, HasSubstr("reason: FILE_NOT_FOUND"));
  EXPECT_EQ(RunOnCluster({"load", "saved.safetensors"}).code, 2);
  EXPECT_EQ(RunOnCluster({"load", "nothing.npy"}).code, 1);
  EXPECT_EQ(RunOnCluster({"rm", id, copy}).code, 0);
}

TEST_F(CliTest, ARunIsListedWaitedForAndCancelled) {
  const std::string program = WriteFile("long.txt", LongProgram());
  RunningCommand run({"run", program, "--name", "to-cancel", "--timeout", "2m"}, ClusterSetting());
  const std::string id = AwaitRunningOperation("to-cancel");
  ASSERT_FALSE(id.empty());
  EXPECT_THAT(RunOnCluster({"ps"}).out, AllOf(HasSubstr("to-cancel"), HasSubstr("RUNNING")));
  const CommandResult impatient = RunOnCluster({"wait", id, "--timeout", "2s"});
  EXPECT_EQ(impatient.code, 3);
  EXPECT_THAT(impatient.err, HasSubstr("has not ended within 2s"));
  EXPECT_EQ(RunOnCluster({"cancel", id}).code, 0);
  const CommandResult ended = run.Wait();
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("reason: CANCELLED"));
  const CommandResult waited = RunOnCluster({"wait", id});
  EXPECT_EQ(waited.code, 1);
  EXPECT_THAT(waited.err, HasSubstr("reason: CANCELLED"));
  EXPECT_THAT(RunOnCluster({"ps", "--all"}).out, HasSubstr("CANCELLED"));
  EXPECT_THAT(RunOnCluster({"wait", "999999"}).err, HasSubstr("reason: OPERATION_NOT_FOUND"));
}

TEST_F(CliTest, CtrlCCancelsTheRun) {
  const std::string program = WriteFile("long.txt", LongProgram());
  RunningCommand run({"run", program, "--name", "to-interrupt", "--timeout", "2m"},
                     ClusterSetting());
  const std::string id = AwaitRunningOperation("to-interrupt");
  run.Signal(SIGINT);
  const CommandResult ended = run.Wait();
  EXPECT_EQ(ended.code, 130);
  EXPECT_THAT(ended.err, HasSubstr(absl::StrCat("operation ", id, " was cancelled")));
  EXPECT_EQ(TextOf(RunForJson({"wait", id}, /*code=*/1), "state"), "OPERATION_STATE_CANCELLED");
}

TEST_F(CliTest, TheEndOfTheTimeoutCancelsTheRun) {
  const std::string program = WriteFile("long.txt", LongProgram());
  const CommandResult result =
      RunOnCluster({"run", program, "--name", "to-outlast", "--timeout", "2s"});
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("reason: DEADLINE_EXCEEDED"));
  EXPECT_TRUE(Eventually([&] { return RunForJson({"ps"})["operations"].empty(); }, kPatience));
}

TEST_F(CliTest, MeshesHaveNames) {
  const CommandResult made =
      RunOnCluster({"mesh", "create", "square", "data=2,model=2", "--devices", "3,1,2,0"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(RunOnCluster({"mesh", "list"}).out,
              AllOf(HasSubstr("square"), HasSubstr("(data=2, model=2)")));
  const Json plan = RunForJson({"explain", kMatmul, "--mesh", "square"});
  EXPECT_EQ(cli::IntsOf(plan, "devices"), (std::vector<int64_t>{3, 1, 2, 0}));
  EXPECT_EQ(RunForJson({"run", kMatmul, "--mesh", "square"})["outputs"],
            RunForJson({"run", kMatmul})["outputs"]);
  EXPECT_EQ(RunOnCluster({"mesh", "rm", "square"}).code, 0);
  EXPECT_THAT(RunOnCluster({"run", kMatmul, "--mesh", "square"}).err,
              HasSubstr("reason: MESH_NOT_FOUND"));
  EXPECT_EQ(RunOnCluster({"mesh", "create", "Not A Name", "2x2"}).code, 1);
}

TEST_F(CliTest, WorkersGoOutOfServiceAndBack) {
  const CommandResult cordoned = RunOnCluster({"cordon", "w1", "--reason", "new disk"});
  ASSERT_EQ(cordoned.code, 0) << cordoned.err;
  EXPECT_THAT(cordoned.out, AllOf(HasSubstr("CORDONED"), HasSubstr("new disk")));
  EXPECT_THAT(RunOnCluster({"devices"}).out, HasSubstr("cordoned"));
  // Only two devices are left.
  EXPECT_EQ(RunOnCluster({"put", WriteCountingArray("c.npy", 4, 4), "--mesh", "4"}).code, 1);
  EXPECT_EQ(RunOnCluster({"uncordon", "w1"}).code, 0);
  EXPECT_EQ(RunForJson({"run", kMatmul})["types"].size(), 2u);

  const CommandResult drained = RunOnCluster({"drain", "w0"});
  EXPECT_EQ(drained.code, 0) << drained.err;
  EXPECT_THAT(drained.err, HasSubstr("nothing runs there any more"));
  EXPECT_EQ(RunOnCluster({"uncordon", "w0"}).code, 0);
  EXPECT_THAT(RunOnCluster({"cordon", "w9"}).err, HasSubstr("reason: WORKER_NOT_FOUND"));
}

TEST_F(CliTest, DrainSaysWhatStillRuns) {
  const std::string program = WriteFile("long.txt", LongProgram());
  RunningCommand run(
      {"run", program, "--name", "to-drain", "--devices", DeviceOf("w0"), "--timeout", "2m"},
      ClusterSetting());
  const std::string id = AwaitRunningOperation("to-drain");
  const CommandResult drained = RunOnCluster({"drain", "w0", "--timeout", "4s"});
  EXPECT_EQ(drained.code, 3);
  EXPECT_THAT(drained.err, HasSubstr("1 operation runs there still"));
  EXPECT_EQ(RunOnCluster({"cancel", id}).code, 0);
  EXPECT_EQ(RunOnCluster({"drain", "w0"}).code, 0);
  EXPECT_EQ(RunOnCluster({"uncordon", "w0"}).code, 0);
  EXPECT_EQ(run.Wait().code, 1);
}

TEST_F(CliTest, TopShowsProgramsAndWorkers) {
  ASSERT_EQ(RunOnCluster({"run", kMatmul, "--name", "on-top"}).code, 0);
  const CommandResult top = RunOnCluster({"top"});
  EXPECT_EQ(top.code, 0) << top.err;
  EXPECT_THAT(top.out,
              AllOf(HasSubstr("2 of 2 workers ready"), HasSubstr("w1"), Not(HasSubstr(kEscape))));
  const Json json = RunForJson({"top"});
  EXPECT_EQ(json["workers"].size(), 2u);
  EXPECT_TRUE(json.contains("programs"));
}

TEST_F(CliTest, DoctorFindsNoFaultInAHealthyCluster) {
  ASSERT_TRUE(Eventually(
      [] {
        return RunOnCluster({"doctor", "--health", cluster_->address()}).code == 0;
      },
      kPatience));
  const CommandResult result = RunOnCluster({"doctor"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  for (const char* check : {"address", "tls", "token", "health", "versions", "devices", "clock"}) {
    EXPECT_THAT(result.out, ContainsRegex(absl::StrCat("ok +", check)));
  }
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("w0/0: put and get in"), HasSubstr("w1/0: put and get in")));
  const Json json = RunForJson({"doctor"});
  EXPECT_EQ(json["ok"], Json(true));
  EXPECT_EQ(RunOnCluster({"doctor", "--health", cluster_->address()}).code, 0);
}

TEST_F(CliTest, SessionsAreListedAndTokensNeedATokensFile) {
  const Json sessions = RunForJson({"sessions"});
  EXPECT_TRUE(sessions.contains("sessions"));
  // This coordinator has no tokens file.
  const CommandResult tokens = RunOnCluster({"token", "create", "ci", "--role", "user"});
  EXPECT_EQ(tokens.code, 1);
  EXPECT_THAT(tokens.err, HasSubstr("reason: TOKENS_DISABLED"));
}

TEST_F(CliTest, VersionNamesClientAndServer) {
  const Json json = RunForJson({"version"});
  EXPECT_EQ(TextOf(json, "version"), TextOf(json["server"], "version"));
}

// ---- On a terminal.

bool HasTerminals() {
  int master = -1, terminal = -1;
  if (openpty(&master, &terminal, nullptr, nullptr, nullptr) != 0) return false;
  close(master);
  close(terminal);
  return true;
}
constexpr char kNoTerminals[] = "this system gives no terminals: is /dev/pts mounted?";

TEST_F(CliTest, ColoursAppearOnATerminalOnly) {
  if (!HasTerminals()) GTEST_SKIP() << kNoTerminals;
  CommandSetting setting = ClusterSetting();
  setting.terminal = true;
  EXPECT_THAT(RunTessera({"devices"}, setting).out, HasSubstr("\x1b[32mready\x1b[0m"));
  setting.environment = {"NO_COLOR=1"};
  EXPECT_THAT(RunTessera({"devices"}, setting).out, Not(HasSubstr("\x1b[32m")));
  setting.environment = {"TERM=dumb"};
  EXPECT_THAT(RunTessera({"devices"}, setting).out, Not(HasSubstr("\x1b[32m")));
}

TEST_F(CliTest, ALongTransferShowsABarOnATerminal) {
  if (!HasTerminals()) GTEST_SKIP() << kNoTerminals;
  const std::string file = WriteCountingArray("large.npy", 2048, 2048);
  CommandSetting setting = ClusterSetting();
  setting.terminal = true;
  const CommandResult shown = RunTessera({"put", file, "--mesh", "2x2"}, setting);
  EXPECT_EQ(shown.code, 0) << shown.out;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("\r\x1b[Kput "), HasSubstr("█"),
                               HasSubstr("100 %  64.0 MiB of 64.0 MiB")));
  const CommandResult plain = RunOnCluster({"put", file, "--mesh", "2x2", "--spec", "x"});
  EXPECT_THAT(plain.err, Not(HasSubstr(kEscape)));
  const Json left = RunForJson({"arrays"});
  for (const Json& a : cli::ChildOf(left, "arrays")) RunOnCluster({"rm", TextOf(a, "id")});
}

TEST_F(CliTest, AWaitShowsWhatItWaitsForOnATerminal) {
  if (!HasTerminals()) GTEST_SKIP() << kNoTerminals;
  const std::string program = WriteFile("long.txt", LongProgram());
  CommandSetting setting = ClusterSetting();
  setting.terminal = true;
  const CommandResult result = RunTessera({"run", program, "--timeout", "3s"}, setting);
  EXPECT_EQ(result.code, 3) << result.out;
  EXPECT_THAT(result.out, ContainsRegex("\r\x1b\\[Koperation [0-9]+  [0-9.]+ m?s  runs"));
}

}  // namespace
}  // namespace tessera::service
