// The two ends of an evaluation in a child process. A backend calls EvalChildren::Evaluate on the
// stream of a device, and RunEvalChild runs in the child. The function of a host step is sent as
// text, which the child parses and verifies; operands and results go through shared memory, in the
// order of the function's params and results.
#include "worker/cpu/eval_child.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/jail.h"
#include "base/log.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "ir/eval/memory.h"
#include "ir/lapack/lapack.h"
#include "ir/text.h"
#include "worker/cpu/parallel_for.h"
#include "worker/program/step_program.h"

namespace tessera::worker {
namespace {

constexpr char kEvalTitle[] = "tessera-eval";
constexpr int kMemoryFd = 4;  // in the child
// The buffers of a value begin at pages, so that none shares a cache line with another one.
constexpr int64_t kPageBytes = 4096;
// The largest part of a copy. The cancellation flag is polled between two parts.
constexpr size_t kCopyBytesMax = size_t{64} << 20;
// Address space that each thread of a child may take besides the operands, the results and the
// scratch memory of the op: the library's buffers and the allocator's arenas, of which little is
// ever used.
constexpr int64_t kBytesPerThread = int64_t{512} << 20;
constexpr size_t kReplyBytesMax = size_t{1} << 20;

// The places of a function's operands and results in the shared memory.
struct Layout {
  explicit Layout(const ir::Function& f) {
    for (int i = 0; i < f.num_params; ++i) in.push_back(Add(f.types[i]));
    for (const ir::ValueId v : f.results) out.push_back(Add(f.type(v)));
  }
  std::vector<int64_t> in, out;
  int64_t bytes = 0;

