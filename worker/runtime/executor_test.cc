// Proves that an executor carries out its commands in order and reports them: programs, launches,
// collectives, donations, transfers, deletions and failures. Most tests send commands directly to
// an executor of CPU devices and read its reports. HeldBackend makes the devices asynchronous, and
// TwoExecutorsTest connects two executors over loopback.
#include "worker/runtime/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/status_exception.h"
#include "base/testing/status_matchers.h"
#include "ir/eval/eval.h"
#include "ir/ops.h"
#include "worker/cpu/cpu_backend.h"
#include "worker/daemon/listen.h"
#include "worker/runtime/testing/reports.h"

namespace tessera::worker {
namespace {

using ir::Array;
using ir::DType;
using ::testing::AllOf;
using ::testing::HasSubstr;

// How long a test waits for what must happen. No result depends on it unless the wait fails.
constexpr absl::Duration kPatience = absl::Seconds(60);
// The timeout of collectives in tests in which no collective may reach it, however slow the machine
// is.
constexpr absl::Duration kNever = absl::Hours(1);

// All axes are Manual, because the planner leaves device programs in this state.
ir::Scope ManualScope(int n) {
  return {.mesh = {.axes = {{"i", n, ir::AxisType::kManual}}}, .check_vma = false};
}

// The argument is f32[4] on each device. The result is twice its sum over the mesh.
ir::Program PsumProgram(int devices) {
  ir::Builder b(ManualScope(devices));
  ir::Value x = b.Param(ir::MakeType(DType::kF32, {4}));
  b.SetSite({"/src/model.cc", 41});
  ir::Value s = ir::Psum(x, {"i"});
  return {.entry = b.Build({{ir::Add(s, s)}}), .in_shardings = {}, .out_shardings = {}};
}

// A program that applies sin `ops` times.
ir::Program LongProgram(int devices, int ops) {
  ir::Builder b(ManualScope(devices));
  ir::Value x = b.Param(ir::MakeType(DType::kF32, {1 << 12}));
  for (int i = 0; i < ops; ++i) {
    b.SetSite({"/src/model.cc", 70});
    x = ir::Sin(x);
  }
  return {.entry = b.Build({{x}}), .in_shardings = {}, .out_shardings = {}};
}

// A program with a loop that ends only when it is cancelled.
ir::Program EndlessProgram(int devices) {
  const ir::Type type = ir::MakeType(DType::kF32, {1 << 12});
  ir::Builder predicate(ManualScope(devices)), body(ManualScope(devices)), b(ManualScope(devices));
  predicate.Param(type);
  const ir::FunctionRef always = predicate.Build({{ir::Constant(predicate, DType::kBool, 1)}});
  const ir::Value carry = body.Param(type);
  body.SetSite({"/src/model.cc", 70});
  const ir::FunctionRef step = body.Build({{ir::Sin(carry)}});
  const ir::Value x = b.Param(type);
  b.SetSite({"/src/model.cc", 69});
  return {.entry = b.Build({ir::While(b, always, step, {x}, 0, 0)}),
          .in_shardings = {},
          .out_shardings = {}};
}

ExecutorOptions WithoutTimeouts() {
  ExecutorOptions options;
  options.collective_timeout = kNever;
  return options;
}

class ExecutorTest : public ::testing::Test {
 protected:
  void Start(int devices, ExecutorOptions options = WithoutTimeouts(),
             int64_t memory_bytes = 1 << 24) {
    options.worker = "w0";
    executor_ = std::make_unique<Executor>(
        options, MakeCpuBackend({.num_devices = devices, .memory_bytes = memory_bytes}),
        [this](api::ReportBody body) { reports_.Add(std::move(body)); });
  }
  void Load(uint64_t id, ir::Program program) {
    api::LoadProgram load{.executable = id,
                          .name = absl::StrCat("program", id),
                          .program = {},
                          .coordinates = {},
                          .self = 0};
    for (int d = 0; d < program.mesh().num_devices(); ++d) load.coordinates.push_back({0, d});
    load.program = std::move(program);
    executor_->Send(std::move(load));
    absl::StatusOr<api::ProgramLoaded> loaded = reports_.Next<api::ProgramLoaded>();
    ASSERT_THAT(loaded, IsOk());
    ASSERT_THAT(loaded->status, IsOk());
  }
  void Write(uint64_t array, int device, Array value) {
    executor_->Send(api::WriteBuffer{array, device, std::move(value)});
    absl::StatusOr<api::BufferWritten> written = reports_.Next<api::BufferWritten>();
    ASSERT_THAT(written, IsOk());
    ASSERT_THAT(written->status, IsOk());
  }
  api::Launch MakeLaunch(uint64_t id, uint64_t executable, std::vector<uint64_t> args,
                         std::vector<uint64_t> results) {
    api::Launch launch;
    launch.launch = id;
    launch.sequence = id;
    launch.executable = executable;
    launch.args = std::move(args);
    launch.results = std::move(results);
    return launch;
  }
  absl::StatusOr<Array> Read(uint64_t array, int device) {
    executor_->Send(api::ReadBuffer{++request_, array, device});
    TESSERA_ASSIGN_OR_RETURN(api::BufferRead read, reports_.Next<api::BufferRead>());
    EXPECT_EQ(read.request, request_);
    return std::move(read.value);
  }

  Reports reports_;
  std::unique_ptr<Executor> executor_;
  uint64_t request_ = 0;
};

// Waits until `there` returns true, for at most kPatience.
template <class F>
void WaitUntil(F there) {
  const absl::Time deadline = SteadyNow() + kPatience;
  absl::Notification never;
  while (!there()) {
    ASSERT_LT(SteadyNow(), deadline);
    never.WaitForNotificationWithTimeout(absl::Milliseconds(1));
  }
}

Array Vec(std::vector<double> values) {
  return Array::Of(DType::kF32, {static_cast<int64_t>(values.size())}, values);
}

// CPU devices whose work ends when the test says so. They are asynchronous, like an accelerator.
class HeldBackend : public Backend {
 public:
  class HeldEvent final : public Event {
   public:
    explicit HeldEvent(HeldBackend* backend) : backend_(backend) {}
    void OnDone(std::function<void(const absl::Status&)> done) override {
      absl::MutexLock lock(&backend_->mu_);
      backend_->held_.push_back(std::move(done));
    }

   private:
    HeldBackend* const backend_;
  };

  // An executable that is not quick, so that only the streams' threads enqueue it.
  class NotQuick final : public Executable {
   public:
    explicit NotQuick(std::shared_ptr<const Executable> inner) : inner_(std::move(inner)) {}
    int64_t memory_bytes() const override { return inner_->memory_bytes(); }
    bool has_collectives() const override { return inner_->has_collectives(); }
    bool quick() const override { return false; }
    const Executable& inner() const { return *inner_; }

   private:
    const std::shared_ptr<const Executable> inner_;
  };

  std::string_view device_kind() const override { return cpu_->device_kind(); }
  int num_devices() const override { return cpu_->num_devices(); }
  int64_t memory_bytes() const override { return cpu_->memory_bytes(); }
  absl::Span<const ir::Lowering> lowerings() const override { return cpu_->lowerings(); }
  absl::StatusOr<std::shared_ptr<const Executable>> CompileFor(
      const std::string& tenant, const ir::Program& program) override {
    TESSERA_ASSIGN_OR_RETURN(auto executable, cpu_->CompileFor(tenant, program));
    return std::make_shared<NotQuick>(std::move(executable));
  }
  absl::StatusOr<Enqueued> Enqueue(const Executable& executable, const RunContext& context,
                                   absl::Span<const DeviceBufferRef> args) override {
    TESSERA_ASSIGN_OR_RETURN(
        Enqueued enqueued,
        cpu_->Enqueue(static_cast<const NotQuick&>(executable).inner(), context, args));
    enqueued.event = std::make_unique<HeldEvent>(this);
    return enqueued;
  }
  std::vector<int> ChooseDonations(const Executable& executable,
                                   absl::Span<const DeviceBufferRef> args,
                                   std::vector<bool> donated) const override {
    // The CPU backend reuses no memory that earlier launches still refer to. An accelerator may do
    // that, so the choice is made with fresh buffers, to which nothing else refers.
    std::vector<DeviceBufferRef> own;
    for (const DeviceBufferRef& arg : args) {
      own.push_back(*cpu_->FromHost(0, Array(arg->dtype(), arg->shape())));
    }
    return cpu_->ChooseDonations(static_cast<const NotQuick&>(executable).inner(), own,
                                 std::move(donated));
  }
  absl::StatusOr<DeviceBufferRef> FromHost(int device, Array value) override {
    return cpu_->FromHost(device, std::move(value));
  }
  absl::StatusOr<Array> ToHost(const DeviceBuffer& buffer) override { return cpu_->ToHost(buffer); }

