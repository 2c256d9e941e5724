#include "client/remote/channel.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/status.h"
#include "grpcpp/create_channel.h"

namespace tessera::remote {
namespace {

constexpr int kReceiveBytesMax = 256 << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(
    const std::string& address, const ConnectOptions& options) {
  if (!options.ca_file.empty()) {
    std::ifstream file(options.ca_file);
    std::stringstream pem;
    pem << file.rdbuf();
    if (!file || pem.str().empty()) {
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("ca_file: cannot read ", options.ca_file));
    }
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = pem.str();
    return grpc::SslCredentials(ssl);
  }
  if (!options.insecure && !IsLoopback(address)) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("Connect(", address,
                                  "): plain text beyond this machine. Give the "
                                  "ca_file of the cluster, or say insecure"));
  }
  return grpc::InsecureChannelCredentials();
}

std::shared_ptr<grpc::Channel> ChannelTo(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const Keepalive& keepalive) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kReceiveBytesMax);
  for (const ChannelArgument& a : ClientArguments(keepalive)) args.SetInt(a.name, a.value);
  return grpc::CreateCustomChannel(address, credentials, args);
}

}  // namespace tessera::remote
