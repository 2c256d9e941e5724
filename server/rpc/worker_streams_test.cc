// Proves the rules of the worker's streams: in which order commands and reports pass, who may
// attach, and when an executor counts as lost or is killed. The test plays the daemon and the
// executors over gRPC, and also the coordinator behind the streams. The streams use a fake clock.
#include "server/rpc/worker_streams.h"

#include <gmock/gmock.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/status_matchers.h"
#include "grpcpp/grpcpp.h"
#include "ir/api/ticket.h"
#include "ir/serial/grpc_status.h"
#include "ir/serial/status.h"
#include "ir/serial/worker.h"
#include "server/rpc/inquiries.h"
#include "server/rpc/worker_service.h"

namespace tessera::server::rpc {
namespace {

using ir::serial::ToEnvelope;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr uint64_t kRegistrationId = 5, kEpoch = 9, kIncarnation = 70;
constexpr char kKey[] = "the key of this worker";

// Stands for the coordinator. It accepts every worker and keeps the reports that it gets.
class FakeCoordinator final : public api::WorkerEvents {
 public:
  absl::StatusOr<api::Welcome> Register(const api::Registration&,
                                        std::shared_ptr<api::WorkerLink> link) override {
    {
      absl::MutexLock lock(&mu_);
      link_ = link;
    }
    link->Accept({{0, kIncarnation}});
    return api::Welcome{.registration_id = kRegistrationId,
                        .epoch = kEpoch,
                        .heartbeat = absl::Seconds(1),
                        .lease = absl::Seconds(3),
                        .ticket_key = kKey,
                        .clock = absl::UnixEpoch(),
                        .outage_grace = absl::Seconds(60),
                        .protocol = kProtocolMax};
  }
  void OnReport(uint64_t registration_id, api::Report report) override {
    EXPECT_EQ(registration_id, kRegistrationId);
    absl::MutexLock lock(&mu_);
    if (std::holds_alternative<api::Heartbeat>(report.body)) {
      reports_.push_back("heartbeat");
    } else if (const auto* done = std::get_if<api::LaunchDone>(&report.body)) {
      reports_.push_back(absl::StrCat("done ", done->launch));
    } else if (const auto* lost = std::get_if<api::ExecutorLost>(&report.body)) {
      reports_.push_back(absl::StrCat("lost ", report.incarnation, ": ", lost->reason));
    } else if (const auto* farewell = std::get_if<api::ExecutorFarewell>(&report.body)) {
      reports_.push_back(absl::StrCat("farewell ", report.incarnation, ": ", farewell->reason));
    } else if (std::holds_alternative<api::ExecutorInventory>(report.body)) {
      reports_.push_back(absl::StrCat("inventory ", report.incarnation));
    } else {
      reports_.push_back(absl::StrCat("ready ", report.incarnation));
    }
  }
  void Disconnect(uint64_t, const absl::Status& why) override {
    absl::MutexLock lock(&mu_);
    if (!std::exchange(disconnected_, true))
      reports_.push_back(absl::StrCat("disconnected: ", why.message()));
  }
  void DisconnectExecutor(uint64_t registration_id, int32_t executor, uint64_t incarnation,
                          uint64_t attachment, const absl::Status& why) override {
    EXPECT_EQ(registration_id, kRegistrationId);
    EXPECT_EQ(executor, 0);
    absl::MutexLock lock(&mu_);
    reports_.push_back(
        absl::StrCat("away ", incarnation, " for the ", attachment, ". time: ", why.message()));
  }

  std::shared_ptr<api::WorkerLink> link() {
    absl::MutexLock lock(&mu_);
    return link_;
  }
  // Waits until `count` reports have come, and returns all reports so far.
  std::vector<std::string> AwaitReports(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return reports_.size() >= count; };
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&enough), kPatience));
    return reports_;
  }

 private:
  absl::Mutex mu_;
  std::shared_ptr<api::WorkerLink> link_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> reports_ ABSL_GUARDED_BY(mu_);
  bool disconnected_ ABSL_GUARDED_BY(mu_) = false;
};