  size_t num_held() {
    absl::MutexLock lock(&mu_);
    return held_.size();
  }
  // Ends the oldest held work.
  void EndOldest(const absl::Status& status) {
    std::function<void(const absl::Status&)> done;
    {
      absl::MutexLock lock(&mu_);
      done = std::move(held_.front());
      held_.pop_front();
    }
    done(status);
  }

 private:
  const std::unique_ptr<Backend> cpu_ = MakeCpuBackend({.memory_bytes = 1 << 24});
  absl::Mutex mu_;
  std::deque<std::function<void(const absl::Status&)>> held_ ABSL_GUARDED_BY(mu_);
};

// A backend whose compiler waits, for large programs, until the test lets it go.
class HeldCompiler final : public HeldBackend {
 public:
  static constexpr int kLargeOps = 300;
  explicit HeldCompiler(absl::Notification* go) : go_(go) {}
  absl::StatusOr<std::shared_ptr<const Executable>> CompileFor(
      const std::string& tenant, const ir::Program& program) override {
    const bool large = ir::CountOps(*program.entry) >= kLargeOps;
    if (large) go_->WaitForNotification();
    num_large_compiled_ += large ? 1 : 0;
    return HeldBackend::CompileFor(tenant, program);
  }
  int num_large_compiled() const { return num_large_compiled_; }

 private:
  absl::Notification* const go_;
  std::atomic<int> num_large_compiled_{0};
};

// Three large programs are being compiled while small programs and a communicator must become
// ready.
TEST_F(ExecutorTest, LongCompilationsDelayNeitherSmallProgramsNorCommunicators) {
  absl::Notification go;
  ExecutorOptions options;
  options.worker = "w0";
  options.compile_jobs = 2;
  auto backend = std::make_unique<HeldCompiler>(&go);
  HeldCompiler& compiler = *backend;
  executor_ = std::make_unique<Executor>(
      options, std::move(backend), [this](api::ReportBody body) { reports_.Add(std::move(body)); });
  const auto load = [&](uint64_t id) {
    api::LoadProgram large{.executable = id,
                           .name = absl::StrCat("large", id),
                           .program = LongProgram(1, HeldCompiler::kLargeOps),
                           .coordinates = {{0, 0}},
                           .self = 0};
    executor_->Send(std::move(large));
  };
  for (const uint64_t id : {1, 2, 3}) load(id);
  Load(4, PsumProgram(1));
  Load(5, PsumProgram(1));
  api::ConfigureCommunicator alone;
  alone.generation = 1;
  alone.members = {{"w0/0", 1, "", 1}};
  executor_->Send(alone);
  TESSERA_EXPECT_OK(reports_.Next<api::CommunicatorReady>());
  // A program that is unloaded before its turn comes is not compiled.
  executor_->Send(api::UnloadPrograms{{3}});
  go.Notify();
  for (int i = 0; i < 2; ++i) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto loaded, reports_.Next<api::ProgramLoaded>());
    TESSERA_EXPECT_OK(loaded.status);
  }
  Load(6, LongProgram(1, HeldCompiler::kLargeOps));
  EXPECT_EQ(compiler.num_large_compiled(), 3);
}

class AsyncExecutorTest : public ExecutorTest {
 protected:
  void SetUp() override {
    auto backend = std::make_unique<HeldBackend>();
    backend_ = backend.get();
    ExecutorOptions options;
    options.worker = "w0";
    executor_ =
        std::make_unique<Executor>(options, std::move(backend),
                                   [this](api::ReportBody body) { reports_.Add(std::move(body)); });
    Load(1, PsumProgram(1));  // gives twice its argument
    Write(10, 0, Vec({1, 2, 3, 4}));
    executor_->Send(MakeLaunch(1, 1, {10}, {11}));
    executor_->Send(MakeLaunch(2, 1, {11}, {12}));
    // The second launch is enqueued on the results that the first one has not made yet.
    WaitUntil([&] { return backend_->num_held() == 2; });
  }
  HeldBackend* backend_ = nullptr;
};

TEST_F(AsyncExecutorTest, ALaterLaunchIsEnqueuedBeforeTheFirstIsDone) {
  executor_->Send(api::ReadBuffer{7, 12, 0});
  EXPECT_EQ(executor_->in_flight(0).launch, 1u) << "the oldest launch is in flight";
  backend_->EndOldest(absl::OkStatus());
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchDone first, reports_.Next<api::LaunchDone>());
  EXPECT_EQ(first.launch, 1u);
  EXPECT_EQ(executor_->in_flight(0).launch, 2u);
  EXPECT_THAT(Read(11, 0), IsOkAndHolds(Vec({2, 4, 6, 8})));
  backend_->EndOldest(absl::OkStatus());
  TESSERA_ASSERT_OK_AND_ASSIGN(api::BufferRead read, reports_.Next<api::BufferRead>());
  EXPECT_EQ(read.request, 7u);
  EXPECT_THAT(read.value, IsOkAndHolds(Vec({4, 8, 12, 16})));
  EXPECT_EQ(executor_->in_flight(0).launch, 0u);
}

TEST_F(AsyncExecutorTest, ALaunchThatUsesTheResultsOfAFailedLaunchFails) {
  backend_->EndOldest(MakeError(ErrorKind::kInternal, "the first broke"));
  backend_->EndOldest(absl::OkStatus());
  for (const uint64_t launch : {1, 2}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed failed, reports_.Next<api::LaunchFailed>());
    EXPECT_EQ(failed.launch, launch);
    EXPECT_THAT(failed.status, ReasonIs("INTERNAL", "the first broke"));
    EXPECT_THAT(Read(10 + launch, 0), ReasonIs("INTERNAL", "the first broke"));
  }
}

TEST_F(AsyncExecutorTest, ADeleteDoesNotAffectEarlierReadsAndLaunches) {
  executor_->Send(api::ReadBuffer{7, 11, 0});
  executor_->Send(api::DeleteBuffers{{11}});
  // This launch comes after the delete on the device's stream.
  Load(2, PsumProgram(1));
  executor_->Send(MakeLaunch(3, 2, {10}, {13}));
  WaitUntil([&] { return backend_->num_held() == 3; });
  for (int i = 0; i < 3; ++i) backend_->EndOldest(absl::OkStatus());
  TESSERA_ASSERT_OK_AND_ASSIGN(api::BufferRead read, reports_.Next<api::BufferRead>());
  EXPECT_THAT(read.value, IsOkAndHolds(Vec({2, 4, 6, 8})));
  EXPECT_THAT(Read(12, 0), IsOkAndHolds(Vec({4, 8, 12, 16})));
  EXPECT_THAT(Read(11, 0), ReasonIs("ARRAY_DELETED", "array 11"));
}

TEST_F(AsyncExecutorTest, ALaunchWaitsForMemoryThatEarlierLaunchesHold) {
  // Argument and result take twelve of the device's sixteen MiB.
  constexpr int64_t kElements = (6 << 20) / sizeof(float);
  ir::Builder b(ManualScope(1));
  const ir::Value x = b.Param(ir::MakeType(DType::kF32, {kElements}));
  Load(2, {.entry = b.Build({{ir::Neg(x)}}), .in_shardings = {}, .out_shardings = {}});
  Write(20, 0, Array(DType::kF32, {kElements}));
  executor_->Send(MakeLaunch(3, 2, {20}, {21}));
  WaitUntil([&] { return backend_->num_held() == 3; });
  executor_->Send(MakeLaunch(4, 2, {20}, {22}));
  executor_->Send(api::DeleteBuffers{{21}});
  EXPECT_FALSE(executor_->WaitUntilIdle(SteadyNow() + absl::Milliseconds(20)));
  EXPECT_EQ(backend_->num_held(), 3u) << "there was no room for a fourth";
  for (int i = 0; i < 3; ++i) backend_->EndOldest(absl::OkStatus());
  // Launch 4 fails, because no launch is under way any more that could give memory back.
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed failed, reports_.Next<api::LaunchFailed>());
  EXPECT_EQ(failed.launch, 4u);
  EXPECT_THAT(failed.status, ReasonIs("OUT_OF_MEMORY", "array 21"));
  EXPECT_TRUE(executor_->WaitUntilIdle(SteadyNow() + kPatience));
}

