// Channels to the coordinator: how clients prove who it is, and how large its messages may be.
//
// Pure functions; any thread.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/session.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"

namespace tessera::remote {

// TLS with the authority of options.ca_file; plain text only to this machine, or where
// options.insecure asks for it. TLS_MISMATCH otherwise, and when the file cannot be read or holds
// no certificate; VALUE_ERROR when the address is not HOST:PORT or unix:/path.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(
    const std::string& address, const ConnectOptions& options);
// The channel connects at its first call.
std::shared_ptr<grpc::Channel> ChannelTo(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const Keepalive& keepalive = {});

}  // namespace tessera::remote
