// Proves that many runs can share one stream of ExecutePrograms: their numbers, order, bounds,
// request_ids and rates. A coordinator with a reference worker serves on a loopback port. One suite
// runs with a rate limit.
#include <map>
#include <memory>
#include <string>

#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/registry.h"
#include "ir/serial/program.h"
#include "ir/serial/service.h"
#include "ir/serial/status.h"
#include "server/coordinator/bound_service.h"
#include "server/planner/planner.h"
#include "server/rpc/server.h"
#include "server/testing/reference_worker.h"
#include "tessera/v1/program_service.grpc.pb.h"

namespace tessera::server::rpc {
namespace {

using ir::DType;
using Stream = grpc::ClientReaderWriter<v1::ExecuteProgramsRequest, v1::ExecuteProgramsEvent>;

constexpr int kRate = 20;  // limit of calls per second

absl::Status Read(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return ir::serial::FromProto(details);
}

class ExecutionsTest : public ::testing::TestWithParam<bool> {
 protected:
  ExecutionsTest() : coordinator_(OptionsWith(GetParam()), &clock_, planner::MakePlan, &store_) {
    worker_ = std::make_shared<ReferenceWorker>(&coordinator_, "w0", 1);
    worker_->Start();
    auto server = Serve({}, &coordinator_);
    TESSERA_EXPECT_OK(server);
    server_ = *std::move(server);
    stub_ = v1::ProgramService::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    stream_ = stub_->ExecutePrograms(&context_);
  }
  ~ExecutionsTest() override {
    context_.TryCancel();
    stream_.reset();
    coordinator_.Stop();
    server_->Shutdown(absl::Seconds(1));
  }

  static Options OptionsWith(bool limited) {
    Options options;
    options.lease_ms = 3'600'000;  // The reference worker sends no heartbeats.
    if (limited) options.rate_limit_per_second = kRate;
    return options;
  }
  // Compiles f(a) = a + a, uploads an argument, and returns the request that runs it.
  v1::ExecuteProgramRequest MakeDoublingRun(int64_t elements = 2) {
    ir::Builder b({{{{"x", 1}}}, true}, "double");
    const ir::Value a = b.Param(ir::MakeType(DType::kF32, {elements}));
    ir::Program p;
    p.entry = b.Build({b.Emit1(*ir::FindOp("add"), {a, a})});
    p.in_shardings = {std::nullopt};
    const auto compiled = service_->Compile({.program = p, .devices = {}, .name = "double"});
    TESSERA_EXPECT_OK(compiled);
    ir::Array value(DType::kF32, {elements});
    value.Set(1, 21);
    const auto put = service_->Put(value, compiled->in[0].placement);
    TESSERA_EXPECT_OK(put);
    v1::ExecuteProgramRequest request;
    request.set_executable(compiled->executable);
    request.add_args(*put);
    request.set_inline_results_bytes_max(1 << 16);
    return request;
  }
  bool Send(uint64_t number, const v1::ExecuteProgramRequest& run) {
    v1::ExecuteProgramsRequest request;
    request.set_number(number);
    *request.mutable_run() = run;
    return stream_->Write(request);
  }
  // Sends the run in order. If `argument_run` is not 0, the argument is the first result of the run
  // with that number.
  bool SendInOrder(uint64_t number, const v1::ExecuteProgramRequest& run, uint64_t argument_run) {
    v1::ExecuteProgramsRequest request;
    request.set_number(number);
    request.set_in_order(true);
    *request.mutable_run() = run;
    if (argument_run != 0) {
      request.mutable_run()->set_args(0, 0);
      request.add_results_of_runs()->set_number(argument_run);
    }
    return stream_->Write(request);
  }
  v1::ExecuteProgramsEvent Next() {
    v1::ExecuteProgramsEvent event;
    EXPECT_TRUE(stream_->Read(&event));
    return event;
  }
  absl::Status End() {
    v1::ExecuteProgramsEvent event;
    EXPECT_FALSE(stream_->Read(&event)) << event.ShortDebugString();
    return Read(stream_->Finish());
  }

