// Proves the gRPC services over a loopback port, as grpcurl and a worker see them: runs with JSON,
// errors with reasons, streams of workers, and the conversion of JSON. A coordinator with a
// reference worker is behind the port.
#include <cmath>
#include <numeric>
#include <thread>

#include "absl/time/clock.h"
#include "base/testing/status_matchers.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/grpcpp.h"
#include "ir/api/ticket.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/registry.h"
#include "ir/serial/program.h"
#include "ir/serial/status.h"
#include "ir/serial/worker.h"
#include "ir/text.h"
#include "server/coordinator/bound_service.h"
#include "server/planner/planner.h"
#include "server/rpc/json.h"
#include "server/rpc/server.h"
#include "server/testing/reference_worker.h"
#include "tessera/v1/array.grpc.pb.h"
#include "tessera/v1/cluster.grpc.pb.h"
#include "tessera/v1/operation.grpc.pb.h"
#include "tessera/v1/program_service.grpc.pb.h"
#include "tessera/v1/worker.grpc.pb.h"

namespace tessera::server::rpc {
namespace {

using google::protobuf::Value;
using ir::DType;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns the status as a client's library would read it.
absl::Status Read(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), static_cast<int>(status.error_code()));
  return ir::serial::FromProto(details);
}

class RpcTest : public ::testing::Test {
 protected:
  RpcTest() : coordinator_(OptionsWithoutHeartbeats(), &clock_, planner::MakePlan, &store_) {
    worker_ = std::make_shared<ReferenceWorker>(&coordinator_, "w0", 4);
    worker_->Start();
    auto server = Serve({}, &coordinator_);
    TESSERA_EXPECT_OK(server);
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  }
  ~RpcTest() override {
    coordinator_.Stop();
    server_->Shutdown(absl::Seconds(1));
  }

  static Options OptionsWithoutHeartbeats() {
    Options options;
    options.lease_ms = 3'600'000;  // The reference worker sends no heartbeats.
    return options;
  }
  // Returns the program f(a, b) = a * b, where a is an f32[4,2] that is cut over x=4.
  static ir::Program Product() {
    ir::Builder b({{{{"x", 4}}}, true}, "product");
    b.SetSite({"model.cc", 3});
    ir::Value l = b.Param(ir::MakeType(DType::kF32, {4, 2}));
    ir::Value r = b.Param(ir::MakeType(DType::kF32, {4, 2}));
    ir::Program p;
    p.entry = b.Build({b.Emit1(*ir::FindOp("multiply"), {l, r})});
    p.in_shardings = {ir::PartitionSpec{{{"x"}}, {}, {}, {}}, std::nullopt};
    return p;
  }
  static Value NestedLists(std::vector<std::vector<double>> rows) {
    Value out;
    for (const auto& row : rows) {
      Value* list = out.mutable_list_value()->add_values();
      for (double v : row) list->mutable_list_value()->add_values()->set_number_value(v);
    }
    return out;
  }

  RealClock clock_;
  store::MemoryStore store_;
  Coordinator coordinator_;
  const std::unique_ptr<api::Service> service_ = MakeBoundService(&coordinator_);
  std::shared_ptr<ReferenceWorker> worker_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(RpcTest, RunProgramTakesTextAndProto) {
  const auto stub = v1::ProgramService::NewStub(channel_);
  for (bool text : {true, false}) {
    v1::RunProgramRequest request;
    if (text) {
      request.set_text(ir::PrintProgram(Product()));
    } else {
      *request.mutable_program() = ir::serial::ToProto(Product());
    }
    *request.add_inputs() = NestedLists({{1, 2}, {3, 4}, {5, 6}, {7, 8}});
    *request.add_inputs() = NestedLists({{2, 2}, {2, 2}, {3, 3}, {3, 3}});
    v1::RunProgramResponse response;
    grpc::ClientContext context;
    TESSERA_ASSERT_OK(Read(stub->RunProgram(&context, request, &response)));
    ASSERT_EQ(response.outputs_size(), 1);
    EXPECT_EQ(response.outputs(0).SerializeAsString(),
              NestedLists({{2, 4}, {6, 8}, {15, 18}, {21, 24}}).SerializeAsString());
    EXPECT_EQ(response.types(0), "f32[4,2]");
  }
  TESSERA_ASSERT_OK(service_->ListDevices());
  EXPECT_EQ(worker_->num_buffers(), 0) << "inputs and outputs are deleted";
}

TEST_F(RpcTest, ErrorsCarryReasonAndPlace) {
  const auto stub = v1::ProgramService::NewStub(channel_);
  auto run = [&](const v1::RunProgramRequest& request) {
    v1::RunProgramResponse response;
    grpc::ClientContext context;
    return stub->RunProgram(&context, request, &response);
  };
  v1::RunProgramRequest request;
  EXPECT_THAT(Read(run(request)), ReasonIs("MALFORMED_PROGRAM", "no program"));
  request.set_text("func ???");
  EXPECT_THAT(Read(run(request)), ReasonIs("MALFORMED_PROGRAM"));
  request.set_text(ir::PrintProgram(Product()));
  EXPECT_THAT(Read(run(request)), ReasonIs("TYPE_ERROR", "takes 2 arguments but got 0"));
  *request.add_inputs() = NestedLists({{1, 2}, {3, 4}, {5, 6}, {7}});
  *request.add_inputs() = NestedLists({{1, 2}, {3, 4}, {5, 6}, {7, 8}});
  EXPECT_THAT(Read(run(request)), ReasonIs("VALUE_ERROR", "argument 0: input at [3]: a list of 2"));
  *request.mutable_inputs(0) = request.inputs(1);
  request.add_devices(99);
  const grpc::Status status = run(request);
  EXPECT_THAT(Read(status), ReasonIs("VALUE_ERROR", "1 device for mesh"));
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "VALUE_ERROR");
  EXPECT_EQ(info.domain(), "tessera.dev");
}