 private:
  int64_t Add(const ir::Type& t) {
    const int64_t at = bytes;
    bytes += (t.num_bytes() + kPageBytes - 1) / kPageBytes * kPageBytes;
    return at;
  }
};

absl::Status NoMemoryError(int error) {
  return MakeError(ErrorKind::kOutOfMemory,
                   absl::StrCat("the process that evaluates it has no memory for its operands: ",
                                std::strerror(error),
                                "; the system has too little left; shard further, or give the "
                                "worker's devices less memory"));
}

// Calls copy(offset, count) for the parts of `bytes` bytes, as pread and pwrite are called, until
// all are copied or the run is cancelled.
template <class Copy>
absl::Status CopyInParts(size_t bytes, const CancelToken& cancel, const Copy& copy) {
  for (size_t done = 0; done < bytes;) {
    if (cancel.cancelled()) return cancel.status();
    const ssize_t n = copy(done, std::min(bytes - done, kCopyBytesMax));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return NoMemoryError(n < 0 ? errno : ENOSPC);
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

// Returns the error of a call whose child has ended without a reply.
absl::Status EndError(const JailEnd& end) {
  using Cause = JailEnd::Cause;
  switch (end.cause) {
    case Cause::kNotStarted:
      return MakeError(ErrorKind::kInternal,
                       absl::StrCat("the process that would evaluate it did not start: ", end.how,
                                    "; check the limits on the worker's processes"));
    case Cause::kMemory:
      return MakeError(ErrorKind::kOutOfMemory,
                       absl::StrCat("the process that evaluates it ", end.how));
    case Cause::kCpu:
    case Cause::kWall:
      return MakeError(ErrorKind::kDeadlineExceeded,
                       "it did not end within a day, which is the longest time of one call");
    default:
      break;
  }
  // The system ends a process by one of these signals if it has no memory left for it.
  if (end.signal == SIGKILL || end.signal == SIGBUS)
    return MakeError(ErrorKind::kOutOfMemory,
                     absl::StrCat("the process that evaluates it ", end.how,
                                  ", which happens if the system has no memory left; shard "
                                  "further, or give the worker's devices less memory"));
  return MakeError(ErrorKind::kInternal, absl::StrCat("the process that evaluates it ", end.how,
                                                      "; please report it with the program"));
}

// A reply is empty, or the reason of an error, a line break and its message.
std::string ErrorReply(const absl::Status& error) {
  return absl::StrCat(ToAbsl(InfoOf(KindOf(error)).reason), "\n", error.message());
}
absl::Status ParseErrorReply(std::string_view reply) {
  const size_t end = std::min(reply.find('\n'), reply.size());
  ErrorKind kind = ErrorKind::kInternal;
  for (const ErrorKindInfo* row = ErrorKindsBegin(); row != ErrorKindsEnd(); ++row)
    if (row->reason == reply.substr(0, end)) kind = row->kind;
  return MakeError(kind, std::string(reply.substr(std::min(end + 1, reply.size()))));
}

}  // namespace

// ---- The parent process. ------------------------------------------------------------------------

struct EvalChildren::Child {
  Child(const EvalChildOptions& options, UniqueFd memory_fd, UniqueFd stop_fd)
      : memory(std::move(memory_fd)),
        stop(std::move(stop_fd)),
        process({.binary = options.binary,
                 .args = ArgsOf(options),
                 .title = kEvalTitle,
                 .reply_bytes_max = kReplyBytesMax,
                 .stop_fd = stop.get(),
                 .fds = {memory.get()},
                 .threads = options.num_threads}) {}
  static std::vector<std::string> ArgsOf(const EvalChildOptions& options) {
    std::vector<std::string> args = options.args;
    args.push_back(absl::StrCat(options.num_threads));
    return args;
  }

  UniqueFd memory;  // shared with the process
  UniqueFd stop;    // becomes readable when a call is to end early
  JailedProcess process;
};

EvalChildren::EvalChildren(EvalChildOptions options) : options_(std::move(options)) {}
EvalChildren::~EvalChildren() = default;

absl::StatusOr<std::unique_ptr<EvalChildren::Child>> EvalChildren::Take(std::string_view tenant) {
  {
    absl::MutexLock lock(&mu_);
    // Searches from the back, for the tenant's most recently used child.
    const auto at = std::find_if(idle_.rbegin(), idle_.rend(),
                                 [&](const Idle& idle) { return idle.tenant == tenant; });
    if (at != idle_.rend()) {
      std::unique_ptr<Child> child = std::move(at->child);
      idle_.erase(std::next(at).base());
      return child;
    }
  }
  UniqueFd memory(memfd_create(kEvalTitle, MFD_CLOEXEC));
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!memory.ok() || !stop.ok())
    return MakeError(
        ErrorKind::kInternal,
        absl::StrCat("the process that would evaluate it did not start: ", std::strerror(errno),
                     "; check the limits on the worker's processes"));
  return std::make_unique<Child>(options_, std::move(memory), std::move(stop));
}

void EvalChildren::Release(std::string_view tenant, std::unique_ptr<Child> child) {
  std::vector<Idle> evicted;  // declared before the lock, so that it is destroyed without it
  absl::MutexLock lock(&mu_);
  const absl::Time until = SteadyNow() + options_.idle_time;
  idle_.push_back({std::string(tenant), std::move(child), until});
  if (idle_.size() > kIdleMax) {
    evicted.push_back(std::move(idle_.front()));
    idle_.erase(idle_.begin());
  }
  if (timer_ == nullptr) timer_ = std::make_unique<Timer>();
  if (!std::exchange(timer_is_set_, true)) timer_->CallAt(until, [this] { EndIdle(); });
}

void EvalChildren::EndIdle() {
  std::vector<Idle> ended;  // declared before the lock, so that it is destroyed without it
  absl::MutexLock lock(&mu_);
  const absl::Time now = SteadyNow();
  while (!idle_.empty() && idle_.front().until <= now) {
    ended.push_back(std::move(idle_.front()));
    idle_.erase(idle_.begin());
  }
  timer_is_set_ = !idle_.empty();
  if (timer_is_set_) timer_->CallAt(idle_.front().until, [this] { EndIdle(); });
}

// Copies the operands to the child's memory, has the child evaluate, and copies the results back.
// If anything fails, the child is not kept, and its end frees the memory. The listener is removed
// before the child may be kept, so that no late cancellation stops a later call.
absl::Status EvalChildren::Evaluate(const ir::FunctionRef& function, const RunContext& context,
                                    absl::Span<const absl::Span<const std::byte>> in,
                                    absl::Span<const absl::Span<std::byte>> out) {
  const Layout layout(*function);
  const CancelToken& cancel = *context.cancel;
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Child> child, Take(context.tenant));
  const int memory = child->memory.get(), stop = child->stop.get();
  if (ftruncate(memory, layout.bytes) != 0) return NoMemoryError(errno);
  for (size_t i = 0; i < in.size(); ++i)
    TESSERA_RETURN_IF_ERROR(CopyInParts(in[i].size(), cancel, [&](size_t at, size_t n) {
      return pwrite(memory, in[i].data() + at, n, layout.in[i] + static_cast<off_t>(at));
    }));
  child->process.set_memory_bytes_max(layout.bytes + ir::PeakBytes(*function) +
                                      kBytesPerThread * (options_.num_threads + 1));
  ir::Program program;
  program.entry = function;
  const std::string request = absl::StrCat(context.mesh_device, "\n", ir::PrintProgram(program));
  const int64_t listener = cancel.AddListener([stop] { eventfd_write(stop, 1); });
  JailEnd end;
  const std::optional<std::string> reply =
      child->process.Call(request, absl::InfiniteFuture(), &end);
  cancel.RemoveListener(listener);
  if (cancel.cancelled()) return cancel.status();
  if (!reply) {
    TESSERA_LOG(WARNING) << "a process for host steps has ended"
                         << Field("program", context.program) << Field("how", end.how);
    return EndError(end);
  }
  const absl::Status status = reply->empty() ? absl::OkStatus() : ParseErrorReply(*reply);
  for (size_t i = 0; status.ok() && i < out.size(); ++i)
    TESSERA_RETURN_IF_ERROR(CopyInParts(out[i].size(), cancel, [&](size_t at, size_t n) {
      return pread(memory, out[i].data() + at, n, layout.out[i] + static_cast<off_t>(at));
    }));
  if (layout.bytes <= kKeptBytesMax || ftruncate(memory, 0) == 0)
    Release(context.tenant, std::move(child));
  return status;
}

// ---- The child. ---------------------------------------------------------------------------------

EvalServer::~EvalServer() {
  if (memory_ != nullptr) munmap(memory_, static_cast<size_t>(mapped_bytes_));
}

absl::Status EvalServer::Map(int64_t bytes) {
  struct stat found;
  // A page that is not there would end the process when it is used. The C library's fstat makes
  // another system call, which the jail does not allow.
  if (syscall(SYS_fstat, memory_fd_, &found) != 0 || found.st_size < bytes)
    return MakeError(ErrorKind::kInternal, "the operands are not in the memory");
  if (bytes <= mapped_bytes_) return absl::OkStatus();
  if (memory_ != nullptr) munmap(memory_, static_cast<size_t>(mapped_bytes_));
  void* const at = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_POPULATE, memory_fd_, 0);
  const bool is_mapped = at != MAP_FAILED;
  memory_ = is_mapped ? static_cast<std::byte*>(at) : nullptr;
  mapped_bytes_ = is_mapped ? bytes : 0;
  if (is_mapped) return absl::OkStatus();
  return MakeError(ErrorKind::kOutOfMemory,
                   absl::StrCat("cannot map ", bytes, " bytes: ", std::strerror(errno)));
}

