// Makes and checks the certificates of a cluster with OpenSSL. The command line creates the CA and
// the coordinator's certificate; the coordinator signs the requests of workers that join. All names
// in a certificate come from the caller, and never from a request.
#include "base/pki.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"

namespace tessera::pki {
namespace {

// Certificates are valid from this long before they are issued, for machines whose clocks are
// behind.
constexpr absl::Duration kClockSkew = absl::Minutes(5);
constexpr size_t kRequestBytesMax = 16 << 10;
constexpr size_t kNamesMax = 256;
constexpr size_t kNameBytesMax = 255;
constexpr size_t kCommonNameBytesMax = 64;  // X.520's bound
constexpr int kSerialBytes = 16;
constexpr char kCurve[] = "P-256";
constexpr char kCurveGroup[] = "prime256v1";

template <auto fn>
struct Free {
  template <class T>
  void operator()(T* p) const {
    fn(p);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using BigNumber = std::unique_ptr<BIGNUM, Free<BN_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Request = std::unique_ptr<X509_REQ, Free<X509_REQ_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>>;
using Usages = std::unique_ptr<EXTENDED_KEY_USAGE, Free<EXTENDED_KEY_USAGE_free>>;

absl::Status InvalidInput(absl::string_view what) {
  ERR_clear_error();  // OpenSSL's list of errors of this thread, which nobody else reads
  return MakeError(ErrorKind::kValueError, std::string(what));
}
absl::Status OpenSslError(absl::string_view what) {
  const std::string reason =
      absl::StrCat("pki: ", what, ": ", ERR_reason_error_string(ERR_peek_last_error()));
  ERR_clear_error();
  return MakeError(ErrorKind::kInternal, reason);
}

// OpenSSL calls this for the password of an encrypted PEM. It gives none, so that the PEM is
// rejected. Otherwise OpenSSL would ask for the password on the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

Bio BioOf(std::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}
// Returns the PEM text that `write`, a function of OpenSSL, writes for `object`.
template <typename Write, typename T>
absl::StatusOr<std::string> ToPem(Write write, T* object, absl::string_view error) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (write(bio.get(), object) != 1) return OpenSslError(error);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<Key> ReadKey(std::string_view pem) {
  const Bio bio = BioOf(pem);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  if (!key) return InvalidInput("key: not a PEM key without a password");
  return key;
}
absl::StatusOr<Certificate> ReadCertificate(std::string_view pem) {
  const Bio bio = BioOf(pem);
  Certificate cert(PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr));
  if (!cert) return InvalidInput("certificate: not a PEM certificate");
  return cert;
}

absl::StatusOr<Key> NewKey() {
  Key key(EVP_EC_gen(kCurve));
  if (!key) return OpenSslError("the key cannot be made");
  return key;
}
absl::StatusOr<std::string> KeyPem(EVP_PKEY* key) {
  const auto write = [](BIO* bio, EVP_PKEY* k) {
    return PEM_write_bio_PKCS8PrivateKey(bio, k, nullptr, nullptr, 0, nullptr, nullptr);
  };
  return ToPem(write, key, "the key cannot be written");
}
absl::StatusOr<std::string> CertificatePem(X509* cert) {
  return ToPem(PEM_write_bio_X509, cert, "the certificate cannot be written");
}

bool IsP256(EVP_PKEY* key) {
  char group[64] = {};
  size_t size = 0;
  return EVP_PKEY_get_base_id(key) == EVP_PKEY_EC &&
         EVP_PKEY_get_group_name(key, group, sizeof(group), &size) == 1 &&
         absl::string_view(group, size) == kCurveGroup;
}

bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isgraph(c); });
}

absl::Status CheckCommonName(const std::string& name) {
  if (name.empty() || name.size() > kCommonNameBytesMax ||
      !std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isprint(c); }))
    return InvalidInput(absl::StrCat("common name: '", absl::CHexEscape(name.substr(0, 80)),
                                     "'; expected 1 to 64 printable characters"));
  return absl::OkStatus();
}

