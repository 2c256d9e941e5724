// The credentials of clients, and the channels from clients to the coordinator.
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

// Returns TLS credentials with the CA of options.ca_file. Without a CA file the connection is plain
// text, which is allowed only to this machine or with options.insecure.
// Errors: TLS_MISMATCH if plain text is not allowed, or if the file has no certificate; VALUE_ERROR
// if the address is neither HOST:PORT nor unix:/path.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(
    const std::string& address, const ConnectOptions& options);
// Returns a channel, which connects at its first call.
std::shared_ptr<grpc::Channel> ChannelTo(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const Keepalive& keepalive = {});

}  // namespace tessera::remote
