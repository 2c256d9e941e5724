// Carries envelopes between the coordinator and the processes of a worker. WorkerService makes a
// stream for each call of a daemon or an executor. Commands come from the scheduler's driver
// through api::WorkerLink, and reports go to it through api::WorkerEvents. A worker's processes
// have separate streams, so the rules about losses and deadlines here ensure the order of reports
// that a single stream would have (docs/decisions/0009).
#include "server/rpc/worker_streams.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/flight_recorder.h"
#include "base/secret.h"
#include "base/status.h"
#include "ir/api/ticket.h"
#include "ir/serial/worker.h"

namespace tessera::server::rpc {
namespace {

// The largest number of queued commands for a process that does not read. Beyond it the process is
// lost.
constexpr size_t kCommandsMax = 100'000;
// The largest number of unanswered questions to a daemon. Beyond it the oldest is given up.
constexpr size_t kQuestionsMax = 64;
// How long the last write may take once a stream ends. After that time the stream is cancelled.
constexpr std::chrono::seconds kLastWriteWait{1};
// Deadlines of executors. They are checked at each heartbeat of the daemon. A daemon that sends no
// heartbeats loses its lease.
constexpr absl::Duration kAttachWait = absl::Seconds(10);  // from the first command to attaching
// From the end of a stream until the executor is away. The daemon may report its loss meanwhile.
constexpr absl::Duration kLossWait = absl::Milliseconds(500);
// From the daemon's report of a loss to the end of the stream.
constexpr absl::Duration kLastReportsWait = absl::Seconds(1);

absl::Status WorkerLostError(absl::string_view what) {
  return MakeError(ErrorKind::kWorkerLost, absl::StrCat("executor: ", what));
}

}  // namespace

// ---- Both kinds of streams. ---------------------------------------------------------------------

void EnvelopeStream::EndNow(const absl::Status& why) {
  // A write that the other side never reads would delay the end for ever.
  if (!Cut(why)) return;
  last_write_alarm_.Set(std::chrono::system_clock::now() + kLastWriteWait,
                        [self = shared_from_this()](bool expired) {
                          // Holding the lock is safe: the callbacks of the cancelled stream run
                          // after this one has returned.
                          absl::MutexLock lock(&self->context_mu_);
                          if (expired && !self->done_) self->context_->TryCancel();
                        });
}

void EnvelopeStream::OnReadDone(bool ok) {
  if (!ok) {
    OnEnded("its connection ended");
    Cut(absl::OkStatus());
  } else if (const absl::Status taken = HandleEnvelope(received_); !taken.ok()) {
    OnEnded(std::string(taken.message()));
    Cut(taken);
  } else {
    StartRead(&received_);
  }
}

void EnvelopeStream::OnCancel() {
  OnEnded("its connection ended");
  Cut(absl::CancelledError("the stream was cancelled"));
}

void EnvelopeStream::OnDone() {
  OnEnded("its connection ended");
  {
    absl::MutexLock lock(&context_mu_);
    done_ = true;
  }
  last_write_alarm_.Cancel();
  MessageStream::OnDone();
}

// ---- The daemon's stream. -----------------------------------------------------------------------

void WorkerStream::Accept(const std::vector<api::AdoptedExecutor>& adopted) {
  {
    absl::MutexLock lock(&mu_);
    accepted_ = true;
    adopted_ = adopted;
  }
  BeginIfReady();
}

// Sends the Welcome once the scheduler has accepted the worker. Commands may have been queued
// before, but the Welcome still comes first.
void WorkerStream::BeginIfReady() {
  std::optional<api::Welcome> welcome;
  {
    absl::MutexLock lock(&mu_);
    if (!accepted_) return;
    welcome = std::exchange(welcome_, std::nullopt);
    if (welcome) welcome->adopted = std::move(adopted_);
  }
  if (welcome) Begin({ir::serial::ToEnvelope(*welcome)});
}

// Commands of an earlier attachment are dropped: the coordinator has sent them before it knew that
// the stream had ended, or because of an inventory that was made on an earlier stream.
void WorkerStream::SendOn(int32_t executor, uint64_t incarnation, uint64_t attachment,
                          api::Command command) {
  v1::Envelope envelope = ir::serial::ToEnvelope(executor, incarnation, command);
  if (std::holds_alternative<api::KillExecutor>(command)) return SendToDaemon(std::move(envelope));
  std::shared_ptr<ExecutorStream> stream;
  Streams old;
  size_t waiting = 0;
  {
    absl::MutexLock lock(&mu_);
    Executor* const e = FindOrReplace(executor, incarnation, &old);
    if (e == nullptr || e->gone || e->detached || e->attachment != attachment || closed_) return;
    stream = e->stream;
    if (stream == nullptr) {
      if (e->waiting.empty()) e->deadline = workers_->clock().Now() + kAttachWait;
      e->waiting.push_back(std::move(envelope));
      waiting = e->waiting.size();
    }
  }
  if (stream != nullptr) waiting = stream->MessageStream::Send(std::move(envelope));
  if (waiting > kCommandsMax)
    Kill(executor, incarnation, absl::StrCat("killed: ", kCommandsMax, " commands wait for it"));
  for (const auto& ended : old)
    ended->EndNow(WorkerLostError("another process has taken this executor's index"));
}

void WorkerStream::SendToDaemon(v1::Envelope command) {
  if (MessageStream::Send(std::move(command)) > kCommandsMax)
    Close(MakeError(ErrorKind::kWorkerLost,
                    absl::StrCat("worker: ", kCommandsMax, " commands wait for it")));
}

void WorkerStream::Kill(int32_t executor, uint64_t incarnation, const std::string& reason) {
  {
    absl::MutexLock lock(&mu_);
    Streams unused;
    Executor* const e = FindOrReplace(executor, incarnation, &unused);
    if (e == nullptr) return;
    e->gone = true;
    e->waiting.clear();
  }
  SendToDaemon(ir::serial::ToEnvelope(executor, incarnation, api::KillExecutor{reason}));
}

void WorkerStream::Close(const absl::Status& why) {
  EndNow(why);
  StopServingExecutors();
  if (KindOf(why) == ErrorKind::kServerStopping) EndExecutorStreams(why);
}

// Sends a question to the daemon and remembers who asked. Questions are bounded, because a daemon
// that does not answer would otherwise pile them up. Callbacks run without the lock, because they
// may ask again. A daemon of an earlier build would not know the message, so it is not asked.
void WorkerStream::Ask(v1::Inquiry inquiry, AnswerFn then) {
  if (protocol_ < kInquiryProtocol)
    return then(
        MakeError(ErrorKind::kProtocolMismatch,
                  absl::StrCat("worker ", worker_name(),
                               ": its build is too old to answer inquiries; upgrade the worker")));
  AnswerFn given_up;
  {
    absl::MutexLock lock(&mu_);
    if (!closed_) {
      inquiry.set_id(++last_question_);
      questions_.emplace(last_question_, std::exchange(then, nullptr));
    }
    if (questions_.size() > kQuestionsMax) {
      given_up = std::move(questions_.begin()->second);
      questions_.erase(questions_.begin());
    }
  }
  if (given_up)
    given_up(MakeError(ErrorKind::kDeadlineExceeded,
                       "worker: the daemon has left too many inquiries unanswered"));
  if (then) return then(WorkerLostError("the worker is lost"));
  v1::Envelope envelope;
  envelope.set_kind(v1::MESSAGE_KIND_INQUIRY);
  inquiry.SerializeToString(envelope.mutable_body());
  SendToDaemon(std::move(envelope));
}

std::string WorkerStream::worker_name() {
  absl::MutexLock lock(&mu_);
  return worker_name_;
}

absl::Status WorkerStream::TakeAnswer(const v1::Envelope& envelope) {
  v1::InquiryAnswer answer;
  if (!answer.ParseFromString(envelope.body()))
    return MakeError(ErrorKind::kValueError, "worker: the answer to an inquiry cannot be parsed");
  AnswerFn then;
  {
    absl::MutexLock lock(&mu_);
    const auto found = questions_.find(answer.id());
    if (found == questions_.end()) return absl::OkStatus();
    then = std::move(found->second);
    questions_.erase(found);
  }
  then(std::move(answer));
  return absl::OkStatus();
}

void WorkerStream::EndQuestions(const std::string& why) {
  std::map<uint64_t, AnswerFn> asked;
  {
    absl::MutexLock lock(&mu_);
    asked.swap(questions_);
  }
  for (const auto& [id, then] : asked)
    then(WorkerLostError(absl::StrCat("the worker is lost: ", why)));
}

void WorkerStream::OnEnded(const std::string& why) {
  // Once the coordinator has heard of the end, nothing is sent to the executors any more.
  StopServingExecutors();
  if (const uint64_t registration_id = registration_id_; registration_id != 0) {
    if (workers_->Remove(registration_id))
      RecordFlight(FlightKind::kWorkerStream, absl::StrCat(worker_name(), " ended: ", why),
                   registration_id);
    workers_->events().Disconnect(registration_id, absl::UnavailableError(why));
  }
  EndQuestions(why);
}

void WorkerStream::StopServingExecutors() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
  for (auto& [index, executor] : executors_) executor.waiting.clear();
}

