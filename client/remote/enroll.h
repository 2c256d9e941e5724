// How a machine that has a token to join with becomes a worker: whom to trust, then a certificate
// for its own key (proto/tessera/v1/enroll.proto).
//
// Thread-safe. Every call is bounded by `limit`.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera::remote {

// The authority of the cluster at `address`, host:port, PEM. Asked over a connection that nothing
// vouches for: to be believed only if its fingerprint is the one that was expected.
absl::StatusOr<std::string> FetchAuthority(const std::string& address, absl::Duration limit);

// A certificate for the signing request, from the coordinator at `address` once it has proved that
// `ca_pem` vouches for it. `token` is of the role worker.
absl::StatusOr<std::string> Enroll(const std::string& address, const std::string& ca_pem,
                                   const std::string& token, const std::string& worker,
                                   const std::string& csr_pem, absl::Duration limit);

}  // namespace tessera::remote
