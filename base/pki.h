// X.509: a certificate authority (CA), its certificates, and signing requests. Everything is PEM
// text; keys are of the curve P-256.
//
// Stateless, except for randomness; thread-safe. Errors are VALUE_ERROR, say what is wrong with
// which input, and never contain key material.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera::pki {

inline constexpr absl::Duration kCaLifetime = absl::Hours(24 * 3650);
inline constexpr absl::Duration kCertificateLifetime = absl::Hours(24 * 365);

// A certificate and its key.
struct Credential {
  std::string cert_pem, key_pem;
};

// The contents of a certificate to be issued.
struct CertificateSpec {
  std::string common_name = {};       // at most 64 characters
  std::vector<std::string> dns = {};  // "host", "*.example.org"
  std::vector<std::string> ips = {};  // "10.0.0.1", "::1"
  std::vector<std::string> uris = {};
  bool server = true, client = true;  // the extended key usages
  absl::Duration lifetime = kCertificateLifetime;
};

// The contents of a certificate.
struct CertificateInfo {
  std::string common_name;
  std::vector<std::string> dns, ips, uris;
  bool is_ca = false;
  bool server = false, client = false;
  absl::Time not_before, not_after;
  std::string serial;  // hex
};

// A self-signed CA that can issue certificates, but no certificates of further CAs.
absl::StatusOr<Credential> MakeCa(const std::string& common_name, absl::Time now);
// A new key and its certificate, which expires no later than the CA's.
absl::StatusOr<Credential> Issue(const Credential& ca, const CertificateSpec& spec, absl::Time now);

struct SigningRequest {
  std::string csr_pem;  // sent to the CA
  std::string key_pem;  // never sent
};
absl::StatusOr<SigningRequest> MakeSigningRequest(const std::string& common_name);
// Checks that it is a request of at most 16 KiB for a P-256 key, signed by that key.
absl::Status CheckSigningRequest(std::string_view csr_pem);
// A certificate for the request's key. All else comes from `spec`; names in the request are
// ignored.
absl::StatusOr<std::string> Sign(const Credential& ca, std::string_view csr_pem,
                                 const CertificateSpec& spec, absl::Time now);

// SHA-256 of the first certificate's public key (its SubjectPublicKeyInfo), in hex. A renewal of
// the certificate does not change it.
absl::StatusOr<std::string> Fingerprint(std::string_view cert_pem);
absl::StatusOr<CertificateInfo> Describe(std::string_view cert_pem);
// Checks that the key belongs to the first certificate.
absl::Status CheckPair(std::string_view cert_pem, std::string_view key_pem);
// Checks that `ca_pem` has issued the first certificate of `cert_pem`.
absl::Status CheckIssuedBy(std::string_view cert_pem, std::string_view ca_pem);

}  // namespace tessera::pki