TEST_F(ExecutorTest, APsumOverTwoDevicesByDirectCall) {
  Start(2);
  Load(1, PsumProgram(2));
  Write(10, 0, Vec({1, 2, 3, 4}));
  Write(10, 1, Vec({10, 20, 30, 40}));
  executor_->Send(MakeLaunch(1, 1, {10}, {11}));
  // The next launch uses the handle before the first launch has run.
  executor_->Send(MakeLaunch(2, 1, {11}, {12}));
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchDone first, reports_.Next<api::LaunchDone>());
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchDone second, reports_.Next<api::LaunchDone>());
  EXPECT_EQ(first.launch, 1u);
  EXPECT_EQ(second.launch, 2u);
  for (int d : {0, 1}) {
    EXPECT_THAT(Read(11, d), IsOkAndHolds(Vec({22, 44, 66, 88})));
    EXPECT_THAT(Read(12, d), IsOkAndHolds(Vec({88, 176, 264, 352})));
  }
}

TEST_F(ExecutorTest, LaunchDoneContainsTheInlineResults) {
  Start(2);
  Load(1, PsumProgram(2));
  for (int d = 0; d < 2; ++d) {
    Array x(DType::kF32, {4});
    for (int i = 0; i < 4; ++i) x.Set(i, i + d);
    Write(10, d, x);
  }
  api::Launch launch = MakeLaunch(5, 1, {10}, {11});
  // Inline results that do not exist are left out.
  launch.inline_results = {{0, 1}, {0, 9}, {3, 0}};
  executor_->Send(launch);
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchDone done, reports_.Next<api::LaunchDone>());
  ASSERT_EQ(done.inline_results.size(), 1u);
  EXPECT_EQ(done.inline_results[0].array, 11u);
  EXPECT_EQ(done.inline_results[0].device, 1);
  EXPECT_EQ(done.inline_results[0].value.ToDoubles(), (std::vector<double>{2, 6, 10, 14}));
}

// Computes 2x, which is so little work that Send does it itself.
ir::Program TwiceProgram() {
  ir::Builder b(ManualScope(1));
  const ir::Value x = b.Param(ir::MakeType(DType::kF32, {4}));
  return {.entry = b.Build({{ir::Add(x, x)}}), .in_shardings = {}, .out_shardings = {}};
}

TEST_F(ExecutorTest, SendReturnsTheReportOfACommandThatIsDoneAtOnce) {
  Start(1);
  Load(1, TwiceProgram());
  Write(10, 0, Vec({0, 1, 2, 3}));
  // The report of the write may still be on its way, and no other report may overtake it.
  ASSERT_TRUE(executor_->WaitUntilIdle(SteadyNow() + kPatience));
  api::ReportBody report;
  ASSERT_TRUE(executor_->Send(MakeLaunch(5, 1, {10}, {11}), &report));
  const auto* const done = std::get_if<api::LaunchDone>(&report);
  ASSERT_NE(done, nullptr);
  EXPECT_EQ(done->launch, 5u);
  ASSERT_TRUE(executor_->Send(api::ReadBuffer{7, 11, 0}, &report));
  const auto* const read = std::get_if<api::BufferRead>(&report);
  ASSERT_NE(read, nullptr);
  ASSERT_THAT(read->value, IsOk());
  EXPECT_EQ(read->value->ToDoubles(), (std::vector<double>{0, 2, 4, 6}));
  // A command that is not done yet, or has failed, is reported through the report function.
  EXPECT_FALSE(executor_->Send(api::ReadBuffer{8, 12, 0}, &report));
  EXPECT_THAT(reports_.Next<api::BufferRead>()->value.status(), ReasonIs("ARRAY_NOT_FOUND"));
  EXPECT_FALSE(executor_->Send(MakeLaunch(6, 1, {12}, {13}), &report));
  EXPECT_EQ(reports_.Next<api::LaunchFailed>()->launch, 6u);
  EXPECT_FALSE(executor_->Send(api::DeleteBuffers{{11}}, &report));
}

// Reports keep their order: while one is being delivered, the next one waits behind it.
TEST_F(ExecutorTest, AReportThatSendReturnsDoesNotOvertakeAnEarlierOne) {
  absl::Notification delivering, go_on;
  ExecutorOptions options = WithoutTimeouts();
  options.worker = "w0";
  executor_ = std::make_unique<Executor>(
      options, MakeCpuBackend({.memory_bytes = 1 << 24}), [&](api::ReportBody body) {
        if (std::holds_alternative<api::BufferWritten>(body)) {
          delivering.Notify();
          EXPECT_TRUE(go_on.WaitForNotificationWithTimeout(kPatience));
        }
        reports_.Add(std::move(body));
      });
  Load(1, TwiceProgram());
  executor_->Send(api::WriteBuffer{10, 0, Vec({0, 1, 2, 3})});
  ASSERT_TRUE(delivering.WaitForNotificationWithTimeout(kPatience));
  api::ReportBody report;
  EXPECT_FALSE(executor_->Send(MakeLaunch(5, 1, {10}, {11}), &report));
  go_on.Notify();
  EXPECT_EQ(reports_.Next<api::LaunchDone>()->launch, 5u);
  ASSERT_TRUE(executor_->WaitUntilIdle(SteadyNow() + kPatience));
  EXPECT_TRUE(executor_->Send(MakeLaunch(6, 1, {10}, {12}), &report));
  executor_.reset();  // the executor calls a function whose captures are local to the test
}

