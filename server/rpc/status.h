// absl::Status to grpc::Status: the code, the message, and the details in grpc-status-details-bin.
#pragma once
#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace tessera::server::rpc {

// Messages are truncated at 3000 bytes, since they are sent in headers.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace tessera::server::rpc
