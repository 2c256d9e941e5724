// The stream of an executor process to the coordinator. ExecutorProcess (executor_process.cc)
// attaches it when its daemon passes on a Welcome, and passes the executor's reports to it; gRPC's
// threads bring the commands. It is written so that the coordinator may come back as another
// process without losing a report or carrying out a command twice.
#include "worker/rpc/coordinator_stream.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/thread_name.h"
#include "ir/serial/grpc_status.h"
#include "ir/serial/worker.h"

namespace tessera::worker::rpc {
namespace {

// The wait between the end of a stream and the next attempt. It doubles until the daemon brings a
// new Welcome or a command comes. If the registration has ended, attempts are refused until then.
constexpr absl::Duration kAttachAgainMin = absl::Milliseconds(100);
constexpr absl::Duration kAttachAgainMax = absl::Seconds(2);

}  // namespace

CoordinatorStream::CoordinatorStream(Options options,
                                     std::shared_ptr<grpc::ChannelCredentials> credentials,
                                     Hooks hooks)
    : options_(std::move(options)),
      hooks_(std::move(hooks)),
      stub_(v1::WorkerService::NewStub(CoordinatorChannel(options_.coordinator, credentials))),
      thread_([this] { RunAttacher(); }) {}

CoordinatorStream::~CoordinatorStream() {
  {
    absl::MutexLock lock(&mu_);
    ended_ = true;
  }
  thread_.join();
}

void CoordinatorStream::Attach(const api::Welcome& welcome) {
  absl::MutexLock lock(&mu_);
  welcome_ = welcome;
  attach_at_ = absl::InfinitePast();
  backoff_ = kAttachAgainMin;
}

void CoordinatorStream::RunAttacher() {
  NameThread("attach");
  while (true) {
    api::Welcome welcome;
    {
      absl::MutexLock lock(&mu_);
      const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return ended_ || attach_at_ <= SteadyNow();
      };
      while (!due()) {
        const absl::Time at = attach_at_;
        const auto changed = [this, at]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
          return ended_ || attach_at_ != at;
        };
        mu_.AwaitWithTimeout(absl::Condition(&changed), at - SteadyNow());
      }
      if (ended_) return;
      attach_at_ = absl::InfiniteFuture();
      welcome = *welcome_;
    }
    BeginStream(welcome);
  }
}

// Begins a new stream for the registration of the Welcome. The last stream loses its right to carry
// out commands first, and a command that is under way is waited for, so that the inventory does not
// change after it was made. The inventory precedes all reports, since the coordinator needs it to
// understand them. The first stream sends no inventory, because a new executor holds nothing.
void CoordinatorStream::BeginStream(const api::Welcome& welcome) {
  RecordFlight(FlightKind::kStream, "attaches", 0, welcome.epoch);
  uint64_t stream_number = 0;
  {
    absl::MutexLock lock(&mu_);
    stream_number = ++last_stream_number_;
    link_ = nullptr;
    epoch_ = welcome.epoch;
    journal_.Rewind();
    ledger_.ForgetRequests();
  }
  for (const std::shared_ptr<Link>& link : links_) link->Cancel();
  links_.erase(std::remove_if(links_.begin(), links_.end(),
                              [](const auto& l) { return l->AwaitEnd(absl::ZeroDuration()); }),
               links_.end());
  const auto attach = [this](grpc::ClientContext* context, Link* link) {
    // The coordinator is there; otherwise the daemon would not have been welcomed.
    context->set_wait_for_ready(true);
    stub_->async()->Attach(context, link);
  };
  const auto link = std::make_shared<Link>(
      attach, options_.coordinator.token,
      [this, stream_number, epoch = welcome.epoch](const v1::Envelope& command) {
        OnCommand(stream_number, epoch, command);
      },
      [this, stream_number] { OnEnd(stream_number); });
  links_.push_back(link);
  link->Send(ir::serial::ToEnvelope(api::Attachment{options_.index, options_.incarnation,
                                                    welcome.registration_id, welcome.ticket_key,
                                                    welcome.epoch}));
  if (stream_number > 1) {
    AwaitCommand();  // a command of an earlier stream may still change the inventory
    v1::Envelope inventory = MakeInventory();
    inventory.set_epoch(welcome.epoch);
    link->Send(std::move(inventory));
  }
  std::function<void()> on_sent;
  {
    absl::MutexLock lock(&mu_);
    link_ = link;
    SendWaiting();
    on_sent.swap(on_sent_);
  }
  if (on_sent) on_sent();
}

// Makes the inventory. Reports that are made from here on follow it on the stream. The arrays are
// listed last, so that they include the results of all operations that the inventory lists as
// ended.
v1::Envelope CoordinatorStream::MakeInventory() {
  api::ExecutorInventory inventory;
  {
    absl::MutexLock lock(&mu_);
    ledger_.Describe(&inventory);
    inventory.ended = journal_.EndedOperations();
    inventory.reports = journal_.last_number();
  }
  inventory.devices = hooks_.list_arrays();
  return ir::serial::ToEnvelope(
      api::Report{options_.index, options_.incarnation, std::move(inventory)});
}

