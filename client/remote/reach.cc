// Explains a connection that failed: RemoteService and JsonClient pass the error UNREACHABLE
// through it. gRPC does not tell a wrong protocol or a wrong certificate from a server that is
// down, so the address is probed once more.
#include "client/remote/reach.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "ir/serial/probe.h"

namespace tessera::remote {
namespace {

constexpr absl::Duration kProbeTimeout = absl::Seconds(1);

}  // namespace

absl::Status DiagnoseUnreachable(absl::Status status, const std::string& address, bool tls,
                                 const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  if (status.ok() || KindOf(status) != ErrorKind::kUnreachable) return status;
  const ir::serial::ServerProtocol protocol = ir::serial::Probe(address, kProbeTimeout);
  if (protocol == ir::serial::ServerProtocol::kNothing) return status;
  const auto tls_mismatch = [&](absl::string_view reason) {
    return MakeError(ErrorKind::kTlsMismatch, absl::StrCat("the coordinator at ", address, reason));
  };
  if (!tls && protocol == ir::serial::ServerProtocol::kTls) {
    return tls_mismatch(
        " speaks TLS, and was called in plain text; set TESSERA_CA_FILE to the cluster's ca.pem");
  }
  if (tls && protocol == ir::serial::ServerProtocol::kPlainText) {
    return tls_mismatch(
        " speaks plain text, and was called with TLS; unset TESSERA_CA_FILE, or check the address");
  }
  if (tls && !ir::serial::GrpcServerAnswers(address, credentials, kProbeTimeout)) {
    return tls_mismatch(
        ": its certificate does not come from the authority in TESSERA_CA_FILE, or does not name "
        "this address; check both, and name this address with `tessera up --advertise`");
  }
  return status;  // the server has started meanwhile
}

}  // namespace tessera::remote
