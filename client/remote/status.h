// Converts grpc::Status to absl::Status with its reason. Stateless; thread-safe.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "base/status.h"
#include "grpcpp/support/status.h"

namespace tessera::remote {

// If there was no response, the error has the kind `unreachable_kind` and names the peer.
absl::Status FromGrpc(const grpc::Status& status, const std::string& peer,
                      ErrorKind unreachable_kind);

}  // namespace tessera::remote
