// Proves that a worker works as processes: registration, launches, restarts, outages of the
// coordinator, uploads and reads by ticket. The test plays the coordinator, the daemon runs in this
// process, and its executor is a child process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <deque>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/testing/datadriven.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "base/testing/stopwatch.h"
#include "grpcpp/grpcpp.h"
#include "ir/api/crc32c.h"
#include "ir/api/ticket.h"
#include "ir/ops.h"
#include "ir/serial/grpc_status.h"
#include "ir/serial/worker.h"
#include "tessera/v1/data.grpc.pb.h"
#include "tessera/v1/worker.grpc.pb.h"
#include "worker/rpc/grpc_peer_reader.h"
#include "worker/rpc/worker_daemon.h"

namespace tessera::worker::rpc {
namespace {

using ir::Array;
using ir::DType;
using ::testing::AllOf;
using testing::ChildrenOf;
using testing::CpuTicks;
using ::testing::ElementsAre;
using testing::Eventually;
using testing::HasEnded;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr char kKey[] = "the key of this epoch";
constexpr uint64_t kEpoch = 3;

// A minimal coordinator: accepts a registration and the executors that attach, stores their
// reports, and sends what the test tells it to. It may be away for a while and come back as another
// one.
class FakeCoordinator final : public v1::WorkerService::Service {
 public:
  FakeCoordinator() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeCoordinator() override {
    Hangup();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  // A worker's daemon registers here.
  grpc::Status Connect(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::Envelope, v1::Envelope>* stream) override {
    v1::Envelope report;
    if (!stream->Read(&report)) return grpc::Status::OK;
    absl::StatusOr<api::Registration> registration = ir::serial::ReadRegistration(report);
    EXPECT_THAT(registration, IsOk());
    uint64_t epoch = 0;
    {
      absl::MutexLock lock(&mu_);
      if (away_) return AwayStatus();
      epoch = epoch_;
      api::Welcome welcome{.registration_id = ++registration_id_,
                           .epoch = epoch_,
                           .heartbeat = absl::Milliseconds(50),
                           .lease = absl::Seconds(1),
                           .ticket_key = kKey,
                           .clock = SteadyNow(),
                           .outage_grace = grace_};
      for (const api::ExecutorInfo& info : registration->executors)
        if (adopt_ && info.has_state) welcome.adopted.push_back({info.index, info.incarnation});
      stream->Write(ir::serial::ToEnvelope(welcome));
      registrations_.push_back(*registration);
      stream_ = stream;
      context_ = context;
    }
    TakeReports(stream, epoch);
    absl::MutexLock lock(&mu_);
    stream_ = nullptr;
    context_ = nullptr;
    return grpc::Status::OK;
  }

  grpc::Status Attach(grpc::ServerContext* context,
                      grpc::ServerReaderWriter<v1::Envelope, v1::Envelope>* stream) override {
    v1::Envelope report;
    if (!stream->Read(&report)) return grpc::Status::OK;
    absl::StatusOr<api::Attachment> attachment = ir::serial::ReadAttachment(report);
    EXPECT_THAT(attachment, IsOk());
    const uint64_t incarnation = attachment->incarnation;
    uint64_t epoch = 0;
    {
      absl::MutexLock lock(&mu_);
      if (away_) return AwayStatus();
      epoch = epoch_;
      // An executor tries its last registration again until its daemon has another.
      if (attachment->registration_id != registration_id_ || attachment->epoch != epoch_)
        return AwayStatus();
      EXPECT_EQ(attachment->key, api::ExecutorTicketKey(kKey, attachment->executor, incarnation));
      attached_[incarnation] = {stream, context};
    }
    TakeReports(stream, epoch);
    absl::MutexLock lock(&mu_);
    attached_.erase(incarnation);
    return grpc::Status::OK;
  }

  void SetGrace(absl::Duration grace) {
    absl::MutexLock lock(&mu_);
    grace_ = grace;
  }
  // Ends all streams, and accepts no new ones until Return.
  void Leave() {
    absl::MutexLock lock(&mu_);
    away_ = true;
    if (context_ != nullptr) context_->TryCancel();
    for (const auto& [incarnation, attached] : attached_) attached.context->TryCancel();
    const auto ended = [this] { return stream_ == nullptr && attached_.empty(); };
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&ended), kPatience));
  }
  // Comes back as another coordinator, which has forgotten the registrations and reports so far.
  void Return(uint64_t epoch, bool adopt) {
    absl::MutexLock lock(&mu_);
    away_ = false;
    epoch_ = epoch;
    adopt_ = adopt;
    registrations_.clear();
    reports_.clear();
  }

