// Finds out why a connection failed. The client and the worker call it only after a failure, to say
// in the error whether nothing listens at the address or the two sides disagree about TLS.
#include "ir/serial/probe.h"

#include <chrono>
#include <memory>

#include "absl/strings/match.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace tessera::ir::serial {
namespace {

std::shared_ptr<grpc::ChannelCredentials> AnyCertificate() {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace

// A channel becomes ready once the server has sent its HTTP/2 settings.
bool GrpcServerAnswers(const std::string& address,
                       const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                       absl::Duration limit) {
  const auto end = std::chrono::system_clock::now() + absl::ToChronoNanoseconds(limit);
  grpc::ChannelArguments arguments;
  // The channel gets a subchannel of its own, which the backoff of other channels does not slow
  // down.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel(address, credentials, arguments);
  grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
  while (state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING) {
    if (!channel->WaitForStateChange(state, end)) return false;
    state = channel->GetState(/*try_to_connect=*/true);
  }
  return state == GRPC_CHANNEL_READY;
}

ServerProtocol Probe(const std::string& address, absl::Duration limit) {
  if (GrpcServerAnswers(address, AnyCertificate(), limit / 2)) return ServerProtocol::kTls;
  if (GrpcServerAnswers(address, grpc::InsecureChannelCredentials(), limit / 2))
    return ServerProtocol::kPlainText;
  return ServerProtocol::kNothing;
}

bool NeverConnected(const std::string& message) {
  return absl::StartsWith(message, "failed to connect to all addresses") ||
         absl::StrContains(message, "DNS resolution failed");
}

std::string CauseOf(const std::string& message) {
  const size_t colon = message.rfind(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

}  // namespace tessera::ir::serial
