// Runs jailed processes: those in which the coordinator reads and plans the programs of clients,
// and those in which a worker compiles and evaluates. The first half is the parent's side, which
// sends requests and kills a process that exceeds its limits. The second half is the process
// itself, which locks itself in before it reads the first request.
#include "base/jail.h"

#include <fcntl.h>
#include <poll.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <new>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/thread_name.h"

namespace tessera {
namespace {

// The header of a request; the caller's bytes follow it. Before the first request, the process
// sends a message: it is empty if the process is in its jail, and otherwise says why it cannot be.
struct RequestHeader {
  int64_t memory_bytes = 0;
  int64_t cpu_seconds = 0;
};
constexpr int kChildFd = 3;
// The exit status of a jailed process that wanted more memory than it may have.
constexpr int kOutOfMemoryStatus = 97;
constexpr int kOomScoreAdj = 800;  // The kernel's maximum is 1000.

enum class IoResult { kDone, kClosed, kTimedOut, kStopped };

// The two things that end a call early.
struct Bounds {
  absl::Time deadline;
  int stop_fd = -1;
};

// Waits until the socket is ready for `events` or is closed; both count as kDone.
IoResult WaitUntilReady(int fd, short events, const Bounds& bounds) {
  while (true) {
    const int64_t left_ms =
        std::max<int64_t>(0, absl::ToInt64Milliseconds(bounds.deadline - SteadyNow()));
    pollfd ready[] = {{fd, events, 0}, {bounds.stop_fd, POLLIN, 0}};
    const int count = poll(ready, 2, static_cast<int>(std::min<int64_t>(left_ms + 1, 1 << 30)));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) return IoResult::kTimedOut;
    return ready[1].revents != 0 ? IoResult::kStopped : IoResult::kDone;
  }
}

// Sends all bytes. Sends without blocking and waits within the bounds, because the buffer of the
// socket fills up if the process hangs.
IoResult WriteBefore(int fd, const Bounds& bounds, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      const IoResult waited = WaitUntilReady(fd, POLLOUT, bounds);
      if (waited != IoResult::kDone) return waited;
    } else if (errno != EINTR) {
      return IoResult::kClosed;
    }
  }
  return IoResult::kDone;
}

IoResult ReadBefore(int fd, const Bounds& bounds, FrameParser* parser, std::string* message) {
  while (true) {
    if (std::optional<std::string> whole = parser->Next()) {
      *message = *std::move(whole);
      return IoResult::kDone;
    }
    if (parser->broken()) return IoResult::kClosed;
    const IoResult waited = WaitUntilReady(fd, POLLIN, bounds);
    if (waited != IoResult::kDone) return waited;
    char bytes[1 << 16];
    const ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return IoResult::kClosed;
    parser->Add(bytes, static_cast<size_t>(got));
  }
}

}  // namespace

absl::Status JailedProcess::Start() {
  if (Runs()) return absl::OkStatus();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return MakeError(
        ErrorKind::kInternal,
        absl::StrCat(options_.title, ": cannot make a socket: ", std::strerror(errno)));
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  std::vector<int> fds = {theirs.get()};
  fds.insert(fds.end(), options_.fds.begin(), options_.fds.end());
  TESSERA_ASSIGN_OR_RETURN(ChildProcess process,
                           ChildProcess::Spawn(options_.binary, options_.args, fds,
                                               /*minimal_environment=*/true, options_.title));
  running_.emplace(
      Running{std::move(process), std::move(ours), FrameParser(options_.reply_bytes_max)});
  return absl::OkStatus();
}

bool JailedProcess::Runs() {
  if (!running_) return false;
  if (!running_->process.Reap()) return true;
  running_.reset();
  return false;
}

