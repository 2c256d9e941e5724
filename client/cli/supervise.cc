// The processes that `tessera up` and `tessera join` run. Supervise polls its children from the
// main thread until Ctrl-C; the destructor of each ManagedProcess then ends the child.
#include "client/cli/supervise.h"

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
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/status.h"

namespace tessera::cli {
namespace {

constexpr absl::Duration kTerminationGracePeriod = absl::Seconds(10);
constexpr absl::Duration kPollInterval = absl::Milliseconds(100);
constexpr size_t kLogTailLines = 12;
constexpr absl::Duration kInitialBackoff = absl::Seconds(1), kMaxBackoff = absl::Seconds(30);
constexpr absl::Duration kBackoffResetAfter = absl::Minutes(1);

std::string FindProgram(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::filesystem::path beside = self.parent_path() / name;
    if (access(beside.c_str(), X_OK) == 0) return beside.string();
  }
  const char* path = std::getenv("PATH");
  for (absl::string_view directory : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string candidate = absl::StrCat(directory, "/", name);
    if (!directory.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

std::string LastLines(const std::string& path) {
  const auto text = ReadWholeFile(path, 64 << 20);
  if (!text.ok()) return "";
  std::vector<absl::string_view> lines = absl::StrSplit(*text, '\n', absl::SkipEmpty());
  if (lines.size() > kLogTailLines) lines.erase(lines.begin(), lines.end() - kLogTailLines);
  return absl::StrJoin(lines, "\n  ");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ManagedProcess>> ManagedProcess::Start(
    const std::string& name, const std::vector<std::string>& args, const std::string& log) {
  const std::string binary = FindProgram(name);
  if (binary.empty())
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat(name, ": not found next to this executable or in PATH; install it"));
  std::unique_ptr<ManagedProcess> process(new ManagedProcess(name, binary, log));
  TESSERA_RETURN_IF_ERROR(process->Spawn(args, O_TRUNC));
  return process;
}

absl::Status ManagedProcess::Restart(const std::vector<std::string>& args) {
  return Spawn(args, 0);
}

// Starts the program by fork and exec. The child asks the kernel for SIGTERM when its parent ends,
// so that no daemon is left over if this process is killed. The arguments are prepared before the
// fork, because the child must not allocate memory.
absl::Status ManagedProcess::Spawn(const std::vector<std::string>& args, int log_flags) {
  const int log = open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | log_flags, 0600);
  if (log < 0)
    return MakeError(ErrorKind::kValueError, absl::StrCat(log_, ": ", std::strerror(errno)));
  std::vector<char*> argv = {const_cast<char*>(binary_.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    // Make only async-signal-safe calls here, since other threads may have held locks at the fork.
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(126);  // the parent ended before prctl took effect
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  const int failure = errno;
  close(log);
  if (pid < 0)
    return MakeError(ErrorKind::kInternal, absl::StrCat(binary_, ": ", std::strerror(failure)));
  pid_ = pid;
  exit_description_.reset();
  exit_status_.reset();
  return absl::OkStatus();
}

std::optional<std::string> ManagedProcess::ExitDescription() {
  int status = 0;
  if (!exit_description_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    if (WIFEXITED(status)) exit_status_ = WEXITSTATUS(status);
    exit_description_ = exit_status_ ? absl::StrCat("exited with ", *exit_status_)
                                     : absl::StrCat("was killed by signal ", WTERMSIG(status));
  }
  return exit_description_;
}

absl::Status ManagedProcess::ExitError() {
  return MakeError(ErrorKind::kDaemonEnded,
                   absl::StrCat(name_, " ", ExitDescription().value_or("runs"), ". The end of ",
                                log_, ":\n  ", LastLines(log_)));
}

ManagedProcess::~ManagedProcess() {
  if (ExitDescription()) return;
  kill(pid_, SIGTERM);
  const absl::Time deadline = SteadyNow() + kTerminationGracePeriod;
  while (!ExitDescription()) {
    if (SteadyNow() > deadline) kill(pid_, SIGKILL);
    poll(nullptr, 0, 10);
  }
}

std::optional<absl::Duration> RestartPolicy::NextBackoff(std::optional<int> exit_status,
                                                         absl::Duration uptime) {
  const bool was_non_retryable =
      std::exchange(last_exit_non_retryable_, exit_status == kExitNonRetryable);
  if (last_exit_non_retryable_ && (never_restarted_ || was_non_retryable)) return std::nullopt;
  if (never_restarted_ || uptime >= kBackoffResetAfter) next_backoff_ = kInitialBackoff;
  never_restarted_ = false;
  return std::exchange(next_backoff_, std::min(2 * next_backoff_, kMaxBackoff));
}

// Polls the children at a short interval, which also notices Ctrl-C. Each process has a backoff of
// its own, so a worker that keeps failing does not delay the restart of the coordinator.
absl::Status Supervise(Context& context, const std::vector<SupervisedProcess>& processes,
                       const std::function<void()>& on_poll) {
  struct Member {
    SupervisedProcess spec;
    RestartPolicy policy;
    absl::Time started_at;
    std::optional<absl::Time> restart_at;  // set while the process has exited
  };
  std::vector<Member> members;
  for (const SupervisedProcess& s : processes)
    members.push_back({s, {}, absl::Now(), std::nullopt});
  while (true) {
    if (on_poll) on_poll();
    for (Member& m : members) {
      ManagedProcess& process = *m.spec.process;
      const absl::Time now = absl::Now();
      if (m.restart_at) {
        if (now < *m.restart_at) continue;
        TESSERA_RETURN_IF_ERROR(process.Restart(m.spec.args));
        m.restart_at.reset();
        m.started_at = now;
      } else if (const std::optional<std::string> exit = process.ExitDescription()) {
        const auto backoff = m.policy.NextBackoff(process.exit_status(), now - m.started_at);
        if (!backoff) return process.ExitError();
        m.restart_at = now + *backoff;
        context.terminal().Note(absl::StrCat(process.name(), " ", *exit, "; it starts again in ",
                                             absl::FormatDuration(*backoff)));
      }
    }
    if (!context.SleepUnlessInterrupted(kPollInterval)) return absl::OkStatus();
  }
}

}  // namespace tessera::cli
