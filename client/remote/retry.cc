#include "client/remote/retry.h"

#include <algorithm>
#include <atomic>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status.h"
#include "client/remote/status.h"

namespace tessera::remote {
namespace {

constexpr int kMaxAttempts = 5;
constexpr absl::Duration kInitialBackoff = absl::Milliseconds(100);  // doubles
// How long an attempt waits for a connection.
constexpr absl::Duration kReconnectTimeout = absl::Milliseconds(1'500);

// A status without details comes from the transport, not from the server.
bool IsFromServer(const grpc::Status& status) { return !status.error_details().empty(); }

}  // namespace

Retries::Retries(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout)
    : channel_(std::move(channel)), end_(SteadyNow() + timeout) {}

absl::Duration Retries::left() const { return std::max(end_ - SteadyNow(), absl::ZeroDuration()); }

bool Retries::Again(const grpc::Status& status) {
  // A response of the server is more informative than a later connection failure.
  if (IsFromServer(status) || !IsFromServer(status_)) status_ = status;
  // A server that is stopping has not executed the call, so it is retried.
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE ||
      (IsFromServer(status) &&
       KindOf(FromGrpc(status, "", ErrorKind::kInternal)) != ErrorKind::kServerStopping)) {
    status_ = status;
    return false;
  }
  const absl::Duration backoff = kInitialBackoff * (1 << attempts_);
  if (++attempts_ >= kMaxAttempts || backoff >= left()) return false;
  absl::SleepFor(backoff);
  unreachable_ = !channel_->WaitForConnected(WallDeadline(std::min(left(), kReconnectTimeout)));
  return !unreachable_;
}

absl::Status Retries::End(const DoneFn& done) const {
  absl::Status end = done(status_);
  if (!unreachable_ || IsFromServer(status_)) return end;
  return MakeError(ErrorKind::kUnreachable, std::string(end.message()));
}

absl::Status CallUntilAnswered(const std::shared_ptr<grpc::Channel>& channel,
                               absl::Duration timeout, const PrepareFn& prepare, const DoneFn& done,
                               const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  Retries tries(channel, timeout);
  while (true) {
    grpc::ClientContext context;
    prepare(&context, tries.left());
    if (!tries.Again(call(&context))) return tries.End(done);
  }
}

std::string NewRequestId() {
  static const std::string* const process = [] {
    std::random_device random;
    return new std::string(absl::StrCat(absl::Hex(random(), absl::kZeroPad8),
                                        absl::Hex(random(), absl::kZeroPad8),
                                        absl::Hex(random(), absl::kZeroPad8)));
  }();
  static std::atomic<uint64_t> last{0};
  return absl::StrCat(*process, "-", ++last);
}

}  // namespace tessera::remote