  void Hangup() {
    absl::MutexLock lock(&mu_);
    if (context_ != nullptr) context_->TryCancel();
  }
  // Ends the stream of one executor.
  void HangupOn(uint64_t incarnation) {
    absl::MutexLock lock(&mu_);
    ASSERT_TRUE(AwaitAttached(incarnation));
    attached_[incarnation].context->TryCancel();
  }
  void Send(uint64_t incarnation, const api::Command& command) {
    Send(incarnation, command, epoch());
  }
  void Send(uint64_t incarnation, const api::Command& command, uint64_t epoch) {
    v1::Envelope envelope = ir::serial::ToEnvelope(0, incarnation, command);
    envelope.set_epoch(epoch);
    SendTo(incarnation, envelope);
  }
  // Sends to the executor of this incarnation, once it has attached.
  void SendTo(uint64_t incarnation, const v1::Envelope& envelope) {
    absl::MutexLock lock(&mu_);
    ASSERT_TRUE(AwaitAttached(incarnation));
    attached_[incarnation].stream->Write(envelope);
  }
  void SendToDaemon(v1::Envelope envelope) {
    absl::MutexLock lock(&mu_);
    envelope.set_epoch(epoch_);
    ASSERT_NE(stream_, nullptr);
    stream_->Write(envelope);
  }
  absl::StatusOr<api::Registration> NextRegistration() {
    absl::MutexLock lock(&mu_);
    const auto there = [this] { return !registrations_.empty(); };
    if (!mu_.AwaitWithTimeout(absl::Condition(&there), kPatience)) {
      return absl::DeadlineExceededError("no registration came");
    }
    api::Registration next = registrations_.front();
    registrations_.pop_front();
    return next;
  }
  // Takes the first report of type T that has not been taken yet. `number` gets the report's own
  // number.
  template <class T>
  absl::StatusOr<std::pair<uint64_t, T>> Next(uint64_t* number = nullptr) {
    absl::MutexLock lock(&mu_);
    const auto found = [this] {
      return std::find_if(reports_.begin(), reports_.end(),
                          [](const api::Report& r) { return std::holds_alternative<T>(r.body); });
    };
    const auto there = [&] { return found() != reports_.end(); };
    if (!mu_.AwaitWithTimeout(absl::Condition(&there), kPatience)) {
      return absl::DeadlineExceededError("no such report came");
    }
    if (number != nullptr) *number = found()->number;
    std::pair<uint64_t, T> taken(found()->incarnation, std::get<T>(std::move(found()->body)));
    reports_.erase(found());
    return taken;
  }
  bool AwaitHeartbeats(int count) {
    absl::MutexLock lock(&mu_);
    const auto there = [&] { return heartbeats_ >= count; };
    return mu_.AwaitWithTimeout(absl::Condition(&there), kPatience);
  }

  uint64_t epoch() {
    absl::MutexLock lock(&mu_);
    return epoch_;
  }

 private:
  using Stream = grpc::ServerReaderWriter<v1::Envelope, v1::Envelope>;
  static grpc::Status AwayStatus() { return {grpc::StatusCode::UNAVAILABLE, "it is away"}; }
  struct Attached {
    Stream* stream = nullptr;
    grpc::ServerContext* context = nullptr;
  };

  void TakeReports(Stream* stream, uint64_t epoch) {
    v1::Envelope report;
    while (stream->Read(&report)) {
      absl::StatusOr<api::Report> read = ir::serial::ReadReport(report);
      EXPECT_THAT(read, IsOk());
      EXPECT_EQ(report.epoch(), epoch);
      absl::MutexLock lock(&mu_);
      if (std::holds_alternative<api::Heartbeat>(read->body)) {
        ++heartbeats_;
      } else {
        reports_.push_back(*std::move(read));
      }
    }
  }
  bool AwaitAttached(uint64_t incarnation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto there = [&] { return attached_.count(incarnation) > 0; };
    return mu_.AwaitWithTimeout(absl::Condition(&there), kPatience);
  }