void WorkerStream::EndExecutorStreams(const absl::Status& why) {
  Streams streams;
  {
    absl::MutexLock lock(&mu_);
    for (auto& [index, executor] : executors_)
      if (executor.stream != nullptr) streams.push_back(executor.stream);
  }
  for (const auto& stream : streams) stream->EndNow(why);
}

absl::Status WorkerStream::HandleEnvelope(const v1::Envelope& envelope) {
  if (registration_id_ == 0) return Register(envelope);
  if (envelope.epoch() != epoch_) return absl::OkStatus();
  if (envelope.kind() == v1::MESSAGE_KIND_INQUIRY_ANSWER) return TakeAnswer(envelope);
  absl::StatusOr<api::Report> report = ir::serial::ReadReport(envelope);
  if (!report.ok()) return Annotate(report.status(), "the daemon sent an invalid report");
  const bool is_heartbeat = std::holds_alternative<api::Heartbeat>(report->body);
  if (!is_heartbeat && !std::holds_alternative<api::ExecutorLost>(report->body) &&
      !std::holds_alternative<api::ExecutorReady>(report->body))
    return MakeError(ErrorKind::kValueError,
                     "worker: the daemon sent a report that only an executor may send");
  if (is_heartbeat) {
    EnforceDeadlines();
    SendAcknowledgements();
  }
  QueueOrHold(*std::move(report));
  Deliver();
  return absl::OkStatus();
}

