// Hands out the cluster's CA to anyone, and certificates to workers that prove themselves by a join
// token or by the certificate that they renew. The two methods are of the kind Own in methods.def:
// gRPC calls this class directly.
#include "server/rpc/enrollment_service.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/api/worker_certificate.h"

namespace tessera::server::rpc {
namespace {

absl::Status EnrollmentDisabledError() {
  return MakeError(ErrorKind::kEnrollmentDisabled,
                   "enroll: this coordinator signs no certificates; start it with --tls-ca-file "
                   "and --ca-key-file");
}

}  // namespace

absl::StatusOr<pki::Credential> ReadCa(const std::string& ca_file, const std::string& ca_key_file) {
  pki::Credential out;
  if (ca_file.empty()) {
    if (!ca_key_file.empty())
      return MakeError(ErrorKind::kValueError, "ca_key_file: given without tls_ca_file");
    return out;
  }
  TESSERA_ASSIGN_OR_RETURN(out.cert_pem, ReadWholeFile(ca_file));
  if (ca_key_file.empty()) return out;
  TESSERA_ASSIGN_OR_RETURN(out.key_pem, ReadWholeFile(ca_key_file));
  if (const absl::Status fits = pki::CheckPair(out.cert_pem, out.key_pem); !fits.ok())
    return Annotate(fits, absl::StrCat(ca_file, " and ", ca_key_file));
  return out;
}

grpc::ServerUnaryReactor* EnrollmentService::GetAuthority(grpc::CallbackServerContext* context,
                                                          const v1::GetAuthorityRequest*,
                                                          v1::Authority* response) {
  auto* reactor = context->DefaultReactor();
  absl::Status status = gate_->Admit(context, Method::kEnrollmentService_GetAuthority).status();
  if (status.ok() && ca_.cert_pem.empty()) status = EnrollmentDisabledError();
  if (status.ok()) response->set_ca_pem(ca_.cert_pem);
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// A worker with a certificate may renew it at any time, under its own name only. A join token
// enrols new workers. It must not take over the name of a connected worker, because the holder of
// any join token could then act as that worker. Whether a worker is connected is asked of the
// scheduler, so the call may end later and on another thread.
grpc::ServerUnaryReactor* EnrollmentService::Enroll(grpc::CallbackServerContext* context,
                                                    const v1::EnrollRequest* request,
                                                    v1::EnrollResponse* response) {
  auto* reactor = context->DefaultReactor();
  const absl::StatusOr<core::Caller> caller =
      gate_->Admit(context, Method::kEnrollmentService_Enroll);
  absl::Status status = caller.status();
  // A worker that has a certificate may renew it, under its own name.
  const std::string worker = Gate::WorkerOfCertificate(*context);
  if (status.ok() && absl::StartsWith(caller->token_name, kCertificateCaller) &&
      worker != request->worker())
    status = MakeError(ErrorKind::kRoleMissing,
                       absl::StrCat("enroll: the certificate of '", worker,
                                    "' renews that name only; use a token to join with"));
  const auto sign = [this, context, request, response, reactor,
                     token = caller.ok() ? caller->token_name : ""](absl::Status status) {
    if (status.ok()) status = Sign(*request, response);
    if (status.ok())
      TESSERA_LOG(INFO) << "worker enrolled" << Field("worker", request->worker())
                        << Field("token", token) << Field("peer", context->peer());
    reactor->Finish(ToGrpc(status));
  };
  if (!status.ok() || !worker.empty()) {
    sign(status);
    return reactor;
  }
  // A join token enrols new workers; it must not take over the name of a connected one.
  find_host_(request->worker(), [sign, request](const std::optional<std::string>& host) {
    sign(host ? MakeError(ErrorKind::kAlreadyExists,
                          absl::StrCat("enroll: a worker named ", request->worker(),
                                       " is connected, from host ", *host,
                                       "; choose another --name, or stop that one first"))
              : absl::OkStatus());
  });
  return reactor;
}

absl::Status EnrollmentService::Sign(const v1::EnrollRequest& request,
                                     v1::EnrollResponse* response) const {
  if (ca_.key_pem.empty()) return EnrollmentDisabledError();
  TESSERA_ASSIGN_OR_RETURN(const pki::CertificateSpec spec,
                           api::WorkerCertificate(request.worker()));
  TESSERA_ASSIGN_OR_RETURN(*response->mutable_certificate_pem(),
                           pki::Sign(ca_, request.csr_pem(), spec, clock_->Wall()));
  response->set_ca_pem(ca_.cert_pem);
  return absl::OkStatus();
}

}  // namespace tessera::server::rpc
