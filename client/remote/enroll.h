// Enrolls a machine as a worker: fetches the cluster's CA certificate and then, with a join token,
// a certificate for the machine's key (proto/tessera/v1/enroll.proto).
//
// Thread-safe. Every call takes at most `timeout`, and up to a second more if it must find out why
// the coordinator does not answer.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera::remote {

// Returns the CA certificate (PEM) of the cluster at `address` (HOST:PORT). The server is not
// authenticated: the caller must compare the certificate's fingerprint with the expected one.
absl::StatusOr<std::string> FetchCa(const std::string& address, absl::Duration timeout);

// Returns a certificate for the signing request `csr_pem`, issued by the coordinator at `address`.
// The coordinator's own certificate must be issued by `ca_pem`. `token` must have the role worker.
absl::StatusOr<std::string> Enroll(const std::string& address, const std::string& ca_pem,
                                   const std::string& token, const std::string& worker,
                                   const std::string& csr_pem, absl::Duration timeout);

}  // namespace tessera::remote