// The first event has the ids of the results. The second event reports the end, and contains a
// result that is small enough.
TEST_F(RpcTest, ExecuteAndWatchReturnsSmallResultsInline) {
  const auto stub = v1::ProgramService::NewStub(channel_);
  const auto compiled = service_->Compile({.program = Product(), .devices = {}, .name = "product"});
  TESSERA_ASSERT_OK(compiled);
  ir::Array a(DType::kF32, {4, 2});
  for (int i = 0; i < 8; ++i) a.Set(i, i);
  v1::ExecuteProgramRequest request;
  request.set_executable(compiled->executable);
  for (const api::ArraySpec& in : compiled->in) {
    const auto put = service_->Put(a, in.placement);
    TESSERA_ASSERT_OK(put);
    request.add_args(*put);
  }
  for (const int64_t bytes : {32, 31}) {
    request.set_inline_results_bytes_max(bytes);
    grpc::ClientContext context;
    const auto reader = stub->ExecuteAndWatch(&context, request);
    v1::ExecuteProgramEvent event;
    ASSERT_TRUE(reader->Read(&event));
    ASSERT_EQ(event.accepted().outputs_size(), 1);
    const uint64_t output = event.accepted().outputs(0);
    ASSERT_TRUE(reader->Read(&event));
    EXPECT_EQ(event.ended().operation().state(), v1::OPERATION_STATE_DONE);
    EXPECT_FALSE(reader->Read(&event));
    TESSERA_EXPECT_OK(Read(reader->Finish()));
    if (bytes == 31) {
      EXPECT_EQ(event.ended().results_size(), 0) << "too large to be inline";
      continue;
    }
    ASSERT_EQ(event.ended().results_size(), 1);
    EXPECT_EQ(event.ended().results(0).array(), output);
    const auto value = ir::serial::FromProto(event.ended().results(0).value(), 1 << 10);
    TESSERA_ASSERT_OK(value);
    EXPECT_EQ(value->ToDoubles(), (std::vector<double>{0, 1, 4, 9, 16, 25, 36, 49}));
  }
}