// The worker's end of one stream.
class StreamClient {
 public:
  using Stream = grpc::ClientReaderWriter<v1::Envelope, v1::Envelope>;

  explicit StreamClient(v1::WorkerService::Stub& stub, bool daemon) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    stream_ = daemon ? stub.Connect(&context_) : stub.Attach(&context_);
  }
  ~StreamClient() { context_.TryCancel(); }
  void Write(v1::Envelope envelope, uint64_t epoch = kEpoch) {
    envelope.set_epoch(epoch);
    EXPECT_TRUE(stream_->Write(envelope));
  }
  template <class Report>
  void SendReport(uint64_t incarnation, Report report) {
    Write(ToEnvelope(api::Report{0, incarnation, std::move(report)}));
  }
  absl::StatusOr<v1::Envelope> Read() {
    v1::Envelope envelope;
    if (!stream_->Read(&envelope)) return absl::UnavailableError("the stream has ended");
    return envelope;
  }
  // Reads the next command and returns it as text, or "" at the end of the stream.
  std::string ReadCommand() {
    const auto envelope = Read();
    if (!envelope.ok()) return "";
    EXPECT_EQ(envelope->epoch(), kEpoch);
    const auto command = ir::serial::ReadCommand(*envelope);
    if (!command.ok()) return std::string(command.status().message());
    if (const auto* read = std::get_if<api::ReadBuffer>(&*command))
      return absl::StrCat("read ", read->request);
    if (const auto* acknowledge = std::get_if<api::AcknowledgeReports>(&*command))
      return absl::StrCat("acknowledge ", acknowledge->through);
    if (const auto* kill = std::get_if<api::KillExecutor>(&*command))
      return absl::StrCat("kill ", envelope->incarnation(), ": ", kill->reason);
    return "another";
  }
  void WritesDone() { stream_->WritesDone(); }
  absl::Status Finish() { return ir::serial::FromGrpc(stream_->Finish()); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
};

class WorkerStreamsTest : public ::testing::Test {
 protected:
  WorkerStreamsTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::WorkerService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port_), grpc::InsecureChannelCredentials()));
    daemon_ = std::make_unique<StreamClient>(*stub_, /*daemon=*/true);
    api::ExecutorInfo info;
    info.incarnation = kIncarnation;
    info.device_kind = "cpu";
    daemon_->Write(ToEnvelope(api::Registration{"w0", "here", ir::kOpset, {info}}), 0);
    const auto welcome = daemon_->Read();
    TESSERA_EXPECT_OK(welcome);
    const auto read = ir::serial::ReadWelcome(*welcome);
    TESSERA_EXPECT_OK(read);
    EXPECT_THAT(read->adopted, ElementsAre(api::AdoptedExecutor{0, kIncarnation}));
    EXPECT_EQ(read->outage_grace, absl::Seconds(60));
  }
  ~WorkerStreamsTest() override {
    daemon_.reset();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  static std::string KeyOf(uint64_t incarnation) {
    return api::ExecutorTicketKey(kKey, 0, incarnation);
  }
  std::unique_ptr<StreamClient> Attach(uint64_t incarnation, const std::string& key,
                                       uint64_t registration_id = kRegistrationId,
                                       uint64_t epoch = kEpoch) {
    auto side = std::make_unique<StreamClient>(*stub_, /*daemon=*/false);
    side->Write(ToEnvelope(api::Attachment{0, incarnation, registration_id, key, epoch}));
    return side;
  }
  std::unique_ptr<StreamClient> Attach(uint64_t incarnation) {
    return Attach(incarnation, KeyOf(incarnation));
  }
  void SendCommand(uint64_t incarnation, uint64_t number) {
    events_.link()->Send(0, incarnation, api::ReadBuffer{number, 1, 0});
  }

  FakeClock clock_;
  Gate gate_{&clock_};
  FakeCoordinator events_;
  ConnectedWorkers workers_{&events_, &gate_.clock()};
  WorkerService service_{&workers_, &gate_};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::unique_ptr<StreamClient> daemon_;
};

