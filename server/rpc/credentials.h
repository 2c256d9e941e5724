// Makes the credentials of the coordinator's listener.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/server_credentials.h"
#include "server/core/tokens.h"

namespace tessera::server::rpc {

// Paths of PEM files.  Without cert_file there is no TLS.
struct TlsFiles {
  std::string cert_file, key_file;
  std::string ca_file;  // certificate of the CA that must have signed clients' certificates
};

// The security options of a listener.
struct ListenerSecurity {
  TlsFiles tls;
  bool insecure = false;               // allows plaintext on a non-loopback address
  core::TokenStore* tokens = nullptr;  // outlives the server; null if no token is required
};

struct ListenerCredentials {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  bool tls = false;
  // Whether channelz, gRPC's service about its own connections, may be served. It shows the
  // connections of all clients, so it must be restricted to administrators or to the loopback
  // interface.
  bool channelz = false;
};

// Makes the credentials of a listener on `host`, the part of its address before the port. Returns
// VALUE_ERROR if a file cannot be read, if key and certificate do not belong together, or for
// plaintext on a non-loopback address without `insecure`.
absl::StatusOr<ListenerCredentials> CredentialsFor(const std::string& host,
                                                   const ListenerSecurity& security);

}  // namespace tessera::server::rpc
