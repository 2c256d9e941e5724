#include "worker/rpc/credentials.h"

#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/status.h"

namespace tessera::worker::rpc {
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CoordinatorCredentials(
    const std::string& address, const TlsTexts& tls, bool insecure) {
  if (tls.enabled()) {
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = tls.authority;
    ssl.pem_cert_chain = tls.certificates;
    ssl.pem_private_key = tls.key;
    return grpc::SslCredentials(ssl);
  }
  if (!insecure && !IsLoopback(address))
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("coordinator: ", address,
                                  " is another machine, and this worker has no certificate; join "
                                  "it with `tessera join`, or say --insecure"));
  return grpc::InsecureChannelCredentials();
}

}  // namespace tessera::worker::rpc