absl::Status EvalServer::Evaluate(std::string_view request) {
  ir::EvalOptions options = options_;
  const size_t line_end = std::min(request.find('\n'), request.size());
  if (!absl::SimpleAtoi(ToAbsl(request.substr(0, line_end)), &options.device))
    return MakeError(ErrorKind::kInternal, "the request does not begin with a device");
  TESSERA_ASSIGN_OR_RETURN(
      const ir::Program program,
      ir::ParseProgram(request.substr(std::min(line_end + 1, request.size()))));
  const Layout layout(*program.entry);
  TESSERA_RETURN_IF_ERROR(Map(layout.bytes));
  program::HostStep step{program.entry, {}, {}};
  const int num_in = static_cast<int>(layout.in.size());
  for (int i = 0; i < num_in; ++i) step.in.push_back(i);
  for (size_t i = 0; i < layout.out.size(); ++i) step.out.push_back(num_in + static_cast<int>(i));
  return program::EvaluateInPlace(step, std::move(options), [&](int slot) {
    return memory_ + (slot < num_in ? layout.in[slot] : layout.out[slot - num_in]);
  });
}

std::string EvalServer::Answer(std::string_view request) {
  const absl::Status status = Evaluate(request);
  return status.ok() ? "" : ErrorReply(status);
}

int RunEvalChild(std::string_view num_threads) {
  int threads = 1;
  if (!absl::SimpleAtoi(ToAbsl(num_threads), &threads) || threads < 1) return 1;
  // The jail allows neither to start threads nor to open a library. Where the library is missing,
  // the op says so.
  ThreadPool pool(threads - 1);
  ir::lapack::KernelName().IgnoreError();
  ir::EvalOptions options;
  options.parallel_for = [&](int64_t n, int64_t cost_each,
                             absl::FunctionRef<void(int64_t, int64_t)> work) {
    ParallelFor(
        pool, threads, n, cost_each, kHostStepGrain, [] { return false; }, work);
    return absl::OkStatus();
  };
  EvalServer server(kMemoryFd, std::move(options));
  return ServeInJail(kEvalTitle, [&](std::string_view request) { return server.Answer(request); });
}

}  // namespace tessera::worker
