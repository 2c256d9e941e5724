// The credentials of the coordinator's listener, made in one place.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/server_credentials.h"
#include "server/core/tokens.h"

namespace tessera::server::rpc {

// PEM files.  Without cert_file there is no TLS.
struct TlsFiles {
  std::string cert_file, key_file;
  std::string ca_file;  // the CA that must have signed a client's certificate
};

// The security options of a listener.
struct ListenerSecurity {
  TlsFiles tls;
  bool insecure = false;               // plaintext on a non-loopback address
  core::TokenStore* tokens = nullptr;  // outlives the server; null: no token is required
};

struct ListenerCredentials {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  bool tls = false;
  // Whether channelz, which shows all clients' connections, can be restricted to administrators.
  bool channelz = false;
};

// `host` is the part of the address before the port.  VALUE_ERROR: files that do not read or do not
// match, or plaintext on a non-loopback address without `insecure`.
absl::StatusOr<ListenerCredentials> CredentialsFor(const std::string& host,
                                                   const ListenerSecurity& security);

}  // namespace tessera::server::rpc