absl::Status SetName(X509_NAME* name, const std::string& common_name) {
  if (X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(common_name.c_str()), -1,
                                 -1, 0) != 1)
    return OpenSslError("the name cannot be set");
  return absl::OkStatus();
}

// Returns the names of the extension SubjectAlternativeName.
absl::StatusOr<Names> NamesOf(const CertificateSpec& spec) {
  if (spec.dns.size() + spec.ips.size() + spec.uris.size() > kNamesMax)
    return InvalidInput(absl::StrCat("certificate: more than ", kNamesMax, " names"));
  Names names(GENERAL_NAMES_new());
  const auto add = [&](int type, ASN1_STRING* value) {
    GENERAL_NAME* name = GENERAL_NAME_new();
    GENERAL_NAME_set0_value(name, type, value);
    sk_GENERAL_NAME_push(names.get(), name);
  };
  const auto add_text = [&](int type, const std::string& text) -> absl::Status {
    if (text.empty() || text.size() > kNameBytesMax || !IsPrintable(text))
      return InvalidInput(absl::StrCat("certificate: the name '",
                                       absl::CHexEscape(text.substr(0, 80)),
                                       "' is empty, too long or not printable"));
    ASN1_IA5STRING* value = ASN1_IA5STRING_new();
    ASN1_STRING_set(value, text.data(), static_cast<int>(text.size()));
    add(type, value);
    return absl::OkStatus();
  };
  for (const std::string& dns : spec.dns) TESSERA_RETURN_IF_ERROR(add_text(GEN_DNS, dns));
  for (const std::string& uri : spec.uris) TESSERA_RETURN_IF_ERROR(add_text(GEN_URI, uri));
  for (const std::string& ip : spec.ips) {
    ASN1_OCTET_STRING* value = a2i_IPADDRESS(ip.c_str());
    if (value == nullptr)
      return InvalidInput(absl::StrCat("certificate: '", absl::CHexEscape(ip.substr(0, 80)),
                                       "' is not an IP address"));
    add(GEN_IPADD, value);
  }
  return names;
}

absl::Status AddExtension(X509* cert, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  if (!extension || X509_add_ext(cert, extension.get(), -1) != 1)
    return OpenSslError("an extension cannot be added");
  return absl::OkStatus();
}

absl::Status SetSerial(X509* cert) {
  unsigned char bytes[kSerialBytes];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) return OpenSslError("random bytes cannot be made");
  // The two highest bits make the number positive and give it its full length.
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x3f) | 0x40);
  const BigNumber number(BN_bin2bn(bytes, sizeof(bytes), nullptr));
  if (!number || BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(cert)) == nullptr)
    return OpenSslError("the serial number cannot be set");
  return absl::OkStatus();
}

absl::Status SetValidity(X509* cert, absl::Time from, absl::Time to) {
  if (ASN1_TIME_set(X509_getm_notBefore(cert), absl::ToTimeT(from)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(cert), absl::ToTimeT(to)) == nullptr)
    return OpenSslError("the times cannot be set");
  return absl::OkStatus();
}

absl::StatusOr<absl::Time> ReadTime(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1)
    return InvalidInput("certificate: a time cannot be parsed");
  return absl::FromTM(parts, absl::UTCTimeZone());
}

// Makes a certificate for `subject` that still lacks its issuer, extensions and signature.
absl::StatusOr<Certificate> MakeUnsigned(EVP_PKEY* subject, const std::string& common_name,
                                         absl::Time from, absl::Time to) {
  TESSERA_RETURN_IF_ERROR(CheckCommonName(common_name));
  Certificate cert(X509_new());
  if (!cert || X509_set_version(cert.get(), X509_VERSION_3) != 1 ||
      X509_set_pubkey(cert.get(), subject) != 1)
    return OpenSslError("the certificate cannot be made");
  TESSERA_RETURN_IF_ERROR(SetSerial(cert.get()));
  TESSERA_RETURN_IF_ERROR(SetValidity(cert.get(), from, to));
  TESSERA_RETURN_IF_ERROR(SetName(X509_get_subject_name(cert.get()), common_name));
  return cert;
}

