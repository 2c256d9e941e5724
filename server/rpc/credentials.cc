// Reads the TLS files for the listener. server.cc calls CredentialsFor once, before the server
// binds its address, so that a wrong file is an error that names the file.
#include "server/rpc/credentials.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/address.h"
#include "base/file.h"
#include "base/pki.h"
#include "base/status.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "ir/serial/grpc_status.h"

namespace tessera::server::rpc {
namespace {

constexpr char kChannelzPrefix[] = "/grpc.channelz.";

// Authorizes the calls of channelz. They bypass the gate, because channelz is gRPC's own service.
class ChannelzGuard final : public grpc::AuthMetadataProcessor {
 public:
  explicit ChannelzGuard(core::TokenStore* tokens) : tokens_(tokens) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    if (path == metadata.end())
      return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "the call names no method");
    if (!absl::StartsWith(View(path->second), kChannelzPrefix)) return grpc::Status::OK;
    const auto token = metadata.find("authorization");
    if (token == metadata.end())
      return ir::serial::ToGrpc(
          MakeError(ErrorKind::kTokenMissing, "channelz needs an administrator's token"));
    absl::string_view text = View(token->second);
    absl::ConsumePrefix(&text, "Bearer ");
    const absl::StatusOr<core::Caller> caller = tokens_->Authenticate(text, absl::Now());
    if (!caller.ok()) return ir::serial::ToGrpc(caller.status());
    if (caller->role == core::Role::kAdmin) return grpc::Status::OK;
    return ir::serial::ToGrpc(MakeError(ErrorKind::kRoleMissing, "channelz needs the role admin"));
  }

 private:
  static absl::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

  core::TokenStore* const tokens_;
};

absl::StatusOr<std::string> ReadPem(absl::string_view option, const std::string& path) {
  if (path.empty())
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat(option, ": not given; TLS needs it in addition to tls_cert_file"));
  absl::StatusOr<std::string> pem = ReadWholeFile(path);
  return pem.ok() ? std::move(pem) : Annotate(pem.status(), ToStd(option));
}

}  // namespace

// Without a certificate the listener is plaintext, which is allowed on the loopback interface only,
// unless the operator gives --insecure. With a certificate, clients' certificates are requested
// only if a CA is given, and even then they are optional: a client may show a token instead. The
// files are checked here, because gRPC would only report that the port cannot be bound.
absl::StatusOr<ListenerCredentials> CredentialsFor(const std::string& host,
                                                   const ListenerSecurity& security) {
  ListenerCredentials out;
  const TlsFiles& tls = security.tls;
  if (tls.cert_file.empty()) {
    if (!tls.key_file.empty())
      return MakeError(ErrorKind::kValueError, "tls_key_file: given without tls_cert_file");
    if (!IsLoopback(host) && !security.insecure)
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("listen: ", host,
                                    " is reachable from other machines and this listener has no "
                                    "TLS; give --tls-cert-file, listen on 127.0.0.1, or say "
                                    "--insecure"));
    out.credentials = grpc::InsecureServerCredentials();
    out.channelz = security.tokens == nullptr && IsLoopback(host);
    return out;
  }
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  TESSERA_ASSIGN_OR_RETURN(pair.cert_chain, ReadPem("tls_cert_file", tls.cert_file));
  TESSERA_ASSIGN_OR_RETURN(pair.private_key, ReadPem("tls_key_file", tls.key_file));
  // For a wrong pair gRPC would only report that the port cannot be bound.
  if (const absl::Status fits = pki::CheckPair(pair.cert_chain, pair.private_key); !fits.ok())
    return Annotate(fits, absl::StrCat(tls.cert_file, " and ", tls.key_file));
  grpc::SslServerCredentialsOptions ssl(tls.ca_file.empty()
                                            ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                            : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  if (!tls.ca_file.empty()) {
    TESSERA_ASSIGN_OR_RETURN(ssl.pem_root_certs, ReadPem("tls_ca_file", tls.ca_file));
    if (const auto ca = pki::Describe(ssl.pem_root_certs); !ca.ok())
      return Annotate(ca.status(), tls.ca_file);
  }
  ssl.pem_key_cert_pairs.push_back(std::move(pair));
  out.credentials = grpc::SslServerCredentials(ssl);
  out.tls = out.channelz = true;
  if (security.tokens != nullptr)
    out.credentials->SetAuthMetadataProcessor(std::make_shared<ChannelzGuard>(security.tokens));
  else
    out.channelz = IsLoopback(host);
  return out;
}

}  // namespace tessera::server::rpc
