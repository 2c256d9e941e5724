// Puts the gRPC server together: services from the rows of methods.def, the gate's and the metrics'
// interceptors, limits, credentials and the acceptor. main.cc and tests call Serve.
#include "server/rpc/server.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/keepalive.h"
#include "base/log.h"
#include "base/status.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/ext/channelz_service_plugin.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "server/rpc/acceptor.h"
#include "server/rpc/call.h"
#include "server/rpc/connected_workers.h"
#include "server/rpc/credentials.h"
#include "server/rpc/enrollment_service.h"
#include "server/rpc/executions.h"
#include "server/rpc/gate.h"
#include "server/rpc/handlers.h"
#include "server/rpc/rpc_metrics.h"
#include "server/rpc/run_program.h"
#include "server/rpc/worker_service.h"

namespace tessera::server::rpc {
namespace {

constexpr int kStreamsPerConnection = 128;
constexpr int kMetadataBytes = 16 << 10;
// Connections without a TLS and HTTP/2 handshake within this time are closed.
constexpr int kHandshakeMillis = 10'000;
constexpr int kDecoders = 5;                     // number of threads that read programs
constexpr size_t kDecoderJobsMax = 1024;         // most programs that wait for such a thread
constexpr size_t kQuotaBytes = size_t{2} << 30;  // memory for the buffers of all connections

class GrpcServer final : public Server {
 public:
  GrpcServer(Coordinator* coordinator, Gate* gate, std::unique_ptr<Gate> own_gate,
             pki::Credential ca, const ServeOptions& options)
      : own_gate_(std::move(own_gate)),
        gate_(gate),
        requests_({.answers_max = coordinator->options().request_ids_max,
                   .age_max = absl::Milliseconds(coordinator->options().request_id_ms)}),
        executions_(options.metrics),
        context_{gate,       coordinator->clock(), &requests_,       coordinator,
                 &run_pool_, &decoders_,           options.reader,   &executions_,
                 &workers_,  options.top_programs, options.features, options.sources},
        workers_(coordinator, &gate->clock()),
        worker_service_(&workers_, gate),
        enrollment_(std::move(ca), &gate->clock(), gate,
                    [coordinator](const std::string& worker, HostCallback then) {
                      scheduler::GetWorker get;
                      get.worker = worker;
                      coordinator->Post<scheduler::WorkerInfo>(
                          std::move(get), [then = std::move(then)](
                                              const absl::StatusOr<scheduler::WorkerInfo>& info) {
                            const bool connected =
                                info.ok() && info->state != scheduler::WorkerState::kLost;
                            then(connected ? std::optional(info->host) : std::nullopt);
                          });
                    }) {}
  ~GrpcServer() override { Shutdown(absl::ZeroDuration()); }