// Each row is a program with one kind of collective; the shards it gives must equal those of the
// reference evaluator.
TEST_F(ExecutorTest, EveryCollectiveEqualsTheLogicalEvaluation) {
  constexpr int kDevices = 4;
  Start(kDevices);
  using Body = std::function<ir::Value(ir::Value)>;
  const std::vector<std::pair<const char*, Body>> bodies = {
      {"psum", [](ir::Value x) { return ir::Psum(x, {"i"}); }},
      {"psum along one of two axes", [](ir::Value x) { return ir::Psum(x, {"j"}); }},
      {"psum over both",
       [](ir::Value x) {
         return ir::Psum(x, {"j", "i"});
       }},
      {"pmax", [](ir::Value x) { return ir::Pmax(x, {"i"}); }},
      {"pmin", [](ir::Value x) { return ir::Pmin(x, {"j"}); }},
      {"all_gather 0", [](ir::Value x) { return ir::AllGather(x, {"i"}, 0, true); }},
      {"all_gather 1",
       [](ir::Value x) {
         return ir::AllGather(x, {"i", "j"}, 1, true);
       }},
      {"all_gather untiled", [](ir::Value x) { return ir::AllGather(x, {"j"}, 1, false); }},
      {"all_gather stacked", [](ir::Value x) { return ir::AllGather(x, {"j"}, 2, false); }},
      {"scatter 0",
       [](ir::Value x) {
         return ir::PsumScatter(x, {"i", "j"}, 0, true);
       }},
      {"scatter 1", [](ir::Value x) { return ir::PsumScatter(x, {"j"}, 1, true); }},
      {"scatter untiled", [](ir::Value x) { return ir::PsumScatter(x, {"j"}, 1, false); }},
      {"ppermute",
       [](ir::Value x) {
         return ir::Ppermute(x, {"i", "j"}, {{0, 3}, {3, 1}});
       }},
      {"all_to_all 0 1", [](ir::Value x) { return ir::AllToAll(x, {"i"}, 0, 1, true); }},
      {"all_to_all 1 0",
       [](ir::Value x) {
         return ir::AllToAll(x, {"i", "j"}, 0, 0, true);
       }},
      {"all_to_all untiled 0 1",
       [](ir::Value x) {
         return ir::AllToAll(x, {"i", "j"}, 0, 1, false);
       }},
      {"all_to_all untiled 1 0", [](ir::Value x) { return ir::AllToAll(x, {"j"}, 1, 0, false); }},
      {"axis_index",
       [](ir::Value x) {
         return ir::AxisIndex(x.builder(), {"j", "i"});
       }},
  };
  uint64_t id = 100;
  for (const auto& named : bodies) {
    SCOPED_TRACE(named.first);
    const Body& body = named.second;
    const ir::Mesh mesh{.axes = {{"i", 2, ir::AxisType::kManual}, {"j", 2, ir::AxisType::kManual}}};
    ir::Builder b({.mesh = mesh, .check_vma = false});
    const ir::Type block = ir::MakeType(DType::kF32, {4, 2});
    ir::FunctionRef f;
    ASSERT_THAT(CatchStatus([&] {
                  ir::Value x = b.Param(block);
                  f = b.Build({{body(x)}});
                }),
                IsOk());
    // The evaluator runs all lanes at once.
    ir::Shards in;
    for (int d = 0; d < kDevices; ++d) {
      Array x(DType::kF32, block.shape);
      for (int64_t i = 0; i < 8; ++i) x.Set(i, 100 * d + static_cast<double>(i));
      in.push_back(x);
    }
    TESSERA_ASSERT_OK_AND_ASSIGN(std::vector<ir::Shards> want,
                                 ir::Evaluator().RunOnDevices({0, 1, 2, 3}, *f, {in}));
    const uint64_t x = ++id, y = ++id, executable = ++id;
    Load(executable, {.entry = f, .in_shardings = {}, .out_shardings = {}});
    for (int d = 0; d < kDevices; ++d) Write(x, d, in[d]);
    executor_->Send(MakeLaunch(id, executable, {x}, {y}));
    ASSERT_THAT(reports_.Next<api::LaunchDone>(), IsOk());
    for (int d = 0; d < kDevices; ++d) EXPECT_THAT(Read(y, d), IsOkAndHolds(want[0][d]));
  }
}

TEST_F(ExecutorTest, AFailedLaunchPoisonsItsResultsAndTheirUsersGetTheFirstFailure) {
  Start(2);
  Load(1, PsumProgram(2));
  // Device 1 gets no shard, so its lane fails and ends the wait of the other one.
  Write(10, 0, Vec({1, 2, 3, 4}));
  executor_->Send(MakeLaunch(1, 1, {10}, {11}));
  executor_->Send(MakeLaunch(2, 1, {11}, {12}));
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed first, reports_.Next<api::LaunchFailed>());
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed second, reports_.Next<api::LaunchFailed>());
  EXPECT_EQ(first.launch, 1u);
  EXPECT_THAT(first.status, ReasonIs("ARRAY_NOT_FOUND", "array 10 on device 1"));
  EXPECT_THAT(second.status, ReasonIs("ARRAY_NOT_FOUND", "array 10 on device 1"));
  for (uint64_t array : {11, 12}) {
    for (int d : {0, 1}) EXPECT_THAT(Read(array, d), ReasonIs("ARRAY_NOT_FOUND", "array 10"));
  }
  // The executable still works.
  Write(20, 0, Vec({1, 1, 1, 1}));
  Write(20, 1, Vec({2, 2, 2, 2}));
  executor_->Send(MakeLaunch(3, 1, {20}, {21}));
  EXPECT_THAT(Read(21, 1), IsOkAndHolds(Vec({6, 6, 6, 6})));
}

// A peer that never answers. A reader waits until it is cancelled.
class SilentPeers : public PeerReader {
 public:
  absl::StatusOr<Array> Read(const api::Transfer::Piece&, DType, absl::Time,
                             CancelToken& cancel) override {
    absl::Notification cancelled;
    const int64_t id = cancel.AddListener([&] { cancelled.Notify(); });
    EXPECT_TRUE(cancelled.WaitForNotificationWithTimeout(kPatience));
    cancel.RemoveListener(id);
    return cancel.status();
  }
};

// Device 0 waits in a collective for device 1, which is held up by a transfer.
TEST_F(ExecutorTest, ACollectiveTimeoutNamesOpLineAndProgram) {
  SilentPeers peers;
  ExecutorOptions options;
  options.collective_timeout = absl::Milliseconds(200);
  options.peer_reader = &peers;
  Start(2, options);
  Load(1, PsumProgram(2));
  Write(10, 0, Vec({1, 2, 3, 4}));
  Write(10, 1, Vec({1, 2, 3, 4}));
  // The transfer, which comes first, holds up device 1.
  api::Transfer transfer;
  transfer.launch = 1;
  transfer.result = 20;
  transfer.local_shape = {1};
  api::Transfer::Piece piece;
  piece.source_starts = piece.dest_starts = {0};
  piece.shape = {1};
  transfer.shards = {{.device = 1, .pieces = {piece}}};
  executor_->Send(transfer);
  executor_->Send(MakeLaunch(2, 1, {10}, {11}));
  // The waiting lane sees the error first. The launch ends when the other lane has had its turn.
  absl::Notification seen;
  absl::Status shard_status;
  executor_->AwaitShard({11, 0}, [&](const absl::Status& status) {
    shard_status = status;
    seen.Notify();
  });
  ASSERT_TRUE(seen.WaitForNotificationWithTimeout(kPatience));
  EXPECT_THAT(shard_status, ReasonIs("COLLECTIVE_TIMEOUT"));
  executor_->Send(api::CancelLaunch{1, MakeError(ErrorKind::kCancelled, "let it go")});
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed cancelled, reports_.Next<api::LaunchFailed>());
  EXPECT_EQ(cancelled.launch, 1u);
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed failed, reports_.Next<api::LaunchFailed>());
  EXPECT_EQ(failed.launch, 2u);
  EXPECT_THAT(failed.status, ReasonIs("COLLECTIVE_TIMEOUT", AllOf(HasSubstr("psum (model.cc:41)"),
                                                                  HasSubstr("program1"))));
}

TEST_F(ExecutorTest, CancelEndsARunningLaunchWithItsReason) {
  Start(1);
  Load(1, EndlessProgram(1));
  Write(10, 0, Array(DType::kF32, {1 << 12}));
  executor_->Send(MakeLaunch(1, 1, {10}, {11}));
  executor_->Send(MakeLaunch(2, 1, {10}, {12}));
  WaitUntil([&] { return !executor_->in_flight(0).op.empty(); });
  executor_->Send(api::CancelLaunch{1, MakeError(ErrorKind::kCancelled, "the user said so")});
  executor_->Send(api::CancelLaunch{2, MakeError(ErrorKind::kCancelled, "that one too")});
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed first, reports_.Next<api::LaunchFailed>());
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed second, reports_.Next<api::LaunchFailed>());
  EXPECT_THAT(first.status, ReasonIs("CANCELLED", "the user said so"));
  EXPECT_THAT(second.status, ReasonIs("CANCELLED", "that one too"));
  EXPECT_THAT(Read(11, 0), ReasonIs("CANCELLED", "the user said so"));
  EXPECT_EQ(executor_->in_flight(0).launch, 0u);
}

TEST_F(ExecutorTest, AnInventoryOmitsArraysThatWaitForDeletion) {
  Start(1);
  Load(1, EndlessProgram(1));
  Write(10, 0, Array(DType::kF32, {1 << 12}));
  Write(20, 0, Array(DType::kF32, {1 << 12}));
  EXPECT_THAT(executor_->Arrays().at(0).ready, ::testing::ElementsAre(10, 20));
  executor_->Send(MakeLaunch(1, 1, {10}, {11}));
  WaitUntil([&] { return !executor_->in_flight(0).op.empty(); });
  executor_->Send(api::DeleteBuffers{{20}});
  EXPECT_THAT(executor_->Arrays().at(0).ready, ::testing::ElementsAre(10));
  // Bytes that were written now would be deleted, too.
  executor_->Send(api::WriteBuffer{20, 0, Array(DType::kF32, {1 << 12})});
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto written, reports_.Next<api::BufferWritten>());
  EXPECT_THAT(written.status, ReasonIs("ARRAY_DELETED", "array 20 on device 0 is being deleted"));
  executor_->Send(api::CancelLaunch{1, MakeError(ErrorKind::kCancelled, "enough")});
  TESSERA_EXPECT_OK(reports_.Next<api::LaunchFailed>());
}

