// grpc::Status to absl::Status: the code, the message and the reason.  Pure.
#pragma once
#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace tessera::remote {

// A peer that does not answer at all reads as UNAVAILABLE naming `peer`, with what to check.
absl::Status FromGrpc(const grpc::Status& status, const std::string& peer);

}  // namespace tessera::remote