// Sends one request and waits for the reply within the deadline. Every failure, even a passed
// deadline, ends the jailed process: its state cannot be trusted afterwards, and a late reply must
// not be taken for the answer to the next request. The limit on processor time follows from the
// deadline, so that the kernel ends a jailed process that spins even while the calling process is
// suspended.
std::optional<std::string> JailedProcess::Call(std::string_view request, absl::Time deadline,
                                               JailEnd* end) {
  deadline = std::min(deadline, SteadyNow() + absl::Hours(24));
  const Bounds bounds{deadline, options_.stop_fd};
  if (const absl::Status started = Start(); !started.ok()) {
    *end = {JailEnd::Cause::kNotStarted, std::string(started.message())};
    return std::nullopt;
  }
  Running& running = *running_;
  const int fd = running.socket.get();
  std::string reply;
  IoResult result = IoResult::kDone;
  if (!running.ready) {
    result = ReadBefore(fd, bounds, &running.replies, &reply);
    if (result == IoResult::kDone && !reply.empty()) {
      running_.reset();
      *end = {JailEnd::Cause::kNotStarted, reply};
      return std::nullopt;
    }
    running.ready = result == IoResult::kDone;
  }
  const RequestHeader limits{options_.memory_bytes_max,
                             absl::ToInt64Seconds((deadline - SteadyNow()) * options_.threads) + 1};
  const std::string_view header(reinterpret_cast<const char*>(&limits), sizeof limits);
  if (result == IoResult::kDone)
    result =
        WriteBefore(fd, bounds, FrameHeader(header.size() + request.size()) + std::string(header));
  if (result == IoResult::kDone) result = WriteBefore(fd, bounds, request);
  if (result == IoResult::kDone) result = ReadBefore(fd, bounds, &running.replies, &reply);
  if (result == IoResult::kDone) return reply;
  if (result == IoResult::kTimedOut) {
    *end = {JailEnd::Cause::kWall, "did not answer in time and was stopped"};
  } else if (result == IoResult::kStopped) {
    *end = {JailEnd::Cause::kStopped, "was stopped"};
  } else {
    *end = Reap();
  }
  running_.reset();
  return std::nullopt;
}

JailEnd JailedProcess::Reap() {
  // The process closes the socket while it ends, so it can be reaped soon.
  pollfd ended{running_->process.pidfd(), POLLIN, 0};
  constexpr int kReapMs = 1000;
  if (ended.fd >= 0) poll(&ended, 1, kReapMs);
  const std::optional<ProcessEnd> end = running_->process.Reap();
  if (!end) return {JailEnd::Cause::kCrash, "closed its socket, or answered with too much"};
  if (end->signal == SIGXCPU) return {JailEnd::Cause::kCpu, "took too much processor time"};
  if (end->exit_status == kOutOfMemoryStatus)
    return {JailEnd::Cause::kMemory,
            absl::StrCat("wanted more than ", options_.memory_bytes_max, " bytes of memory")};
  return {JailEnd::Cause::kCrash, (end->signal != 0 ? "was " : "") + end->reason, end->signal};
}

// ---- The process itself. -----------------------------------------------------------------------
namespace {

// Sets the soft limit of a resource. With `is_final` it also sets the hard limit, so that the
// process cannot raise the limit again.
void SetLimit(int resource, int64_t limit, bool is_final = false) {
  rlimit value;
  if (getrlimit(static_cast<__rlimit_resource>(resource), &value) != 0) return;
  value.rlim_cur = std::min<rlim_t>(static_cast<rlim_t>(limit), value.rlim_max);
  if (is_final) value.rlim_max = value.rlim_cur;
  setrlimit(static_cast<__rlimit_resource>(resource), &value);
}

// Returns the size of this process's address space. The limit of a request is added to it, because
// libraries are mapped already and sanitizers reserve more memory than the machine has.
int64_t MappedBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

int64_t UsedProcessorSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + 1;
}

// The system calls that work on bytes needs: for memory, the time, locks, and descriptors that are
// open already. fcntl is not among them, because it can have signals sent to other processes.
constexpr const char* kAllowed[] = {"brk",
                                    "clock_getres",
                                    "clock_gettime",
                                    "clock_nanosleep",
                                    "close",
                                    "exit",
                                    "exit_group",
                                    "fstat",
                                    "futex",
                                    "getpid",
                                    "getrandom",
                                    "getrlimit",
                                    "getrusage",
                                    "gettid",
                                    "gettimeofday",
                                    "madvise",
                                    "mmap",
                                    "mprotect",
                                    "mremap",
                                    "munmap",
                                    "nanosleep",
                                    "poll",
                                    "ppoll",
                                    "read",
                                    "recvfrom",
                                    "rseq",
                                    "restart_syscall",
                                    "rt_sigaction",
                                    "rt_sigprocmask",
                                    "rt_sigreturn",
                                    "sched_yield",
                                    "sched_getaffinity",
                                    "sendto",
                                    "set_robust_list",
                                    "setrlimit",
                                    "sigaltstack",
                                    "time",
                                    "write",
                                    "writev"};