// Arrays of a load that has not begun are listed as expected, and a deleted one is not.
TEST_F(ExecutorTest, AnInventoryListsTheArraysOfPendingLoads) {
  ExecutorOptions options;
  options.files_dir = ::testing::TempDir();
  Start(1, options);
  Load(1, EndlessProgram(1));
  Write(10, 0, Array(DType::kF32, {1 << 12}));
  executor_->Send(MakeLaunch(1, 1, {10}, {11}));
  // The save waits for the launch, and the load waits behind the save.
  api::SaveShards save;
  save.launch = 2;
  save.path = "what_is_to_be_loaded.npy";
  save.token = "1";
  save.arrays = {{"", DType::kF32, {1 << 12}}};
  save.shards = {{0, 11, 0, {0}, {1 << 12}}};
  executor_->Send(save);
  api::LoadShards load;
  load.launch = 3;
  load.path = "not_there.safetensors";
  load.arrays = {{"a", DType::kF32, {4}}, {"b", DType::kF32, {4}}};
  load.shards = {{0, 20, 0, {0}, {4}}, {1, 21, 0, {0}, {4}}};
  executor_->Send(load);
  EXPECT_THAT(executor_->Arrays().at(0).expected, ::testing::ElementsAre(11, 20, 21));
  executor_->Send(api::DeleteBuffers{{20}});
  EXPECT_THAT(executor_->Arrays().at(0).expected, ::testing::ElementsAre(11, 21));
  executor_->Send(api::CancelLaunch{1, MakeError(ErrorKind::kCancelled, "enough")});
  std::set<uint64_t> ended;
  for (int i = 0; i < 3; ++i) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto failed, reports_.Next<api::LaunchFailed>());
    ended.insert(failed.launch);
  }
  EXPECT_THAT(ended, ::testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(Read(21, 0), ReasonIs("FILE_NOT_FOUND", "not_there"));
}

TEST_F(ExecutorTest, ALaunchThatOverrunsItsTimeoutNamesTheOpInFlight) {
  Start(1);
  Load(1, EndlessProgram(1));
  Write(10, 0, Array(DType::kF32, {1 << 12}));
  api::Launch launch = MakeLaunch(1, 1, {10}, {11});
  launch.timeout = absl::Milliseconds(500);  // enough time to begin with an op
  executor_->Send(std::move(launch));
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed failed, reports_.Next<api::LaunchFailed>());
  EXPECT_THAT(failed.status,
              ReasonIs("DEADLINE_EXCEEDED",
                       AllOf(HasSubstr("launch 1 of program1 did not end within 500ms"),
                             HasSubstr("sin (model.cc:70) on device 0"))));
}

TEST_F(ExecutorTest, AnOutOfMemoryErrorNamesTheHolders) {
  Start(1, WithoutTimeouts(), /*memory_bytes=*/64 << 10);
  // Argument and result have 16 KiB each, and there is no other array between them.
  Load(1, LongProgram(1, 2));
  Write(10, 0, Array(DType::kF32, {1 << 12}));
  Write(20, 0, Array(DType::kF32, {1 << 12}));
  Write(21, 0, Array(DType::kF32, {1 << 12}));
  executor_->Send(MakeLaunch(1, 1, {10}, {11}));
  ASSERT_THAT(reports_.Next<api::LaunchDone>(), IsOk());
  EXPECT_EQ(executor_->account(0).reserved_bytes(), 64 << 10);
  executor_->Send(MakeLaunch(2, 1, {10}, {12}));
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed failed, reports_.Next<api::LaunchFailed>());
  EXPECT_THAT(failed.status,
              ReasonIs("OUT_OF_MEMORY",
                       AllOf(HasSubstr("cpu:0 of w0/0: launch 2 of program1 needs 16.0 KiB, but "
                                       "only 0 B of 64.0 KiB is free"),
                             HasSubstr("array 11 (program1) 16.0 KiB"))));
  executor_->Send(api::DeleteBuffers{{20}});
  executor_->Send(MakeLaunch(3, 1, {10}, {13}));
  EXPECT_THAT(reports_.Next<api::LaunchDone>(), IsOk());
  EXPECT_THAT(Read(20, 0), ReasonIs("ARRAY_DELETED"));
}

TEST_F(ExecutorTest, ADonatedArgumentIsFreed) {
  Start(1);
  Load(1, LongProgram(1, 2));
  Write(10, 0, Array(DType::kF32, {1 << 12}));
  api::Launch launch = MakeLaunch(1, 1, {10}, {11});
  launch.donate = {true};
  executor_->Send(std::move(launch));
  executor_->Send(MakeLaunch(2, 1, {10}, {12}));
  EXPECT_THAT(reports_.Next<api::LaunchDone>(), IsOk());
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed late, reports_.Next<api::LaunchFailed>());
  EXPECT_THAT(late.status, ReasonIs("ARRAY_DELETED", "array 10"));
  EXPECT_EQ(executor_->account(0).reserved_bytes(), 16 << 10);
}

// ---- Donated arguments. -------------------------------------------------------------------------

constexpr int64_t kWeights = 1 << 16;
constexpr int64_t kWeightBytes = kWeights * sizeof(float);

// Computes (w, g) -> w - g / 2, which is large enough to be compiled.
ir::Program SgdProgram() {
  ir::Builder b(ManualScope(1));
  const ir::Value w = b.Param(ir::MakeType(DType::kF32, {kWeights}));
  const ir::Value g = b.Param(ir::MakeType(DType::kF32, {kWeights}));
  return {.entry = b.Build({{ir::Sub(w, ir::Mul(g, ir::FullLike(g, 0.5)))}}),
          .in_shardings = {},
          .out_shardings = {}};
}
// Computes x -> (x, 2x), whose first result lies in the memory of the argument.
ir::Program AliasProgram() {
  ir::Builder b(ManualScope(1));
  const ir::Value x = b.Param(ir::MakeType(DType::kF32, {kWeights}));
  return {
      .entry = b.Build({{x, ir::Mul(ir::Tanh(x), x)}}), .in_shardings = {}, .out_shardings = {}};
}
Array Filled(double value) {
  Array a(DType::kF32, {kWeights});
  for (float& x : a.MutableAs<float>()) x = static_cast<float>(value);
  return a;
}

class DonationTest : public ExecutorTest {
 protected:
  void SetUp() override {
    Start(1);
    Load(1, SgdProgram());
    Load(2, AliasProgram());
    Write(20, 0, Filled(4));  // a gradient
  }
  void RunStep(uint64_t launch, uint64_t w, uint64_t result, bool donate) {
    api::Launch step = MakeLaunch(launch, 1, {w, 20}, {result});
    step.donate = {donate, false};
    executor_->Send(std::move(step));
    EXPECT_THAT(reports_.Next<api::LaunchDone>(), IsOk());
  }
  // Returns the memory that a step takes in addition to what was reserved before.
  int64_t ExtraBytesOfStep(bool donate) {
    Write(10, 0, Filled(3));
    const int64_t before = executor_->account(0).reserved_bytes();
    RunStep(1, 10, 11, donate);
    EXPECT_THAT(Read(11, 0), IsOkAndHolds(Filled(1)));
    return executor_->account(0).peak_bytes() - before;
  }
};

TEST_F(DonationTest, AStepInPlaceTakesLessMemoryByTheSizeOfTheWeights) {
  const int64_t in_place_bytes = ExtraBytesOfStep(/*donate=*/true);
  EXPECT_EQ(executor_->account(0).reserved_bytes(), 2 * kWeightBytes) << "w and g";
  executor_.reset();
  SetUp();
  const int64_t copied_bytes = ExtraBytesOfStep(/*donate=*/false);
  EXPECT_EQ(executor_->account(0).reserved_bytes(), 3 * kWeightBytes) << "old w, new w and g";
  EXPECT_EQ(copied_bytes - in_place_bytes, kWeightBytes);
}

