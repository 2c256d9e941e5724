// The retries of every call to the coordinator that may be repeated. RemoteService, Lease and
// RunsAhead use them, and share one Outage, so that if the coordinator is away, the waits of all
// threads end at the same time.
#include "client/remote/retry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/secret.h"
#include "base/status.h"
#include "client/remote/status.h"
#include "ir/serial/probe.h"

namespace tessera::remote {
namespace {

constexpr int kMaxAttempts = 5;
constexpr absl::Duration kInitialBackoff = absl::Milliseconds(100);  // doubles at each attempt
// How long a call waits for a connection in an outage that has lasted too long already.
constexpr absl::Duration kMinReconnect = absl::Milliseconds(1'500);
// How much later than the caller's deadline an answer may come if the server may be away.
constexpr absl::Duration kBriefGrace = absl::Milliseconds(100);
// How often a wait that can be stopped checks whether it was.
constexpr absl::Duration kStopInterval = absl::Milliseconds(100);
constexpr size_t kRequestIdBytes = 16;  // random bytes, enough that no two ids are ever the same

// A status without details comes from the transport, not from the server.
bool IsFromServer(const grpc::Status& status) { return !status.error_details().empty(); }

}  // namespace

void Outage::NoteAnswered() {
  const absl::Time now = SteadyNow();
  absl::MutexLock lock(&mu_);
  answered_at_ = now;
  began_.reset();
}

absl::Time Outage::WaitsUntil(absl::Time now) const {
  const absl::Time brief = now + std::min(patience_, kMinReconnect);
  return began_ ? std::max(*began_ + patience_, brief) : brief;
}

// A silent attempt may have begun before another call was answered, so the outage begins after the
// last answer at the earliest.
absl::Time Outage::NoteUnreachable(absl::Time since) {
  const absl::Time now = SteadyNow();
  absl::MutexLock lock(&mu_);
  if (!answered_at_) return now + kMinReconnect;
  since = std::max(since, *answered_at_);
  began_ = began_ ? std::min(*began_, since) : since;
  return WaitsUntil(now);
}

bool Outage::exhausted() const {
  const absl::Time now = SteadyNow();
  absl::MutexLock lock(&mu_);
  return !answered_at_ || (began_ && now >= *began_ + patience_);
}

absl::Duration Outage::AttemptLimit() const {
  const absl::Time now = SteadyNow();
  absl::MutexLock lock(&mu_);
  if (!began_) return absl::InfiniteDuration();
  return std::max(WaitsUntil(now) - now, kMinReconnect);
}

Retries::Retries(std::shared_ptr<grpc::Channel> channel, CallBounds bounds, Outage* outage,
                 const absl::Notification* stop)
    : channel_(std::move(channel)),
      bounds_(std::move(bounds)),
      outage_(outage),
      stop_(stop),
      began_(SteadyNow()),
      attempt_began_(began_) {}

// The answer of a server that can be reached may come a little after the caller's deadline. Without
// a connection nothing will come, so the deadline ends the attempt.
absl::Duration Retries::BeginAttempt() {
  attempt_began_ = SteadyNow();
  const absl::Duration limit = outage_->AttemptLimit();
  const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/false);
  const bool reachable = limit == absl::InfiniteDuration() &&
                         (state == GRPC_CHANNEL_READY || state == GRPC_CHANNEL_IDLE);
  const absl::Duration grace = reachable ? bounds_.grace : std::min(bounds_.grace, kBriefGrace);
  return std::max(absl::ZeroDuration(), std::min({bounds_.answer, bounds_.server_wait + limit,
                                                  bounds_.deadline + grace - attempt_began_}));
}

// Decides whether the call is worth another attempt, and waits until that attempt can reach the
// server. Two errors of the transport are retried: UNAVAILABLE, and DEADLINE_EXCEEDED of an attempt
// that the server has left without an answer, since on a link that loses everything nothing else is
// seen. UNAVAILABLE is also retried if it comes from a server that is stopping. A repetition with
// the same request_id is safe in each case. A silent attempt needs no wait before the next one,
// because it has taken its time already.
bool Retries::WaitToRetry(const grpc::Status& status) {
  const bool answered = status.ok() || IsFromServer(status);
  if (answered) outage_->NoteAnswered();
  // A response of the server is more informative than a later connection failure.
  if (IsFromServer(status) || !IsFromServer(status_)) status_ = status;
  const bool silent = !answered && status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  // A server that is stopping has not executed the call, so the call is retried.
  const bool unavailable = status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                           (!answered || KindOf(FromGrpc(status, "", ErrorKind::kInternal)) ==
                                             ErrorKind::kServerStopping);
  unreachable_ = false;
  if (!silent && !unavailable) {
    status_ = status;
    return false;
  }
  const absl::Time now = SteadyNow();
  const absl::Time until =
      std::min(outage_->NoteUnreachable(UnreachedSince(status, now)), bounds_.deadline);
  if (silent) {
    unreachable_ = outage_->exhausted() || now >= bounds_.deadline || stopped();
  } else {
    const absl::Duration backoff = kInitialBackoff * (1 << attempts_);
    if (++attempts_ >= kMaxAttempts) return false;
    Sleep(std::min(backoff, until - now));
    unreachable_ = !AwaitConnection(until);
  }
  // Without patience the error is that of the outage. Callers that wait in slices would otherwise
  // never see it.
  at_deadline_ = unreachable_ && SteadyNow() >= bounds_.deadline && !outage_->exhausted();
  return !unreachable_;
}

// An attempt that was left without an answer should have had one when the server's own wait was
// over. A connection that keepalive gave up had brought nothing for the time that keepalive takes.
absl::Time Retries::UnreachedSince(const grpc::Status& status, absl::Time now) const {
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    return std::min(now, attempt_began_ + bounds_.server_wait);
  const std::string& message = status.error_message();
  const bool given_up =
      absl::StrContains(message, "keepalive") || absl::StrContains(message, "ping timeout");
  return given_up ? now - outage_->keepalive() : now;
}

void Retries::Sleep(absl::Duration time) const {
  if (stop_ == nullptr) {
    absl::SleepFor(time);
  } else {
    stop_->WaitForNotificationWithTimeout(time);
  }
}

// If the attempts can be stopped, the wait is cut into slices, because gRPC's wait cannot be
// interrupted.
bool Retries::AwaitConnection(absl::Time until) const {
  while (!stopped()) {
    const absl::Duration left = until - SteadyNow();
    if (channel_->WaitForConnected(
            WallDeadline(stop_ == nullptr ? left : std::min(left, kStopInterval))))
      return !stopped();
    if (SteadyNow() >= until) return false;
  }
  return false;
}

absl::Status Retries::FinalStatus(const ToStatusFn& to_status) const {
  if (!unreachable_ || IsFromServer(status_)) return to_status(status_);
  const absl::Duration waited = SteadyNow() - began_;
  const absl::Duration unit = absl::Milliseconds(waited < absl::Seconds(1) ? 1 : 100);
  const std::string& message = status_.error_message();
  const bool silent = status_.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  const std::string cause = silent                                ? "nothing came back"
                            : ir::serial::NeverConnected(message) ? ir::serial::CauseOf(message)
                                                                  : message;
  const absl::Status end =
      to_status(grpc::Status(grpc::StatusCode::UNAVAILABLE,
                             absl::StrCat(cause, "; ", bounds_.what, " has waited for it for ",
                                          absl::FormatDuration(absl::Trunc(waited, unit)))));
  return MakeError(at_deadline_ ? ErrorKind::kDeadlineExceeded : ErrorKind::kUnreachable,
                   std::string(end.message()));
}

absl::Status CallUntilAnswered(const std::shared_ptr<grpc::Channel>& channel, CallBounds bounds,
                               Outage* outage, const PrepareFn& prepare,
                               const ToStatusFn& to_status,
                               const std::function<grpc::Status(grpc::ClientContext*)>& call,
                               const absl::Notification* stop) {
  Retries tries(channel, std::move(bounds), outage, stop);
  while (true) {
    grpc::ClientContext context;
    prepare(&context, tries.BeginAttempt());
    if (!tries.WaitToRetry(call(&context))) return tries.FinalStatus(to_status);
  }
}

// The id comes from the kernel and not from a generator in this process: a forked child would share
// the generator's state with its parent.
std::string NewRequestId() { return RandomHex(kRequestIdBytes); }

}  // namespace tessera::remote