// Takes the first envelope of a daemon's stream, its registration. A worker with a certificate may
// only register under the certificate's name. The executors are recorded before the coordinator is
// told, because it may send commands for them before this call returns. The stream becomes visible
// to its executors only when the registration id is known.
absl::Status WorkerStream::Register(const v1::Envelope& envelope) {
  TESSERA_ASSIGN_OR_RETURN(const api::Registration registration,
                           ir::serial::ReadRegistration(envelope));
  if (!required_name_.empty() && registration.worker != required_name_)
    return MakeError(
        ErrorKind::kRoleMissing,
        absl::StrCat("worker: registers as '", registration.worker, "' with the certificate of '",
                     required_name_, "'; join it under its own name"));
  {
    absl::MutexLock lock(&mu_);
    worker_name_ = registration.worker;
    for (const api::ExecutorInfo& info : registration.executors)
      executors_[info.index].incarnation = info.incarnation;
  }
  auto self = std::static_pointer_cast<WorkerStream>(shared_from_this());
  TESSERA_ASSIGN_OR_RETURN(const api::Welcome welcome,
                           workers_->events().Register(registration, self));
  epoch_ = welcome.epoch;
  protocol_ = welcome.protocol;
  registration_id_ = welcome.registration_id;
  {
    absl::MutexLock lock(&mu_);
    welcome_ = welcome;
    ticket_key_ = welcome.ticket_key;
  }
  workers_->Add(welcome.registration_id, registration.worker, self);
  RecordFlight(FlightKind::kWorkerStream, absl::StrCat(registration.worker, " registers"),
               welcome.registration_id);
  BeginIfReady();
  return absl::OkStatus();
}

// ---- The daemon's stream: its executors. --------------------------------------------------------

WorkerStream::Executor* WorkerStream::FindOrReplace(int32_t executor, uint64_t incarnation,
                                                    Streams* old) {
  const auto found = executors_.find(executor);
  // The incarnations of an executor count up.
  if (found == executors_.end() || found->second.incarnation > incarnation) return nullptr;
  Executor& e = found->second;
  if (e.incarnation < incarnation) {
    ReleaseHeldReports(e);
    if (e.stream != nullptr) old->push_back(std::move(e.stream));
    e = Executor();
    e.incarnation = incarnation;
  }
  return &e;
}