  // Builds and starts the server. Our own acceptor listens, because gRPC's would never listen again
  // once file descriptors have run out. The acceptor starts last, so that no connection comes
  // before the server is complete. Every limit that a client could exceed otherwise (message size,
  // streams, metadata, handshakes, memory) is set here. The names of enabled features are collected
  // on the way, for GetCapabilities.
  absl::Status Start(const ServeOptions& options, const Options& limits) {
    const size_t colon = options.listen.rfind(':');
    int port = 0;
    if (colon == std::string::npos || !absl::SimpleAtoi(options.listen.substr(colon + 1), &port) ||
        port < 0 || port > 65535)
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("listen: '", options.listen, "' is not HOST:PORT"));
    const std::string host = options.listen.substr(0, colon);
    TESSERA_ASSIGN_OR_RETURN(
        const ListenerCredentials security,
        CredentialsFor(host, {options.tls, options.insecure, gate_->tokens()}));
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    if (security.channelz) grpc::channelz::experimental::InitChannelzService();
    // Links in the descriptor of gRPC's health service, so that reflection describes that service.
    TESSERA_CHECK(::grpc::health::v1::HealthCheckRequest::descriptor() != nullptr);
    TESSERA_ASSIGN_OR_RETURN(acceptor_,
                             Acceptor::Listen(host, port, KeepaliveFrom(limits).timeout));
    grpc::ServerBuilder builder;
    using ExternalConnections = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    // A shared pointer, because std::function must be copyable.
    const std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> connections =
        builder.experimental().AddExternalConnectionAcceptor(ExternalConnections::FROM_FD,
                                                             security.credentials);
    builder.SetMaxReceiveMessageSize(static_cast<int>(limits.max_message_bytes));
    builder.SetMaxSendMessageSize(static_cast<int>(limits.max_message_bytes));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnection);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytes);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMillis);
    for (const ChannelArgument& a : ServerArguments(KeepaliveFrom(limits)))
      builder.AddChannelArgument(a.name, a.value);
    builder.SetResourceQuota(grpc::ResourceQuota("coordinator").Resize(kQuotaBytes));
    context_.features.push_back("runs_in_order");
    context_.features.push_back("stop_if_not_found");
    if (gate_->tokens() != nullptr) context_.features.push_back("tokens");
    if (security.tls) context_.features.push_back("tls");
    if (security.channelz) context_.features.push_back("channelz");
    MakeServices();
    for (const auto& service : services_) builder.RegisterService(service.get());
    builder.RegisterService(&worker_service_);
    builder.RegisterService(&enrollment_);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
        interceptors;
    interceptors.push_back(gate_->CallInterceptor());
    if (options.metrics != nullptr) interceptors.push_back(MetricsInterceptor(options.metrics));
    builder.experimental().SetInterceptorCreators(std::move(interceptors));
    server_ = builder.BuildAndStart();
    if (server_ == nullptr)
      return absl::UnavailableError(absl::StrCat("listen: gRPC cannot listen on ", options.listen));
    SetHealth(options.health);
    port_ = acceptor_->port();
    address_ = absl::StrCat(host, ":", port_);
    acceptor_->Start([connections](int fd) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = fd;
      connections->HandleNewConnection(&connection);  // gRPC now owns the descriptor.
    });
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }
  int port() const override { return port_; }
  void SetHealth(const HealthStatus& status) override {
    rpc::SetHealth(status, server_->GetHealthCheckService());
  }
  void Shutdown(absl::Duration grace) override {
    if (server_ == nullptr || std::exchange(shut_down_, true)) return;
    server_->GetHealthCheckService()->SetServingStatus(false);
    executions_.Stop();
    acceptor_ = nullptr;
    server_->Shutdown(WallDeadline(grace));
    server_->Wait();
  }

 private:
  void MakeServices() {
    const std::vector<Route> routes = AllRoutes();
    std::set<std::string> services;
    for (const Route& route : routes) services.insert(ServiceName(route.method));
    const auto* const pool = google::protobuf::DescriptorPool::generated_pool();
    for (const std::string& service : services)
      services_.push_back(
          std::make_unique<TableService>(*pool->FindServiceByName(service), routes, &context_));
  }

  const std::unique_ptr<Gate> own_gate_;  // the gate if ServeOptions has none; else null
  Gate* const gate_;
  RequestLog requests_;
  JobPool run_pool_;
  JobPool decoders_{kDecoders, kDecoderJobsMax};
  Executions executions_;
  CallContext context_;
  std::vector<std::unique_ptr<TableService>> services_;
  ConnectedWorkers workers_;
  WorkerService worker_service_;
  EnrollmentService enrollment_;
  std::string address_;
  int port_ = 0;
  bool shut_down_ = false;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Acceptor> acceptor_;  // declared last, because it hands connections to server_
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Serve(const ServeOptions& options,
                                              Coordinator* coordinator) {
  static const RealClock* const clock = new RealClock;
  // protobuf would log invalid messages, so that any client could fill the log. The sender gets the
  // error.
  google::protobuf::SetLogHandler(nullptr);
  TESSERA_ASSIGN_OR_RETURN(pki::Credential ca, ReadCa(options.tls.ca_file, options.ca_key_file));
  const Options& limits = coordinator->options();
  std::unique_ptr<Gate> own_gate;
  if (options.gate == nullptr)
    own_gate = std::make_unique<Gate>(
        clock, GateOptions{nullptr, limits.rate_limit_per_second, limits.tenant_calls_max});
  Gate* const gate = options.gate == nullptr ? own_gate.get() : options.gate;
  auto server =
      std::make_unique<GrpcServer>(coordinator, gate, std::move(own_gate), std::move(ca), options);
  TESSERA_RETURN_IF_ERROR(server->Start(options, coordinator->options()));
  return server;
}

}  // namespace tessera::server::rpc
