// Proves what certificates contain, which requests are signed, and which inputs are refused with
// what message. The clock is a constant, and a certificate from OpenSSL's own command checks the
// fingerprint.
#include "base/pki.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::pki {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

Credential Authority() { return MakeCa("Tessera test", kNow).value(); }

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(Pki, AnAuthorityIssuesWhatTheSpecSays) {
  const Credential authority = Authority();
  const CertificateInfo root = Describe(authority.cert_pem).value();
  EXPECT_TRUE(root.is_ca);
  EXPECT_EQ(root.not_after, kNow + kCaLifetime);

  CertificateSpec spec;
  spec.common_name = "coordinator";
  spec.dns = {"localhost", "host.example"};
  spec.ips = {"127.0.0.1", "::1"};
  spec.uris = {"tessera://workers/w0"};
  spec.client = false;
  const Credential issued = Issue(authority, spec, kNow).value();
  EXPECT_TRUE(CheckPair(issued.cert_pem, issued.key_pem).ok());
  EXPECT_TRUE(CheckIssuedBy(issued.cert_pem, authority.cert_pem).ok());
  const CertificateInfo info = Describe(issued.cert_pem).value();
  EXPECT_EQ(info.common_name, "coordinator");
  EXPECT_THAT(info.dns, ElementsAre("localhost", "host.example"));
  EXPECT_THAT(info.ips, ElementsAre("127.0.0.1", "::1"));
  EXPECT_THAT(info.uris, ElementsAre("tessera://workers/w0"));
  EXPECT_FALSE(info.is_ca);
  EXPECT_TRUE(info.server);
  EXPECT_FALSE(info.client);
  EXPECT_LT(info.not_before, kNow);
  EXPECT_EQ(info.not_after, kNow + kCertificateLifetime);
}

TEST(Pki, SerialNumbersDiffer) {
  const Credential authority = Authority();
  const CertificateSpec spec = {.common_name = "a"};
  EXPECT_NE(Describe(Issue(authority, spec, kNow)->cert_pem)->serial,
            Describe(Issue(authority, spec, kNow)->cert_pem)->serial);
}

TEST(Pki, ACertificateDoesNotOutliveItsAuthority) {
  const Credential authority = Authority();
  const absl::Time late = kNow + kCaLifetime - absl::Hours(1);
  const Credential issued = Issue(authority, {.common_name = "a"}, late).value();
  EXPECT_EQ(Describe(issued.cert_pem)->not_after, kNow + kCaLifetime);
  const auto expired = Issue(authority, {.common_name = "a"}, kNow + kCaLifetime);
  EXPECT_THAT(MessageOf(expired.status()), HasSubstr("expired"));
}

TEST(Pki, ARequestIsSignedWithTheNamesOfTheSpec) {
  const Credential authority = Authority();
  const SigningRequest request = MakeSigningRequest("asked for").value();
  EXPECT_TRUE(CheckSigningRequest(request.csr_pem).ok());
  const std::string cert =
      Sign(authority, request.csr_pem, {.common_name = "w0", .dns = {"worker.tessera"}}, kNow)
          .value();
  EXPECT_TRUE(CheckPair(cert, request.key_pem).ok());
  EXPECT_TRUE(CheckIssuedBy(cert, authority.cert_pem).ok());
  EXPECT_EQ(Describe(cert)->common_name, "w0");
}

TEST(Pki, ARequestThatWasTamperedWithIsRefused) {
  const SigningRequest request = MakeSigningRequest("w0").value();
  // Change a letter in the last line of the Base64, which is part of the signature.
  std::string tampered = request.csr_pem;
  const size_t end = tampered.find("\n-----END");
  ASSERT_NE(end, std::string::npos);
  char& letter = tampered[end - 12];
  letter = letter == 'A' ? 'B' : 'A';
  EXPECT_FALSE(CheckSigningRequest(tampered).ok());
  EXPECT_FALSE(Sign(Authority(), tampered, {.common_name = "w0"}, kNow).ok());
}