// Connects an executor's stream. The ticket key proves which process it is, so that no other
// process of the network can take an executor's commands. Commands may have been lost with an
// earlier stream of the same incarnation. So the coordinator is told that this stream has ended,
// and sends nothing more until the inventory on the new one has come (docs/decisions/0037).
absl::Status WorkerStream::Attach(const api::Attachment& attachment,
                                  const std::shared_ptr<ExecutorStream>& stream) {
  Streams old;
  std::shared_ptr<ExecutorStream> superseded;
  std::deque<v1::Envelope> waiting;
  bool detached = false;
  uint64_t attachment_number = 0;
  {
    absl::MutexLock lock(&mu_);
    if (!EqualInConstantTime(
            attachment.key,
            api::ExecutorTicketKey(ticket_key_, attachment.executor, attachment.incarnation)))
      return MakeError(ErrorKind::kTicketRefused,
                       absl::StrCat("executor: the key does not belong to executor ",
                                    attachment.executor, ", incarnation ", attachment.incarnation));
    if (attachment.epoch != 0 && attachment.epoch != epoch_)
      return WorkerLostError("the message is meant for another coordinator");
    if (closed_) return WorkerLostError("the worker is not registered");
    Executor* const e = FindOrReplace(attachment.executor, attachment.incarnation, &old);
    if (e == nullptr || e->gone)
      return WorkerLostError(absl::StrCat("incarnation ", attachment.incarnation, " of executor ",
                                          attachment.executor, " is gone"));
    if (e->stream != nullptr) {
      e->detached = true;
      superseded = std::move(e->stream);
    }
    detached = e->detached;
    if (detached) attachment_number = ++e->attachment;
  }
  if (superseded != nullptr)
    superseded->EndNow(WorkerLostError("the executor has attached with another stream"));
  // Until `detached` is false again, no command is sent on any stream of the executor.
  if (detached)
    workers_->events().DisconnectExecutor(registration_id_, attachment.executor,
                                          attachment.incarnation, attachment_number,
                                          absl::UnavailableError("its connection ended"));
  {
    absl::MutexLock lock(&mu_);
    Executor* const e = FindOrReplace(attachment.executor, attachment.incarnation, &old);
    if (e == nullptr || e->gone || e->stream != nullptr || closed_)
      return WorkerLostError("the executor or its worker is gone");
    e->stream = stream;
    e->detached = false;
    e->deadline = absl::InfiniteFuture();
    waiting.swap(e->waiting);
  }
  stream->Begin(std::move(waiting));
  for (const auto& ended : old)
    ended->EndNow(WorkerLostError("another process has taken this executor's index"));
  Deliver();
  return absl::OkStatus();
}

void WorkerStream::Detach(int32_t executor, const ExecutorStream* stream) {
  std::shared_ptr<ExecutorStream> ended;  // declared here so that it is destroyed without the lock
  {
    absl::MutexLock lock(&mu_);
    const auto found = executors_.find(executor);
    if (found == executors_.end() || found->second.stream.get() != stream) return;
    Executor& e = found->second;
    ended = std::move(e.stream);
    e.detached = true;
    if (!e.gone) e.deadline = workers_->clock().Now() + kLossWait;
    ReleaseHeldReports(e);
  }
  Deliver();
}

void WorkerStream::ReleaseHeldReports(Executor& executor) {
  if (executor.held_reports.empty()) return;
  executor.deadline = absl::InfiniteFuture();
  for (api::Report& report : executor.held_reports) reports_.push_back(std::move(report));
  executor.held_reports.clear();
}

void WorkerStream::QueueOrHold(api::Report report) {
  absl::MutexLock lock(&mu_);
  const auto found = executors_.find(report.executor);
  if (found != executors_.end() && !std::holds_alternative<api::Heartbeat>(report.body)) {
    Executor& e = found->second;
    const bool lost = std::holds_alternative<api::ExecutorLost>(report.body) &&
                      report.incarnation == e.incarnation;
    if (lost) {
      e.gone = true;
      e.waiting.clear();
      e.deadline =
          e.stream == nullptr ? absl::InfiniteFuture() : workers_->clock().Now() + kLastReportsWait;
    }
    if ((lost && e.stream != nullptr) || !e.held_reports.empty()) {
      e.held_reports.push_back(std::move(report));
      return;
    }
  }
  reports_.push_back(std::move(report));
}

void WorkerStream::Deliver() {
  while (true) {
    std::optional<api::Report> next;
    {
      absl::MutexLock lock(&mu_);
      if (delivering_ || reports_.empty()) return;
      delivering_ = true;
      next = std::move(reports_.front());
      reports_.pop_front();
    }
    workers_->events().OnReport(registration_id_, *std::move(next));
    absl::MutexLock lock(&mu_);
    delivering_ = false;
  }
}

