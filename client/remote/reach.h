// Diagnoses a failed connection to a coordinator.
//
// Thread-safe. Makes at most two attempts to connect, of at most a second each.
#pragma once
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/security/credentials.h"

namespace tessera::remote {

// Returns `status`, unless it is UNREACHABLE and a mismatch of TLS explains it. In that case the
// result is TLS_MISMATCH: the server at `address` speaks TLS and this client plain text, or the
// reverse, or the server's certificate does not fit `credentials`.
absl::Status DiagnoseUnreachable(absl::Status status, const std::string& address, bool tls,
                                 const std::shared_ptr<grpc::ChannelCredentials>& credentials);

}  // namespace tessera::remote