TEST_F(RpcTest, ExecuteAndWatchRefusesAndReportsFailures) {
  const auto stub = v1::ProgramService::NewStub(channel_);
  v1::ExecuteProgramRequest request;
  request.set_executable(99);
  v1::ExecuteProgramEvent event;
  {
    grpc::ClientContext context;
    const auto reader = stub->ExecuteAndWatch(&context, request);
    EXPECT_FALSE(reader->Read(&event));
    EXPECT_THAT(Read(reader->Finish()), ReasonIs("PROGRAM_NOT_FOUND", "99"));
  }
  // A caller that leaves does not stop the run. A caller that stays learns how the run ended.
  const auto compiled = service_->Compile({.program = Product(), .devices = {}, .name = "product"});
  TESSERA_ASSERT_OK(compiled);
  request.set_executable(compiled->executable);
  for (const api::ArraySpec& in : compiled->in) {
    const auto put = service_->Put(ir::Array(DType::kF32, {4, 2}), in.placement);
    TESSERA_ASSERT_OK(put);
    request.add_args(*put);
  }
  worker_->HoldLaunches(true);
  uint64_t abandoned_run = 0;
  {
    grpc::ClientContext context;
    const auto reader = stub->ExecuteAndWatch(&context, request);
    ASSERT_TRUE(reader->Read(&event));
    abandoned_run = event.accepted().operation();
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  grpc::ClientContext context;
  const auto reader = stub->ExecuteAndWatch(&context, request);
  ASSERT_TRUE(reader->Read(&event));
  TESSERA_ASSERT_OK(service_->Cancel(event.accepted().operation()));
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.ended().operation().state(), v1::OPERATION_STATE_CANCELLED);
  EXPECT_EQ(event.ended().results_size(), 0);
  TESSERA_EXPECT_OK(Read(reader->Finish()));
  worker_->HoldLaunches(false);
  const auto op = service_->WaitOperation(abandoned_run, absl::Seconds(20));
  TESSERA_ASSERT_OK(op);
  EXPECT_EQ(op->state, api::OperationState::kDone);
}

TEST_F(RpcTest, CompileExecuteAndWait) {
  const auto programs = v1::ProgramService::NewStub(channel_);
  const auto arrays = v1::ArrayService::NewStub(channel_);
  const auto operations = v1::OperationService::NewStub(channel_);
  v1::CompileProgramRequest compile;
  *compile.mutable_program() = ir::serial::ToProto(Product());
  compile.set_explain(true);
  v1::CompileProgramResponse compiled;
  {
    grpc::ClientContext context;
    TESSERA_ASSERT_OK(Read(programs->CompileProgram(&context, compile, &compiled)));
  }
  EXPECT_EQ(compiled.in_size(), 2);
  EXPECT_THAT(compiled.explain_text(), ::testing::HasSubstr("multiply"));
  // The bytes of these arrays never come, so the run is accepted and waits.
  v1::ExecuteProgramRequest execute;
  execute.set_executable(compiled.executable());
  for (int i : {0, 1}) {
    v1::CreateArrayRequest create;
    *create.mutable_spec() = compiled.in(i);
    v1::CreateArrayResponse created;
    grpc::ClientContext context;
    TESSERA_ASSERT_OK(Read(arrays->CreateArray(&context, create, &created)));
    EXPECT_EQ(created.tickets_size(), 4);
    execute.add_args(created.array());
  }
  v1::ExecuteProgramResponse executed;
  {
    grpc::ClientContext context;
    TESSERA_ASSERT_OK(Read(programs->ExecuteProgram(&context, execute, &executed)));
  }
  v1::WaitOperationRequest wait;
  wait.set_operation(executed.operation());
  *wait.mutable_timeout() = ir::serial::ToProto(absl::Milliseconds(10));
  v1::Operation operation;
  {
    grpc::ClientContext context;
    TESSERA_ASSERT_OK(Read(operations->WaitOperation(&context, wait, &operation)));
  }
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_PENDING);
  EXPECT_THAT(operation.pending_reason(), ::testing::HasSubstr("is being uploaded"));
  {
    v1::CancelOperationRequest cancel;
    cancel.set_operation(executed.operation());
    v1::CancelOperationResponse cancelled;
    grpc::ClientContext context;
    TESSERA_ASSERT_OK(Read(operations->CancelOperation(&context, cancel, &cancelled)));
  }
  v1::CreateReadTicketsRequest read;
  read.set_array(executed.outputs(0));
  v1::CreateReadTicketsResponse tickets;
  grpc::ClientContext context;
  EXPECT_THAT(Read(arrays->CreateReadTickets(&context, read, &tickets)), ReasonIs("CANCELLED"));
}

