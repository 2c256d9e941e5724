// grpc::Status to absl::Status: the code, the message and the reason.  Pure.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "base/status.h"
#include "grpcpp/support/status.h"

namespace tessera::remote {

// A peer that does not answer at all reads as an error of kind `gone` that names it, with what to
// check.
absl::Status FromGrpc(const grpc::Status& status, const std::string& peer, ErrorKind gone);

}  // namespace tessera::remote