TEST_F(DonationTest, AStepInPlaceFitsWhereAStepThatCopiesDoesNot) {
  Start(1, WithoutTimeouts(), 2 * kWeightBytes + (kWeightBytes / 2));
  Load(1, SgdProgram());
  Write(20, 0, Filled(4));
  Write(10, 0, Filled(11));
  executor_->Send(MakeLaunch(1, 1, {10, 20}, {9}));
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed failed, reports_.Next<api::LaunchFailed>());
  EXPECT_THAT(failed.status, ReasonIs("OUT_OF_MEMORY"));
  for (uint64_t i = 0; i < 5; ++i) RunStep(2 + i, 10 + i, 11 + i, /*donate=*/true);
  EXPECT_THAT(Read(15, 0), IsOkAndHolds(Filled(1)));
  EXPECT_EQ(executor_->account(0).reserved_bytes(), 2 * kWeightBytes);
}

TEST_F(DonationTest, AValueReadBeforeADonationIsNotOverwritten) {
  Write(10, 0, Filled(3));
  TESSERA_ASSERT_OK_AND_ASSIGN(const Array before, Read(10, 0));
  RunStep(1, 10, 11, /*donate=*/true);
  EXPECT_EQ(before, Filled(3));
  EXPECT_THAT(Read(11, 0), IsOkAndHolds(Filled(1)));
  EXPECT_THAT(Read(10, 0), ReasonIs("ARRAY_DELETED"));
}

TEST_F(DonationTest, AnAliasOfADonatedArrayIsNotOverwritten) {
  Write(10, 0, Filled(3));
  executor_->Send(MakeLaunch(1, 2, {10}, {11, 12}));
  EXPECT_THAT(reports_.Next<api::LaunchDone>(), IsOk());
  RunStep(2, 10, 13, /*donate=*/true);
  EXPECT_THAT(Read(11, 0), IsOkAndHolds(Filled(3)));
  EXPECT_THAT(Read(13, 0), IsOkAndHolds(Filled(1)));
}

TEST_F(DonationTest, AnArrayPassedAsTwoArgumentsIsNotOverwritten) {
  api::Launch step = MakeLaunch(1, 1, {20, 20}, {11});
  step.donate = {true, false};
  executor_->Send(std::move(step));
  EXPECT_THAT(reports_.Next<api::LaunchDone>(), IsOk());
  EXPECT_THAT(Read(11, 0), IsOkAndHolds(Filled(2)));
  EXPECT_THAT(Read(20, 0), ReasonIs("ARRAY_DELETED"));
  EXPECT_EQ(executor_->account(0).reserved_bytes(), kWeightBytes);
}

TEST_F(DonationTest, AnInlineResultIsNotOverwrittenByALaterLaunch) {
  Write(10, 0, Filled(7));
  api::Launch first = MakeLaunch(1, 1, {10, 20}, {11});
  first.inline_results = {{0, 0}};
  api::Launch second = MakeLaunch(2, 1, {11, 20}, {12});
  second.donate = {true, false};
  executor_->Send(std::move(first));
  executor_->Send(std::move(second));
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchDone done, reports_.Next<api::LaunchDone>());
  ASSERT_EQ(done.inline_results.size(), 1u);
  EXPECT_EQ(done.inline_results[0].value, Filled(5));
  EXPECT_THAT(reports_.Next<api::LaunchDone>(), IsOk());
  EXPECT_THAT(Read(12, 0), IsOkAndHolds(Filled(3)));
}

TEST_F(DonationTest, ADonatedArrayIsDeletedWhenItsLaunchFails) {
  Load(3, EndlessProgram(1));
  Write(10, 0, Array(DType::kF32, {1 << 12}));
  api::Launch launch = MakeLaunch(1, 3, {10}, {11});
  launch.donate = {true};
  executor_->Send(std::move(launch));
  WaitUntil([&] { return !executor_->in_flight(0).op.empty(); });
  executor_->Send(api::CancelLaunch{1, MakeError(ErrorKind::kCancelled, "the user said so")});
  EXPECT_THAT(reports_.Next<api::LaunchFailed>(), IsOk());
  EXPECT_THAT(Read(10, 0), ReasonIs("ARRAY_DELETED"));
  EXPECT_THAT(Read(11, 0), ReasonIs("CANCELLED", "the user said so"));
  EXPECT_EQ(executor_->account(0).reserved_bytes(), kWeightBytes) << "only g is left";
}

TEST_F(ExecutorTest, ADonatedArrayStaysWhenThereIsNoMemoryForTheLaunch) {
  Start(1, WithoutTimeouts(), /*memory_bytes=*/3 * kWeightBytes);
  Load(1, AliasProgram());
  Write(10, 0, Filled(3));
  for (uint64_t array : {20, 30}) Write(array, 0, Filled(4));
  api::Launch launch = MakeLaunch(1, 1, {10}, {11, 12});
  launch.donate = {true};
  executor_->Send(launch);
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed failed, reports_.Next<api::LaunchFailed>());
  EXPECT_THAT(failed.status, ReasonIs("OUT_OF_MEMORY"));
  EXPECT_TRUE(failed.inputs_kept);
  EXPECT_THAT(Read(10, 0), IsOkAndHolds(Filled(3)));
  EXPECT_EQ(executor_->account(0).reserved_bytes(), 3 * kWeightBytes);
  executor_->Send(api::DeleteBuffers{{20, 30}});
  launch.launch = 2;
  launch.results = {13, 14};
  executor_->Send(launch);
  EXPECT_THAT(reports_.Next<api::LaunchDone>(), IsOk());
  EXPECT_THAT(Read(10, 0), ReasonIs("ARRAY_DELETED"));
  EXPECT_THAT(Read(13, 0), IsOkAndHolds(Filled(3)));
}

// One launch runs, one waits and one is refused, all with donated arguments; only the first
// argument is lost.
TEST_F(ExecutorTest, ADonatedArrayStaysWhenTheLaunchIsRefusedOrCancelledBeforeItBegins) {
  ExecutorOptions options;
  options.queue_bound = 2;
  Start(1, options);
  Load(1, EndlessProgram(1));
  for (uint64_t array : {10, 20, 30}) Write(array, 0, Array(DType::kF32, {1 << 12}));
  for (uint64_t id = 1; id <= 3; ++id) {
    api::Launch launch = MakeLaunch(id, 1, {10 * id}, {10 * id + 1});
    launch.donate = {true};
    executor_->Send(std::move(launch));
  }
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed refused, reports_.Next<api::LaunchFailed>());
  EXPECT_EQ(refused.launch, 3u);
  EXPECT_THAT(refused.status, ReasonIs("QUEUE_FULL"));
  EXPECT_TRUE(refused.inputs_kept);
  WaitUntil([&] { return !executor_->in_flight(0).op.empty(); });
  for (uint64_t id : {2, 1})
    executor_->Send(api::CancelLaunch{id, MakeError(ErrorKind::kCancelled, "the user said so")});
  for (uint64_t id : {1, 2}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed failed, reports_.Next<api::LaunchFailed>());
    EXPECT_EQ(failed.launch, id);
    EXPECT_EQ(failed.inputs_kept, id == 2);
  }
  EXPECT_THAT(Read(10, 0), ReasonIs("ARRAY_DELETED"));
  EXPECT_THAT(Read(20, 0), IsOk());
  EXPECT_THAT(Read(30, 0), IsOk());
}

// Work is enqueued before the arrays that it donates have been made.
class AsyncDonationTest : public AsyncExecutorTest {
 protected:
  void SetUp() override {
    AsyncExecutorTest::SetUp();
    for (int i = 0; i < 2; ++i) backend_->EndOldest(absl::OkStatus());
    for (int i = 0; i < 2; ++i) ASSERT_THAT(reports_.Next<api::LaunchDone>(), IsOk());
    Load(2, SgdProgram());
    Write(20, 0, Filled(4));
    Write(30, 0, Filled(9));
    reserved_before_ = executor_->account(0).reserved_bytes();
  }
  void Enqueue(uint64_t launch, uint64_t w, uint64_t result, size_t num_held) {
    api::Launch step = MakeLaunch(launch, 2, {w, 20}, {result});
    step.donate = {true, false};
    executor_->Send(std::move(step));
    WaitUntil([&] { return backend_->num_held() == num_held; });
  }
  int64_t reserved_before_ = 0;
};

