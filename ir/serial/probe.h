// Probes which protocol a server speaks after a connection to it has failed, so that the error
// message can say so. Thread-safe; blocks for at most `limit`.
#pragma once
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "grpcpp/security/credentials.h"

namespace tessera::ir::serial {

enum class ServerProtocol {
  kNothing,    // nothing listens there, or it is not a gRPC server
  kPlainText,  // gRPC without TLS
  kTls,        // gRPC over TLS; the certificate is not verified
};

// Returns what the server at `address`, HOST:PORT, speaks.
ServerProtocol Probe(const std::string& address, absl::Duration limit);
// Returns whether a gRPC server at `address` replies to a client with these credentials.
bool GrpcServerAnswers(const std::string& address,
                       const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                       absl::Duration limit);

// Returns whether a gRPC call that ended as UNAVAILABLE with this message never had a connection.
bool NeverConnected(const std::string& message);
// Returns the part of such a message that names the cause: "Connection refused".
std::string CauseOf(const std::string& message);

}  // namespace tessera::ir::serial