// Issues a certificate for the key `subject`. The CA itself is checked first, because an expired
// CA, or a key that does not belong to it, would give certificates that every peer refuses. The
// certificate never outlives the CA. It can only sign and identify; it cannot be used as a CA.
absl::StatusOr<std::string> Certify(const Credential& ca, EVP_PKEY* subject,
                                    const CertificateSpec& spec, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(CheckPair(ca.cert_pem, ca.key_pem));
  TESSERA_ASSIGN_OR_RETURN(const Certificate issuer, ReadCertificate(ca.cert_pem));
  TESSERA_ASSIGN_OR_RETURN(const Key issuer_key, ReadKey(ca.key_pem));
  if (X509_check_ca(issuer.get()) != 1)
    return InvalidInput("authority: its certificate is not the certificate of an authority");
  TESSERA_ASSIGN_OR_RETURN(const absl::Time end, ReadTime(X509_get0_notAfter(issuer.get())));
  if (end <= now) return InvalidInput("authority: its certificate has expired");
  TESSERA_ASSIGN_OR_RETURN(const Certificate cert,
                           MakeUnsigned(subject, spec.common_name, now - kClockSkew,
                                        std::min(now + spec.lifetime, end)));
  if (X509_set_issuer_name(cert.get(), X509_get_subject_name(issuer.get())) != 1)
    return OpenSslError("the issuer cannot be set");
  const auto add = [&](int nid, const char* value) {
    return AddExtension(cert.get(), issuer.get(), nid, value);
  };
  TESSERA_RETURN_IF_ERROR(add(NID_basic_constraints, "critical,CA:FALSE"));
  TESSERA_RETURN_IF_ERROR(add(NID_key_usage, "critical,digitalSignature"));
  const std::string usage =
      absl::StrCat(spec.server ? "serverAuth" : "", spec.server && spec.client ? "," : "",
                   spec.client ? "clientAuth" : "");
  if (usage.empty()) return InvalidInput("certificate: it is neither for servers nor for clients");
  TESSERA_RETURN_IF_ERROR(add(NID_ext_key_usage, usage.c_str()));
  TESSERA_RETURN_IF_ERROR(add(NID_subject_key_identifier, "hash"));
  TESSERA_RETURN_IF_ERROR(add(NID_authority_key_identifier, "keyid:always"));
  TESSERA_ASSIGN_OR_RETURN(const Names names, NamesOf(spec));
  if (sk_GENERAL_NAME_num(names.get()) > 0 &&
      X509_add1_ext_i2d(cert.get(), NID_subject_alt_name, names.get(), 0, 0) != 1)
    return OpenSslError("the names cannot be set");
  if (X509_sign(cert.get(), issuer_key.get(), EVP_sha256()) == 0)
    return OpenSslError("the certificate cannot be signed");
  return CertificatePem(cert.get());
}

absl::StatusOr<Request> ReadRequest(std::string_view pem) {
  if (pem.size() > kRequestBytesMax)
    return InvalidInput(absl::StrCat("signing request: longer than ", kRequestBytesMax, " bytes"));
  const Bio bio = BioOf(pem);
  Request request(PEM_read_bio_X509_REQ(bio.get(), nullptr, NoPassword, nullptr));
  if (!request) return InvalidInput("signing request: not a PEM certificate request");
  EVP_PKEY* const key = X509_REQ_get0_pubkey(request.get());
  if (key == nullptr || !IsP256(key))
    return InvalidInput("signing request: its key is not on the curve P-256");
  if (X509_REQ_verify(request.get(), key) != 1)
    return InvalidInput("signing request: it is not signed by the key that it names");
  return request;
}