  RealClock clock_;
  store::MemoryStore store_;
  Coordinator coordinator_;
  const std::unique_ptr<api::Service> service_ = MakeBoundService(&coordinator_);
  std::shared_ptr<ReferenceWorker> worker_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::ProgramService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
};
INSTANTIATE_TEST_SUITE_P(AnyRate, ExecutionsTest, ::testing::Values(false));
using LimitedExecutionsTest = ExecutionsTest;
INSTANTIATE_TEST_SUITE_P(LimitedRate, LimitedExecutionsTest, ::testing::Values(true));

// Runs are accepted in the order of their requests, and events name runs by their numbers. A
// refused run ends neither the stream nor the other runs.
TEST_P(ExecutionsTest, EventsNameRunsByTheirNumbers) {
  const v1::ExecuteProgramRequest run = MakeDoublingRun();
  v1::ExecuteProgramRequest unknown = run;
  unknown.set_executable(99);
  worker_->HoldLaunches(true);
  ASSERT_TRUE(Send(7, run) && Send(8, unknown) && Send(9, run));
  const v1::ExecuteProgramsEvent first = Next(), refused = Next(), last = Next();
  EXPECT_EQ(first.number(), 7);
  EXPECT_EQ(refused.number(), 8);
  EXPECT_EQ(last.number(), 9);
  EXPECT_THAT(ir::serial::FromProto(refused.refused()), ReasonIs("PROGRAM_NOT_FOUND", "99"));
  ASSERT_EQ(first.accepted().outputs_size(), 1);
  EXPECT_LT(first.accepted().operation(), last.accepted().operation());
  worker_->HoldLaunches(false);
  // A caller that has sent all its requests still hears how the runs end.
  ASSERT_TRUE(stream_->WritesDone());
  std::map<uint64_t, v1::ExecutionEnd> ends;
  for (int i = 0; i < 2; ++i) {
    v1::ExecuteProgramsEvent event = Next();
    ends[event.number()] = std::move(*event.mutable_ended());
  }
  ASSERT_EQ(ends.count(7) + ends.count(9), 2);
  ASSERT_EQ(ends[7].results_size(), 1);
  EXPECT_EQ(ends[7].results(0).array(), first.accepted().outputs(0));
  const auto value = ir::serial::FromProto(ends[7].results(0).value(), 1 << 10);
  TESSERA_ASSERT_OK(value);
  EXPECT_EQ(value->ToDoubles(), (std::vector<double>{0, 42}));
  TESSERA_EXPECT_OK(End());
}

// A repeated request starts no second run; its events are those of the run that the first request
// started.
TEST_P(ExecutionsTest, ARepeatedRequestStartsNoSecondRun) {
  v1::ExecuteProgramRequest run = MakeDoublingRun();
  run.set_request_id("once");
  worker_->HoldLaunches(true);
  ASSERT_TRUE(Send(1, run) && Send(2, run));
  const v1::ExecuteProgramsEvent first = Next(), again = Next();
  EXPECT_EQ(first.accepted().operation(), again.accepted().operation());
  run.clear_args();
  ASSERT_TRUE(Send(3, run));
  EXPECT_THAT(ir::serial::FromProto(Next().refused()), ReasonIs("REQUEST_ID_REUSED", "once"));
  worker_->HoldLaunches(false);
  EXPECT_EQ(Next().ended().operation().state(), v1::OPERATION_STATE_DONE);
  EXPECT_EQ(Next().ended().operation().state(), v1::OPERATION_STATE_DONE);
}

// With more runs than a stream may have open, the rest is read as runs end, and none is lost.
TEST_P(ExecutionsTest, RequestsBeyondTheRunLimitWait) {
  constexpr int kRuns = 1'100;
  const v1::ExecuteProgramRequest run = MakeDoublingRun();
  worker_->HoldLaunches(true);
  for (int i = 1; i <= kRuns; ++i) ASSERT_TRUE(Send(i, run));
  ASSERT_TRUE(stream_->WritesDone());
  int accepted = 0, ended = 0;
  while (accepted < 1'000) {
    ASSERT_TRUE(Next().has_accepted());
    ++accepted;
  }
  // This call is processed after all requests that were read so far.
  const auto devices = service_->ListDevices();
  TESSERA_ASSERT_OK(devices);
  worker_->HoldLaunches(false);
  while (accepted + ended < 2 * kRuns) {
    const v1::ExecuteProgramsEvent event = Next();
    ASSERT_FALSE(event.has_refused()) << event.ShortDebugString();
    ++(event.has_accepted() ? accepted : ended);
  }
  EXPECT_EQ(ended, kRuns);
  TESSERA_EXPECT_OK(End());
}

// Inline results for a caller that does not read do not pile up: beyond a bound they are left out,
// and the caller reads them by ticket.
TEST_P(ExecutionsTest, ResultsForASlowReaderAreBounded) {
  // The results have far more bytes than the connection has room for.
  constexpr int kRuns = 400;
  const v1::ExecuteProgramRequest run = MakeDoublingRun(1 << 14);
  worker_->HoldLaunches(true);
  for (int i = 1; i <= kRuns; ++i) ASSERT_TRUE(Send(i, run));
  ASSERT_TRUE(stream_->WritesDone());
  uint64_t last = 0;
  for (int i = 1; i <= kRuns; ++i) last = Next().accepted().operation();
  // The test reads nothing before all runs have ended.
  worker_->HoldLaunches(false);
  ASSERT_TRUE(testing::Eventually([&] {
    const absl::StatusOr<api::Operation> operation = service_->GetOperation(last);
    return operation.ok() && operation->state == api::OperationState::kDone;
  }));
  int with_results = 0, by_ticket = 0;
  for (int left = kRuns; left > 0; --left) {
    const v1::ExecuteProgramsEvent event = Next();
    EXPECT_EQ(event.ended().operation().state(), v1::OPERATION_STATE_DONE);
    ++(event.ended().results_size() == 1 ? with_results : by_ticket);
  }
  TESSERA_EXPECT_OK(End());
  EXPECT_EQ(with_results + by_ticket, kRuns);
  EXPECT_GT(with_results, 0);
  EXPECT_GT(by_ticket, 0);
}

TEST_P(ExecutionsTest, AnIdleStreamEndsWhenTheServerStops) {
  ASSERT_TRUE(Send(1, MakeDoublingRun()));
  EXPECT_TRUE(Next().has_accepted());
  EXPECT_TRUE(Next().has_ended());
  coordinator_.Stop();
  server_->Shutdown(absl::Seconds(20));  // Returns at once, because no stream holds it back.
  EXPECT_THAT(End(), ReasonIs("SERVER_STOPPING"));
}

TEST_P(ExecutionsTest, BytesThatDoNotDecodeEndTheStream) {
  grpc::GenericStub generic(
      grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  grpc::CompletionQueue queue;
  const auto call =
      generic.PrepareCall(&context, "/tessera.v1.ProgramService/ExecutePrograms", &queue);
  const grpc::Slice slice("\xff\xff\xff\xff");
  const grpc::ByteBuffer garbage(&slice, 1);
  grpc::ByteBuffer answer;
  grpc::Status status;
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  call->Write(garbage, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  call->Read(&answer, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && !ok);
  call->Finish(&status, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  EXPECT_THAT(Read(status),
              ReasonIs("VALUE_ERROR", "not a message of type tessera.v1.ExecuteProgramsRequest"));
}

// A run can take results of earlier runs without knowing their ids.
TEST_P(ExecutionsTest, RunsMayUseResultsOfEarlierRuns) {
  const v1::ExecuteProgramRequest run = MakeDoublingRun();
  ASSERT_TRUE(SendInOrder(1, run, 0) && SendInOrder(2, run, 1) && SendInOrder(3, run, 2));
  ASSERT_TRUE(stream_->WritesDone());
  std::map<uint64_t, std::vector<double>> values;
  for (int i = 0; i < 6; ++i) {
    const v1::ExecuteProgramsEvent event = Next();
    ASSERT_FALSE(event.has_refused()) << event.ShortDebugString();
    if (!event.has_ended()) continue;
    const auto value = ir::serial::FromProto(event.ended().results(0).value(), 1 << 10);
    TESSERA_ASSERT_OK(value);
    values[event.number()] = value->ToDoubles();
  }
  EXPECT_EQ(values[1], (std::vector<double>{0, 42}));
  EXPECT_EQ(values[2], (std::vector<double>{0, 84}));
  EXPECT_EQ(values[3], (std::vector<double>{0, 168}));
  TESSERA_EXPECT_OK(End());
}

// The last runs are those that were sent last, whatever their numbers are.
TEST_P(ExecutionsTest, TheOldestRunsAreForgottenFirst) {
  constexpr uint64_t kFirst = 1'000'000;
  constexpr int kRuns = 1'001;  // one more than are remembered
  const v1::ExecuteProgramRequest run = MakeDoublingRun();
  v1::ExecuteProgramRequest unknown = run;
  unknown.set_executable(99);
  // The numbers fall. A refused run is remembered like any other, and costs no launch.
  for (int i = 0; i < kRuns; ++i) {
    ASSERT_TRUE(SendInOrder(kFirst - i, unknown, 0));
    EXPECT_EQ(Next().number(), kFirst - i);
  }
  ASSERT_TRUE(SendInOrder(1, run, kFirst - (kRuns - 1)));
  EXPECT_THAT(ir::serial::FromProto(Next().refused()),
              ReasonIs("PROGRAM_NOT_FOUND", "executable 99"));
  ASSERT_TRUE(SendInOrder(2, run, kFirst));
  EXPECT_THAT(ir::serial::FromProto(Next().refused()),
              ReasonIs("VALUE_ERROR", "is not among the last 1000 runs"));
}

TEST_P(ExecutionsTest, ARunThatUsesAResultOfARefusedRunGetsTheSameError) {
  const v1::ExecuteProgramRequest run = MakeDoublingRun();
  v1::ExecuteProgramRequest unknown = run;
  unknown.set_executable(99);
  ASSERT_TRUE(SendInOrder(1, unknown, 0) && SendInOrder(2, run, 1) && SendInOrder(3, run, 2));
  ASSERT_TRUE(SendInOrder(4, run, 77) && Send(5, run));
  for (uint64_t number : {1, 2, 3}) {
    const v1::ExecuteProgramsEvent event = Next();
    EXPECT_EQ(event.number(), number);
    EXPECT_THAT(ir::serial::FromProto(event.refused()),
                ReasonIs("PROGRAM_NOT_FOUND", "executable 99"));
  }
  EXPECT_THAT(ir::serial::FromProto(Next().refused()),
              ReasonIs("VALUE_ERROR", "argument 0, result 0 of run 77"));
  EXPECT_TRUE(Next().has_accepted());
}

// A caller that can compile the program again wants no later run to overtake the refused one: it
// may delete or take the arguments of the refused run.
TEST_P(ExecutionsTest, AStreamMayEndBehindARunWhoseExecutableDoesNotExist) {
  const v1::ExecuteProgramRequest run = MakeDoublingRun();
  const auto send = [&](uint64_t number, const v1::ExecuteProgramRequest& what) {
    v1::ExecuteProgramsRequest request;
    request.set_number(number);
    *request.mutable_run() = what;
    request.set_in_order(true);
    request.set_stop_if_not_found(true);
    return stream_->Write(request);
  };
  v1::ExecuteProgramRequest wrong = run, unknown = run, behind = run;
  wrong.clear_args();
  unknown.set_executable(99);
  behind.set_request_id("behind");
  ASSERT_TRUE(send(1, wrong) && send(2, unknown));
  send(3, behind);  // fails if the stream has ended already
  EXPECT_THAT(ir::serial::FromProto(Next().refused()), ReasonIs("TYPE_ERROR"));
  const v1::ExecuteProgramsEvent refused = Next();
  EXPECT_EQ(refused.number(), 2);
  EXPECT_THAT(ir::serial::FromProto(refused.refused()), ReasonIs("PROGRAM_NOT_FOUND", "99"));
  v1::ExecuteProgramsEvent none;
  EXPECT_FALSE(stream_->Read(&none)) << none.ShortDebugString();
  TESSERA_EXPECT_OK(End());
  // The run behind it was not executed, so its request_id is free for another request.
  behind.clear_args();
  grpc::ClientContext context;
  v1::ExecuteProgramResponse response;
  EXPECT_THAT(Read(stub_->ExecuteProgram(&context, behind, &response)), ReasonIs("TYPE_ERROR"));
}

TEST_P(ExecutionsTest, AMissingResultOrArgumentIsRefused) {
  const v1::ExecuteProgramRequest run = MakeDoublingRun();
  v1::ExecuteProgramsRequest second;
  second.set_number(2);
  *second.mutable_run() = run;
  v1::ResultOfRun* const result = second.add_results_of_runs();
  result->set_number(1);
  result->set_result(1);
  ASSERT_TRUE(SendInOrder(1, run, 0) && stream_->Write(second));
  result->set_result(0);
  result->set_arg(1);
  second.set_number(3);
  ASSERT_TRUE(stream_->Write(second));
  std::map<uint64_t, absl::Status> refused;
  while (refused.size() < 2) {
    const v1::ExecuteProgramsEvent event = Next();
    if (event.has_refused()) refused[event.number()] = ir::serial::FromProto(event.refused());
  }
  EXPECT_THAT(refused[2], ReasonIs("VALUE_ERROR", "the run has 1 results"));
  EXPECT_THAT(refused[3], ReasonIs("VALUE_ERROR", "and this request has 1 arguments"));
}

// A run in order waits until there is room, and the runs behind it keep their places.
TEST_P(ExecutionsTest, RunsInOrderWaitWhileTheQueueIsFull) {
  const v1::ExecuteProgramRequest run = MakeDoublingRun();
  api::ExecuteRequest other;
  other.executable = run.executable();
  other.args = {run.args(0)};
  worker_->HoldLaunches(true);
  absl::Status full;
  while (full.ok()) full = service_->Execute(other).status();
  EXPECT_THAT(full, ReasonIs("QUEUE_FULL"));
  ASSERT_TRUE(Send(1, run));
  EXPECT_THAT(ir::serial::FromProto(Next().refused()), ReasonIs("QUEUE_FULL"));
  ASSERT_TRUE(SendInOrder(2, run, 0) && SendInOrder(3, run, 2) && Send(4, run));
  worker_->HoldLaunches(false);
  std::vector<uint64_t> accepted;
  while (accepted.size() < 3) {
    const v1::ExecuteProgramsEvent event = Next();
    ASSERT_FALSE(event.has_refused()) << event.ShortDebugString();
    if (event.has_accepted()) accepted.push_back(event.number());
  }
  EXPECT_EQ(accepted, (std::vector<uint64_t>{2, 3, 4}));
}

// The requests of a stream count against the same rate as calls.
TEST_P(LimitedExecutionsTest, RunsOfAStreamCountAgainstTheRate) {
  const v1::ExecuteProgramRequest run = MakeDoublingRun();
  for (int i = 1; i <= 3 * kRate; ++i) ASSERT_TRUE(Send(i, run));
  ASSERT_TRUE(stream_->WritesDone());
  int accepted = 0, refused = 0;
  v1::ExecuteProgramsEvent event;
  while (stream_->Read(&event)) {
    accepted += event.has_accepted() ? 1 : 0;
    if (!event.has_refused()) continue;
    EXPECT_THAT(ir::serial::FromProto(event.refused()), ReasonIs("RATE_LIMITED"));
    ++refused;
  }
  TESSERA_EXPECT_OK(Read(stream_->Finish()));
  EXPECT_EQ(accepted + refused, 3 * kRate);
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

// Runs in order wait until the rate allows them.
TEST_P(LimitedExecutionsTest, RunsInOrderWaitForTheRate) {
  const v1::ExecuteProgramRequest run = MakeDoublingRun();
  for (int i = 1; i <= 2 * kRate; ++i) ASSERT_TRUE(SendInOrder(i, run, i - 1));
  ASSERT_TRUE(stream_->WritesDone());
  int ended = 0;
  v1::ExecuteProgramsEvent event;
  while (stream_->Read(&event)) {
    ASSERT_FALSE(event.has_refused()) << event.ShortDebugString();
    ended += event.has_ended() ? 1 : 0;
  }
  TESSERA_EXPECT_OK(Read(stream_->Finish()));
  EXPECT_EQ(ended, 2 * kRate);
}

}  // namespace
}  // namespace tessera::server::rpc
