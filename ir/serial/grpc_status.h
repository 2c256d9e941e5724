// absl::Status over gRPC: the code, the message, and google.rpc.Status as details, which hold the
// reason.  Pure functions; any thread.
#pragma once
#include <optional>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace tessera::ir::serial {

// Messages are cut at 3000 bytes, since they travel in headers.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);
// What the peer said; nullopt where the error comes from the transport.
std::optional<absl::Status> DetailsOf(const grpc::Status& status);

}  // namespace tessera::ir::serial