std::string Text(const ASN1_STRING* text) {
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                     static_cast<size_t>(ASN1_STRING_length(text)));
}
std::string IpText(const ASN1_OCTET_STRING* ip) {
  char text[INET6_ADDRSTRLEN] = {};
  const int size = ASN1_STRING_length(ip);
  const int family = size == 4 ? AF_INET : AF_INET6;
  if (size != 4 && size != 16) return "";
  return inet_ntop(family, ASN1_STRING_get0_data(ip), text, sizeof(text)) == nullptr ? "" : text;
}

}  // namespace

absl::StatusOr<Credential> MakeCa(const std::string& common_name, absl::Time now) {
  TESSERA_ASSIGN_OR_RETURN(const Key key, NewKey());
  TESSERA_ASSIGN_OR_RETURN(
      const Certificate cert,
      MakeUnsigned(key.get(), common_name, now - kClockSkew, now + kCaLifetime));
  if (X509_set_issuer_name(cert.get(), X509_get_subject_name(cert.get())) != 1)
    return OpenSslError("the issuer cannot be set");
  const auto add = [&](int nid, const char* value) {
    return AddExtension(cert.get(), cert.get(), nid, value);
  };
  TESSERA_RETURN_IF_ERROR(add(NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  TESSERA_RETURN_IF_ERROR(add(NID_key_usage, "critical,keyCertSign,cRLSign"));
  TESSERA_RETURN_IF_ERROR(add(NID_subject_key_identifier, "hash"));
  if (X509_sign(cert.get(), key.get(), EVP_sha256()) == 0)
    return OpenSslError("the certificate cannot be signed");
  Credential out;
  TESSERA_ASSIGN_OR_RETURN(out.cert_pem, CertificatePem(cert.get()));
  TESSERA_ASSIGN_OR_RETURN(out.key_pem, KeyPem(key.get()));
  return out;
}

absl::StatusOr<Credential> Issue(const Credential& ca, const CertificateSpec& spec,
                                 absl::Time now) {
  TESSERA_ASSIGN_OR_RETURN(const Key key, NewKey());
  Credential out;
  TESSERA_ASSIGN_OR_RETURN(out.cert_pem, Certify(ca, key.get(), spec, now));
  TESSERA_ASSIGN_OR_RETURN(out.key_pem, KeyPem(key.get()));
  return out;
}

absl::StatusOr<SigningRequest> MakeSigningRequest(const std::string& common_name) {
  TESSERA_RETURN_IF_ERROR(CheckCommonName(common_name));
  TESSERA_ASSIGN_OR_RETURN(const Key key, NewKey());
  const Request request(X509_REQ_new());
  if (!request || X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) != 1 ||
      X509_REQ_set_pubkey(request.get(), key.get()) != 1)
    return OpenSslError("the request cannot be made");
  TESSERA_RETURN_IF_ERROR(SetName(X509_REQ_get_subject_name(request.get()), common_name));
  if (X509_REQ_sign(request.get(), key.get(), EVP_sha256()) == 0)
    return OpenSslError("the request cannot be signed");
  SigningRequest out;
  TESSERA_ASSIGN_OR_RETURN(
      out.csr_pem, ToPem(PEM_write_bio_X509_REQ, request.get(), "the request cannot be written"));
  TESSERA_ASSIGN_OR_RETURN(out.key_pem, KeyPem(key.get()));
  return out;
}

absl::Status CheckSigningRequest(std::string_view csr_pem) { return ReadRequest(csr_pem).status(); }

absl::StatusOr<std::string> Sign(const Credential& ca, std::string_view csr_pem,
                                 const CertificateSpec& spec, absl::Time now) {
  TESSERA_ASSIGN_OR_RETURN(const Request request, ReadRequest(csr_pem));
  return Certify(ca, X509_REQ_get0_pubkey(request.get()), spec, now);
}

absl::StatusOr<std::string> Fingerprint(std::string_view cert_pem) {
  TESSERA_ASSIGN_OR_RETURN(const Certificate cert, ReadCertificate(cert_pem));
  unsigned char* der = nullptr;
  const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert.get()), &der);
  if (size <= 0) return InvalidInput("certificate: its public key cannot be read");
  const std::string fingerprint =
      Sha256Hex(std::string_view(reinterpret_cast<char*>(der), static_cast<size_t>(size)));
  OPENSSL_free(der);
  return fingerprint;
}

