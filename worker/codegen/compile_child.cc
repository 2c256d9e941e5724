#include "worker/codegen/compile_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/frames.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "base/unique_fd.h"
#include "worker/codegen/compile.h"

namespace tessera::worker::codegen {
namespace {

// A request is a line "TARGET MEMORY_BYTES SECONDS" and the kernels' texts, separated by kBetween,
// or the text of a loop of kernels.
// A reply is kObject and the object, or kError and the message.
constexpr char kBetween[] = "--\n";
constexpr char kObject = 'o', kError = 'e';
constexpr int kChildFd = 3;
constexpr char kCompileTitle[] = "tessera-compile";

enum class IoResult { kDone, kClosed, kTimedOut };

// Waits until the socket is ready for `events`, or is closed.
IoResult WaitUntilReady(int fd, short events, absl::Time deadline) {
  while (true) {
    const int64_t left_ms = std::max<int64_t>(0, absl::ToInt64Milliseconds(deadline - SteadyNow()));
    pollfd ready{fd, events, 0};
    const int count = poll(&ready, 1, static_cast<int>(std::min<int64_t>(left_ms + 1, 1 << 30)));
    if (count < 0 && errno == EINTR) continue;
    return count == 0 ? IoResult::kTimedOut : IoResult::kDone;
  }
}

// Does not block, as the socket's buffer fills up if the child hangs.
IoResult WriteBefore(int fd, absl::Time deadline, std::string_view message) {
  const std::string frame = EncodeFrame(message);
  for (size_t at = 0; at < frame.size();) {
    const ssize_t sent =
        send(fd, frame.data() + at, frame.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      at += static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      const IoResult end = WaitUntilReady(fd, POLLOUT, deadline);
      if (end != IoResult::kDone) return end;
    } else if (errno != EINTR) {
      return IoResult::kClosed;
    }
  }
  return IoResult::kDone;
}

IoResult ReadBefore(int fd, absl::Time deadline, std::string* message) {
  FrameParser parser;
  while (true) {
    const IoResult end = WaitUntilReady(fd, POLLIN, deadline);
    if (end != IoResult::kDone) return end;
    char bytes[1 << 16];
    const ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return IoResult::kClosed;
    parser.Add(bytes, static_cast<size_t>(got));
    if (std::optional<std::string> whole = parser.Next()) {
      *message = *std::move(whole);
      return IoResult::kDone;
    }
    if (parser.broken()) return IoResult::kClosed;
  }
}

absl::Status TimeoutError(const std::string& label) {
  return MakeError(ErrorKind::kCompileTimeout,
                   absl::StrCat("compile of ", label,
                                ": the program was not compiled within compile_timeout_ms, and "
                                "the compiler was stopped; retry, split the program, or raise "
                                "the limit"));
}

}  // namespace

absl::StatusOr<std::string> CompileChild::Compile(absl::Span<const Kernel> kernels,
                                                  const std::string& label, absl::Time deadline) {
  return CompileText(absl::StrJoin(kernels, kBetween,
                                   [](std::string* out, const Kernel& kernel) {
                                     absl::StrAppend(out, kernel.ToString());
                                   }),
                     label, deadline);
}

absl::StatusOr<std::string> CompileChild::CompileText(const std::string& text,
                                                      const std::string& label,
                                                      absl::Time deadline) {
  absl::MutexLock lock(&mu_);
  deadline = std::min(deadline, SteadyNow() + absl::Hours(24));
  const absl::Duration left = deadline - SteadyNow();
  if (left <= absl::ZeroDuration()) return TimeoutError(label);
  if (!running_) TESSERA_RETURN_IF_ERROR(Start());
  const std::string request = absl::StrCat(options_.target, " ", options_.memory_bytes_max, " ",
                                           absl::ToInt64Seconds(left) + 1, "\n", text);
  std::string reply;
  IoResult result = WriteBefore(running_->socket.get(), deadline, request);
  if (result == IoResult::kDone) result = ReadBefore(running_->socket.get(), deadline, &reply);
  if (result != IoResult::kDone || reply.empty()) return Fail(result == IoResult::kTimedOut, label);
  if (reply[0] == kObject) return reply.substr(1);
  return MakeError(ErrorKind::kInternal,
                   absl::StrCat("compile of ", label, ": ", absl::string_view(reply).substr(1)));
}

absl::Status CompileChild::Start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return MakeError(ErrorKind::kInternal, "compile child: no sockets are left");
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  TESSERA_ASSIGN_OR_RETURN(ChildProcess process,
                           ChildProcess::Spawn(options_.binary, options_.args, {theirs.get()},
                                               /*bare=*/true, kCompileTitle));
  running_.emplace(Running{std::move(process), std::move(ours)});
  return absl::OkStatus();
}

