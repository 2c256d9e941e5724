// The fixture for tests of the RPCs: a coordinator behind a loopback port, with a worker in the
// same process (ReferenceWorker).
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/testing/status_matchers.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/grpcpp.h"
#include "ir/program.h"
#include "ir/serial/status.h"
#include "server/rpc/server.h"
#include "server/testing/reference_worker.h"

namespace tessera::server::rpc {

// Returns the status as a client's library would read it.
inline absl::Status ReadStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details())) << status.error_message();
  EXPECT_EQ(details.code(), static_cast<int>(status.error_code()));
  return ir::serial::FromProto(details);
}

// Returns the planner for the fixture's coordinator (see edge.cc).
core::PlanFn PlannerOfTests();

// A token store in which the token "tenant/role" stands for a caller with this tenant and role.
class PlainTokens final : public core::TokenStore {
 public:
  absl::StatusOr<core::Caller> Authenticate(absl::string_view text, absl::Time) override {
    const std::string token(text);
    const size_t slash = token.find('/');
    if (slash == std::string::npos) return MakeError(ErrorKind::kTokenUnknown, "no such token");
    TESSERA_ASSIGN_OR_RETURN(const core::Role role, core::ParseRole(token.substr(slash + 1)));
    return core::Caller{token.substr(0, slash), role, token};
  }
  absl::Status Check(const std::string&, absl::Time) const override { return absl::OkStatus(); }
  absl::StatusOr<core::MadeToken> Create(const core::NewToken& token, absl::Time now) override {
    core::TokenInfo info;
    info.name = token.name;
    info.created = now;
    return core::MadeToken{"text", info};
  }
  std::vector<core::TokenInfo> List() const override { return {}; }
  absl::StatusOr<core::TokenInfo> Revoke(const std::string&) override {
    return MakeError(ErrorKind::kTokenNotFound, "no such token");
  }
  absl::Status Flush() override { return absl::OkStatus(); }
};

class SurfaceTest : public ::testing::Test {
 protected:
  // Without tokens every caller is the default tenant's administrator.
  explicit SurfaceTest(bool tokens = false, const Options& options = OptionsWithoutHeartbeats())
      : coordinator_(options, &clock_, PlannerOfTests(), &store_),
        gate_(&clock_, {.tokens = tokens ? &tokens_ : nullptr}) {
    worker_ = std::make_shared<ReferenceWorker>(&coordinator_, "w0", 4);
    worker_->Start();
    ServeOptions serve;
    serve.gate = &gate_;
    auto server = Serve(serve, &coordinator_);
    TESSERA_EXPECT_OK(server);
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  }
  ~SurfaceTest() override {
    coordinator_.Stop();
    server_->Shutdown(absl::Seconds(1));
  }

  static Options OptionsWithoutHeartbeats() {
    Options options;
    options.lease_ms = 3'600'000;  // The reference worker sends no heartbeats.
    options.heartbeat_ms = 3'600'000;
    return options;
  }
  // Returns the program f(a, b) = a * b, where a is an f32[4,2] that is cut over x=4.
  static ir::Program Product();

  // Calls `method` of a service and returns the answer, or the error with its reason.  The call has
  // a deadline.
  template <class Service, class Q, class R>
  absl::StatusOr<R> Do(grpc::Status (Service::Stub::*method)(grpc::ClientContext*, const Q&, R*),
                       const Q& request, const std::string& token = "") {
    const auto stub = Service::NewStub(channel_);
    grpc::ClientContext context;
    Prepare(&context, token);
    R response;
    const grpc::Status status = (stub.get()->*method)(&context, request, &response);
    if (!status.ok()) return ReadStatus(status);
    return response;
  }
  static void Prepare(grpc::ClientContext* context, const std::string& token) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
  }

  RealClock clock_;
  PlainTokens tokens_;
  store::MemoryStore store_;
  Coordinator coordinator_;
  std::shared_ptr<ReferenceWorker> worker_;
  Gate gate_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace tessera::server::rpc
