#include "client/remote/retry.h"

#include <algorithm>
#include <atomic>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/status.h"
#include "client/remote/status.h"

namespace tessera::remote {
namespace {

constexpr int kTries = 5;
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);  // doubles
// Between tries at most, for a connection that is made again.
constexpr absl::Duration kReconnect = absl::Milliseconds(1'500);

// A status without details comes from the transport, not from the server.
bool SaidByServer(const grpc::Status& status) { return !status.error_details().empty(); }

}  // namespace

Retries::Retries(std::shared_ptr<grpc::Channel> channel, absl::Duration limit)
    : channel_(std::move(channel)), end_(SteadyNow() + limit) {}

absl::Duration Retries::left() const { return std::max(end_ - SteadyNow(), absl::ZeroDuration()); }

bool Retries::Again(const grpc::Status& status) {
  // An answer of the server says more than that its connection has broken since.
  if (SaidByServer(status) || !SaidByServer(status_)) status_ = status;
  // A server that is going down has not executed the call: it is made again.
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE ||
      (SaidByServer(status) &&
       KindOf(FromGrpc(status, "", ErrorKind::kInternal)) != ErrorKind::kServerStopping)) {
    status_ = status;
    return false;
  }
  const absl::Duration pause = kFirstPause * (1 << tries_);
  if (++tries_ >= kTries || pause >= left()) return false;
  const absl::Notification never;
  never.WaitForNotificationWithTimeout(pause);
  unreachable_ = !channel_->WaitForConnected(WallDeadline(std::min(left(), kReconnect)));
  return !unreachable_;
}

absl::Status Retries::End(const DoneFn& done) const {
  absl::Status end = done(status_);
  if (!unreachable_ || SaidByServer(status_)) return end;
  return MakeError(ErrorKind::kUnreachable, std::string(end.message()));
}

absl::Status CallUntilAnswered(const std::shared_ptr<grpc::Channel>& channel, absl::Duration limit,
                               const PrepareFn& prepare, const DoneFn& done,
                               const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  Retries tries(channel, limit);
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
