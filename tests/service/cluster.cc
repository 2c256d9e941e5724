// Starts and watches the daemons of a cluster for the tests in this folder and for with_cluster.cc.
// It learns the coordinator's port from the line that the coordinator prints, so that no test needs
// a fixed port.
#include "tests/service/cluster.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "base/testing/datadriven.h"
#include "base/testing/processes.h"

namespace tessera::service {
namespace {

using testing::ChildrenOf;
using testing::DescendantsOf;
using testing::Eventually;
using testing::HasEnded;

constexpr absl::Duration kStartPatience = absl::Seconds(30);
constexpr absl::Duration kKillPatience = absl::Seconds(20);
constexpr char kListening[] = "listening on ";

// Returns the executors of a daemon, which has other children too: a worker with GPUs monitors them
// in a child.
std::vector<int> ExecutorsOf(int daemon) {
  std::vector<int> executors;
  for (const int child : ChildrenOf(daemon)) {
    std::ifstream file(absl::StrCat("/proc/", child, "/cmdline"));
    std::string title;
    std::getline(file, title, '\0');
    if (absl::StartsWith(title, "tessera-executor")) executors.push_back(child);
  }
  return executors;
}

absl::Status ErrnoError(const std::string& what) {
  return MakeError(ErrorKind::kInternal, absl::StrCat(what, ": ", std::strerror(errno)));
}

// Returns the path of a daemon's binary: the one in the folder TESSERA_BIN_DIR if that variable is
// set, and otherwise the one that was built together with this file.
std::string BinaryPath(const char* name, const std::string& built) {
  const char* folder = std::getenv("TESSERA_BIN_DIR");
  return folder != nullptr && *folder != '\0' ? absl::StrCat(folder, "/", name) : built;
}

// Returns the first line that can be read from `fd`.
absl::StatusOr<std::string> ReadLine(int fd, absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  std::string line;
  while (absl::Now() < deadline) {
    pollfd readable{fd, POLLIN, 0};
    poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(deadline - absl::Now())));
    char byte = 0;
    if (readable.revents == 0) continue;
    if (read(fd, &byte, 1) != 1)
      return absl::UnavailableError("the process ended before it listened");
    if (byte == '\n') return line;
    line.push_back(byte);
  }
  return absl::DeadlineExceededError("the process does not listen");
}

// Returns `why` together with the wait status of the process, if it has ended.
absl::Status WithEnd(const absl::Status& why, Process& process) {
  const std::optional<int> status = process.Wait(absl::Seconds(1));
  return status ? Annotate(why, absl::StrCat("wait status ", *status)) : why;
}

}  // namespace