TEST_F(WorkerStreamsTest, CommandsWaitUntilTheirExecutorAttaches) {
  SendCommand(kIncarnation, 1);
  SendCommand(kIncarnation, 2);
  SendCommand(kIncarnation - 1, 3);  // This incarnation is gone.
  const auto executor = Attach(kIncarnation);
  EXPECT_EQ(executor->ReadCommand(), "read 1");
  EXPECT_EQ(executor->ReadCommand(), "read 2");
  SendCommand(kIncarnation, 4);
  EXPECT_EQ(executor->ReadCommand(), "read 4");
  executor->SendReport(kIncarnation, api::LaunchDone{8, absl::ZeroDuration()});
  EXPECT_THAT(events_.AwaitReports(1), ElementsAre("done 8"));
}

TEST_F(WorkerStreamsTest, OnlyTheExecutorOfTheIndexMayAttach) {
  const auto refused = [&](uint64_t incarnation, const std::string& key, uint64_t registration_id) {
    const auto side = Attach(incarnation, key, registration_id);
    EXPECT_EQ(side->ReadCommand(), "");
    return side->Finish();
  };
  EXPECT_THAT(refused(kIncarnation, "guessed", kRegistrationId), ReasonIs("TICKET_REFUSED"));
  EXPECT_THAT(refused(kIncarnation, KeyOf(kIncarnation + 1), kRegistrationId),
              ReasonIs("TICKET_REFUSED"));
  EXPECT_THAT(refused(kIncarnation, KeyOf(kIncarnation), kRegistrationId + 1),
              ReasonIs("WORKER_LOST", "not registered"));
  EXPECT_THAT(refused(kIncarnation - 1, KeyOf(kIncarnation - 1), kRegistrationId),
              ReasonIs("WORKER_LOST", "incarnation 69 of executor 0"));
  const auto executor = Attach(kIncarnation);
  SendCommand(kIncarnation, 1);
  EXPECT_EQ(executor->ReadCommand(), "read 1");
  // The next process takes the index over, and the stream of the previous one ends.
  const auto next = Attach(kIncarnation + 1);
  SendCommand(kIncarnation + 1, 2);
  EXPECT_EQ(next->ReadCommand(), "read 2");
  EXPECT_EQ(executor->ReadCommand(), "");
  EXPECT_THAT(executor->Finish(), ReasonIs("WORKER_LOST", "another process"));
}

TEST_F(WorkerStreamsTest, AnExecutorOfAnotherCoordinatorDoesNotAttach) {
  const auto side = Attach(kIncarnation, KeyOf(kIncarnation), kRegistrationId, kEpoch - 1);
  EXPECT_EQ(side->ReadCommand(), "");
  EXPECT_THAT(side->Finish(), ReasonIs("WORKER_LOST", "meant for another coordinator"));
}

TEST_F(WorkerStreamsTest, ProcessedReportsAreAcknowledgedAtTheNextHeartbeat) {
  const auto executor = Attach(kIncarnation);
  SendCommand(kIncarnation, 1);
  EXPECT_EQ(executor->ReadCommand(), "read 1");
  const auto processed = [&](uint64_t incarnation, uint64_t number) {
    events_.link()->Acknowledge(0, incarnation, number);
  };
  processed(kIncarnation, 3);
  processed(kIncarnation, 2);
  processed(kIncarnation + 1, 9);  // No such process is known.
  daemon_->SendReport(0, api::Heartbeat{});
  EXPECT_EQ(executor->ReadCommand(), "acknowledge 3");
  daemon_->SendReport(0, api::Heartbeat{});  // There is nothing left to acknowledge.
  events_.AwaitReports(2);
  SendCommand(kIncarnation, 4);
  EXPECT_EQ(executor->ReadCommand(), "read 4");
}