TEST_F(AsyncDonationTest, AChainOfStepsInPlaceReservesNoMoreMemory) {
  Enqueue(3, 30, 31, 1);
  Enqueue(4, 31, 32, 2);
  Enqueue(5, 32, 33, 3);
  EXPECT_EQ(executor_->account(0).peak_bytes(), reserved_before_)
      << "nothing was reserved beside w";
  for (int i = 0; i < 3; ++i) backend_->EndOldest(absl::OkStatus());
  for (int i = 0; i < 3; ++i) EXPECT_THAT(reports_.Next<api::LaunchDone>(), IsOk());
  EXPECT_THAT(Read(33, 0), IsOkAndHolds(Filled(3)));
  EXPECT_THAT(Read(32, 0), ReasonIs("ARRAY_DELETED"));
  EXPECT_EQ(executor_->account(0).reserved_bytes(), reserved_before_);
}

TEST_F(AsyncDonationTest, AReaderThatWaitsBeforeADonationGetsTheValue) {
  Enqueue(3, 30, 31, 1);
  executor_->Send(api::ReadBuffer{7, 31, 0});
  Enqueue(4, 31, 32, 2);
  for (int i = 0; i < 2; ++i) backend_->EndOldest(absl::OkStatus());
  TESSERA_ASSERT_OK_AND_ASSIGN(api::BufferRead read, reports_.Next<api::BufferRead>());
  EXPECT_THAT(read.value, IsOkAndHolds(Filled(7)));
  EXPECT_THAT(Read(32, 0), IsOkAndHolds(Filled(5)));
}

TEST_F(AsyncDonationTest, AFailedChainOfStepsReleasesItsMemory) {
  Enqueue(3, 30, 31, 1);
  Enqueue(4, 31, 32, 2);
  backend_->EndOldest(MakeError(ErrorKind::kInternal, "the first broke"));
  backend_->EndOldest(absl::OkStatus());
  for (int i = 0; i < 2; ++i) {
    TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed failed, reports_.Next<api::LaunchFailed>());
    EXPECT_THAT(failed.status, ReasonIs("INTERNAL", "the first broke"));
  }
  for (const uint64_t gone : {30, 31}) EXPECT_THAT(Read(gone, 0), ReasonIs("ARRAY_DELETED"));
  EXPECT_THAT(Read(32, 0), ReasonIs("INTERNAL", "the first broke"));
  EXPECT_TRUE(executor_->WaitUntilIdle(SteadyNow() + kPatience));
  WaitUntil(
      [&] { return executor_->account(0).reserved_bytes() == reserved_before_ - kWeightBytes; });
}

// A transfer builds a shard of device 0 from pieces of shards on both devices.
TEST_F(ExecutorTest, ATransferCutsAndJoinsShardsOfOtherDevices) {
  Start(2);
  Load(1, PsumProgram(2));
  Write(10, 0, Vec({1, 2, 3, 4}));
  Write(10, 1, Vec({10, 20, 30, 40}));
  executor_->Send(MakeLaunch(1, 1, {10}, {11}));
  api::Transfer transfer;
  transfer.launch = 2;
  transfer.result = 12;
  transfer.local_shape = {4};
  api::Transfer::Piece left{.local = true,
                            .source = 11,
                            .source_device = 1,
                            .endpoint = "",
                            .ticket = "",
                            .source_starts = {2},
                            .dest_starts = {0},
                            .shape = {2}};
  api::Transfer::Piece right = left;
  right.source = 10;
  right.source_device = 0;
  right.source_starts = {0};
  right.dest_starts = {2};
  transfer.shards = {{.device = 0, .pieces = {left, right}}};
  executor_->Send(transfer);
  // The delete takes effect after the transfer, although the transfer's source is on another
  // stream.
  executor_->Send(api::DeleteBuffers{{11}});
  EXPECT_THAT(Read(12, 0), IsOkAndHolds(Vec({66, 88, 1, 2})));
  right.source = 99;
  transfer.launch = 3;
  transfer.result = 13;
  transfer.shards = {{.device = 0, .pieces = {right}}};
  executor_->Send(transfer);
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed failed, reports_.Next<api::LaunchFailed>());
  EXPECT_THAT(failed.status, ReasonIs("ARRAY_NOT_FOUND", "array 99 on device 0"));
}

TEST_F(ExecutorTest, AFullQueueRefusesTheWholeLaunch) {
  ExecutorOptions options;
  options.queue_bound = 2;
  Start(1, options);
  Load(1, EndlessProgram(1));
  Write(10, 0, Array(DType::kF32, {1 << 12}));
  for (uint64_t id = 1; id <= 3; ++id) executor_->Send(MakeLaunch(id, 1, {10}, {10 + id}));
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed failed, reports_.Next<api::LaunchFailed>());
  EXPECT_EQ(failed.launch, 3u);
  EXPECT_THAT(failed.status, ReasonIs("QUEUE_FULL"));
  EXPECT_THAT(Read(13, 0), ReasonIs("QUEUE_FULL"));
}

// Each command has a mistake of another kind and must be answered with an error.
TEST_F(ExecutorTest, MalformedCommandsAreAnsweredWithErrors) {
  Start(1);
  executor_->Send(MakeLaunch(1, 77, {}, {11}));
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed unknown, reports_.Next<api::LaunchFailed>());
  EXPECT_THAT(unknown.status, ReasonIs("PROGRAM_NOT_FOUND", "executable 77"));
  EXPECT_THAT(Read(11, 0), ReasonIs("PROGRAM_NOT_FOUND"));

  api::LoadProgram far{.executable = 2,
                       .name = "far",
                       .program = PsumProgram(2),
                       .coordinates = {{0, 0}, {0, 5}},
                       .self = 0};
  executor_->Send(far);
  TESSERA_ASSERT_OK_AND_ASSIGN(api::ProgramLoaded loaded, reports_.Next<api::ProgramLoaded>());
  EXPECT_THAT(loaded.status, ReasonIs("MALFORMED_PROGRAM", "no device 5"));

  executor_->Send(api::WriteBuffer{5, 3, Vec({1})});
  TESSERA_ASSERT_OK_AND_ASSIGN(api::BufferWritten written, reports_.Next<api::BufferWritten>());
  EXPECT_THAT(written.status, ReasonIs("VALUE_ERROR", "no device 3"));

  Load(3, LongProgram(1, 1));
  Write(10, 0, Vec({1, 2}));
  executor_->Send(MakeLaunch(4, 3, {10}, {14}));
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed wrong, reports_.Next<api::LaunchFailed>());
  EXPECT_THAT(wrong.status, ReasonIs("VALUE_ERROR", "is f32[2]; expected f32[4096]"));
  EXPECT_THAT(Read(555, 0), ReasonIs("ARRAY_NOT_FOUND", "array 555"));
}

TEST_F(ExecutorTest, DestructionEndsRunningLaunches) {
  Start(2);
  Load(1, EndlessProgram(2));
  Write(10, 0, Array(DType::kF32, {1 << 12}));
  Write(10, 1, Array(DType::kF32, {1 << 12}));
  executor_->Send(MakeLaunch(1, 1, {10}, {11}));
  executor_->Send(MakeLaunch(2, 1, {11}, {12}));
  WaitUntil([&] { return !executor_->in_flight(1).op.empty(); });
  executor_.reset();
}

TEST_F(ExecutorTest, DrainFinishesEarlierLaunchesAndDropsLaterOnes) {
  Start(1);
  absl::Notification drained;
  executor_->OnDrained([&] { drained.Notify(); });
  Load(1, LongProgram(1, 1 << 10));
  Write(10, 0, Array(DType::kF32, {1 << 12}));
  executor_->Send(MakeLaunch(1, 1, {10}, {11}));
  executor_->Send(api::Drain{});
  executor_->Send(MakeLaunch(2, 1, {10}, {12}));
  ASSERT_TRUE(drained.WaitForNotificationWithTimeout(kPatience));
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchDone done, reports_.Next<api::LaunchDone>());
  EXPECT_EQ(done.launch, 1u);
  EXPECT_FALSE(executor_->buffers().IsKnown({12, 0}));
}

