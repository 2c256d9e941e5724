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

}  // namespace

std::optional<absl::Duration> PauseBeforeRetry(int number, const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE || number >= kTries) return std::nullopt;
  // Without details it is the transport that speaks; with them, only a server that goes down has
  // not looked at the call.
  if (!status.error_details().empty() &&
      KindOf(FromGrpc(status, "", ErrorKind::kInternal)) != ErrorKind::kServerStopping)
    return std::nullopt;
  return kFirstPause * (1 << (number - 1));
}

absl::Status CallUntilAnswered(absl::Duration limit, const PrepareFn& prepare, const DoneFn& done,
                               const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  const absl::Time end = SteadyNow() + limit;
  const absl::Notification never;
  grpc::Status said;  // by a server that was going down
  for (int number = 1;; ++number) {
    grpc::ClientContext context;
    prepare(&context, std::max(end - SteadyNow(), absl::ZeroDuration()));
    const grpc::Status status = call(&context);
    const std::optional<absl::Duration> pause = PauseBeforeRetry(number, status);
    // What a server said tells more than that it is gone since.
    const bool gone = status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                      status.error_details().empty() && !said.ok();
    if (status.ok() || !pause || SteadyNow() + *pause >= end) return done(gone ? said : status);
    if (!status.error_details().empty()) said = status;
    never.WaitForNotificationWithTimeout(*pause);
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
