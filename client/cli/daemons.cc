#include "client/cli/daemons.h"

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
#include "base/secret.h"
#include "base/status.h"

namespace tessera::cli {
namespace {

constexpr absl::Duration kEndPatience = absl::Seconds(10);
constexpr absl::Duration kPoll = absl::Milliseconds(100);
constexpr size_t kLogLines = 12;
constexpr absl::Duration kFirstPause = absl::Seconds(1), kLastPause = absl::Seconds(30);
constexpr absl::Duration kSteady = absl::Minutes(1);

std::string FindProgram(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::filesystem::path beside = self.parent_path() / name;
    if (access(beside.c_str(), X_OK) == 0) return beside.string();
  }
  const char* path = std::getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string candidate = absl::StrCat(folder, "/", name);
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

std::string LastLines(const std::string& path) {
  const auto text = ReadWholeFile(path, 64 << 20);
  if (!text.ok()) return "";
  std::vector<absl::string_view> lines = absl::StrSplit(*text, '\n', absl::SkipEmpty());
  if (lines.size() > kLogLines) lines.erase(lines.begin(), lines.end() - kLogLines);
  return absl::StrJoin(lines, "\n  ");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const std::string& name,
                                                      const std::vector<std::string>& args,
                                                      const std::string& log) {
  const std::string binary = FindProgram(name);
  if (binary.empty())
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat(name, ": not beside this program, nor in PATH; install it"));
  std::unique_ptr<Daemon> daemon(new Daemon(name, binary, log));
  TESSERA_RETURN_IF_ERROR(daemon->Spawn(args, O_TRUNC));
  return daemon;
}

absl::Status Daemon::StartAgain(const std::vector<std::string>& args) { return Spawn(args, 0); }

absl::Status Daemon::Spawn(const std::vector<std::string>& args, int log_flags) {
  const int out = open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | log_flags, 0600);
  if (out < 0)
    return MakeError(ErrorKind::kValueError, absl::StrCat(log_, ": ", std::strerror(errno)));
  std::vector<char*> argv = {const_cast<char*>(binary_.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    // Only async-signal-safe calls: other threads may have held locks at the fork.
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(126);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  const int failure = errno;
  close(out);
  if (pid < 0)
    return MakeError(ErrorKind::kInternal, absl::StrCat(binary_, ": ", std::strerror(failure)));
  pid_ = pid;
  end_.reset();
  exit_status_.reset();
  return absl::OkStatus();
}

std::optional<std::string> Daemon::Ended() {
  int status = 0;
  if (!end_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    if (WIFEXITED(status)) exit_status_ = WEXITSTATUS(status);
    end_ = exit_status_ ? absl::StrCat("exited with ", *exit_status_)
                        : absl::StrCat("was killed by signal ", WTERMSIG(status));
  }
  return end_;
}

absl::Status Daemon::Why() {
  return MakeError(ErrorKind::kDaemonEnded,
                   absl::StrCat(name_, " ", Ended().value_or("runs"), ". The end of ", log_,
                                ":\n  ", LastLines(log_)));
}

Daemon::~Daemon() {
  if (Ended()) return;
  kill(pid_, SIGTERM);
  const absl::Time end = SteadyNow() + kEndPatience;
  while (!Ended()) {
    if (SteadyNow() > end) kill(pid_, SIGKILL);
    poll(nullptr, 0, 10);
  }
}

std::optional<absl::Duration> RestartPolicy::AfterEnd(std::optional<int> exit_status,
                                                      absl::Duration ran) {
  const bool was_hopeless = std::exchange(hopeless_, exit_status == kHopeless);
  if (hopeless_ && (first_ || was_hopeless)) return std::nullopt;
  if (first_ || ran >= kSteady) next_ = kFirstPause;
  first_ = false;
  return std::exchange(next_, std::min(2 * next_, kLastPause));
}

absl::Status Supervise(Context& context, const std::vector<Supervised>& daemons,
                       const std::function<void()>& look) {
  struct Member {
    Supervised of;
    RestartPolicy policy;
    absl::Time since;                 // when it was started
    std::optional<absl::Time> again;  // when to start it again, if it has ended
  };
  std::vector<Member> members;
  for (const Supervised& of : daemons) members.push_back({of, {}, absl::Now(), std::nullopt});
  while (true) {
    if (look) look();
    for (Member& m : members) {
      Daemon& daemon = *m.of.daemon;
      const absl::Time now = absl::Now();
      if (m.again) {
        if (now < *m.again) continue;
        TESSERA_RETURN_IF_ERROR(daemon.StartAgain(m.of.args));
        m.again.reset();
        m.since = now;
      } else if (const std::optional<std::string> end = daemon.Ended()) {
        const auto pause = m.policy.AfterEnd(daemon.exit_status(), now - m.since);
        if (!pause) return daemon.Why();
        m.again = now + *pause;
        context.terminal().Note(absl::StrCat(daemon.name(), " ", *end, "; it starts again in ",
                                             absl::FormatDuration(*pause)));
      }
    }
    if (!context.Pause(kPoll)) return absl::OkStatus();
  }
}

}  // namespace tessera::cli
