// Proves what a client sees through api::Service, the interface between the SDK and a coordinator.
// The coordinator runs with the real planner, a store in memory and a reference worker in the same
// process.
#include "server/coordinator/coordinator.h"

#include <numeric>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "base/testing/status_matchers.h"
#include "ir/builder.h"
#include "ir/eval/eval.h"
#include "ir/op_def.h"
#include "ir/registry.h"
#include "ir/strided.h"
#include "server/coordinator/bound_service.h"
#include "server/planner/planner.h"
#include "server/testing/reference_worker.h"

namespace tessera::server {
namespace {

using ir::DType;

class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest()
      : coordinator_(OptionsWithoutHeartbeats(), &clock_, planner::MakePlan, &store_) {
    worker_ = std::make_shared<ReferenceWorker>(&coordinator_, "w0", 4);
    worker_->Start();
  }
  ~CoordinatorTest() override { coordinator_.Stop(); }

  static Options OptionsWithoutHeartbeats() {
    Options options;
    options.lease_ms = 3'600'000;  // The reference worker sends no heartbeats.
    return options;
  }
  static ir::Mesh Mesh() { return {{{"x", 4}}}; }
  static ir::PartitionSpec Spec(ir::DimAxes dims) { return {std::move(dims), {}, {}, {}}; }
  static api::Placement PlacementOn(ir::DimAxes dims, std::vector<int64_t> devices = {0, 1, 2, 3}) {
    return {Mesh(), Spec(std::move(dims)), std::move(devices)};
  }
  static ir::Array CountingArray(ir::Dims shape) {
    ir::Array a(DType::kF32, std::move(shape));
    absl::Span<float> v = a.MutableAs<float>();
    std::iota(v.begin(), v.end(), 1.0f);
    return a;
  }
  // Returns the program f(a) = (a + a, sum(a, dim 0)), where a is an f32[8,4] that is cut along
  // dim 0.
  static api::CompileRequest SumProgram() {
    ir::Builder b({Mesh(), true}, "sums");
    b.SetSite({"model.cc", 7});
    ir::Value a = b.Param(ir::MakeType(DType::kF32, {8, 4}));
    ir::Value twice = b.Emit1(*ir::FindOp("add"), {a, a});
    ir::Value sum = b.Emit1(*ir::FindOp("reduce_sum"), {a},
                            ir::Attrs({{"dimensions", std::vector<int64_t>{0}}}));
    api::CompileRequest request;
    request.program.entry = b.Build({twice, sum});
    request.program.in_shardings = {Spec({{"x"}})};
    request.name = "sums";
    return request;
  }

  RealClock clock_;
  store::MemoryStore store_;
  Coordinator coordinator_;
  const std::unique_ptr<api::Service> service_ = MakeBoundService(&coordinator_);
  std::shared_ptr<ReferenceWorker> worker_;
};

// Returns the program f(a) = a + a + ... with `ops` additions.
api::CompileRequest ChainProgram(int ops) {
  ir::Builder b({ir::Mesh{{{"x", 4}}}, true}, "chain");
  const ir::Value a = b.Param(ir::MakeType(DType::kF32, {8}));
  ir::Value sum = a;
  for (int i = 0; i < ops; ++i) sum = b.Emit1(*ir::FindOp("add"), {sum, a});
  api::CompileRequest request;
  request.program.entry = b.Build({sum});
  request.name = absl::StrCat("chain of ", ops);
  return request;
}

TEST(CoordinatorPlansTest, LargePlansDoNotDelaySmallPlans) {
  // There are more large programs than planning threads. The plans of these programs block until
  // `go` is notified.
  constexpr int kLarge = 4, kLargeOps = 1000;
  absl::Notification go;
  const auto slow = [&](const core::PlanRequest& request) {
    if (ir::CountOps(*request.program.entry) >= kLargeOps) go.WaitForNotification();
    return planner::MakePlan(request);
  };
  RealClock clock;
  store::MemoryStore store;
  Options options;
  options.lease_ms = 3'600'000;
  options.compile_jobs = 2;
  Coordinator coordinator(options, &clock, slow, &store);
  const auto worker = std::make_shared<ReferenceWorker>(&coordinator, "w0", 4);
  worker->Start();
  absl::BlockingCounter large(kLarge);
  for (int i = 0; i < kLarge; ++i) {
    coordinator.CompileAsync({}, ChainProgram(kLargeOps + i), [&](const auto& reply) {
      EXPECT_THAT(reply, IsOk());
      large.DecrementCount();
    });
  }
  const std::unique_ptr<api::Service> service = MakeBoundService(&coordinator);
  EXPECT_THAT(service->Compile(ChainProgram(2)), IsOk());
  EXPECT_THAT(service->Compile(ChainProgram(3)), IsOk());
  go.Notify();
  large.Wait();
  coordinator.Stop();
}

TEST_F(CoordinatorTest, ArraysAreReadBackAsTheyWerePut) {
  const ir::Array value = CountingArray({8, 4});
  for (const ir::DimAxes& dims : {ir::DimAxes{}, ir::DimAxes{{"x"}}, ir::DimAxes{{}, {"x"}}}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t id,
                                 service_->Put(value, PlacementOn(dims, {2, 0, 3, 1})));
    EXPECT_THAT(service_->Get(id, absl::Seconds(10)), IsOkAndHolds(value));
    TESSERA_ASSERT_OK_AND_ASSIGN(const api::ArraySpec spec, service_->Describe(id));
    EXPECT_EQ(spec.placement, PlacementOn(dims, {2, 0, 3, 1}));
  }
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t id, service_->Put(value, PlacementOn({{"x"}})));
  EXPECT_THAT(service_->GetShard(id, 1, absl::Seconds(10)),
              IsOkAndHolds(ir::SliceBlock(value, {2, 0}, {2, 4})));
  EXPECT_THAT(service_->GetShard(id, 4, absl::Seconds(10)), ReasonIs("VALUE_ERROR", "shard 4"));
}

