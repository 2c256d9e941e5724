// Credentials of clients, and their channels to the coordinator.
//
// Stateless; thread-safe.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/session.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"

namespace tessera::remote {

// TLS with the CA of options.ca_file; without it plain text, only to this machine or with
// options.insecure. TLS_MISMATCH otherwise, and if the file has no certificate; VALUE_ERROR if the
// address is not HOST:PORT or unix:/path.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(
    const std::string& address, const ConnectOptions& options);
// The channel connects at its first call.
std::shared_ptr<grpc::Channel> ChannelTo(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const Keepalive& keepalive = {});

}  // namespace tessera::remote