TEST_F(RpcTest, AWorkerJoinsWorksAndLeavesByItsStream) {
  const auto stub = v1::WorkerService::NewStub(channel_);
  grpc::ClientContext context;
  auto stream = stub->Connect(&context);
  api::ExecutorInfo info;
  info.incarnation = 7;
  info.device_kind = "cpu";
  info.data_endpoint = "there:1";
  info.peer_endpoint = "there:2";
  ASSERT_TRUE(
      stream->Write(ir::serial::ToEnvelope(api::Registration{"w1", "there", ir::kOpset, {info}})));
  v1::Envelope first;
  ASSERT_TRUE(stream->Read(&first));
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::Welcome welcome, ir::serial::ReadWelcome(first));
  EXPECT_GT(welcome.registration_id, 0u);
  EXPECT_EQ(welcome.ticket_key.size(), 32u);
  // The worker's executor attaches. An array that is put on its device arrives as a command, and
  // the executor answers with a report.
  grpc::ClientContext executor_context;
  auto executor = stub->Attach(&executor_context);
  ASSERT_TRUE(executor->Write(ir::serial::ToEnvelope(api::Attachment{
      0, 7, welcome.registration_id, api::ExecutorTicketKey(welcome.ticket_key, 0, 7)})));
  api::Placement placement;
  placement.devices = {4};
  std::thread put(
      [&] { TESSERA_EXPECT_OK(service_->Put(ir::Array::Scalar(DType::kF32, 5), placement)); });
  v1::Envelope command;
  ASSERT_TRUE(executor->Read(&command));
  EXPECT_EQ(command.incarnation(), 7u);
  EXPECT_EQ(command.epoch(), welcome.epoch);
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::Command write, ir::serial::ReadCommand(command));
  const uint64_t array = std::get<api::WriteBuffer>(write).array;
  // A report of another epoch is ignored. Otherwise it would fail the put.
  v1::Envelope stale = ir::serial::ToEnvelope(
      api::Report{0, 7, api::BufferWritten{array, 0, absl::InternalError("stale")}});
  stale.set_epoch(welcome.epoch + 1);
  ASSERT_TRUE(executor->Write(stale));
  v1::Envelope written =
      ir::serial::ToEnvelope(api::Report{0, 7, api::BufferWritten{array, 0, absl::OkStatus()}});
  written.set_epoch(welcome.epoch);
  ASSERT_TRUE(executor->Write(written));
  put.join();
  context.TryCancel();
  (void)stream->Finish();
  // Within ten seconds the worker's device is listed as away, and after the executor's farewell as
  // lost.
  const auto await_reason = [&](const std::string& reason) {
    const absl::Time until = absl::Now() + absl::Seconds(10);
    api::Device device;
    do {
      device = service_->ListDevices().value().at(4);
    } while (device.reason != reason && absl::Now() < until);
    EXPECT_FALSE(device.healthy);
    EXPECT_EQ(device.reason, reason);
  };
  await_reason("away: its connection ended");
  v1::Envelope farewell =
      ir::serial::ToEnvelope(api::Report{0, 7, api::ExecutorFarewell{"its daemon has died"}});
  farewell.set_epoch(welcome.epoch);
  ASSERT_TRUE(executor->Write(farewell));
  await_reason("its daemon has died");
  executor->WritesDone();
  while (executor->Read(&command)) continue;
  TESSERA_EXPECT_OK(Read(executor->Finish()));
}

TEST_F(RpcTest, AStreamThatDoesNotRegisterIsEnded) {
  const auto stub = v1::WorkerService::NewStub(channel_);
  grpc::ClientContext context;
  auto stream = stub->Connect(&context);
  stream->Write(ir::serial::ToEnvelope(api::Report{0, 0, api::Heartbeat{}}));
  v1::Envelope command;
  EXPECT_FALSE(stream->Read(&command));
  EXPECT_THAT(Read(stream->Finish()), ReasonIs("VALUE_ERROR", "not a Registration"));
}

TEST_F(RpcTest, ARefusedWorkerIsToldWhy) {
  const auto stub = v1::WorkerService::NewStub(channel_);
  grpc::ClientContext context;
  auto stream = stub->Connect(&context);
  api::ExecutorInfo info;
  info.incarnation = 1;
  info.device_kind = "cpu";
  info.num_devices = 4;
  // This is the name of the reference worker, which is connected.
  ASSERT_TRUE(
      stream->Write(ir::serial::ToEnvelope(api::Registration{"w0", "there", ir::kOpset, {info}})));
  v1::Envelope command;
  while (stream->Read(&command)) {
  }
  EXPECT_THAT(Read(stream->Finish()), ReasonIs("ALREADY_EXISTS", "a worker named w0 is connected"));
}