TEST_F(CoordinatorTest, ResultsDoNotDependOnThePlacementOfArguments) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply f, service_->Compile(SumProgram()));
  const ir::Array value = CountingArray({8, 4});
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<ir::Array> expected,
                               ir::Evaluate(*SumProgram().program.entry, {value}));
  for (const api::Placement& p :
       {f.in[0].placement, PlacementOn({}), PlacementOn({{}, {"x"}}),
        PlacementOn({{"x"}}, {3, 2, 1, 0}), api::Placement{{{{"y", 2}}}, Spec({{"y"}}), {3, 1}}}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t id, service_->Put(value, p));
    TESSERA_ASSERT_OK_AND_ASSIGN(const api::ExecuteReply run,
                                 service_->Execute({f.executable, {id}, {}, {}, {}, 0}));
    ASSERT_EQ(run.outputs.size(), 2u);
    for (int i : {0, 1})
      EXPECT_THAT(service_->Get(run.outputs[i], absl::Seconds(10)), IsOkAndHolds(expected[i]))
          << p.spec.ToString();
    TESSERA_ASSERT_OK_AND_ASSIGN(const api::Operation op,
                                 service_->WaitOperation(run.operation, absl::Seconds(10)));
    EXPECT_EQ(op.state, api::OperationState::kDone);
  }
}

TEST_F(CoordinatorTest, RunsMayUseResultsThatDoNotExistYet) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply f, service_->Compile(SumProgram()));
  TESSERA_ASSERT_OK_AND_ASSIGN(uint64_t id,
                               service_->Put(CountingArray({8, 4}), f.in[0].placement));
  worker_->HoldLaunches(true);
  for (int i = 0; i < 5; ++i) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const api::ExecuteReply run,
                                 service_->Execute({f.executable, {id}, {true}, {}, {}, 0}));
    id = run.outputs[0];
    EXPECT_THAT(service_->Delete({run.outputs[1]}), IsOk());
  }
  EXPECT_THAT(service_->Get(id, absl::Milliseconds(50)), ReasonIs("DEADLINE_EXCEEDED"));
  worker_->HoldLaunches(false);
  TESSERA_ASSERT_OK_AND_ASSIGN(const ir::Array out, service_->Get(id, absl::Seconds(10)));
  EXPECT_EQ(out.At(0), 32.0);
  EXPECT_THAT(service_->Delete({id, id}), IsOk());
  EXPECT_THAT(service_->Get(id, absl::Seconds(1)), ReasonIs("ARRAY_DELETED"));
  // After one more round trip the deletes have been carried out.
  TESSERA_ASSERT_OK(service_->ListDevices());
  EXPECT_EQ(worker_->num_buffers(), 0) << "donated, deleted and temporary arrays are freed";
}

