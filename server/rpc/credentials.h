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
  std::string ca_file;  // clients that show a certificate must have it from here
};

// What makes a listener's credentials.
struct ListenerSecurity {
  TlsFiles tls;
  bool insecure = false;               // plain text beyond loopback
  core::TokenStore* tokens = nullptr;  // outlives the server; null: none are asked for
};

struct ListenerCredentials {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  bool tls = false;
  // Whether channelz, which shows everybody's connections, can be kept from those who are no
  // administrators.
  bool channelz = false;
};

// `host` is the part of the address before the port.  VALUE_ERROR: files that do not read or do not
// fit each other, or plain text beyond loopback without `insecure`.
absl::StatusOr<ListenerCredentials> CredentialsFor(const std::string& host,
                                                   const ListenerSecurity& security);

}  // namespace tessera::server::rpc
