// Why no connection to a coordinator comes about.
//
// Any thread; tries to connect, for a second at most.
#pragma once
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/security/credentials.h"

namespace tessera::remote {

// `failed`, UNREACHABLE as FromGrpc says it, or TLS_MISMATCH where somebody answers at `address`
// that does not speak as we did, with `credentials`, TLS or plain text. Any other error stays as it
// is.
absl::Status WhyUnreachable(absl::Status failed, const std::string& address, bool tls,
                            const std::shared_ptr<grpc::ChannelCredentials>& credentials);

}  // namespace tessera::remote