// An inquiry whose answer the test waits for.
struct PendingInquiry {
  absl::Mutex mu;
  absl::StatusOr<v1::Diagnostics> answer ABSL_GUARDED_BY(mu) = absl::UnknownError("none yet");
  bool answered ABSL_GUARDED_BY(mu) = false;

  std::function<void(absl::StatusOr<v1::Diagnostics>)> Callback() {
    return [this](absl::StatusOr<v1::Diagnostics> got) {
      absl::MutexLock lock(&mu);
      EXPECT_FALSE(answered);
      answer = std::move(got);
      answered = true;
    };
  }
  // Returns a line for each process: "coordinator: ok", "w0: WORKER_LOST".
  std::vector<std::string> Await() {
    absl::MutexLock lock(&mu);
    EXPECT_TRUE(mu.AwaitWithTimeout(absl::Condition(&answered), kPatience));
    if (!answer.ok()) return {std::string(ReasonOf(answer.status()))};
    std::vector<std::string> out;
    for (const v1::ProcessReport& p : answer->processes()) {
      const absl::Status status = ir::serial::FromProto(p.status());
      out.push_back(absl::StrCat(p.process(), ": ", status.ok() ? "ok" : ToAbsl(ReasonOf(status))));
    }
    return out;
  }
};

TEST_F(WorkerStreamsTest, InquiriesReturnTheAnswersOfProcesses) {
  const auto ask = [&](PendingInquiry* pending, const InquiryTarget& target, absl::Duration wait) {
    Inquire(workers_, /*sources=*/{}, target, {}, wait, pending->Callback());
  };
  // Reads one question as the daemon.
  const auto read_inquiry = [&] {
    v1::Inquiry inquiry;
    const auto envelope = daemon_->Read();
    TESSERA_EXPECT_OK(envelope);
    EXPECT_EQ(envelope->kind(), v1::MESSAGE_KIND_INQUIRY);
    EXPECT_TRUE(inquiry.ParseFromString(envelope->body()));
    return inquiry;
  };
  const auto answer_as_daemon = [&](uint64_t id) {
    v1::InquiryAnswer answer;
    answer.set_id(id);
    answer.add_processes()->set_process("w0");
    answer.add_processes()->set_process("w0/0");
    v1::Envelope envelope;
    envelope.set_kind(v1::MESSAGE_KIND_INQUIRY_ANSWER);
    envelope.set_body(answer.SerializeAsString());
    daemon_->Write(std::move(envelope));
  };
  PendingInquiry coordinator, nobody, all, late, lost;
  ask(&coordinator, {}, kPatience);
  EXPECT_THAT(coordinator.Await(), ElementsAre("coordinator: ok"));
  ask(&nobody, {"w9"}, kPatience);
  EXPECT_THAT(nobody.Await(), ElementsAre("WORKER_NOT_FOUND"));
  ask(&all, {"", /*all=*/true}, kPatience);
  const v1::Inquiry inquiry = read_inquiry();
  EXPECT_LT(ir::serial::FromProto(inquiry.timeout()), kInquiryWaitMax);
  answer_as_daemon(inquiry.id() + 7);  // No question has this id.
  answer_as_daemon(inquiry.id());
  EXPECT_THAT(all.Await(), ElementsAre("coordinator: ok", "w0: ok", "w0/0: ok"));
  ask(&late, {"w0"}, absl::ZeroDuration());
  EXPECT_THAT(late.Await(), ElementsAre("w0: DEADLINE_EXCEEDED"));
  answer_as_daemon(read_inquiry().id());
  ask(&lost, {"w0"}, kPatience);
  daemon_->WritesDone();
  EXPECT_THAT(lost.Await(), ElementsAre("w0: WORKER_LOST"));
}

