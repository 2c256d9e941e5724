// Runs the child processes of the benchmarks: a coordinator, workers, the processes of a baseline,
// or a script in JAX. A benchmark talks to a child in lines, through pipes to its standard input
// and from its standard output.
#include "bench/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tessera::bench {
namespace {

constexpr absl::Duration kStopGrace = absl::Seconds(3);  // then the child is killed

struct Pipe {
  UniqueFd read_end, write_end;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0)
    return absl::InternalError(absl::StrCat("pipe: ", std::strerror(errno)));
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Waits for the child to exit. Returns false if it has not exited after `time`.
bool ReapWithin(int pid, absl::Duration time) {
  const absl::Time end = absl::Now() + time;
  while (waitpid(pid, nullptr, WNOHANG) == 0) {
    if (absl::Now() >= end) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

}  // namespace

// Forks, connects the child's standard input and output to pipes, and executes args[0]. The child
// asks the kernel to kill it when the parent ends, and checks that the parent has not ended before
// that request. If the program cannot be executed, Start still succeeds: the child ends, and the
// first ReadLine reports that.
absl::StatusOr<Process> Process::Start(const std::vector<std::string>& args) {
  TESSERA_ASSIGN_OR_RETURN(Pipe output, MakePipe());
  TESSERA_ASSIGN_OR_RETURN(Pipe input, MakePipe());
  // The child may not allocate between fork and exec.
  std::vector<char*> argv;
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const int parent = getpid();
  const int pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(input.read_end.get(), STDIN_FILENO);
    dup2(output.write_end.get(), STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  if (pid < 0) return absl::InternalError(absl::StrCat("fork: ", std::strerror(errno)));
  return Process(args[0], pid, input.write_end.Release(), output.read_end.Release());
}

Process::Process(Process&& other) noexcept
    : name_(std::move(other.name_)),
      pid_(std::exchange(other.pid_, -1)),
      input_(std::exchange(other.input_, -1)),
      output_(std::exchange(other.output_, -1)),
      unread_(std::move(other.unread_)) {}

Process::~Process() {
  if (input_ >= 0) close(input_);
  if (output_ >= 0) close(output_);
  if (pid_ < 0) return;
  kill(pid_, SIGTERM);
  if (ReapWithin(pid_, kStopGrace)) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::StatusOr<std::string> Process::ReadLine(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (true) {
    if (const size_t newline = unread_.find('\n'); newline != std::string::npos) {
      std::string line = unread_.substr(0, newline);
      unread_.erase(0, newline + 1);
      return line;
    }
    pollfd fd = {output_, POLLIN, 0};
    const absl::Duration left = std::max(end - absl::Now(), absl::ZeroDuration());
    const int ready = poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left)));
    if (ready == 0)
      return absl::DeadlineExceededError(
          absl::StrCat(name_, " printed nothing for ", absl::FormatDuration(timeout)));
    char bytes[4096];
    const ssize_t got = ready < 0 ? -1 : read(output_, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return absl::UnavailableError(
          absl::StrCat(name_, " ended, or cannot be started; is it built?"));
    unread_.append(bytes, static_cast<size_t>(got));
  }
}

absl::Status Process::WriteLine(const std::string& line) {
  const std::string bytes = line + "\n";
  const ssize_t sent = write(input_, bytes.data(), bytes.size());
  if (sent == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(name_, " does not read its standard input"));
}

std::string OwnFolder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
}

}  // namespace tessera::bench