// Reads the fields that Tessera uses. It does not check whether the certificate can be trusted;
// that is the task of TLS and of CheckIssuedBy. Empties OpenSSL's list of errors at the end,
// because a missing extension adds an entry to it.
absl::StatusOr<CertificateInfo> Describe(std::string_view cert_pem) {
  TESSERA_ASSIGN_OR_RETURN(const Certificate cert, ReadCertificate(cert_pem));
  CertificateInfo info;
  char name[256] = {};
  X509_NAME_get_text_by_NID(X509_get_subject_name(cert.get()), NID_commonName, name, sizeof(name));
  info.common_name = name;
  info.is_ca = X509_check_ca(cert.get()) == 1;
  TESSERA_ASSIGN_OR_RETURN(info.not_before, ReadTime(X509_get0_notBefore(cert.get())));
  TESSERA_ASSIGN_OR_RETURN(info.not_after, ReadTime(X509_get0_notAfter(cert.get())));
  const BigNumber serial(ASN1_INTEGER_to_BN(X509_get0_serialNumber(cert.get()), nullptr));
  if (char* hex = serial ? BN_bn2hex(serial.get()) : nullptr; hex != nullptr) {
    info.serial = absl::AsciiStrToLower(hex);
    OPENSSL_free(hex);
  }
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(cert.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* entry = sk_GENERAL_NAME_value(names.get(), i);
    if (entry->type == GEN_DNS) info.dns.push_back(Text(entry->d.dNSName));
    if (entry->type == GEN_URI) info.uris.push_back(Text(entry->d.uniformResourceIdentifier));
    if (entry->type == GEN_IPADD) info.ips.push_back(IpText(entry->d.iPAddress));
  }
  const Usages usages(static_cast<EXTENDED_KEY_USAGE*>(
      X509_get_ext_d2i(cert.get(), NID_ext_key_usage, nullptr, nullptr)));
  for (int i = 0; usages && i < sk_ASN1_OBJECT_num(usages.get()); ++i) {
    const int nid = OBJ_obj2nid(sk_ASN1_OBJECT_value(usages.get(), i));
    info.server |= nid == NID_server_auth;
    info.client |= nid == NID_client_auth;
  }
  ERR_clear_error();
  return info;
}

absl::Status CheckPair(std::string_view cert_pem, std::string_view key_pem) {
  TESSERA_ASSIGN_OR_RETURN(const Certificate cert, ReadCertificate(cert_pem));
  TESSERA_ASSIGN_OR_RETURN(const Key key, ReadKey(key_pem));
  if (X509_check_private_key(cert.get(), key.get()) != 1)
    return InvalidInput("key: it does not belong to the certificate");
  return absl::OkStatus();
}

absl::Status CheckIssuedBy(std::string_view cert_pem, std::string_view ca_pem) {
  TESSERA_ASSIGN_OR_RETURN(const Certificate cert, ReadCertificate(cert_pem));
  TESSERA_ASSIGN_OR_RETURN(const Certificate ca, ReadCertificate(ca_pem));
  if (X509_check_issued(ca.get(), cert.get()) != X509_V_OK ||
      X509_verify(cert.get(), X509_get0_pubkey(ca.get())) != 1)
    return InvalidInput("certificate: it is not issued by this authority");
  return absl::OkStatus();
}

}  // namespace tessera::pki