TEST_F(WorkerStreamsTest, ALossIsReportedAfterTheExecutorsLastReports) {
  const auto executor = Attach(kIncarnation);
  SendCommand(kIncarnation, 1);
  EXPECT_EQ(executor->ReadCommand(), "read 1");
  daemon_->SendReport(kIncarnation, api::ExecutorLost{"exited with status 0", 0, ""});
  api::ExecutorReady ready;
  ready.info.incarnation = kIncarnation + 1;
  ready.info.device_kind = "cpu";
  daemon_->SendReport(kIncarnation + 1, ready);
  daemon_->SendReport(0, api::Heartbeat{});
  EXPECT_THAT(events_.AwaitReports(1), ElementsAre("heartbeat"));
  executor->SendReport(kIncarnation, api::LaunchDone{8, absl::ZeroDuration()});
  executor->WritesDone();
  EXPECT_THAT(events_.AwaitReports(4),
              ElementsAre("heartbeat", "done 8", "lost 70: exited with status 0", "ready 71"));
  TESSERA_EXPECT_OK(executor->Finish());
}

TEST_F(WorkerStreamsTest, ALossIsHeldBackForASecondAtMost) {
  const auto executor = Attach(kIncarnation);
  SendCommand(kIncarnation, 1);
  EXPECT_EQ(executor->ReadCommand(), "read 1");
  daemon_->SendReport(kIncarnation, api::ExecutorLost{"killed by signal 9", 0, ""});
  daemon_->SendReport(0, api::Heartbeat{});
  EXPECT_THAT(events_.AwaitReports(1), ElementsAre("heartbeat"));
  clock_.Advance(absl::Milliseconds(1001));
  daemon_->SendReport(0, api::Heartbeat{});
  EXPECT_THAT(events_.AwaitReports(3),
              ElementsAre("heartbeat", "lost 70: killed by signal 9", "heartbeat"));
  EXPECT_EQ(executor->ReadCommand(), "");
  EXPECT_THAT(executor->Finish(), ReasonIs("WORKER_LOST", "reported that the executor is lost"));
}

