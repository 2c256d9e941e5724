#include "server/rpc/server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "server/rpc/client_services.h"
#include "server/rpc/worker_service.h"

namespace tessera::server::rpc {
namespace {

constexpr int kStreamsPerConnection = 128;
constexpr int kMetadataBytes = 16 << 10;
constexpr size_t kQuotaBytes = size_t{2} << 30;

bool IsLoopback(absl::string_view host) {
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.") ||
         absl::StartsWith(host, "unix:");
}

class GrpcServer final : public Server {
 public:
  explicit GrpcServer(Coordinator* coordinator)
      : cluster_(coordinator),
        arrays_(coordinator),
        programs_(coordinator),
        operations_(coordinator),
        workers_(coordinator) {}
  ~GrpcServer() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Start(const ServeOptions& options, const Options& limits) {
    const size_t colon = options.listen.rfind(':');
    int port = 0;
    if (colon == std::string::npos || !absl::SimpleAtoi(options.listen.substr(colon + 1), &port) ||
        port < 0 || port > 65535)
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("listen: '", options.listen, "' is not HOST:PORT"));
    const std::string host = options.listen.substr(0, colon);
    if (!IsLoopback(host) && !options.insecure)
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("listen: ", options.listen,
                                    " is reachable from other machines and this listener has no "
                                    "TLS; listen on 127.0.0.1, or say --insecure"));
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    // gRPC's own health service has no descriptor; using ours makes reflection describe it.
    TESSERA_CHECK(::grpc::health::v1::HealthCheckRequest::descriptor() != nullptr);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(limits.max_message_bytes));
    builder.SetMaxSendMessageSize(static_cast<int>(limits.max_message_bytes));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnection);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytes);
    // Two servers on one port would share its connections; the second is to fail.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
    // Workers ping an idle stream every 2 s; a server that counts that as abuse would lose them.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.SetResourceQuota(grpc::ResourceQuota("coordinator").Resize(kQuotaBytes));
    for (grpc::Service* s :
         {static_cast<grpc::Service*>(&cluster_), static_cast<grpc::Service*>(&arrays_),
          static_cast<grpc::Service*>(&programs_), static_cast<grpc::Service*>(&operations_),
          static_cast<grpc::Service*>(&workers_)})
      builder.RegisterService(s);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0)
      return absl::UnavailableError(
          absl::StrCat("listen: ", options.listen, " cannot be bound; is the port taken?"));
    server_->GetHealthCheckService()->SetServingStatus(true);
    address_ = absl::StrCat(host, ":", port_);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }
  int port() const override { return port_; }
  void Shutdown(absl::Duration grace) override {
    if (server_ == nullptr || std::exchange(shut_, true)) return;
    server_->GetHealthCheckService()->SetServingStatus(false);
    server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
    server_->Wait();
  }

 private:
  ClusterService cluster_;
  ArrayService arrays_;
  ProgramService programs_;
  OperationService operations_;
  WorkerService workers_;
  std::string address_;
  int port_ = 0;
  bool shut_ = false;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Serve(const ServeOptions& options,
                                              Coordinator* coordinator) {
  auto server = std::make_unique<GrpcServer>(coordinator);
  TESSERA_RETURN_IF_ERROR(server->Start(options, coordinator->options()));
  return server;
}

}  // namespace tessera::server::rpc