  int port_ = 0;
  absl::Mutex mu_;
  bool away_ = false, adopt_ = false;
  uint64_t registration_id_ = 0, epoch_ = kEpoch;
  absl::Duration grace_;
  Stream* stream_ = nullptr;
  std::map<uint64_t, Attached> attached_;  // by incarnation
  grpc::ServerContext* context_ = nullptr;
  std::deque<api::Registration> registrations_;
  std::deque<api::Report> reports_;
  int heartbeats_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// A program that applies sin `ops` times, on each device of a mesh with one axis.
ir::Program SinProgram(int devices, int ops) {
  ir::Scope scope;
  scope.mesh.axes = {{"i", devices, ir::AxisType::kManual}};
  scope.check_vma = false;
  ir::Builder b(scope);
  ir::Value x = b.Param(ir::MakeType(DType::kF32, {1 << 16}));
  b.SetSite({"/src/model.cc", 70});
  for (int i = 0; i < ops; ++i) x = ir::Sin(x);
  ir::Program program;
  program.entry = b.Build({{x}});
  return program;
}

// The argument is f32[4] on each device, and the result is its sum over both devices.
ir::Program PsumProgram(int devices) {
  ir::Scope scope;
  scope.mesh.axes = {{"i", devices, ir::AxisType::kManual}};
  scope.check_vma = false;
  ir::Builder b(scope);
  ir::Value x = b.Param(ir::MakeType(DType::kF32, {4}));
  b.SetSite({"/src/model.cc", 41});
  ir::Program program;
  program.entry = b.Build({{ir::Psum(x, {"i"})}});
  return program;
}

// Describes a block of a shard of w0/0.
api::Transfer::Piece PieceOf(const std::string& endpoint, const std::string& ticket,
                             const ir::Dims& starts, const ir::Dims& shape) {
  api::Transfer::Piece piece;
  piece.executor = "w0/0";
  piece.endpoint = endpoint;
  piece.ticket = ticket;
  piece.source_starts = starts;
  piece.shape = shape;
  return piece;
}

Array Ramp(int64_t n) {
  Array a(DType::kF32, {n});
  for (int64_t i = 0; i < n; ++i) a.Set(i, static_cast<double>(i));
  return a;
}

class ProcessTest : public ::testing::Test {
 protected:
  void Start(int devices = 2) {
    WorkerDaemonOptions options;
    options.coordinator.address = coordinator_.address();
    options.name = "w0";
    options.host = "here";
    options.num_devices = devices;
    options.memory_bytes = 64 << 20;
    options.binary = SourcePath(TESSERA_WORKER_BINARY);
    TESSERA_ASSERT_OK_AND_ASSIGN(daemon_, WorkerDaemon::Start(options));
    TESSERA_ASSERT_OK_AND_ASSIGN(const api::Registration registration,
                                 coordinator_.NextRegistration());
    ASSERT_EQ(registration.executors.size(), 1u);
    info_ = registration.executors[0];
    EXPECT_EQ(registration.worker, "w0");
    EXPECT_EQ(info_.num_devices, devices);
  }
  void Load(uint64_t id, ir::Program program) {
    api::LoadProgram load;
    load.executable = id;
    load.name = "step";
    for (int d = 0; d < program.mesh().num_devices(); ++d) load.coordinates.push_back({0, d});
    load.program = std::move(program);
    coordinator_.Send(info_.incarnation, load);
    TESSERA_ASSERT_OK_AND_ASSIGN(auto loaded, coordinator_.Next<api::ProgramLoaded>());
    ASSERT_THAT(loaded.second.status, IsOk());
  }
  void Write(uint64_t array, int device, const Array& value) {
    coordinator_.Send(info_.incarnation, api::WriteBuffer{array, device, value});
    TESSERA_ASSERT_OK_AND_ASSIGN(auto written, coordinator_.Next<api::BufferWritten>());
    ASSERT_THAT(written.second.status, IsOk());
  }
  void Launch(uint64_t id, uint64_t executable, uint64_t arg, uint64_t result) {
    api::Launch launch;
    launch.launch = id;
    launch.executable = executable;
    launch.args = {arg};
    launch.results = {result};
    coordinator_.Send(info_.incarnation, launch);
  }
  absl::StatusOr<Array> Read(uint64_t array, int device) {
    coordinator_.Send(info_.incarnation, api::ReadBuffer{array, array, device});
    TESSERA_ASSIGN_OR_RETURN(auto read, coordinator_.Next<api::BufferRead>());
    return std::move(read.second.value);
  }
  static std::string TicketBy(const std::string& key, uint64_t incarnation, uint64_t array,
                              ir::Dims shape) {
    return api::SignTicket({.access = api::Ticket::Access::kWrite,
                            .incarnation = incarnation,
                            .array = array,
                            .device = 0,
                            .dtype = DType::kF32,
                            .shape = std::move(shape),
                            .expires = SteadyNow() + absl::Minutes(1)},
                           key);
  }
  std::string Ticket(api::Ticket::Access access, uint64_t array, int device, ir::Dims shape) {
    return api::SignTicket({.access = access,
                            .incarnation = info_.incarnation,
                            .array = array,
                            .device = device,
                            .dtype = DType::kF32,
                            .shape = std::move(shape),
                            .expires = absl::Now() + absl::Minutes(1)},
                           api::ExecutorTicketKey(kKey, info_.index, info_.incarnation));
  }
  absl::Status Upload(const std::string& ticket, const Array& value, int64_t chunk,
                      uint32_t crc_error = 0) {
    const auto stub = v1::DataService::NewStub(
        grpc::CreateChannel(info_.data_endpoint, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    v1::WriteResponse response;
    const auto writer = stub->Write(&context, &response);
    for (int64_t at = 0; at < value.num_bytes(); at += chunk) {
      const int64_t size = std::min(chunk, value.num_bytes() - at);
      v1::WriteRequest request;
      if (at == 0) request.set_ticket(ticket);
      request.set_offset(at);
      request.set_data(value.data() + at, size);
      request.set_crc32c(api::Crc32c(0, value.data() + at, size) + crc_error);
      if (!writer->Write(request)) break;
    }
    writer->WritesDone();
    return ir::serial::FromGrpc(writer->Finish());
  }

  FakeCoordinator coordinator_;
  std::unique_ptr<WorkerDaemon> daemon_;
  api::ExecutorInfo info_;
};

TEST_F(ProcessTest, RunsAProgramOverTwoDevicesAndKeepsItsLease) {
  Start();
  Load(1, PsumProgram(2));
  Write(10, 0, Array::Of(DType::kF32, {4}, {1, 2, 3, 4}));
  Write(10, 1, Array::Of(DType::kF32, {4}, {10, 20, 30, 40}));
  Launch(1, 1, 10, 11);
  EXPECT_THAT(Read(11, 1), IsOkAndHolds(Array::Of(DType::kF32, {4}, {11, 22, 33, 44})));
  EXPECT_TRUE(coordinator_.AwaitHeartbeats(3));
}

TEST_F(ProcessTest, AnExecutorAnswersUnreadableCommandsAndDropsThoseOfAnotherEpoch) {
  Start();
  // Bytes that are no message are answered with an error, for the launch to which they belong.
  api::Launch launch;
  launch.launch = 8;
  v1::Envelope torn = ir::serial::ToEnvelope(0, info_.incarnation, launch);
  torn.set_epoch(kEpoch);
  torn.set_body("\xff\xff");
  coordinator_.SendTo(info_.incarnation, torn);
  TESSERA_ASSERT_OK_AND_ASSIGN(auto failed, coordinator_.Next<api::LaunchFailed>());
  EXPECT_EQ(failed.second.launch, 8u);
  EXPECT_THAT(failed.second.status, ReasonIs("VALUE_ERROR", "2 bytes are not a tessera.v1.Launch"));
  // A command of another epoch is dropped.
  coordinator_.Send(info_.incarnation, api::ReadBuffer{1, 1, 0}, kEpoch + 1);
  coordinator_.Send(info_.incarnation, api::ReadBuffer{3, 1, 0});
  TESSERA_ASSERT_OK_AND_ASSIGN(auto read, coordinator_.Next<api::BufferRead>());
  EXPECT_EQ(read.second.request, 3u);
}

TEST_F(ProcessTest, TheDaemonKillsTheExecutorThatTheCoordinatorNames) {
  Start();
  const api::KillExecutor kill{"killed: for a test"};
  coordinator_.SendToDaemon(ir::serial::ToEnvelope(0, info_.incarnation + 1, kill));
  coordinator_.SendToDaemon(ir::serial::ToEnvelope(0, info_.incarnation, kill));
  TESSERA_ASSERT_OK_AND_ASSIGN(auto lost, coordinator_.Next<api::ExecutorLost>());
  EXPECT_EQ(lost.first, info_.incarnation);
  EXPECT_EQ(lost.second.reason, "killed: for a test");
  TESSERA_EXPECT_OK(coordinator_.Next<api::ExecutorReady>());
}

TEST_F(ProcessTest, AnExecutorWithoutAStreamIsReplacedOnceItIsKilled) {
  Start();
  coordinator_.HangupOn(info_.incarnation);
  coordinator_.SendToDaemon(ir::serial::ToEnvelope(
      0, info_.incarnation, api::KillExecutor{"killed: its connection ended"}));
  TESSERA_ASSERT_OK_AND_ASSIGN(auto lost, coordinator_.Next<api::ExecutorLost>());
  EXPECT_EQ(lost.first, info_.incarnation);
  EXPECT_EQ(lost.second.reason, "killed: its connection ended");
  TESSERA_ASSERT_OK_AND_ASSIGN(auto ready, coordinator_.Next<api::ExecutorReady>());
  info_ = ready.second.info;
  Write(10, 0, Ramp(4));
  EXPECT_THAT(Read(10, 0), IsOkAndHolds(Ramp(4)));
}

TEST_F(ProcessTest, ADrainedExecutorExitsOnceItHasReported) {
  Start();
  Load(1, SinProgram(2, 1));
  for (int d : {0, 1}) Write(10, d, Ramp(1 << 16));
  Launch(5, 1, 10, 11);
  coordinator_.Send(info_.incarnation, api::Drain{});
  TESSERA_ASSERT_OK_AND_ASSIGN(auto lost, coordinator_.Next<api::ExecutorLost>());
  EXPECT_EQ(lost.second.reason, "exited with status 0");
  TESSERA_ASSERT_OK_AND_ASSIGN(auto done, coordinator_.Next<api::LaunchDone>());
  EXPECT_EQ(done.second.launch, 5u);
}

// The executor is killed in the middle of a launch.
TEST_F(ProcessTest, AKilledExecutorIsReportedWithItsOpAndReplaced) {
  Start();
  Load(1, SinProgram(2, 20'000));
  for (int d : {0, 1}) Write(10, d, Ramp(1 << 16));
  Launch(5, 1, 10, 11);
  // The launch is under way once its process has used some CPU time.
  const int pid = daemon_->executor_pid();
  const int64_t before = CpuTicks(pid);
  ASSERT_TRUE(Eventually([&] { return CpuTicks(pid) > before + 10; }));
  ASSERT_GT(pid, 0);
  const testing::Stopwatch since_kill;
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  TESSERA_ASSERT_OK_AND_ASSIGN(auto lost, coordinator_.Next<api::ExecutorLost>());
  EXPECT_LT(since_kill.Unhindered(), absl::Seconds(2));
  EXPECT_EQ(lost.first, info_.incarnation);
  EXPECT_THAT(lost.second.reason, HasSubstr("killed by signal 9"));
  EXPECT_EQ(lost.second.launch, 5u);
  EXPECT_EQ(lost.second.op, "sin (model.cc:70)");
  TESSERA_ASSERT_OK_AND_ASSIGN(auto ready, coordinator_.Next<api::ExecutorReady>());
  EXPECT_LT(since_kill.Unhindered(), absl::Seconds(3));
  EXPECT_GT(ready.second.info.incarnation, info_.incarnation);
  EXPECT_EQ(ready.second.info.data_endpoint, info_.data_endpoint) << "the port is the worker's";
  // The new process serves on the same data port.
  info_ = ready.second.info;
  EXPECT_THAT(Upload(Ticket(api::Ticket::Access::kWrite, 20, 1, {4}),
                     Array::Of(DType::kF32, {4}, {1, 2, 3, 4}), 16),
              IsOk());
  EXPECT_THAT(Read(20, 1), IsOkAndHolds(Array::Of(DType::kF32, {4}, {1, 2, 3, 4})));
}

TEST_F(ProcessTest, WithoutGraceALostCoordinatorRestartsTheExecutors) {
  Start();
  coordinator_.Hangup();
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::Registration again, coordinator_.NextRegistration());
  ASSERT_EQ(again.executors.size(), 1u);
  EXPECT_GT(again.executors[0].incarnation, info_.incarnation);
}

// The coordinator goes away twice, each time while a launch runs, and comes back as another one
// that adopts the executor.
TEST_F(ProcessTest, AnExecutorOutlivesAnOutage) {
  coordinator_.SetGrace(absl::Seconds(60));
  Start();
  const int pid = daemon_->executor_pid();
  constexpr int64_t kSize = 1 << 16;
  Load(1, SinProgram(2, 2'000));
  for (int d : {0, 1}) Write(10, d, Ramp(kSize));
  Launch(5, 1, 10, 11);
  coordinator_.Leave();
  // Tickets stay valid meanwhile, and the launch goes on: a read waits for its end.
  const std::unique_ptr<PeerReader> reader = MakeGrpcPeerReader();
  const auto read = [&](const std::string& ticket) {
    CancelToken cancel;
    return reader->Read(PieceOf(info_.data_endpoint, ticket, {0}, {1}), DType::kF32,
                        SteadyNow() + kPatience, cancel);
  };
  const std::string ticket = Ticket(api::Ticket::Access::kRead, 11, 0, {kSize});
  for (int d : {0, 1})
    ASSERT_THAT(read(Ticket(api::Ticket::Access::kRead, 11, d, {kSize})), IsOk());
  ASSERT_THAT(Upload(Ticket(api::Ticket::Access::kWrite, 12, 0, {4}), Ramp(4), 16), IsOk());

  const testing::Stopwatch since_return;
  coordinator_.Return(kEpoch + 1, /*adopt=*/true);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto registration, coordinator_.NextRegistration());
  EXPECT_LT(since_return.Unhindered(), absl::Seconds(1));
  ASSERT_EQ(registration.executors.size(), 1u);
  EXPECT_EQ(registration.executors[0].incarnation, info_.incarnation);
  EXPECT_TRUE(registration.executors[0].has_state);
  TESSERA_ASSERT_OK_AND_ASSIGN(auto inventory, coordinator_.Next<api::ExecutorInventory>());
  EXPECT_EQ(inventory.first, info_.incarnation);
  ASSERT_EQ(inventory.second.devices.size(), 2u);
  EXPECT_THAT(inventory.second.devices[0].ready, ElementsAre(10, 11, 12));
  EXPECT_THAT(inventory.second.devices[1].ready, ElementsAre(10, 11));
  EXPECT_THAT(inventory.second.devices[0].expected, IsEmpty());
  EXPECT_THAT(inventory.second.running, IsEmpty());
  EXPECT_THAT(inventory.second.ended, ElementsAre(5));
  EXPECT_THAT(inventory.second.executables, ElementsAre(1));
  // Reports that were not acknowledged follow in order: of the program, of the shards, of the
  // launch.
  uint64_t number = 0;
  TESSERA_ASSERT_OK_AND_ASSIGN(auto loaded, coordinator_.Next<api::ProgramLoaded>(&number));
  EXPECT_EQ(number, 1u);
  uint64_t launch_number = 0;
  TESSERA_ASSERT_OK_AND_ASSIGN(auto done, coordinator_.Next<api::LaunchDone>(&launch_number));
  EXPECT_EQ(done.second.launch, 5u);
  for (int shard = 0; shard < 3; ++shard)
    TESSERA_ASSERT_OK(coordinator_.Next<api::BufferWritten>(&number));
  // The values are there before the launch is reported, so the report of an upload may come before
  // it.
  EXPECT_THAT((std::vector<uint64_t>{launch_number, number}),
              ::testing::UnorderedElementsAre(4, 5));
  number = 5;
  // Tickets of the earlier life stay valid until they expire.
  EXPECT_THAT(Read(12, 0), IsOkAndHolds(Ramp(4)));
  EXPECT_THAT(read(ticket), IsOk());
  EXPECT_THAT(read(TicketBy("no key", info_.incarnation, 11, {kSize})), ReasonIs("TICKET_REFUSED"));

  // Now the coordinator leaves while a launch runs. Reports that were acknowledged do not come
  // again.
  coordinator_.Send(info_.incarnation, api::AcknowledgeReports{number});
  Load(2, SinProgram(2, 5'000));
  Launch(6, 2, 10, 13);
  coordinator_.Send(info_.incarnation, api::ReadBuffer{1, 13, 0});
  EXPECT_THAT(Read(10, 0), IsOk()) << "so that the launch is there";
  coordinator_.Leave();
  coordinator_.Return(kEpoch + 2, /*adopt=*/true);
  TESSERA_ASSERT_OK_AND_ASSIGN(inventory, coordinator_.Next<api::ExecutorInventory>());
  EXPECT_THAT(inventory.second.running, ElementsAre(6));
  EXPECT_THAT(inventory.second.ended, IsEmpty());
  EXPECT_THAT(inventory.second.devices[0].expected, ElementsAre(13));
  TESSERA_ASSERT_OK_AND_ASSIGN(loaded, coordinator_.Next<api::ProgramLoaded>(&number));
  EXPECT_EQ(loaded.second.executable, 2u);
  EXPECT_EQ(number, 6u);
  TESSERA_ASSERT_OK_AND_ASSIGN(done, coordinator_.Next<api::LaunchDone>());
  EXPECT_EQ(done.second.launch, 6u);
  // A read for the earlier coordinator is not answered to this one.
  EXPECT_THAT(Read(12, 0), IsOkAndHolds(Ramp(4)));
  EXPECT_EQ(daemon_->executor_pid(), pid);
}

TEST_F(ProcessTest, AnExecutorThatIsNotAdoptedIsRestarted) {
  coordinator_.SetGrace(absl::Seconds(60));
  Start();
  Write(10, 0, Ramp(4));
  coordinator_.Leave();
  coordinator_.Return(kEpoch + 1, /*adopt=*/false);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto registration, coordinator_.NextRegistration());
  EXPECT_EQ(registration.executors[0].incarnation, info_.incarnation);
  TESSERA_ASSERT_OK_AND_ASSIGN(auto ready, coordinator_.Next<api::ExecutorReady>());
  EXPECT_GT(ready.second.info.incarnation, info_.incarnation);
  info_ = ready.second.info;
  EXPECT_THAT(Read(10, 0), ReasonIs("ARRAY_NOT_FOUND"));
}

TEST_F(ProcessTest, AnExecutorDoesNotOutliveTheGrace) {
  coordinator_.SetGrace(absl::Milliseconds(500));
  Start();
  const int pid = daemon_->executor_pid();
  coordinator_.Leave();
  const absl::Time gone = absl::Now();
  EXPECT_TRUE(Eventually([&] { return HasEnded(pid); }));
  EXPECT_GE(absl::Now() - gone, absl::Milliseconds(450));
  coordinator_.Return(kEpoch + 1, /*adopt=*/true);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto registration, coordinator_.NextRegistration());
  EXPECT_GT(registration.executors[0].incarnation, info_.incarnation);
  EXPECT_FALSE(registration.executors[0].has_state);
}

TEST_F(ProcessTest, ACoordinatorOfAnEarlierEpochIsRefused) {
  coordinator_.SetGrace(absl::Seconds(60));
  Start();
  Write(10, 0, Ramp(4));
  coordinator_.Leave();
  coordinator_.Return(kEpoch - 1, /*adopt=*/true);
  // The worker registers with the earlier coordinator twice, and refuses its welcome each time.
  for (int look = 0; look < 2; ++look) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto registration, coordinator_.NextRegistration());
    EXPECT_EQ(registration.executors[0].incarnation, info_.incarnation);
  }
  coordinator_.Leave();
  coordinator_.Return(kEpoch, /*adopt=*/true);
  TESSERA_ASSERT_OK(coordinator_.Next<api::ExecutorInventory>());
  EXPECT_THAT(Read(10, 0), IsOkAndHolds(Ramp(4)));
}

// An upload and several reads go to the executor's data port without the coordinator.
TEST_F(ProcessTest, UploadsAndReadsByTicketBypassTheCoordinator) {
  Start();
  const Array big = Ramp(700'000);  // 2.8 MB, which is three chunks
  const int64_t n = big.num_elements();
  ASSERT_THAT(Upload(Ticket(api::Ticket::Access::kWrite, 30, 1, {n}), big, 1 << 20), IsOk());
  TESSERA_ASSERT_OK_AND_ASSIGN(auto written, coordinator_.Next<api::BufferWritten>());
  EXPECT_EQ(written.second.array, 30u);
  EXPECT_EQ(written.second.device, 1);

  const std::unique_ptr<PeerReader> reader = MakeGrpcPeerReader();
  CancelToken cancel;
  const auto read = [&](uint64_t array, ir::Dims starts, ir::Dims shape, absl::Duration timeout) {
    const std::string ticket = Ticket(api::Ticket::Access::kRead, array, 1, {n});
    return reader->Read(PieceOf(info_.data_endpoint, ticket, starts, shape), DType::kF32,
                        SteadyNow() + timeout, cancel);
  };
  EXPECT_THAT(read(30, {0}, {n}, kPatience), IsOkAndHolds(big));
  EXPECT_THAT(read(30, {5}, {3}, kPatience), IsOkAndHolds(Array::Of(DType::kF32, {3}, {5, 6, 7})));
  EXPECT_THAT(read(30, {n - 2}, {3}, kPatience), ReasonIs("VALUE_ERROR", "does not lie inside"));
  // No producer makes this array, so the caller's deadline ends the wait.
  EXPECT_THAT(read(31, {0}, {1}, absl::Milliseconds(100)), ReasonIs("DEADLINE_EXCEEDED"));
  // A read that waits is ended by the launch for which it reads.
  std::thread canceller([&] {
    absl::Notification never;
    never.WaitForNotificationWithTimeout(absl::Milliseconds(50));
    cancel.Cancel(MakeError(ErrorKind::kCancelled, "enough"));
  });
  EXPECT_THAT(read(31, {0}, {1}, kPatience), ReasonIs("CANCELLED", "enough"));
  canceller.join();
}

// Each upload has a ticket or a content that does not allow it.
TEST_F(ProcessTest, InvalidUploadsAreRefused) {
  Start();
  const Array value = Ramp(100);
  const auto ticket = [&](uint64_t array, int64_t n) {
    return Ticket(api::Ticket::Access::kWrite, array, 0, {n});
  };
  EXPECT_THAT(Upload(Ticket(api::Ticket::Access::kRead, 40, 0, {100}), value, 64),
              StatusIs(absl::StatusCode::kPermissionDenied, "not for writing"));
  EXPECT_THAT(Upload("stolen", value, 64), ReasonIs("TICKET_REFUSED"));
  // The worker's key, which the daemons of other executors would have, makes no valid ticket for
  // this executor.
  EXPECT_THAT(Upload(TicketBy(kKey, info_.incarnation, 40, {100}), value, 64),
              ReasonIs("TICKET_REFUSED"));
  const uint64_t gone = info_.incarnation - 1;
  EXPECT_THAT(
      Upload(TicketBy(api::ExecutorTicketKey(kKey, info_.index, gone), gone, 40, {100}), value, 64),
      ReasonIs("TICKET_STALE"));
  EXPECT_THAT(Upload(ticket(41, 100), value, 64, /*crc_error=*/1),
              StatusIs(absl::StatusCode::kDataLoss, "checksum"));
  EXPECT_THAT(Upload(ticket(42, 90), value, 64), ReasonIs("VALUE_ERROR", "of 360 bytes"));
  EXPECT_THAT(Upload(ticket(43, 110), value, 64),
              ReasonIs("VALUE_ERROR", "ended after 400 bytes of 440"));
  EXPECT_THAT(Upload(ticket(44, 1 << 26), value, 64),
              ReasonIs("OUT_OF_MEMORY", "cpu:0 of w0/0: array 44 needs 256.0 MiB"));
  EXPECT_THAT(Upload(ticket(45, 100), value, 64), IsOk());
}

TEST_F(ProcessTest, NoExecutorOutlivesItsDaemon) {
  // The daemon runs as its own process and is killed without a chance to clean up.
  TESSERA_ASSERT_OK_AND_ASSIGN(
      ChildProcess daemon,
      ChildProcess::Spawn(SourcePath(TESSERA_WORKER_BINARY),
                          {"--coordinator", coordinator_.address(), "--name", "w1"}, {}));
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::Registration registration,
                               coordinator_.NextRegistration());
  EXPECT_EQ(registration.worker, "w1");
  const std::vector<int> executors = ChildrenOf(daemon.pid());
  ASSERT_EQ(executors.size(), 1u);
  daemon.Kill(SIGKILL);
  EXPECT_TRUE(Eventually([&] { return daemon.Reap().has_value(); }));
  EXPECT_TRUE(Eventually([&] { return HasEnded(executors[0]); }));
}

// A server ends and another one begins at the same port; the next read must reach it without a
// wait.
TEST(GrpcPeerReaderTest, ARestartedServerIsReadWithoutAWait) {
  // The service implements no method, but its error is an answer, too.
  const auto serve = [](int* port) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", *port), grpc::InsecureServerCredentials(),
                             port);
    static v1::DataService::Service none;
    builder.RegisterService(&none);
    return builder.BuildAndStart();
  };
  int port = 0;
  std::unique_ptr<grpc::Server> server = serve(&port);
  ASSERT_NE(server, nullptr);
  const std::unique_ptr<PeerReader> reader = MakeGrpcPeerReader();
  const auto read = [&] {
    CancelToken cancel;
    const std::string endpoint = absl::StrCat("127.0.0.1:", port);
    const absl::Status status = reader
                                    ->Read(PieceOf(endpoint, "ticket", {0}, {1}), DType::kF32,
                                           SteadyNow() + kPatience, cancel)
                                    .status();
    return std::string(status.message());
  };
  EXPECT_THAT(read(), Not(HasSubstr("connect")));
  server->Shutdown();
  server.reset();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(read(),
                AllOf(HasSubstr("connect"), HasSubstr("reading from executor w0/0 at 127")));
  }
  server = serve(&port);
  ASSERT_NE(server, nullptr);
  EXPECT_THAT(read(), Not(HasSubstr("connect")));
}

}  // namespace
}  // namespace tessera::worker::rpc
