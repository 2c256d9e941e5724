// Makes the credentials and the channel of every connection to a coordinator, for RemoteService and
// JsonClient. Mistakes in the address or in the CA file are found here, because gRPC would report
// all of them as a coordinator that does not answer.
#include "client/remote/channel.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/file.h"
#include "base/pki.h"
#include "base/status.h"
#include "grpcpp/create_channel.h"

namespace tessera::remote {
namespace {

constexpr int kMaxReceiveBytes = 256 << 20;
// The backoff between attempts to connect, and the timeout of one attempt.
constexpr int kInitialBackoffMs = 200, kMaxBackoffMs = 1'000, kConnectTimeoutMs = 5'000;

}  // namespace

// Decides between TLS and plain text. Fails before anything is sent, so that neither a token nor
// array data crosses a network in plain text because a setting was forgotten. Each error text names
// the setting that would fix it.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(
    const std::string& address, const ConnectOptions& options) {
  if (const absl::Status address_status = CheckAddress(address); !address_status.ok())
    return Annotate(address_status, "the coordinator's address");
  if (!options.ca_file.empty()) {
    std::string pem;
    const int failure = TryReadWholeFile(options.ca_file, kWholeFileBytesMax, &pem);
    if (failure != 0 || pem.empty()) {
      return MakeError(ErrorKind::kTlsMismatch,
                       absl::StrCat("the cluster's authority cannot be read from ", options.ca_file,
                                    ": ", failure != 0 ? std::strerror(failure) : "it is empty",
                                    "; set TESSERA_CA_FILE to its ca.pem"));
    }
    // Check the file here, since gRPC would only say that the coordinator does not answer.
    if (const auto ca = pki::Describe(pem); !ca.ok()) {
      return MakeError(
          ErrorKind::kTlsMismatch,
          absl::StrCat(options.ca_file, " holds no certificate of an authority: ",
                       ca.status().message(), "; set TESSERA_CA_FILE to the cluster's ca.pem"));
    }
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = pem;
    return grpc::SslCredentials(ssl);
  }
  if (!options.insecure && !IsLoopback(address)) {
    return MakeError(
        ErrorKind::kTlsMismatch,
        absl::StrCat(
            address,
            " is another machine, and without the cluster's authority all data would be sent there "
            "in plain text; set TESSERA_CA_FILE to the cluster's ca.pem, or say insecure"));
  }
  return grpc::InsecureChannelCredentials();
}

std::shared_ptr<grpc::Channel> ChannelTo(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const Keepalive& keepalive) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  // The backoff is short enough for a client to reconnect before the coordinator's session_grace_ms
  // ends.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kInitialBackoffMs);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  for (const ChannelArgument& a : ClientArguments(keepalive)) args.SetInt(a.name, a.value);
  return grpc::CreateCustomChannel(address, credentials, args);
}

}  // namespace tessera::remote
