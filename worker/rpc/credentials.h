// The credentials of a worker towards the coordinator. Stateless; thread-safe.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"

namespace tessera::worker::rpc {

// PEM. All empty: plaintext. Only the CA: TLS, without a client certificate.
struct TlsTexts {
  std::string certificates, key, authority;
  bool enabled() const { return !authority.empty(); }
};

// For a channel to the coordinator at `address`, whose certificate must name that address. Plain
// text beyond this machine only where `insecure` asks for it; else VALUE_ERROR.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CoordinatorCredentials(
    const std::string& address, const TlsTexts& tls, bool insecure);

}  // namespace tessera::worker::rpc
