// Diagnoses a failed connection to a coordinator.
//
// Thread-safe; tries to connect, for at most a second.
#pragma once
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/security/credentials.h"

namespace tessera::remote {

// Returns `failed`, but TLS_MISMATCH in place of UNREACHABLE if the server at `address` speaks TLS
// and this client plain text, or the reverse, or its certificate does not fit `credentials`.
absl::Status DiagnoseUnreachable(absl::Status failed, const std::string& address, bool tls,
                                 const std::shared_ptr<grpc::ChannelCredentials>& credentials);

}  // namespace tessera::remote