TEST_F(ExecutorTest, AnExecutorThatEndsDuringADrainHasNotDrained) {
  Start(2);
  absl::Notification drained;
  executor_->OnDrained([&] { drained.Notify(); });
  Load(1, EndlessProgram(2));
  for (int d : {0, 1}) Write(10, d, Array(DType::kF32, {1 << 12}));
  executor_->Send(MakeLaunch(1, 1, {10}, {11}));
  WaitUntil([&] { return !executor_->in_flight(1).op.empty(); });
  executor_->Send(api::Drain{});
  EXPECT_FALSE(drained.WaitForNotificationWithTimeout(absl::Milliseconds(100)));
  executor_.reset();
  EXPECT_FALSE(drained.HasBeenNotified());
}

// Two executors of one device each, connected like two processes.
class TwoExecutorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int e : {0, 1}) {
      TESSERA_ASSERT_OK_AND_ASSIGN(listeners_[e], Listen("127.0.0.1:0"));
      ExecutorOptions options = WithoutTimeouts();
      options.worker = absl::StrCat("w", e);
      options.incarnation = 100 + e;
      options.peer_listen_fd = listeners_[e].fd.get();
      executors_[e] = std::make_unique<Executor>(
          options, MakeCpuBackend({.num_devices = 1, .memory_bytes = 1 << 24}),
          [this, e](api::ReportBody body) { reports_[e].Add(std::move(body)); });
    }
  }
  void SendToBoth(const std::function<api::Command(int)>& command) {
    for (int e : {0, 1}) executors_[e]->Send(command(e));
  }
  api::Command MakeConfigure(uint64_t generation, int self) const {
    api::ConfigureCommunicator c;
    c.generation = generation;
    c.secret = "open sesame";
    c.self = self;
    for (uint64_t e : {0, 1}) {
      c.members.push_back({absl::StrCat("w", e, "/0"), 100 + e, listeners_[e].endpoint(), 1});
    }
    return c;
  }
  api::Command MakeLoad(uint64_t id, int self) const {
    return api::LoadProgram{.executable = id,
                            .name = "step",
                            .program = PsumProgram(2),
                            .coordinates = {{0, 0}, {1, 0}},
                            .self = self};
  }
  static api::Command MakeLaunch(uint64_t id, uint64_t generation, uint64_t arg, uint64_t result) {
    api::Launch launch;
    launch.launch = id;
    launch.executable = 1;
    launch.generation = generation;
    launch.args = {arg};
    launch.results = {result};
    return launch;
  }

  Listener listeners_[2];
  Reports reports_[2];
  std::unique_ptr<Executor> executors_[2];
};

TEST_F(TwoExecutorsTest, ARunTimesOutIfItsGenerationIsNotOpened) {
  api::ConfigureCommunicator configure = std::get<api::ConfigureCommunicator>(MakeConfigure(1, 0));
  Communicator never(configure, absl::Milliseconds(100));
  const CallKey key{.launch = 7, .op_sequence = 1, .op = "psum (model.cc:1)", .program = "step"};
  const std::vector<int> all = {0, 1};
  EXPECT_THAT(
      never.Run({.kind = ir::CollectiveKind::kBarrier, .rank = 0, .group = all, .key = key}),
      ReasonIs("COLLECTIVE_TIMEOUT",
               AllOf(HasSubstr("psum (model.cc:1)"), HasSubstr("w0/0 has not opened"))));
  // A launch that is aborted meanwhile does not wait.
  never.AbortLaunch(8, MakeError(ErrorKind::kPeerFailed, "stopped"));
  CallKey other = key;
  other.launch = 8;
  EXPECT_THAT(
      never.Run({.kind = ir::CollectiveKind::kBarrier, .rank = 0, .group = all, .key = other}),
      ReasonIs("PEER_FAILED", "stopped"));
}

// The communicator opens when half of the call's time is over. The peer never comes.
TEST_F(TwoExecutorsTest, TheWaitForTheOpeningCountsAsTimeOfTheCall) {
  constexpr absl::Duration kTimeout = absl::Seconds(2);
  Communicator late(std::get<api::ConfigureCommunicator>(MakeConfigure(1, 0)), kTimeout);
  const CallKey key{.launch = 7, .op_sequence = 1, .op = "psum (model.cc:1)", .program = "step"};
  const std::vector<int> all = {0, 1};
  absl::Status status;
  absl::Notification ended;
  std::thread caller([&] {
    status = late.Run({.kind = ir::CollectiveKind::kBarrier, .rank = 0, .group = all, .key = key});
    ended.Notify();
  });
  ended.WaitForNotificationWithTimeout(kTimeout / 2);
  const absl::Time opened = SteadyNow();
  late.Open("localhost", /*port=*/nullptr);
  caller.join();
  EXPECT_LT(SteadyNow() - opened, kTimeout);
  EXPECT_THAT(status, ReasonIs("COLLECTIVE_TIMEOUT"));
}

// Two generations are used alternately; a failing launch and a closed generation must not disturb
// the other generation.
TEST_F(TwoExecutorsTest, AFailureInOneGenerationDoesNotAffectAnother) {
  // Executor 0 opens generation 1 first, and executor 1 opens it last.
  executors_[0]->Send(MakeConfigure(1, 0));
  executors_[0]->Send(MakeConfigure(2, 0));
  executors_[1]->Send(MakeConfigure(1, 1));
  executors_[1]->Send(MakeConfigure(2, 1));
  SendToBoth([&](int e) { return MakeLoad(1, e); });
  SendToBoth([&](int e) { return api::WriteBuffer{10, 0, Vec({1.0 + e, 2, 3, 4})}; });
  for (uint64_t id = 1; id <= 4; ++id) {
    SendToBoth([&](int) { return MakeLaunch(id, 1 + id % 2, 10, 10 + id); });
  }
  for (int e : {0, 1}) {
    for (int n = 0; n < 4; ++n) EXPECT_THAT(reports_[e].Next<api::LaunchDone>(), IsOk());
    executors_[e]->Send(api::ReadBuffer{1, 14, 0});
    TESSERA_ASSERT_OK_AND_ASSIGN(api::BufferRead read, reports_[e].Next<api::BufferRead>());
    EXPECT_THAT(read.value, IsOkAndHolds(Vec({6, 8, 12, 16})));
  }
  // Executor 1 has no argument 77. Executor 0 hears of the failure at once, and no other launch
  // fails.
  executors_[0]->Send(api::WriteBuffer{77, 0, Vec({1, 2, 3, 4})});
  SendToBoth([&](int) { return MakeLaunch(5, 1, 77, 15); });
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed cause, reports_[1].Next<api::LaunchFailed>());
  EXPECT_THAT(cause.status, ReasonIs("ARRAY_NOT_FOUND", "array 77"));
  TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed effect, reports_[0].Next<api::LaunchFailed>());
  EXPECT_THAT(effect.status, ReasonIs("PEER_FAILED", "array 77"));
  SendToBoth([&](int) { return MakeLaunch(8, 1, 10, 18); });
  SendToBoth([&](int) { return MakeLaunch(6, 2, 10, 16); });
  for (const uint64_t id : {8, 6}) {
    for (int e : {0, 1}) {
      TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchDone done, reports_[e].Next<api::LaunchDone>());
      EXPECT_EQ(done.launch, id);
    }
  }
  // One generation is closed, and one was never opened.
  SendToBoth([&](int) { return api::CloseCommunicator{2}; });
  SendToBoth([&](int) { return MakeLaunch(7, 2, 10, 17); });
  for (int e : {0, 1}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(api::LaunchFailed failed, reports_[e].Next<api::LaunchFailed>());
    EXPECT_THAT(failed.status, ReasonIs("PEER_FAILED", "generation 2 is not open"));
  }
}

}  // namespace
}  // namespace tessera::worker
