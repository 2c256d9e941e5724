// Converts grpc::Status to absl::Status and keeps the error's reason. Stateless; thread-safe.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "base/status.h"
#include "grpcpp/support/status.h"

namespace tessera::remote {

// If there was no response, the error names the peer and has the kind `unreachable_kind`. If that
// kind is kServerStopping and there was never a connection, the error is kUnreachable.
absl::Status FromGrpc(const grpc::Status& status, const std::string& peer,
                      ErrorKind unreachable_kind);

}  // namespace tessera::remote