TEST_F(WorkerStreamsTest, AnExecutorThatDoesNotAttachIsKilled) {
  clock_.Advance(absl::Hours(1));
  daemon_->SendReport(0, api::Heartbeat{});  // No command waits for the executor yet.
  EXPECT_THAT(events_.AwaitReports(1), ElementsAre("heartbeat"));
  SendCommand(kIncarnation, 1);
  clock_.Advance(absl::Milliseconds(10'001));
  daemon_->SendReport(0, api::Heartbeat{});
  EXPECT_EQ(daemon_->ReadCommand(),
            "kill 70: killed: it did not connect to the coordinator in time");
}

TEST_F(WorkerStreamsTest, AnExecutorWhoseStreamEndedIsAwayUnlessItsLossIsReported) {
  auto executor = Attach(kIncarnation);
  SendCommand(kIncarnation, 1);
  EXPECT_EQ(executor->ReadCommand(), "read 1");
  executor->WritesDone();
  TESSERA_EXPECT_OK(executor->Finish());
  daemon_->SendReport(kIncarnation, api::ExecutorLost{"exited with status 5", 0, ""});
  EXPECT_THAT(events_.AwaitReports(1), ElementsAre("lost 70: exited with status 5"));
  executor = Attach(kIncarnation + 1);
  SendCommand(kIncarnation + 1, 2);
  EXPECT_EQ(executor->ReadCommand(), "read 2");
  executor->WritesDone();
  TESSERA_EXPECT_OK(executor->Finish());
  clock_.Advance(absl::Milliseconds(501));
  daemon_->SendReport(0, api::Heartbeat{});
  EXPECT_THAT(events_.AwaitReports(3),
              ElementsAre("lost 70: exited with status 5",
                          "away 71 for the 1. time: its connection ended", "heartbeat"));
  SendCommand(kIncarnation + 1, 3);  // It is not sent, since the executor is away.
  executor = Attach(kIncarnation + 1);
  executor->SendReport(kIncarnation + 1, api::ExecutorInventory{});
  EXPECT_THAT(
      events_.AwaitReports(5),
      ElementsAre("lost 70: exited with status 5", "away 71 for the 1. time: its connection ended",
                  "heartbeat", "away 71 for the 2. time: its connection ended", "inventory 71"));
  events_.link()->SendOn(0, kIncarnation + 1, 1, api::ReadBuffer{4, 1, 0});  // too early
  events_.link()->SendOn(0, kIncarnation + 1, 2, api::ReadBuffer{5, 1, 0});
  EXPECT_EQ(executor->ReadCommand(), "read 5");
}

TEST_F(WorkerStreamsTest, AnExecutorAttachesAgainBeforeTheEndOfItsStreamIsNoticed) {
  const auto executor = Attach(kIncarnation);
  SendCommand(kIncarnation, 1);
  EXPECT_EQ(executor->ReadCommand(), "read 1");
  const auto again = Attach(kIncarnation);
  EXPECT_EQ(executor->ReadCommand(), "");
  EXPECT_THAT(executor->Finish(), ReasonIs("WORKER_LOST", "attached with another stream"));
  again->SendReport(kIncarnation, api::ExecutorInventory{});
  EXPECT_THAT(events_.AwaitReports(2),
              ElementsAre("away 70 for the 1. time: its connection ended", "inventory 70"));
  SendCommand(kIncarnation, 2);  // It was sent before the coordinator knew of the end.
  events_.link()->SendOn(0, kIncarnation, 1, api::ReadBuffer{3, 1, 0});
  EXPECT_EQ(again->ReadCommand(), "read 3");
}

TEST_F(WorkerStreamsTest, FarewellsComeAfterTheEndOfTheDaemonsStream) {
  const auto executor = Attach(kIncarnation);
  SendCommand(kIncarnation, 1);
  EXPECT_EQ(executor->ReadCommand(), "read 1");
  daemon_.reset();
  EXPECT_THAT(events_.AwaitReports(1), ElementsAre("disconnected: its connection ended"));
  SendCommand(kIncarnation, 2);  // It is not sent.
  executor->SendReport(kIncarnation, api::ExecutorFarewell{"its daemon has died"});
  executor->WritesDone();
  EXPECT_EQ(executor->ReadCommand(), "");
  TESSERA_EXPECT_OK(executor->Finish());
  EXPECT_THAT(events_.AwaitReports(2), ElementsAre("disconnected: its connection ended",
                                                   "farewell 70: its daemon has died"));
  const auto late = Attach(kIncarnation);
  EXPECT_EQ(late->ReadCommand(), "");
  EXPECT_THAT(late->Finish(), ReasonIs("WORKER_LOST", "not registered"));
}

TEST_F(WorkerStreamsTest, ExecutorStreamsEndWhenTheCoordinatorStops) {
  const auto executor = Attach(kIncarnation);
  SendCommand(kIncarnation, 1);
  EXPECT_EQ(executor->ReadCommand(), "read 1");
  events_.link()->Close(MakeError(ErrorKind::kServerStopping, "the coordinator is shutting down"));
  EXPECT_EQ(executor->ReadCommand(), "");
  EXPECT_THAT(executor->Finish(), ReasonIs("SERVER_STOPPING"));
}

TEST_F(WorkerStreamsTest, ReportsOfOtherProcessesAreRefused) {
  const auto executor = Attach(kIncarnation);
  executor->SendReport(kIncarnation + 1, api::LaunchDone{8, absl::ZeroDuration()});
  EXPECT_EQ(executor->ReadCommand(), "");
  EXPECT_THAT(executor->Finish(), ReasonIs("VALUE_ERROR", "a report that it may not send"));
  daemon_->SendReport(kIncarnation, api::LaunchDone{8, absl::ZeroDuration()});
  EXPECT_EQ(daemon_->ReadCommand(), "");
  EXPECT_THAT(daemon_->Finish(),
              ReasonIs("VALUE_ERROR", "a report that only an executor may send"));
  EXPECT_THAT(events_.AwaitReports(1), ElementsAre(HasSubstr("disconnected")));
}

}  // namespace
}  // namespace tessera::server::rpc
