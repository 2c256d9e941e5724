// Converts absl::Status for gRPC: the code, the message, and as details a google.rpc.Status, which
// holds the reason. Stateless; thread-safe.
#pragma once
#include <optional>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace tessera::ir::serial {

// ToGrpc cuts messages at 3000 bytes, since they travel in headers.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);
// Returns the peer's status, or nullopt if the error comes from the transport.
std::optional<absl::Status> DetailsOf(const grpc::Status& status);

}  // namespace tessera::ir::serial