TEST_F(CoordinatorTest, AnEqualProgramIsCompiledOnce) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply a, service_->Compile(SumProgram()));
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply b, service_->Compile(SumProgram()));
  EXPECT_EQ(a.executable, b.executable);
  EXPECT_EQ(a.explain_text, "");
  api::CompileRequest with = SumProgram();
  with.explain = true;
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply c, service_->Compile(with));
  EXPECT_EQ(c.executable, a.executable);
  EXPECT_THAT(c.explain_text, ::testing::HasSubstr("model.cc:7"));
  // A program that differs only in a name is another executable, because errors and explanations
  // show the program's own names and lines.
  api::CompileRequest named = SumProgram();
  named.program.in_names = {"args[0].w"};
  api::CompileRequest titled = SumProgram();
  titled.name = "second";
  std::set<uint64_t> executables = {a.executable};
  for (const api::CompileRequest& request : {named, titled}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply e, service_->Compile(request));
    EXPECT_TRUE(executables.insert(e.executable).second);
  }
  named.explain = true;
  for (bool plan_only : {true, false, false}) {
    named.plan_only = plan_only;
    TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply f, service_->Compile(named));
    EXPECT_THAT(f.explain_text, ::testing::HasSubstr("  args[0].w: f32[8,4] P('x', None) 32 B"));
    EXPECT_EQ(executables.count(f.executable), plan_only ? 0u : 1u);
  }
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply g, service_->Compile(with));
  EXPECT_EQ(g.explain_text, c.explain_text);
  with.devices = {3, 2, 1, 0};
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply d, service_->Compile(with));
  EXPECT_NE(d.executable, a.executable);
}

TEST_F(CoordinatorTest, RunsFailWhenTheExecutorIsLostAndWorkWhenItIsBack) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply f, service_->Compile(SumProgram()));
  const ir::Array value = CountingArray({8, 4});
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t id, service_->Put(value, f.in[0].placement));
  worker_->HoldLaunches(true);
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::ExecuteReply run,
                               service_->Execute({f.executable, {id}, {}, {}, {}, 0}));
  worker_->LoseExecutor("killed by signal 9");
  EXPECT_THAT(service_->Get(run.outputs[0], absl::Seconds(10)),
              ReasonIs("WORKER_LOST",
                       "worker w0: executor w0/0 (incarnation 1) was lost: killed by "
                       "signal 9"));
  EXPECT_THAT(service_->Get(id, absl::Seconds(10)), ReasonIs("WORKER_LOST", "array"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<api::Device> devices, service_->ListDevices());
  EXPECT_FALSE(devices[0].healthy);
  EXPECT_EQ(devices[0].reason, "killed by signal 9");
  worker_->HoldLaunches(false);
  worker_->RestoreExecutor();
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t again, service_->Put(value, f.in[0].placement));
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::ExecuteReply rerun,
                               service_->Execute({f.executable, {again}, {}, {}, {}, 0}));
  TESSERA_EXPECT_OK(service_->Get(rerun.outputs[0], absl::Seconds(10)));
}

TEST_F(CoordinatorTest, CancelReachesAHeldLaunch) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply f, service_->Compile(SumProgram()));
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t id,
                               service_->Put(CountingArray({8, 4}), f.in[0].placement));
  worker_->HoldLaunches(true);
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::ExecuteReply run,
                               service_->Execute({f.executable, {id}, {}, {}, {}, 0}));
  TESSERA_EXPECT_OK(service_->Cancel(run.operation));
  EXPECT_THAT(service_->Get(run.outputs[0], absl::Seconds(10)), ReasonIs("CANCELLED"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::Operation op, service_->GetOperation(run.operation));
  EXPECT_EQ(op.state, api::OperationState::kCancelled);
}

TEST_F(CoordinatorTest, StopAnswersWaitingCalls) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply f, service_->Compile(SumProgram()));
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t id,
                               service_->Put(CountingArray({8, 4}), f.in[0].placement));
  worker_->HoldLaunches(true);
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::ExecuteReply run,
                               service_->Execute({f.executable, {id}, {}, {}, {}, 0}));
  std::thread stopper([&] { coordinator_.Stop(); });
  EXPECT_THAT(service_->Get(run.outputs[0], absl::Seconds(30)), ReasonIs("SERVER_STOPPING"));
  stopper.join();
  EXPECT_THAT(service_->ListDevices(), ReasonIs("SERVER_STOPPING"));
  EXPECT_THAT(worker_->close_reason(), ReasonIs("SERVER_STOPPING"));
}

TEST_F(CoordinatorTest, EachTicketIsForOneShard) {
  const api::ArraySpec spec{DType::kF32, {8, 4}, PlacementOn({{"x"}})};
  absl::Notification done;
  coordinator_.CreateArrayAsync({}, /*session=*/0, spec, /*check_only=*/false,
                                [&](absl::StatusOr<TicketedArray> a) {
                                  TESSERA_ASSERT_OK(a);
                                  ASSERT_EQ(a->tickets.size(), 4u);
                                  EXPECT_EQ(a->tickets[3].ordinal, 3);
                                  std::set<std::string> distinct;
                                  for (const ShardTicket& t : a->tickets) distinct.insert(t.ticket);
                                  EXPECT_EQ(distinct.size(), 4u);
                                  done.Notify();
                                });
  done.WaitForNotification();
}

}  // namespace
}  // namespace tessera::server
