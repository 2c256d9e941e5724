// Fuzzes the signing of requests, which anyone with a join token may send. A request must either be
// refused with a status, or get a certificate that the CA has issued and that holds only the names
// of the CA's choice.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/pki.h"
#include "base/status.h"

namespace tessera::pki {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

void OneRequest(const Credential& ca, std::string_view csr) {
  const absl::StatusOr<std::string> cert = Sign(ca, csr, {.common_name = "w"}, kNow);
  TESSERA_CHECK(cert.ok() == CheckSigningRequest(csr).ok());
  if (!cert.ok()) {
    TESSERA_CHECK(ReasonOf(cert.status()) == "VALUE_ERROR") << cert.status();
    return;
  }
  TESSERA_CHECK(CheckIssuedBy(*cert, ca.cert_pem).ok());
  const absl::StatusOr<CertificateInfo> info = Describe(*cert);
  TESSERA_CHECK(info.ok() && info->common_name == "w" && !info->is_ca);
  TESSERA_CHECK(info->dns.empty() && info->ips.empty() && info->uris.empty());
}

}  // namespace
}  // namespace tessera::pki

// Uses the input once as PEM text and once as the bytes within a PEM.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::pki;  // NOLINT(google-build-using-namespace): one function
  static const Credential* const ca =
      new Credential(MakeCa("fuzz", absl::FromUnixSeconds(1'700'000'000)).value());
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  OneRequest(*ca, bytes);
  OneRequest(*ca, absl::StrCat("-----BEGIN CERTIFICATE REQUEST-----\n",
                               absl::Base64Escape({bytes.data(), bytes.size()}),
                               "\n-----END CERTIFICATE REQUEST-----\n"));
  // Certificates come from peers too, so the functions that read them must not crash either.
  static_cast<void>(Fingerprint(bytes));
  static_cast<void>(Describe(bytes));
  return 0;
}
