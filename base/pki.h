// Keys and certificates: an authority, what it issues, and requests that it signs. Everything is
// PEM text; keys are of the curve P-256.
//
// Pure functions but for randomness; any thread. Errors are VALUE_ERROR and say what is wrong with
// which input, never what a key holds.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera::pki {

inline constexpr absl::Duration kAuthorityLife = absl::Hours(24 * 3650);
inline constexpr absl::Duration kCertificateLife = absl::Hours(24 * 365);

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
  bool server = true, client = true;  // what it may be used for
  absl::Duration life = kCertificateLife;
};

// The contents of a certificate.
struct CertificateInfo {
  std::string common_name;
  std::vector<std::string> dns, ips, uris;
  bool is_authority = false;
  bool server = false, client = false;
  absl::Time not_before, not_after;
  std::string serial;  // hex
};

// A self-signed authority that can issue certificates and no further authorities.
absl::StatusOr<Credential> MakeAuthority(const std::string& common_name, absl::Time now);
// A new key and its certificate. It never outlives the authority.
absl::StatusOr<Credential> Issue(const Credential& authority, const CertificateSpec& spec,
                                 absl::Time now);

struct SigningRequest {
  std::string csr_pem;  // for the authority
  std::string key_pem;  // stays where it was made
};
absl::StatusOr<SigningRequest> MakeSigningRequest(const std::string& common_name);
// Whether it is a request of at most 16 KiB for a P-256 key, signed by that key.
absl::Status CheckSigningRequest(std::string_view csr_pem);
// A certificate for the request's key. All else comes from `spec`: what the request asks for is
// ignored.
absl::StatusOr<std::string> Sign(const Credential& authority, std::string_view csr_pem,
                                 const CertificateSpec& spec, absl::Time now);

// SHA-256 of the first certificate's public key (its SubjectPublicKeyInfo), in hex: it stays when
// the certificate is renewed.
absl::StatusOr<std::string> Fingerprint(std::string_view cert_pem);
absl::StatusOr<CertificateInfo> Describe(std::string_view cert_pem);
// Whether the key is the one of the first certificate.
absl::Status CheckPair(std::string_view cert_pem, std::string_view key_pem);
// Whether `authority_pem` has issued the first certificate of `cert_pem`.
absl::Status CheckIssuedBy(std::string_view cert_pem, std::string_view authority_pem);

}  // namespace tessera::pki