absl::Status CompileChild::Fail(bool timed_out, const std::string& label) {
  if (timed_out) {
    running_.reset();
    TESSERA_LOG(WARNING) << "a program is not compiled in time" << Field("kernel", label);
    return TimeoutError(label);
  }
  // The child closed the socket as it ended, so that it can be reaped soon.
  pollfd ended{running_->process.pidfd(), POLLIN, 0};
  constexpr int kReapMs = 1000;
  if (ended.fd >= 0) poll(&ended, 1, kReapMs);
  const ProcessEnd end = running_->process.Reap().value_or(ProcessEnd{false, "closed its socket"});
  const std::string how = absl::StrCat("the compiler ", end.reason);
  running_.reset();
  TESSERA_LOG(ERROR) << "a kernel does not compile" << Field("kernel", label) << Field("how", how);
  return MakeError(ErrorKind::kInternal, absl::StrCat("compile of ", label, ": ", how,
                                                      "; please report it with the kernel"));
}

std::unique_ptr<CompileChild> CompileChildren::Take() {
  {
    absl::MutexLock lock(&mu_);
    if (idle_ != nullptr) return std::move(idle_);
  }
  return std::make_unique<CompileChild>(options_);
}

void CompileChildren::Release(std::unique_ptr<CompileChild> child) {
  absl::MutexLock lock(&mu_);
  idle_.swap(child);  // The previous one is destroyed without the lock.
}

// ---- The child. --------------------------------------------------------------------------------
namespace {

void Limit(int resource, int64_t soft) {
  rlimit limit;
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(static_cast<rlim_t>(soft), limit.rlim_max);
  setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

// The size of this process's address space. The limit is added to it, as libraries are mapped
// already, and sanitizers reserve more than the machine has.
int64_t MappedBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

int64_t ProcessorSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + 1;
}

class Server {
 public:
  explicit Server(CompileImageFn others) : others_(others) {}

  std::string Serve(const std::string& request) {
    absl::StatusOr<std::string> object = Compile(request);
    if (object.ok()) return absl::StrCat(std::string(1, kObject), *object);
    return absl::StrCat(std::string(1, kError), object.status().message());
  }

 private:
  absl::StatusOr<std::string> Compile(const std::string& request) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(request, absl::MaxSplits('\n', 1));
    const std::vector<std::string> words = absl::StrSplit(parts.first, ' ');
    int64_t memory_bytes = 0, seconds = 0;
    if (words.size() != 3 || !absl::SimpleAtoi(words[1], &memory_bytes) ||
        !absl::SimpleAtoi(words[2], &seconds))
      return MakeError(ErrorKind::kInternal, "the request is malformed");
    Limit(RLIMIT_AS, mapped_bytes_ + memory_bytes);
    Limit(RLIMIT_CPU, ProcessorSeconds() + seconds);
    const absl::StatusOr<HostTarget> target = FindHostTarget(words[0]);
    if (absl::StartsWith(parts.second, "loop ")) {
      TESSERA_RETURN_IF_ERROR(target);
      TESSERA_ASSIGN_OR_RETURN(const KernelLoop loop, ParseKernelLoop(parts.second));
      return CodegenOf(*target).Compile(loop);
    }
    std::vector<Kernel> kernels;
    for (const absl::string_view text : absl::StrSplit(parts.second, kBetween)) {
      TESSERA_ASSIGN_OR_RETURN(kernels.emplace_back(), ParseKernel(text));
    }
    if (!target.ok() && others_ != nullptr) return others_(words[0], kernels);
    TESSERA_RETURN_IF_ERROR(target);
    if (kernels.size() != 1)
      return MakeError(ErrorKind::kInternal, "the host's kernels are objects of their own");
    return CodegenOf(*target).Compile(kernels[0]);
  }

  HostCodegen& CodegenOf(const HostTarget& target) {
    std::unique_ptr<HostCodegen>& codegen = codegens_[target.name];
    if (codegen == nullptr) codegen = std::make_unique<HostCodegen>(target);
    return *codegen;
  }

  const CompileImageFn others_;
  const int64_t mapped_bytes_ = MappedBytes();
  std::map<std::string, std::unique_ptr<HostCodegen>> codegens_;
};

}  // namespace

int RunCompileChild(CompileImageFn others) {
  NameThread(kCompileTitle);
  fcntl(kChildFd, F_SETFD, FD_CLOEXEC);
  Limit(RLIMIT_CORE, 0);
  // Once the parent is gone the result has no reader, so the process ends at once.
  std::thread([] {
    pollfd gone{kChildFd, POLLRDHUP, 0};
    while (poll(&gone, 1, -1) < 0 && errno == EINTR) continue;
    _exit(0);
  }).detach();
  Server server(others);
  FrameReader requests(kChildFd);
  while (const std::optional<std::string> request = requests.Next())
    if (!WriteFrame(kChildFd, server.Serve(*request))) return 1;
  return 0;
}

}  // namespace tessera::worker::codegen