// Forks and executes `binary`. The parent-death signal makes the kernel kill the child when the
// thread that called this ends, so that a test that crashes leaves no daemons behind. The child
// compares its parent's id afterwards, because the parent may have died before the signal was
// requested.
absl::StatusOr<std::unique_ptr<Process>> Process::Start(const std::string& binary,
                                                        const std::vector<std::string>& args,
                                                        const std::string& log, int output_fd) {
  const int out = open(log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (out < 0) return ErrnoError(absl::StrCat("cannot write ", log));
  std::vector<char*> argv = {const_cast<char*>(binary.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    // This process may have other threads, so only functions that are safe after a fork may be
    // called here.
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(126);
    dup2(out, STDERR_FILENO);
    dup2(output_fd >= 0 ? output_fd : out, STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out);
  if (pid < 0) return ErrnoError(absl::StrCat("cannot start ", binary));
  return std::unique_ptr<Process>(new Process(pid));
}

Process::~Process() {
  if (wait_status_) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

void Process::Signal(int signal) const {
  if (!wait_status_) kill(pid_, signal);
}

std::optional<int> Process::Wait(absl::Duration patience) {
  Eventually(
      [this] {
        int status = 0;
        if (!wait_status_ && waitpid(pid_, &status, WNOHANG) == pid_) wait_status_ = status;
        return wait_status_.has_value();
      },
      patience);
  return wait_status_;
}

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Start(const ClusterOptions& options) {
  std::error_code error;
  std::string folder = (std::filesystem::temp_directory_path(error) / "tessera-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return ErrnoError(absl::StrCat("cannot make ", folder));
  std::unique_ptr<Cluster> cluster(new Cluster(options, folder));
  const auto start = [&]() -> absl::Status {
    TESSERA_RETURN_IF_ERROR(cluster->StartCoordinator());
    cluster->workers_.resize(options.workers);
    for (int w = 0; w < options.workers; ++w) TESSERA_RETURN_IF_ERROR(cluster->StartWorker(w));
    cluster->session_ = Session::Connect(cluster->address_, options.connect);
    return cluster->AwaitHealthyDevices(options.num_devices(), kStartPatience);
  };
  if (const absl::Status status = start(); !status.ok()) {
    return Annotate(status, absl::StrCat("the cluster does not start\n", cluster->Logs()));
  }
  return cluster;
}

Cluster::~Cluster() {
  session_.reset();
  const std::vector<int> all = pids();
  workers_.clear();
  coordinator_.reset();
  // The kernel kills the executors after their daemons have died. Wait until all have ended, so
  // that none is left when the next cluster starts.
  Eventually([&] { return std::all_of(all.begin(), all.end(), HasEnded); }, kKillPatience);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

absl::Status Cluster::StartCoordinator() {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoError("pipe");
  const std::string listen = address_.empty() ? "127.0.0.1:0" : address_;
  std::vector<std::string> args = {absl::StrCat("--listen=", listen),
                                   "--metrics-listen=127.0.0.1:0"};
  args.insert(args.end(), options_.coordinator_flags.begin(), options_.coordinator_flags.end());
  auto started =
      Process::Start(BinaryPath("tessera-coordinator", SourcePath(TESSERA_COORDINATOR_BINARY)),
                     args, LogFile("coordinator"), ends[1]);
  close(ends[1]);
  absl::StatusOr<std::string> line =
      started.ok() ? ReadLine(ends[0], kStartPatience) : started.status();
  close(ends[0]);
  if (started.ok() && !line.ok()) return WithEnd(line.status(), **started);
  TESSERA_RETURN_IF_ERROR(line);
  coordinator_ = *std::move(started);
  if (!absl::StartsWith(*line, kListening)) {
    return MakeError(ErrorKind::kInternal, absl::StrCat("the coordinator said: ", *line));
  }
  address_ = line->substr(std::strlen(kListening));
  return absl::OkStatus();
}

absl::Status Cluster::StartWorker(int w) {
  const std::string name = absl::StrCat("w", w);
  std::vector<std::string> args = {absl::StrCat("--coordinator=", address_),
                                   absl::StrCat("--name=", name), "--device-memory-bytes=67108864",
                                   "--metrics-listen=127.0.0.1:0"};
  if (options_.gpus_per_worker > 0) {
    args.push_back(absl::StrCat("--gpus=", options_.gpus_per_worker));
  } else if (options_.gpus_per_worker == 0) {
    args.push_back(absl::StrCat("--devices=", options_.devices_per_worker));
  }
  args.insert(args.end(), options_.worker_flags.begin(), options_.worker_flags.end());
  std::vector<std::string> variables_set;
  for (const std::string& variable :
       options_.worker_env ? options_.worker_env(w) : std::vector<std::string>()) {
    const size_t equals = variable.find('=');
    variables_set.push_back(variable.substr(0, equals));
    setenv(variables_set.back().c_str(), variable.substr(equals + 1).c_str(), /*overwrite=*/1);
  }
  absl::StatusOr<std::unique_ptr<Process>> started = Process::Start(
      BinaryPath("tessera-worker", SourcePath(TESSERA_WORKER_BINARY)), args, LogFile(name));
  for (const std::string& variable : variables_set) unsetenv(variable.c_str());
  TESSERA_RETURN_IF_ERROR(started);
  workers_[w] = *std::move(started);
  return absl::OkStatus();
}

absl::Status Cluster::RestartCoordinator() {
  coordinator_.reset();
  return StartCoordinator();
}

absl::Status Cluster::RestartWorker(int w) {
  workers_[w].reset();
  return StartWorker(w);
}

absl::Status Cluster::AwaitHealthyDevices(int count, absl::Duration patience) const {
  absl::StatusOr<std::vector<api::Device>> devices;
  int healthy = 0;
  const bool all_healthy = Eventually(
      [&] {
        devices = session_->service().ListDevices();
        if (!devices.ok()) return true;
        healthy = static_cast<int>(std::count_if(devices->begin(), devices->end(),
                                                 [](const api::Device& d) { return d.healthy; }));
        return healthy == count;
      },
      patience);
  TESSERA_RETURN_IF_ERROR(devices);
  if (all_healthy) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(
      healthy, " healthy devices after ", absl::FormatDuration(patience), "; expected ", count));
}

int Cluster::executor_pid(int w) const {
  const std::vector<int> executors = ExecutorsOf(workers_[w]->pid());
  return executors.empty() ? -1 : executors[0];
}

std::vector<int> Cluster::RunningPids(std::vector<int> (*of_daemon)(int pid)) const {
  std::vector<int> all;
  if (coordinator_) all.push_back(coordinator_->pid());
  for (const auto& worker : workers_) {
    if (!worker) continue;
    all.push_back(worker->pid());
    for (const int process : of_daemon(worker->pid())) all.push_back(process);
  }
  all.erase(std::remove_if(all.begin(), all.end(), HasEnded), all.end());
  return all;
}

std::vector<int> Cluster::pids() const {
  return RunningPids([](int pid) { return DescendantsOf(pid); });
}

std::vector<int> Cluster::member_pids() const { return RunningPids(ExecutorsOf); }

std::string Cluster::Logs() const {
  std::string all;
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(folder_, error)) {
    files.push_back(file.path());
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    absl::StrAppend(&all, "---- ", file.filename().string(), "\n", text.str());
  }
  return all;
}

}  // namespace tessera::service
