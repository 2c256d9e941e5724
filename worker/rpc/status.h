// absl::Status over gRPC: code, message, and google.rpc.Status as details. Pure.
#pragma once
#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace tessera::worker::rpc {

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace tessera::worker::rpc