// The system calls that only an attack would make; they kill the process. Calls in neither list
// fail with EPERM.
constexpr const char* kForbidden[] = {"accept",
                                      "accept4",
                                      "add_key",
                                      "bind",
                                      "bpf",
                                      "chroot",
                                      "connect",
                                      "execve",
                                      "execveat",
                                      "fork",
                                      "io_uring_setup",
                                      "kexec_load",
                                      "keyctl",
                                      "kill",
                                      "listen",
                                      "mount",
                                      "open_by_handle_at",
                                      "perf_event_open",
                                      "pidfd_getfd",
                                      "pivot_root",
                                      "process_vm_readv",
                                      "process_vm_writev",
                                      "ptrace",
                                      "setns",
                                      "socket",
                                      "socketpair",
                                      "tkill",
                                      "unshare",
                                      "userfaultfd",
                                      "vfork"};

// Puts this process into its jail. Returns "", or the reason why that is not possible.
std::string EnterJail() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return absl::StrCat("no_new_privs: ", std::strerror(errno));
  const scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
  if (filter == nullptr) return "seccomp: cannot make a filter";
  // Apply the filter to all threads: one of them waits for the end of the parent.
  int error = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
  const auto add = [&](uint32_t action, const char* name) {
    const int call = seccomp_syscall_resolve_name(name);
    // The call is unknown or does not exist on this architecture.
    if (call == __NR_SCMP_ERROR || call < 0) return;
    if (error == 0) error = seccomp_rule_add(filter, action, call, 0);
  };
  for (const char* const name : kAllowed) add(SCMP_ACT_ALLOW, name);
  // Allow these two calls only for this process itself. Otherwise it could change the limits of,
  // and send signals to, other processes of the same user.
  const auto add_for = [&](int call, scmp_datum_t first) {
    const scmp_arg_cmp is{0, SCMP_CMP_EQ, first, 0};
    if (error == 0) error = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, call, 1, &is);
  };
  add_for(SCMP_SYS(prlimit64), 0);
  add_for(SCMP_SYS(tgkill), static_cast<scmp_datum_t>(getpid()));
  for (const char* const name : kForbidden) add(SCMP_ACT_KILL_PROCESS, name);
  if (error == 0) error = seccomp_load(filter);
  seccomp_release(filter);
  return error == 0 ? "" : absl::StrCat("seccomp: ", std::strerror(-error));
}

// The runtimes of the sanitizers make system calls of their own, mostly at the end of the process.
constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    true;
#else
    false;
#endif
#else
    false;
#endif

}  // namespace

bool JailFiltersCalls() { return !kSanitized; }

// Prepares everything that needs system calls first, then enters the jail, and only then reads
// requests. A thread watches the socket, so that the process ends with its parent even while it
// works. The limits come with each request, because they depend on the caller's deadline.
int ServeInJail(const char* title, const std::function<std::string(std::string_view)>& serve) {
  NameThread(title);
  fcntl(kChildFd, F_SETFD, FD_CLOEXEC);
  SetLimit(RLIMIT_CORE, 0, /*is_final=*/true);
  std::set_new_handler([] { _exit(kOutOfMemoryStatus); });
  // If the machine or the cgroup has no memory left, the kernel shall kill this process, which
  // holds one request, and not the coordinator, which holds everybody's state.
  std::ofstream("/proc/self/oom_score_adj") << kOomScoreAdj;
  // When the parent is gone, nobody can read the reply, so the process ends at once.
  std::thread([] {
    pollfd gone{kChildFd, POLLRDHUP, 0};
    while (poll(&gone, 1, -1) < 0 && errno == EINTR) continue;
    _exit(0);
  }).detach();
  const int64_t mapped_bytes = MappedBytes();
  const std::string why_not = JailFiltersCalls() ? EnterJail() : "";
  if (!WriteFrame(kChildFd, why_not) || !why_not.empty()) return 1;
  FrameReader requests(kChildFd);
  while (const std::optional<std::string> request = requests.Next()) {
    RequestHeader limits;
    if (request->size() < sizeof limits) return 1;
    std::memcpy(&limits, request->data(), sizeof limits);
    SetLimit(RLIMIT_AS, mapped_bytes + limits.memory_bytes);
    SetLimit(RLIMIT_CPU, UsedProcessorSeconds() + limits.cpu_seconds);
    if (!WriteFrame(kChildFd, serve(std::string_view(*request).substr(sizeof limits)))) return 1;
  }
  return 0;
}

}  // namespace tessera
