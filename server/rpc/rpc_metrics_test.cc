// Proves how calls over a loopback port are counted in the metrics, and which health status each
// service has.
#include "server/rpc/rpc_metrics.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "grpcpp/impl/codegen/rpc_method.h"
#include "server/planner/planner.h"
#include "server/rpc/server.h"
#include "tessera/v1/cluster.grpc.pb.h"
#include "tessera/v1/program_service.grpc.pb.h"
#include "tessera/v1/worker.grpc.pb.h"

namespace tessera::server::rpc {
namespace {

namespace health = ::grpc::health::v1;
using testing::Eventually;

constexpr char kCluster[] = "tessera.v1.ClusterService";
constexpr char kProgram[] = "tessera.v1.ProgramService";

class RpcMetricsTest : public ::testing::Test {
 protected:
  RpcMetricsTest() : coordinator_(Options(), &clock_, planner::MakePlan, &store_) {
    ServeOptions serve;
    serve.metrics = &metrics_;
    auto server = Serve(serve, &coordinator_);
    TESSERA_EXPECT_OK(server);
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  }
  ~RpcMetricsTest() override {
    coordinator_.Stop();
    server_->Shutdown(absl::Seconds(1));
  }

  std::string HealthOf(const std::string& service) {
    health::HealthCheckRequest request;
    request.set_service(service);
    health::HealthCheckResponse response;
    grpc::ClientContext context;
    const grpc::Status status = grpc::internal::BlockingUnaryCall(
        channel_.get(),
        grpc::internal::RpcMethod("/grpc.health.v1.Health/Check",
                                  grpc::internal::RpcMethod::NORMAL_RPC),
        &context, request, &response);
    if (!status.ok()) return std::to_string(status.error_code());
    return health::HealthCheckResponse::ServingStatus_Name(response.status());
  }
  // Waits until the metric has the value. The end of a call is counted when gRPC has let go of it,
  // which may be after the client has the answer.
  bool Becomes(Metric metric, const std::vector<std::string>& labels, double value) {
    return Eventually([&] { return metrics_.Value(metric, labels) == value; });
  }

  RealClock clock_;
  store::MemoryStore store_;
  Metrics metrics_;
  Coordinator coordinator_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(RpcMetricsTest, CallsAreCountedByMethodAndCode) {
  const auto cluster = v1::ClusterService::NewStub(channel_);
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    v1::ListDevicesResponse response;
    EXPECT_TRUE(cluster->ListDevices(&context, {}, &response).ok());
  }
  const auto programs = v1::ProgramService::NewStub(channel_);
  grpc::ClientContext context;
  v1::ExecuteProgramRequest request;
  request.set_executable(7);
  v1::ExecuteProgramResponse response;
  EXPECT_EQ(programs->ExecuteProgram(&context, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(Becomes(Metric::kRpcDuration, {kCluster, "ListDevices", "OK"}, 3));
  EXPECT_TRUE(Becomes(Metric::kRpcDuration, {kProgram, "ExecuteProgram", "NOT_FOUND"}, 1));
  EXPECT_TRUE(Becomes(Metric::kRpcStarted, {kCluster, "ListDevices"}, 3));
  EXPECT_TRUE(Becomes(Metric::kRpcInFlight, {kCluster, "ListDevices"}, 0));
}

TEST_F(RpcMetricsTest, AStreamIsInFlightUntilItsClientLeaves) {
  const auto workers = v1::WorkerService::NewStub(channel_);
  grpc::ClientContext context;
  const auto stream = workers->Connect(&context);
  EXPECT_TRUE(Becomes(Metric::kRpcInFlight, {"tessera.v1.WorkerService", "Connect"}, 1));
  context.TryCancel();
  EXPECT_FALSE(stream->Finish().ok());
  EXPECT_TRUE(Becomes(Metric::kRpcInFlight, {"tessera.v1.WorkerService", "Connect"}, 0));
}

// The stream itself counts as a call too, which is in flight while the stream is open.
TEST_F(RpcMetricsTest, RequestsOfAStreamAreCountedAsCalls) {
  const auto programs = v1::ProgramService::NewStub(channel_);
  grpc::ClientContext context;
  const auto stream = programs->ExecutePrograms(&context);
  v1::ExecuteProgramsRequest request;
  request.mutable_run()->set_executable(7);
  ASSERT_TRUE(stream->Write(request));
  v1::ExecuteProgramsEvent event;
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_TRUE(event.has_refused());
  EXPECT_TRUE(Becomes(Metric::kRpcDuration, {kProgram, "ExecutePrograms", "NOT_FOUND"}, 1));
  EXPECT_TRUE(Becomes(Metric::kRpcStarted, {kProgram, "ExecutePrograms"}, 2));
  EXPECT_TRUE(Becomes(Metric::kRpcInFlight, {kProgram, "ExecutePrograms"}, 1));
}

TEST_F(RpcMetricsTest, UnknownMethodsCountAsOther) {
  health::HealthCheckRequest request;
  health::HealthCheckResponse response;
  for (const char* method : {"/tessera.v1.ClusterService/NoSuch", "/no.such.Service/Call"}) {
    grpc::ClientContext context;
    EXPECT_EQ(grpc::internal::BlockingUnaryCall(
                  channel_.get(),
                  grpc::internal::RpcMethod(method, grpc::internal::RpcMethod::NORMAL_RPC),
                  &context, request, &response)
                  .error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
  EXPECT_TRUE(Becomes(Metric::kRpcDuration, {"other", "other", "UNIMPLEMENTED"}, 2));
  for (const MetricFamily& family : metrics_.Collect()) {
    if (family.info->id != Metric::kRpcStarted) continue;
    EXPECT_EQ(std::count_if(family.samples.begin(), family.samples.end(),
                            [](const MetricSample& s) { return s.value > 0; }),
              1);
  }
}

TEST_F(RpcMetricsTest, CallsOfGrpcsOwnServicesAreCounted) {
  EXPECT_EQ(HealthOf(""), "SERVING");
  EXPECT_TRUE(Becomes(Metric::kRpcStarted, {"grpc.health.v1.Health", "Check"}, 1));
}

TEST_F(RpcMetricsTest, EachServiceHasTheHealthOfItsCheck) {
  EXPECT_EQ(HealthOf(""), "SERVING");
  server_->SetHealth({.live = true, .ready = true, .progressing = false});
  EXPECT_EQ(HealthOf(""), "NOT_SERVING");
  EXPECT_EQ(HealthOf("progressing"), "NOT_SERVING");
  EXPECT_EQ(HealthOf(kProgram), "NOT_SERVING");
  EXPECT_EQ(HealthOf(kCluster), "SERVING");
  EXPECT_EQ(HealthOf("ready"), "SERVING");
  EXPECT_EQ(HealthOf("live"), "SERVING");
  server_->SetHealth({.live = false, .ready = false, .progressing = false});
  EXPECT_EQ(HealthOf(kCluster), "NOT_SERVING");
  EXPECT_EQ(HealthOf("live"), "NOT_SERVING");
  EXPECT_EQ(HealthOf("nobody"), std::to_string(grpc::StatusCode::NOT_FOUND));
}

}  // namespace
}  // namespace tessera::server::rpc