TEST(Pki, ErrorsNameTheBadInput) {
  const Credential authority = Authority();
  EXPECT_THAT(MessageOf(CheckSigningRequest("")), HasSubstr("not a PEM certificate request"));
  EXPECT_THAT(MessageOf(CheckSigningRequest(std::string(20'000, 'A'))), HasSubstr("longer than"));
  EXPECT_THAT(MessageOf(Issue(authority, {.common_name = ""}, kNow).status()),
              HasSubstr("common name"));
  EXPECT_THAT(
      MessageOf(Issue(authority, {.common_name = "a", .ips = {"300.1.1.1"}}, kNow).status()),
      HasSubstr("not an IP address"));
  EXPECT_THAT(MessageOf(Issue(authority, {.common_name = "a", .dns = {"a b"}}, kNow).status()),
              HasSubstr("not printable"));
  EXPECT_THAT(MessageOf(Fingerprint("no").status()), HasSubstr("not a PEM certificate"));
  const Credential leaf = Issue(authority, {.common_name = "a"}, kNow).value();
  EXPECT_THAT(MessageOf(Issue(leaf, {.common_name = "b"}, kNow).status()),
              HasSubstr("not the certificate of an authority"));
  EXPECT_THAT(MessageOf(CheckPair(leaf.cert_pem, authority.key_pem)),
              HasSubstr("does not belong to the certificate"));
  EXPECT_THAT(MessageOf(CheckIssuedBy(leaf.cert_pem, Authority().cert_pem)),
              HasSubstr("not issued by this authority"));
  for (const absl::Status& status : {CheckPair("x", "y"), CheckSigningRequest("")})
    EXPECT_EQ(ReasonOf(status), "VALUE_ERROR");
}

TEST(Pki, AKeyWithAPasswordIsRefusedWithoutAskingForIt) {
  const Credential authority = Authority();
  const std::string locked =
      "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
  EXPECT_THAT(MessageOf(CheckPair(authority.cert_pem, locked)), HasSubstr("without a password"));
}

TEST(Pki, TheFingerprintIdentifiesTheKey) {
  const Credential authority = Authority();
  const std::string fingerprint = Fingerprint(authority.cert_pem).value();
  EXPECT_EQ(fingerprint.size(), 64u);
  EXPECT_EQ(Fingerprint(authority.cert_pem).value(), fingerprint);
  EXPECT_NE(Fingerprint(Authority().cert_pem).value(), fingerprint);
}

// The fingerprint is the same as the one that OpenSSL's own commands print:
// openssl x509 -pubkey | openssl pkey -pubin -outform DER | openssl dgst -sha256
TEST(Pki, TheFingerprintEqualsThatOfOpenSsl) {
  constexpr char kCertificate[] = R"(-----BEGIN CERTIFICATE-----
MIIBcDCCARWgAwIBAgIUGS02LKa+6q1Od/Q2pKy10aN0NVAwCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBdDAgFw0yNjExMjEyMjQ1MzJaGA8yMTI2MTAyODIyNDUzMlow
DDEKMAgGA1UEAwwBdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABA6drR0ISQm5
o9Uz2/uO3HI7Pa7b/GAw0059idRRw0EUShRR9NDBASr/9ifmgSoAj7OSz9G8rv/u
0Ohuj0WRFAyjUzBRMB0GA1UdDgQWBBRrxxg8SpezidR5JVcBKwZ6AkUC1DAfBgNV
HSMEGDAWgBRrxxg8SpezidR5JVcBKwZ6AkUC1DAPBgNVHRMBAf8EBTADAQH/MAoG
CCqGSM49BAMCA0kAMEYCIQD16x3qva+57zIZq+Z/q9DstWdRGlZGtWcf3hI0FpBG
twIhAKGj+t40LKTGTh18inYsfyup8S9Zp+KaSdcAF7xRC/uA
-----END CERTIFICATE-----
)";
  EXPECT_EQ(Fingerprint(kCertificate).value(),
            "e9a39e2caffbfc448d738fe1bfdb830c67edbc4429cb6e40fc01e6ae4cdc887c");
}

}  // namespace
}  // namespace tessera::pki
