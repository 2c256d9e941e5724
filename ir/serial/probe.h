// Probes which protocol a server at an address speaks, once a connection to it has failed, for a
// better error message. Thread-safe; blocks for at most `limit`.
#pragma once
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "grpcpp/security/credentials.h"

namespace tessera::ir::serial {

enum class Speaks {
  kNothing,    // nothing listens there, or something that is not a gRPC server
  kPlainText,  // gRPC without TLS
  kTls,        // gRPC over TLS; the certificate is not verified
};

// `address` is HOST:PORT.
Speaks Probe(const std::string& address, absl::Duration limit);
// Whether a gRPC server there replies to a client with these credentials.
bool Answers(const std::string& address,
             const std::shared_ptr<grpc::ChannelCredentials>& credentials, absl::Duration limit);

// Whether a gRPC call that ended as UNAVAILABLE with this message never had a connection.
bool NeverConnected(const std::string& message);
// The part of such a message that names the cause: "Connection refused".
std::string CauseOf(const std::string& message);

}  // namespace tessera::ir::serial