void CoordinatorStream::Report(api::ReportBody body) {
  const bool is_answer = std::holds_alternative<api::BufferRead>(body) ||
                         std::holds_alternative<api::FileInspected>(body);
  uint64_t stream_number = 0;
  if (is_answer) {
    absl::MutexLock lock(&mu_);
    if (!ledger_.RecordReport(body)) return;
    stream_number = last_stream_number_;
  }
  v1::Envelope report =
      ir::serial::ToEnvelope(api::Report{options_.index, options_.incarnation, body});
  RecordFlight(FlightKind::kReport, ShortName(report.kind()), report.launch());
  TESSERA_VLOG << "report" << Field("worker", options_.worker) << Field("index", options_.index)
               << Field("kind", v1::MessageKind_Name(report.kind()))
               << Field("operation", report.launch());
  absl::MutexLock lock(&mu_);
  if (is_answer && stream_number != last_stream_number_) return;
  if (!is_answer) ledger_.RecordReport(body);
  journal_.Add(std::move(report));
  SendWaiting();
}

void CoordinatorStream::SendWaiting() {
  while (link_ != nullptr && !sending_) {
    std::optional<v1::Envelope> next = journal_.Next();
    if (!next) return;
    next->set_epoch(epoch_);
    const std::shared_ptr<Link> link = link_;
    sending_ = true;
    mu_.Unlock();
    link->Send(*std::move(next));
    mu_.Lock();
    sending_ = false;
  }
}

void CoordinatorStream::CallOnceSent(std::function<void()> on_sent) {
  {
    absl::MutexLock lock(&mu_);
    if (link_ == nullptr) {
      on_sent_ = std::move(on_sent);
      return;
    }
  }
  on_sent();
}

void CoordinatorStream::Finish(absl::Duration timeout) {
  std::shared_ptr<Link> link;
  {
    absl::MutexLock lock(&mu_);
    link = link_;
  }
  if (link == nullptr) return;
  link->Finish();
  link->AwaitEnd(timeout);
}

void CoordinatorStream::SayFarewell(const std::string& reason, absl::Duration timeout) {
  Report(api::ExecutorFarewell{reason});
  Finish(timeout);
}

void CoordinatorStream::OnCommand(uint64_t stream_number, uint64_t epoch,
                                  const v1::Envelope& envelope) {
  absl::MutexLock lock(&command_mu_);
  RecordFlight(FlightKind::kCommand, ShortName(envelope.kind()), envelope.launch(),
               envelope.epoch());
  TESSERA_VLOG << "command" << Field("worker", options_.worker) << Field("index", options_.index)
               << Field("kind", v1::MessageKind_Name(envelope.kind()))
               << Field("operation", envelope.launch());
  if (envelope.epoch() != epoch) {
    TESSERA_LOG(WARNING) << "refused a command of another coordinator"
                         << Field("worker", options_.worker) << Field("index", options_.index)
                         << Field("epoch", envelope.epoch()) << Field("serves", epoch);
    return hooks_.on_stale();
  }
  absl::StatusOr<api::Command> command = ir::serial::ReadCommand(envelope);
  if (command.ok()) {
    if (!AcceptCommand(stream_number, *command)) return hooks_.on_stale();
    return hooks_.carry_out(*std::move(command));
  }
  TESSERA_LOG(ERROR) << "a command cannot be parsed" << Field("why", command.status());
  if (auto answer = ir::serial::FailureReportFor(envelope, command.status()))
    Report(*std::move(answer));
}

bool CoordinatorStream::AcceptCommand(uint64_t stream_number, api::Command& command) {
  absl::MutexLock lock(&mu_);
  if (stream_number != last_stream_number_) return false;
  if (const auto* acknowledged = std::get_if<api::AcknowledgeReports>(&command))
    journal_.Acknowledge(acknowledged->through);
  ledger_.RecordCommand(command);
  backoff_ = kAttachAgainMin;
  return true;
}

void CoordinatorStream::OnEnd(uint64_t stream_number) {
  bool is_first = false;  // whether no attempt has failed since the last command
  {
    absl::MutexLock lock(&mu_);
    if (stream_number != last_stream_number_) return;
    link_ = nullptr;
    ledger_.ForgetRequests();
    is_first = backoff_ == kAttachAgainMin;
    attach_at_ = std::min(attach_at_, SteadyNow() + backoff_);
    backoff_ = std::min(2 * backoff_, kAttachAgainMax);
  }
  if (!is_first) return;
  TESSERA_LOG(WARNING) << "the executor's connection to the coordinator ended; the executor waits"
                       << Field("worker", options_.worker) << Field("index", options_.index);
}

}  // namespace tessera::worker::rpc
