// The retries of every call to the coordinator that may be repeated. RemoteService, Lease and
// RunsAhead use them, and share one Outage, so that if the coordinator is away, the waits of all
// threads end at the same time.
#include "client/remote/retry.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/secret.h"
#include "base/status.h"
#include "client/remote/status.h"

namespace tessera::remote {
namespace {

constexpr int kMaxAttempts = 5;
constexpr absl::Duration kInitialBackoff = absl::Milliseconds(100);  // doubles at each attempt
// How long a call waits for a connection in an outage that has lasted too long already.
constexpr absl::Duration kMinReconnect = absl::Milliseconds(1'500);
// How often a wait that can be stopped checks whether it was.
constexpr absl::Duration kStopInterval = absl::Milliseconds(100);
constexpr size_t kRequestIdBytes = 16;  // random bytes, enough that no two ids are ever the same

// A status without details comes from the transport, not from the server.
bool IsFromServer(const grpc::Status& status) { return !status.error_details().empty(); }

}  // namespace

void Outage::NoteAnswered() {
  absl::MutexLock lock(&mu_);
  answered_ = true;
  began_.reset();
}

absl::Time Outage::NoteUnreachable() {
  const absl::Time now = SteadyNow();
  absl::MutexLock lock(&mu_);
  if (!answered_) return now + kMinReconnect;
  if (!began_) began_ = now;
  return std::max(*began_ + patience_, now + std::min(patience_, kMinReconnect));
}

Retries::Retries(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout, Outage* outage,
                 const absl::Notification* stop)
    : channel_(std::move(channel)), end_(SteadyNow() + timeout), outage_(outage), stop_(stop) {}

absl::Duration Retries::left() const { return std::max(end_ - SteadyNow(), absl::ZeroDuration()); }

// Decides whether the call is worth another attempt, and waits until that attempt can reach the
// server. Only UNAVAILABLE is retried, and only if it comes from the transport or from a server
// that is stopping: in both cases a repetition with the same request_id is safe. If the attempts
// can be stopped, the wait for a connection is cut into slices, because gRPC's wait cannot be
// interrupted.
bool Retries::WaitToRetry(const grpc::Status& status) {
  if (status.ok() || IsFromServer(status)) outage_->NoteAnswered();
  // A response of the server is more informative than a later connection failure.
  if (IsFromServer(status) || !IsFromServer(status_)) status_ = status;
  // A server that is stopping has not executed the call, so the call is retried.
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE ||
      (IsFromServer(status) &&
       KindOf(FromGrpc(status, "", ErrorKind::kInternal)) != ErrorKind::kServerStopping)) {
    status_ = status;
    return false;
  }
  const absl::Duration backoff = kInitialBackoff * (1 << attempts_);
  if (++attempts_ >= kMaxAttempts || backoff >= left()) return false;
  const absl::Time until = std::min(outage_->NoteUnreachable(), end_);
  const auto stopped = [&] { return stop_ != nullptr && stop_->HasBeenNotified(); };
  if (stop_ == nullptr) {
    absl::SleepFor(backoff);
  } else if (stop_->WaitForNotificationWithTimeout(backoff)) {
    return false;
  }
  do {
    const absl::Duration left = until - SteadyNow();
    const absl::Duration slice = stop_ == nullptr ? left : std::min(left, kStopInterval);
    unreachable_ = !channel_->WaitForConnected(WallDeadline(slice));
  } while (unreachable_ && !stopped() && SteadyNow() < until);
  return !unreachable_ && !stopped();
}

absl::Status Retries::FinalStatus(const ToStatusFn& to_status) const {
  absl::Status end = to_status(status_);
  if (!unreachable_ || IsFromServer(status_)) return end;
  return MakeError(ErrorKind::kUnreachable, std::string(end.message()));
}

absl::Status CallUntilAnswered(const std::shared_ptr<grpc::Channel>& channel,
                               absl::Duration timeout, Outage* outage, const PrepareFn& prepare,
                               const ToStatusFn& to_status,
                               const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  Retries tries(channel, timeout, outage);
  while (true) {
    grpc::ClientContext context;
    prepare(&context, tries.left());
    if (!tries.WaitToRetry(call(&context))) return tries.FinalStatus(to_status);
  }
}

// The id comes from the kernel and not from a generator in this process: a forked child would share
// the generator's state with its parent.
std::string NewRequestId() { return RandomHex(kRequestIdBytes); }

}  // namespace tessera::remote
