// What answers at an address, found out by trying: asked once a connection there has failed, to say
// why in words that help.
//
// Any thread; blocks within the limit.
#pragma once
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "grpcpp/security/credentials.h"

namespace tessera::ir::serial {

enum class Speaks {
  kNothing,    // nobody listens there, or what does is no gRPC server
  kPlainText,  // gRPC without TLS
  kTls,        // gRPC over TLS; whose certificate it shows is not looked at
};

// Of HOST:PORT.
Speaks Probe(const std::string& address, absl::Duration limit);
// Whether a gRPC server answers there to a client with these credentials.
bool Answers(const std::string& address,
             const std::shared_ptr<grpc::ChannelCredentials>& credentials, absl::Duration limit);

// Whether a gRPC call that ended as UNAVAILABLE with this message never had a connection.
bool NeverConnected(const std::string& message);
// What of such a message says why: "Connection refused".
std::string CauseOf(const std::string& message);

}  // namespace tessera::ir::serial
