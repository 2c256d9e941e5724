// The network calls of `tessera join`: first FetchCa, whose result the command checks against the
// fingerprint in the join command, then Enroll. They are not part of RemoteService, because at this
// point the machine does not trust any certificate yet.
#include "client/remote/enroll.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/status.h"
#include "client/remote/status.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "ir/serial/probe.h"
#include "tessera/v1/enroll.grpc.pb.h"

namespace tessera::remote {
namespace {

constexpr absl::Duration kProbeTimeout = absl::Seconds(1);

// Returns credentials for TLS that does not verify the server. The caller checks the fingerprint of
// the CA certificate that it receives.
std::shared_ptr<grpc::ChannelCredentials> UnverifiedTlsCredentials() {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

void SetDeadline(grpc::ClientContext* context, absl::Duration timeout) {
  context->set_deadline(WallDeadline(timeout));
  context->set_wait_for_ready(false);
}

absl::Status ToStatus(const grpc::Status& status, const std::string& address) {
  return FromGrpc(status, absl::StrCat("the coordinator at ", address), ErrorKind::kServerStopping);
}

absl::Status PlainText(const std::string& address) {
  return MakeError(ErrorKind::kTlsMismatch,
                   absl::StrCat("the coordinator at ", address,
                                " speaks plain text, and workers join over TLS; start it with "
                                "`tessera up`, or with the certificates of `tessera init`"));
}

}  // namespace

absl::StatusOr<std::string> FetchCa(const std::string& address, absl::Duration timeout) {
  if (const absl::Status address_status = CheckAddress(address); !address_status.ok())
    return Annotate(address_status, "the coordinator's address");
  const auto stub =
      v1::EnrollmentService::NewStub(grpc::CreateChannel(address, UnverifiedTlsCredentials()));
  grpc::ClientContext context;
  SetDeadline(&context, timeout);
  v1::Authority response;
  const absl::Status status = ToStatus(stub->GetAuthority(&context, {}, &response), address);
  if (KindOf(status) == ErrorKind::kUnreachable &&
      ir::serial::Probe(address, kProbeTimeout) == ir::serial::ServerProtocol::kPlainText)
    return PlainText(address);
  TESSERA_RETURN_IF_ERROR(status);
  return response.ca_pem();
}

// Sends the signing request over TLS with `ca_pem` as the only root. The join token travels in the
// metadata of this call, so the server must be verified before anything is sent.
absl::StatusOr<std::string> Enroll(const std::string& address, const std::string& ca_pem,
                                   const std::string& token, const std::string& worker,
                                   const std::string& csr_pem, absl::Duration timeout) {
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = ca_pem;
  const auto stub =
      v1::EnrollmentService::NewStub(grpc::CreateChannel(address, grpc::SslCredentials(ssl)));
  grpc::ClientContext context;
  SetDeadline(&context, timeout);
  context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
  v1::EnrollRequest request;
  request.set_worker(worker);
  request.set_csr_pem(csr_pem);
  v1::EnrollResponse response;
  const absl::Status status = ToStatus(stub->Enroll(&context, request, &response), address);
  // This call verifies the server, unlike FetchCa. gRPC reports a certificate that does not fit
  // like a server that is down, so the address is probed.
  if (KindOf(status) == ErrorKind::kUnreachable) {
    const ir::serial::ServerProtocol protocol = ir::serial::Probe(address, kProbeTimeout);
    if (protocol == ir::serial::ServerProtocol::kPlainText) return PlainText(address);
    if (protocol == ir::serial::ServerProtocol::kTls)
      return MakeError(
          ErrorKind::kTlsMismatch,
          absl::StrCat("the coordinator at ", address,
                       ": its certificate does not name this address, or does not come from the "
                       "given authority; start it with --advertise and the name or address used "
                       "here, and check --ca-file if it is given"));
  }
  TESSERA_RETURN_IF_ERROR(status);
  return response.certificate_pem();
}

}  // namespace tessera::remote