TEST_F(RpcTest, RegistrationNegotiatesTheProtocol) {
  const auto stub = v1::WorkerService::NewStub(channel_);
  api::ExecutorInfo info;
  info.incarnation = 1;
  info.device_kind = "cpu";
  info.data_endpoint = "there:1";
  info.peer_endpoint = "there:2";
  const auto register_as = [&](const char* name, const Build& build, v1::Envelope* answer) {
    grpc::ClientContext context;
    auto stream = stub->Connect(&context);
    stream->Write(
        ir::serial::ToEnvelope(api::Registration{name, "there", ir::kOpset, {info}, 0, build}));
    const bool answered = stream->Read(answer);
    if (answered) context.TryCancel();
    return answered ? absl::OkStatus() : Read(stream->Finish());
  };
  v1::Envelope answer;
  EXPECT_THAT(register_as("w8", {"9.0", "abc", kProtocolMax + 1, kProtocolMax + 2}, &answer),
              ReasonIs("PROTOCOL_MISMATCH", AllOf(HasSubstr("worker w8: it is 9.0 (revision abc)"),
                                                  HasSubstr(BuildText(ThisBuild())),
                                                  HasSubstr("upgrade the coordinator"))));
  TESSERA_ASSERT_OK(register_as("w8", {"9.0", "abc", 1, kProtocolMax + 2}, &answer));
  TESSERA_ASSERT_OK_AND_ASSIGN(api::Welcome welcome, ir::serial::ReadWelcome(answer));
  EXPECT_EQ(welcome.build, ThisBuild());
  EXPECT_EQ(welcome.protocol, kProtocolMax);
  // This worker does not say of which build it is.
  TESSERA_ASSERT_OK(register_as("w9", {"", "", 0, 0}, &answer));
  TESSERA_ASSERT_OK_AND_ASSIGN(welcome, ir::serial::ReadWelcome(answer));
  EXPECT_EQ(welcome.protocol, 1);

  v1::GetCapabilitiesResponse capabilities;
  {
    grpc::ClientContext context;
    TESSERA_ASSERT_OK(
        Read(v1::ClusterService::NewStub(channel_)->GetCapabilities(&context, {}, &capabilities)));
  }
  EXPECT_EQ(capabilities.build().revision(), ThisBuild().revision);
  EXPECT_EQ(capabilities.build().protocol_max(), kProtocolMax);
  v1::ListWorkersResponse workers;
  grpc::ClientContext context;
  TESSERA_ASSERT_OK(
      Read(v1::ClusterService::NewStub(channel_)->ListWorkers(&context, {}, &workers)));
  for (const v1::Worker& worker : workers.workers()) {
    if (worker.name() == "w0") continue;
    EXPECT_EQ(worker.has_build(), worker.name() == "w8");
    EXPECT_EQ(worker.build().version(), worker.name() == "w8" ? "9.0" : "");
  }
}

TEST_F(RpcTest, CapabilitiesPublishTheLimits) {
  const auto stub = v1::ClusterService::NewStub(channel_);
  v1::GetCapabilitiesResponse response;
  grpc::ClientContext context;
  TESSERA_ASSERT_OK(Read(stub->GetCapabilities(&context, {}, &response)));
  EXPECT_EQ(response.opset(), ir::kOpset);
  EXPECT_EQ(response.queue_bound(), Options().queue_bound);
}

TEST_F(RpcTest, ANonLoopbackListenerNeedsInsecure) {
  EXPECT_THAT(Serve({.listen = "0.0.0.0:0", .insecure = false}, &coordinator_),
              ReasonIs("VALUE_ERROR", "--insecure"));
  EXPECT_THAT(Serve({.listen = "nowhere", .insecure = false}, &coordinator_),
              ReasonIs("VALUE_ERROR", "HOST:PORT"));
  EXPECT_THAT(Serve({.listen = server_->address(), .insecure = false}, &coordinator_),
              StatusIs(absl::StatusCode::kUnavailable, "taken"));
}

// Each array converts to JSON and back to the same array.
TEST(JsonTest, ArraysConvertToJsonAndBack) {
  for (const ir::Array& a :
       {ir::Array::Of(DType::kF32, {2, 3}, {1, -2.5, 0, 4, 5, 6}),
        ir::Array::Of(DType::kBF16, {2}, {1.5, -2}), ir::Array::Of(DType::kBool, {2}, {1, 0}),
        ir::Array::Of(DType::kS32, {3}, {-2147483648.0, 0, 2147483647}),
        ir::Array::ScalarInt(DType::kS64, INT64_MIN), ir::Array::Scalar(DType::kF64, 0.1),
        ir::Array::Of(DType::kF64, {3}, {INFINITY, -INFINITY, 1e300}),
        ir::Array(DType::kF32, {0, 3}), ir::Array(DType::kF32, {2, 0})}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const Value json, JsonFromArray(a));
    EXPECT_THAT(ArrayFromJson(json, a.dtype(), a.shape()), IsOkAndHolds(a)) << json.DebugString();
  }
  ir::Array big(DType::kU64, {1});
  big.MutableAs<uint64_t>()[0] = UINT64_MAX;
  TESSERA_ASSERT_OK_AND_ASSIGN(const Value json, JsonFromArray(big));
  EXPECT_EQ(json.list_value().values(0).string_value(), "18446744073709551615");
  EXPECT_THAT(ArrayFromJson(json, DType::kU64, {1}), IsOkAndHolds(big));
}

