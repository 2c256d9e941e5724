// Makes and reads X.509 certificates: a certificate authority (CA), the certificates that it
// issues, and signing requests. Everything is PEM text, and keys use the curve P-256.
//
// Stateless, except for randomness; thread-safe. An error is a VALUE_ERROR that says which input is
// wrong and why, or INTERNAL if OpenSSL fails. Errors never contain key material.
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

// Makes a self-signed CA. It can issue certificates, but cannot certify further CAs.
absl::StatusOr<Credential> MakeCa(const std::string& common_name, absl::Time now);
// Makes a new key and its certificate, which expires no later than the CA's.
absl::StatusOr<Credential> Issue(const Credential& ca, const CertificateSpec& spec, absl::Time now);

struct SigningRequest {
  std::string csr_pem;  // sent to the CA
  std::string key_pem;  // never sent
};
absl::StatusOr<SigningRequest> MakeSigningRequest(const std::string& common_name);
// Checks that the text is a request of at most 16 KiB for a P-256 key, signed by that key.
absl::Status CheckSigningRequest(std::string_view csr_pem);
// Returns a certificate for the key of the request. Everything else comes from `spec`; the names in
// the request are ignored.
absl::StatusOr<std::string> Sign(const Credential& ca, std::string_view csr_pem,
                                 const CertificateSpec& spec, absl::Time now);

// Returns the SHA-256, in hex, of the public key of the first certificate (its
// SubjectPublicKeyInfo). It stays the same when the certificate is renewed for the same key.
absl::StatusOr<std::string> Fingerprint(std::string_view cert_pem);
// Returns the contents of the first certificate.
absl::StatusOr<CertificateInfo> Describe(std::string_view cert_pem);
// Checks that the key belongs to the first certificate.
absl::Status CheckPair(std::string_view cert_pem, std::string_view key_pem);
// Checks that `ca_pem` has issued the first certificate of `cert_pem`.
absl::Status CheckIssuedBy(std::string_view cert_pem, std::string_view ca_pem);

}  // namespace tessera::pki
