// What a worker's certificate says: what the coordinator signs for those that join, and what
// `tessera init` makes for those that are there from the start.  Stateless; thread-safe.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "base/pki.h"

namespace tessera::api {

// Holds the names of ir/api/identity.h and no address, so that no worker can pass for the
// coordinator.
// VALUE_ERROR: `name` is not 1 to 63 letters, digits, '.', '-' and '_'.
absl::StatusOr<pki::CertificateSpec> WorkerCertificate(const std::string& name);

}  // namespace tessera::api