// Checks the deadlines of all executors. Runs at each heartbeat of the daemon and needs no timer: a
// daemon without heartbeats is away anyway. If reports are held for an executor, they are passed
// on, and its stream is ended. An executor that has lost its stream without being reported lost is
// away from now on. An executor that has never attached holds nothing, and is killed.
void WorkerStream::EnforceDeadlines() {
  struct Process {
    int32_t executor;
    uint64_t incarnation, attachment;
  };
  std::deque<Process> away, unattached;
  Streams late_streams;
  {
    absl::MutexLock lock(&mu_);
    const absl::Time now = workers_->clock().Now();
    for (auto& [index, e] : executors_) {
      if (now < e.deadline) continue;
      e.deadline = absl::InfiniteFuture();
      if (!e.held_reports.empty()) {
        late_streams.push_back(std::move(e.stream));
        ReleaseHeldReports(e);
      } else {
        if (e.detached) ++e.attachment;
        (e.detached ? away : unattached).push_back({index, e.incarnation, e.attachment});
      }
    }
  }
  for (const Process& p : away)
    workers_->events().DisconnectExecutor(registration_id_, p.executor, p.incarnation, p.attachment,
                                          absl::UnavailableError("its connection ended"));
  for (const Process& p : unattached)
    Kill(p.executor, p.incarnation, "killed: it did not connect to the coordinator in time");
  for (const auto& stream : late_streams)
    stream->EndNow(WorkerLostError("the daemon has reported that the executor is lost"));
}

void WorkerStream::Acknowledge(int32_t executor, uint64_t incarnation, uint64_t number) {
  absl::MutexLock lock(&mu_);
  const auto found = executors_.find(executor);
  if (found == executors_.end() || found->second.incarnation != incarnation) return;
  found->second.processed = std::max(found->second.processed, number);
}

void WorkerStream::SendAcknowledgements() {
  std::deque<std::pair<std::shared_ptr<ExecutorStream>, v1::Envelope>> acknowledgements;
  {
    absl::MutexLock lock(&mu_);
    for (auto& [index, e] : executors_) {
      if (e.stream == nullptr || e.processed == e.acknowledged) continue;
      e.acknowledged = e.processed;
      acknowledgements.emplace_back(
          e.stream,
          ir::serial::ToEnvelope(index, e.incarnation, api::AcknowledgeReports{e.processed}));
    }
  }
  for (auto& [stream, command] : acknowledgements) stream->MessageStream::Send(std::move(command));
}

// ---- An executor's stream. ----------------------------------------------------------------------

absl::Status ExecutorStream::HandleEnvelope(const v1::Envelope& envelope) {
  if (registration_id_ == 0) return Attach(envelope);
  if (envelope.epoch() != epoch_) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(api::Report report, ir::serial::ReadReport(envelope));
  const bool own = report.executor == executor_ && report.incarnation == incarnation_;
  if (!own || std::holds_alternative<api::Heartbeat>(report.body) ||
      std::holds_alternative<api::ExecutorLost>(report.body) ||
      std::holds_alternative<api::ExecutorReady>(report.body))
    return MakeError(ErrorKind::kValueError, "executor: it sent a report that it may not send");
  workers_->events().OnReport(registration_id_, std::move(report));
  return absl::OkStatus();
}

absl::Status ExecutorStream::Attach(const v1::Envelope& envelope) {
  TESSERA_ASSIGN_OR_RETURN(const api::Attachment attachment, ir::serial::ReadAttachment(envelope));
  const std::shared_ptr<WorkerStream> worker = workers_->Find(attachment.registration_id);
  if (worker == nullptr) return WorkerLostError("the worker is not registered");
  epoch_ = worker->epoch();
  executor_ = attachment.executor;
  incarnation_ = attachment.incarnation;
  {
    absl::MutexLock lock(&mu_);
    worker_ = worker;
  }
  TESSERA_RETURN_IF_ERROR(
      worker->Attach(attachment, std::static_pointer_cast<ExecutorStream>(shared_from_this())));
  registration_id_ = attachment.registration_id;
  RecordFlight(FlightKind::kExecutorStream, "attaches", registration_id_,
               static_cast<uint64_t>(executor_), incarnation_);
  return absl::OkStatus();
}

void ExecutorStream::OnEnded(const std::string& why) {
  std::shared_ptr<WorkerStream> worker;
  {
    absl::MutexLock lock(&mu_);
    worker.swap(worker_);
  }
  if (worker == nullptr) return;
  RecordFlight(FlightKind::kExecutorStream, absl::StrCat("ended: ", why), 0,
               static_cast<uint64_t>(executor_), incarnation_);
  worker->Detach(executor_, this);
}

}  // namespace tessera::server::rpc
