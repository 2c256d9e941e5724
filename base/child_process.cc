// Starts child processes, waits for them and kills them: a worker's executors and the jails of
// untrusted programs (base/jail.h). posix_spawn is used instead of fork, since fork is unsafe in a
// process with threads.
#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "base/unique_fd.h"

extern char** environ;

namespace tessera {
namespace {

constexpr int kFirstFd = 3;
// Descriptors are first copied to numbers from here on, above every target number, so that a copy
// never overwrites the source of another one.
constexpr int kSafeFd = 64;

// Returns whether a child with a minimal environment still needs this variable, which is given as
// "NAME=value". The last one chooses the code of the library that computes, so a child with another
// value would compute other bits.
bool IsNeededToStart(absl::string_view variable) {
  constexpr absl::string_view kNames[] = {
      "LD_LIBRARY_PATH=", "ASAN_OPTIONS=",  "LSAN_OPTIONS=",
      "TSAN_OPTIONS=",    "UBSAN_OPTIONS=", "OPENBLAS_CORETYPE="};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](absl::string_view name) { return absl::StartsWith(variable, name); });
}

ProcessEnd DescribeEnd(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return {signal, absl::StrCat("killed by signal ", signal, " (", strsignal(signal), ")")};
  }
  return {0, absl::StrCat("exited with status ", WEXITSTATUS(status)), WEXITSTATUS(status)};
}

}  // namespace

// Gives the child only what it is meant to have: default signal handling, the chosen descriptors
// and, if wanted, a minimal environment. All other descriptors are closed, because this process may
// hold sockets and files that are none of the child's business, such as those of other clients. A
// pidfd lets the owner wait for the child's end together with other events.
absl::StatusOr<ChildProcess> ChildProcess::Spawn(const std::string& binary,
                                                 const std::vector<std::string>& args,
                                                 const std::vector<int>& fds,
                                                 bool minimal_environment,
                                                 const std::string& title) {
  std::vector<char*> argv = {const_cast<char*>(title.empty() ? binary.c_str() : title.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // The child starts with default signal handling, even if this process blocks or handles signals.
  sigset_t none;
  sigemptyset(&none);
  sigset_t defaults;
  sigfillset(&defaults);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<int> copies;
  for (size_t k = 0; k < fds.size(); ++k) {
    copies.push_back(fcntl(fds[k], F_DUPFD_CLOEXEC, kSafeFd));
    posix_spawn_file_actions_adddup2(&actions, copies[k], kFirstFd + static_cast<int>(k));
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, kFirstFd + static_cast<int>(fds.size()));
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!minimal_environment || IsNeededToStart(*variable)) environment.push_back(*variable);
  environment.push_back(nullptr);
  if (minimal_environment) {
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  }
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, binary.c_str(), &actions, &attributes, argv.data(), environment.data());
  for (const int copy : copies) close(copy);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat("cannot start ", binary, ": ", std::strerror(error)));
  }
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd >= 0) fcntl(pidfd, F_SETFD, FD_CLOEXEC);
  return ChildProcess(pid, pidfd);
}

ChildProcess::~ChildProcess() {
  if (pid_ >= 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
  }
  if (pidfd_ >= 0) close(pidfd_);
}

void ChildProcess::Kill(int signal) const {
  if (pid_ >= 0) kill(pid_, signal);
}

std::optional<ProcessEnd> ChildProcess::Reap() {
  int status = 0;
  if (pid_ < 0 || waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = -1;
  return DescribeEnd(status);
}

// Reads the child's answer through a pipe until the child closes the pipe or the timeout passes.
// This process closes its own copy of the write end first; otherwise the read would never report
// the end of the answer. The destructor of `child` kills the process if it is still running on
// return.
absl::StatusOr<std::string> RunAndCapture(const std::string& binary,
                                          const std::vector<std::string>& args,
                                          absl::Duration timeout) {
  constexpr size_t kAnswerMax = 64 << 10;
  const absl::Time deadline = SteadyNow() + timeout;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  }
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  TESSERA_ASSIGN_OR_RETURN(const ChildProcess child,
                           ChildProcess::Spawn(binary, args, {write_end.get()}));
  write_end = UniqueFd();
  std::string answer;
  while (answer.size() < kAnswerMax) {
    pollfd ready = {read_end.get(), POLLIN, 0};
    const int64_t left = absl::ToInt64Milliseconds(deadline - SteadyNow());
    const int n = poll(&ready, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) {
      return MakeError(ErrorKind::kDeadlineExceeded,
                       absl::StrCat(binary, " did not answer within ",
                                    absl::FormatDuration(timeout), " and was killed"));
    }
    char buffer[4096];
    const ssize_t got = read(read_end.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    answer.append(buffer, got);
  }
  if (answer.empty()) {
    return MakeError(ErrorKind::kInternal, absl::StrCat(binary, " ended without an answer"));
  }
  return answer;
}

void DieWithParent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have exited before prctl took effect.
  if (getppid() != parent) _exit(1);
}

void WatchParent(pid_t parent, std::function<void()> on_end) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, parent, 0));
  if (pidfd < 0 && errno != ESRCH) return DieWithParent(parent);
  // The parent may have exited before, and its pid may be that of another process.
  if (pidfd < 0 || getppid() != parent) _exit(1);
  std::thread([pidfd, on_end = std::move(on_end)] {
    NameThread("parent");
    pollfd ended = {pidfd, POLLIN, 0};
    while (poll(&ended, 1, -1) < 0 && errno == EINTR) {
    }
    on_end();
  }).detach();
}

}  // namespace tessera
