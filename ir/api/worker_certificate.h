// The contents of a worker's certificate. The coordinator signs such certificates for workers that
// join, and `tessera init` makes them for workers that exist from the start. Stateless;
// thread-safe.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "base/pki.h"

namespace tessera::api {

// Returns a specification with the names of ir/api/identity.h and without any address, so that no
// worker can pass for the coordinator.
// VALUE_ERROR: `name` is not 1 to 63 letters, digits, '.', '-' and '_'.
absl::StatusOr<pki::CertificateSpec> WorkerCertificate(const std::string& name);

}  // namespace tessera::api