TEST(JsonTest, ErrorsNameTheInvalidValue) {
  auto number = [](double v) {
    Value out;
    out.set_number_value(v);
    return out;
  };
  EXPECT_THAT(ArrayFromJson(number(1.5), DType::kS32, {}),
              ReasonIs("VALUE_ERROR", "1.5 is not a s32"));
  EXPECT_THAT(ArrayFromJson(number(3e9), DType::kS32, {}), ReasonIs("VALUE_ERROR"));
  EXPECT_THAT(ArrayFromJson(number(-1), DType::kU32, {}), ReasonIs("VALUE_ERROR"));
  EXPECT_THAT(ArrayFromJson(number(1e18), DType::kS64, {}),
              ReasonIs("VALUE_ERROR", "decimal text"));
  EXPECT_THAT(ArrayFromJson(number(1), DType::kBool, {}), ReasonIs("VALUE_ERROR", "true or false"));
  EXPECT_THAT(ArrayFromJson(number(1), DType::kF32, {2}), ReasonIs("VALUE_ERROR", "a list of 2"));
  // No memory is allocated for a shape that promises more values than came.
  EXPECT_THAT(ArrayFromJson(number(1), DType::kF32, {int64_t{1} << 40}), ReasonIs("VALUE_ERROR"));
}

// Only the first row agrees with the shape, which promises 40 GB.
TEST(JsonTest, MissingRowsAreRefusedBeforeMemoryIsAllocated) {
  constexpr int kRows = 100'000;
  Value rows;
  for (int i = 0; i < kRows; ++i) rows.mutable_list_value()->add_values();
  for (int i = 0; i < kRows; ++i)
    rows.mutable_list_value()
        ->mutable_values(0)
        ->mutable_list_value()
        ->add_values()
        ->set_number_value(0);
  EXPECT_THAT(ArrayFromJson(rows, DType::kF32, {kRows, kRows}),
              ReasonIs("VALUE_ERROR", "at [1]: a list of 100000 values was expected"));
}

TEST(JsonTest, ComplexDtypesAreRefused) {
  Value one;
  one.set_number_value(1);
  for (const DType dtype : {DType::kC64, DType::kC128}) {
    EXPECT_THAT(ArrayFromJson(one, dtype, {}), ReasonIs("NOT_IMPLEMENTED", "no JSON form"));
    EXPECT_THAT(JsonFromArray(ir::Array(dtype, {})), ReasonIs("NOT_IMPLEMENTED", "no JSON form"));
  }
}

TEST(JsonTest, NarrowNumbersAreRead) {
  Value number;
  number.set_number_value(-7);
  for (const DType dtype : {DType::kF16, DType::kF8E4M3FN, DType::kS4, DType::kS8}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array one, ArrayFromJson(number, dtype, {}));
    EXPECT_EQ(one.At(0), -7);
    TESSERA_ASSERT_OK_AND_ASSIGN(const Value back, JsonFromArray(one));
    EXPECT_EQ(back.number_value(), -7);
  }
  EXPECT_THAT(ArrayFromJson(number, DType::kU4, {}), ReasonIs("VALUE_ERROR", "-7 is not a u4"));
  number.set_number_value(8);
  EXPECT_THAT(ArrayFromJson(number, DType::kS4, {}), ReasonIs("VALUE_ERROR", "8 is not a s4"));
}

// An array of 2^40 empty lists has no bytes, but is too large as JSON.
TEST(JsonTest, ResultsOfTooManyValuesAreRefused) {
  EXPECT_THAT(JsonFromArray(ir::Array(DType::kF32, {int64_t{1} << 40, 0})),
              ReasonIs("LIMIT_EXCEEDED", "read its arrays"));
  EXPECT_THAT(JsonFromArray(ir::Array(DType::kF32, {0, int64_t{1} << 40})), IsOk());
  EXPECT_THAT(JsonFromArray(ir::Array(DType::kU8, {1 << 22})), ReasonIs("LIMIT_EXCEEDED"));
}

}  // namespace
}  // namespace tessera::server::rpc
