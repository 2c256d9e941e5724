// Chooses the process for each request of JailedReader, and turns the end of a process into the
// request's error. A tenant gets back the process that it used last. So most requests need not wait
// for a process to start, and no request runs in a process that holds another tenant's data.
#include "server/jail/pool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status.h"
#include "base/thread_name.h"

namespace tessera::server::jail {
namespace {

// A process is kept only if its request and reply have no more bytes than this together, because
// the heap of a process does not shrink again.
constexpr size_t kKeptBytesMax = 4 << 20;
// How long the keeper waits before it tries to start a process again.
constexpr absl::Duration kRetryInterval = absl::Seconds(1);

absl::Status NoTimeLeftError(const ProgramIdentity& program) {
  return MakeError(
      ErrorKind::kDeadlineExceeded,
      absl::StrCat(program.work, ": the program took longer than the time left for the call"));
}

}  // namespace

Pool::Pool(PoolOptions options) : options_(std::move(options)) {
  // Without a pipe Stop cannot end the calls in progress, and stopping takes as long as they do.
  if (int ends[2]; pipe2(ends, O_CLOEXEC) == 0) {
    stop_read_ = UniqueFd(ends[0]);
    stop_write_ = UniqueFd(ends[1]);
    options_.process.stop_fd = stop_read_.get();
  }
  keeper_ = std::thread([this] { KeepSpare(); });
}

Pool::~Pool() {
  Stop();
  keeper_.join();
}

void Pool::Stop() {
  absl::MutexLock lock(&mu_);
  stopping_ = true;
  stop_write_ = UniqueFd();
}

void Pool::KeepSpare() {
  NameThread("jail");
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      auto wanted = [this]()
                        ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopping_ || spare_ == nullptr; };
      mu_.Await(absl::Condition(&wanted));
      if (stopping_) return;
    }
    auto process = std::make_unique<JailedProcess>(options_.process);
    const absl::Status started = process->Start();
    absl::MutexLock lock(&mu_);
    if (started.ok()) {
      spare_ = std::move(process);
    } else if (!stopping_) {
      TESSERA_LOG(WARNING) << "cannot start a process for programs"
                           << Field("why", started.message());
      mu_.AwaitWithTimeout(absl::Condition(&stopping_), kRetryInterval);
    }
  }
}

std::unique_ptr<JailedProcess> Pool::TakeProcess(const std::string& tenant) {
  std::unique_ptr<JailedProcess> process;
  {
    absl::MutexLock lock(&mu_);
    // Searches from the back, for the tenant's most recently used process.
    const auto at = std::find_if(idle_.rbegin(), idle_.rend(),
                                 [&](const IdleProcess& idle) { return idle.tenant == tenant; });
    if (at != idle_.rend()) {
      process = std::move(at->process);
      idle_.erase(std::next(at).base());
    } else {
      process = std::move(spare_);
    }
  }
  if (process == nullptr) process = std::make_unique<JailedProcess>(options_.process);
  return process;
}

void Pool::KeepProcess(const std::string& tenant, std::unique_ptr<JailedProcess> process) {
  std::list<IdleProcess> evicted;  // declared before the lock, so that it is destroyed without it
  absl::MutexLock lock(&mu_);
  idle_.push_back({tenant, std::move(process)});
  if (idle_.size() > options_.idle_max) evicted.splice(evicted.begin(), idle_, idle_.begin());
}

// Refuses quarantined programs, and sends the request of any other program to a process. The hash
// of the bytes is computed only if some program has a strike, because programs may be large. A
// process is kept only after a reply; without a reply it has ended.
absl::StatusOr<std::string> Pool::Call(const std::string& tenant, const ProgramIdentity& program,
                                       std::string_view request, absl::Time deadline) {
  const absl::Time now = SteadyNow();
  if (deadline <= now) return NoTimeLeftError(program);
  bool has_strikes = false;
  {
    absl::MutexLock lock(&mu_);
    has_strikes = !quarantine_.empty();
  }
  if (has_strikes) {
    const std::string sha256 = Sha256Hex(program.bytes);
    absl::MutexLock lock(&mu_);
    if (const absl::Time until = quarantine_.RefusedUntil(tenant, sha256, now); now < until)
      return MakeError(
          ErrorKind::kProgramQuarantined,
          absl::StrCat(
              program.work, ": ", Quarantine::kStrikes,
              " processes ended while they worked on this program; it is refused for another ",
              absl::FormatDuration(absl::Trunc(until - now, absl::Seconds(1))),
              "; please report it"));
  }
  const bool is_caller_deadline = deadline < now + options_.timeout;
  std::unique_ptr<JailedProcess> process = TakeProcess(tenant);
  JailEnd end;
  std::optional<std::string> reply =
      process->Call(request, std::min(deadline, now + options_.timeout), &end);
  if (!reply) return HandleEnd(tenant, program, end, is_caller_deadline);
  if (request.size() + reply->size() <= kKeptBytesMax) KeepProcess(tenant, std::move(process));
  return *std::move(reply);
}

// Only ends that the program itself caused are strikes: not a stop, not the caller's deadline, and
// not a system on which no process starts.
absl::Status Pool::HandleEnd(const std::string& tenant, const ProgramIdentity& program,
                             const JailEnd& end, bool is_caller_deadline) {
  using Cause = JailEnd::Cause;
  if (end.cause == Cause::kStopped)
    return MakeError(ErrorKind::kServerStopping,
                     absl::StrCat(program.work, ": the coordinator is stopping; retry"));
  TESSERA_LOG(WARNING) << "a process for programs has ended" << Field("tenant", tenant)
                       << Field("request", program.work) << Field("how", end.how);
  if (is_caller_deadline && (end.cause == Cause::kWall || end.cause == Cause::kCpu))
    return NoTimeLeftError(program);
  if (end.cause == Cause::kNotStarted)
    return MakeError(
        ErrorKind::kInternal,
        absl::StrCat(program.work, ": cannot start a process for programs: ", end.how));
  if (options_.on_end != nullptr) options_.on_end(end.cause);
  {
    const std::string sha256 = Sha256Hex(program.bytes);
    absl::MutexLock lock(&mu_);
    quarantine_.Strike(tenant, sha256, SteadyNow());
  }
  switch (end.cause) {
    case Cause::kMemory:
      return MakeError(
          ErrorKind::kLimitExceeded,
          absl::StrCat(program.work, ": the program took more memory than ",
                       options_.process.memory_bytes_max,
                       " bytes (jail_memory_bytes_max); split it, or raise the limit"));
    case Cause::kCpu:
    case Cause::kWall:
      return MakeError(ErrorKind::kLimitExceeded,
                       absl::StrCat(program.work, ": the program took longer than ",
                                    absl::FormatDuration(options_.timeout),
                                    " (jail_timeout_ms); split it, or raise the limit"));
    default:
      return MakeError(ErrorKind::kInternal,
                       absl::StrCat(program.work, ": the process that works on the program ",
                                    end.how, "; please report it with the program"));
  }
}

}  // namespace tessera::server::jail
