// Unary calls that are made again when nobody answered: what the server has done before it does not
// do twice, since what changes something carries a request_id.
//
// Thread-safe.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"

namespace tessera::remote {

// Sets deadline and credentials of a call.
using PrepareFn = std::function<void(grpc::ClientContext* context, absl::Duration limit)>;
// Reads how a call ended.
using DoneFn = std::function<absl::Status(const grpc::Status& status)>;

// Makes the call; again, a few times within `limit`, while the connection breaks or the server is
// going down. Other answers are the caller's.
absl::Status CallUntilAnswered(absl::Duration limit, const PrepareFn& prepare, const DoneFn& done,
                               const std::function<grpc::Status(grpc::ClientContext*)>& call);

// The pause after try `number`, the first being 1, of a call that ended so; nothing: it is not to
// be made again.
std::optional<absl::Duration> PauseBeforeRetry(int number, const grpc::Status& status);

// For one call and its retries: used by nobody else, ever.
std::string NewRequestId();

}  // namespace tessera::remote
