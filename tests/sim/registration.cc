// Connects the scheduler with the streams of one worker. process.cc sends the scheduler's commands
// here; coordinator.cc passes the streams and reports of the worker's machines. It follows
// server/rpc/worker_streams.h, whose waits are copied below.
#include "tests/sim/registration.h"

#include <algorithm>
#include <variant>

#include "base/status.h"
#include "tests/sim/process.h"

namespace tessera::sim {
namespace {

constexpr absl::Duration kAttachWait = absl::Seconds(10);
constexpr absl::Duration kLossWait = absl::Milliseconds(500);
constexpr absl::Duration kLastReportsWait = absl::Seconds(1);

absl::Status WorkerLostError(const std::string& what) {
  return MakeError(ErrorKind::kWorkerLost, "executor: " + what);
}

}  // namespace

void Registration::Register(const api::Registration& registration) {
  worker_ = registration.worker;
  for (const api::ExecutorInfo& info : registration.executors)
    executors_[info.index].incarnation = info.incarnation;
  registration_id_ = process_->AddWorker(registration, shared_from_this());
}

void Registration::Accept(const std::vector<api::AdoptedExecutor>& adopted) {
  api::Welcome welcome = process_->MakeWelcome(registration_id_);
  welcome.adopted = adopted;
  stream_->SendDown([callbacks = callbacks_, welcome] { callbacks.on_welcome(welcome); });
}

Registration::Executor* Registration::FindOrReplace(int32_t executor, uint64_t incarnation) {
  const auto found = executors_.find(executor);
  if (found == executors_.end() || found->second.incarnation > incarnation) return nullptr;
  Executor& e = found->second;
  if (e.incarnation < incarnation) {
    Executor replaced = std::exchange(e, Executor());
    e.incarnation = incarnation;
    // The commands that these reports lead to may already be meant for the new process.
    ReleaseHeldReports(replaced);
    if (replaced.stream != nullptr)
      replaced.stream->EndFromAbove(
          WorkerLostError("another process has taken this executor's index"));
  }
  return &e;
}

void Registration::SendOn(const Executor& executor, const api::Command& command) {
  executor.stream->SendDown([on_command = executor.on_command, epoch = process_->epoch(), command] {
    on_command(epoch, command);
  });
}

void Registration::Send(int32_t executor, uint64_t incarnation, uint64_t attachment,
                        const api::Command& command) {
  if (const auto* kill = std::get_if<api::KillExecutor>(&command)) {
    stream_->SendDown(
        [callbacks = callbacks_, epoch = process_->epoch(), executor, incarnation, kill = *kill] {
          callbacks.on_kill(epoch, executor, incarnation, kill.reason, kill.if_told);
        });
    return;
  }
  Executor* const e = FindOrReplace(executor, incarnation);
  if (e == nullptr || e->gone || e->detached || e->attachment != attachment || closed_) return;
  if (e->stream != nullptr) return SendOn(*e, command);
  if (e->waiting.empty()) e->deadline = world_->now() + kAttachWait;
  e->waiting.push_back(command);
}

void Registration::Kill(int32_t executor, uint64_t incarnation, const std::string& reason) {
  Executor* const e = FindOrReplace(executor, incarnation);
  if (e == nullptr) return;
  e->gone = true;
  e->waiting.clear();
  Send(executor, incarnation, 0, api::KillExecutor{reason});
}

void Registration::Close(const absl::Status& why) {
  stream_->EndFromAbove(why);
  StopServingExecutors();
}

void Registration::OnEnded(const std::string& why) {
  process_->RemoveWorker(registration_id_, absl::UnavailableError(why));
  StopServingExecutors();
}

// The streams of the executors stay, so that their farewells still come.
void Registration::StopServingExecutors() {
  closed_ = true;
  for (auto& [index, executor] : executors_) executor.waiting.clear();
}

void Registration::TakeFromDaemon(uint64_t epoch, const api::Report& report) {
  if (epoch != process_->epoch()) return;
  if (std::holds_alternative<api::Heartbeat>(report.body)) {
    EnforceDeadlines();
    SendAcknowledgements();
  }
  ReportOrHold(report);
}

void Registration::ReportOrHold(const api::Report& report) {
  const auto found = executors_.find(report.executor);
  if (found != executors_.end() && !std::holds_alternative<api::Heartbeat>(report.body)) {
    Executor& e = found->second;
    const bool lost = std::holds_alternative<api::ExecutorLost>(report.body) &&
                      report.incarnation == e.incarnation;
    if (lost) {
      e.gone = true;
      e.waiting.clear();
      e.deadline = e.stream == nullptr ? absl::InfiniteFuture() : world_->now() + kLastReportsWait;
    }
    if ((lost && e.stream != nullptr) || !e.held_reports.empty())
      return e.held_reports.push_back(report);
  }
  process_->Report(registration_id_, report);
}

void Registration::ReleaseHeldReports(Executor& executor) {
  if (executor.held_reports.empty()) return;
  executor.deadline = absl::InfiniteFuture();
  for (const api::Report& report : std::exchange(executor.held_reports, {}))
    process_->Report(registration_id_, report);
}

void Registration::EnforceDeadlines() {
  for (auto& [index, e] : executors_) {
    if (world_->now() < e.deadline) continue;
    e.deadline = absl::InfiniteFuture();
    if (!e.held_reports.empty()) {
      const auto late = std::exchange(e.stream, nullptr);
      ReleaseHeldReports(e);
      if (late != nullptr)
        late->EndFromAbove(WorkerLostError("the daemon has reported that the executor is lost"));
    } else {
      if (e.detached) {
        process_->DetachExecutor(registration_id_, index, e.incarnation, ++e.attachment);
      } else {
        Kill(index, e.incarnation, "killed: it did not connect to the coordinator in time");
      }
    }
  }
}

void Registration::Acknowledge(int32_t executor, uint64_t incarnation, uint64_t number) {
  const auto found = executors_.find(executor);
  if (found == executors_.end() || found->second.incarnation != incarnation) return;
  found->second.processed = std::max(found->second.processed, number);
}

void Registration::SendAcknowledgements() {
  for (auto& [index, e] : executors_) {
    if (e.stream == nullptr || e.processed == e.acknowledged) continue;
    e.acknowledged = e.processed;
    SendOn(e, api::AcknowledgeReports{e.processed});
  }
}

void Registration::Attach(const api::Attachment& attachment, const std::shared_ptr<Stream>& stream,
                          OnCommandFn on_command) {
  if (attachment.epoch != process_->epoch())
    return stream->EndFromAbove(WorkerLostError("the message is meant for another coordinator"));
  if (closed_) return stream->EndFromAbove(WorkerLostError("the worker is not registered"));
  Executor* const e = FindOrReplace(attachment.executor, attachment.incarnation);
  if (e == nullptr || e->gone) return stream->EndFromAbove(WorkerLostError("it is gone"));
  if (const auto superseded = std::exchange(e->stream, nullptr)) {
    e->detached = true;
    superseded->EndFromAbove(WorkerLostError("the executor has attached with another stream"));
  }
  if (std::exchange(e->detached, false))
    process_->DetachExecutor(registration_id_, attachment.executor, attachment.incarnation,
                             ++e->attachment);
  e->stream = stream;
  e->on_command = std::move(on_command);
  e->deadline = absl::InfiniteFuture();
  for (const api::Command& command : std::exchange(e->waiting, {})) SendOn(*e, command);
  stream->on_end_above = [process = process_, weak = weak_from_this(), index = attachment.executor,
                          raw = stream.get()](const absl::Status&) {
    process->Arrive([weak, index, raw] {
      if (const auto registration = weak.lock()) registration->Detach(index, raw);
    });
  };
}

void Registration::Detach(int32_t executor, const Stream* stream) {
  const auto found = executors_.find(executor);
  if (found == executors_.end() || found->second.stream.get() != stream) return;
  Executor& e = found->second;
  e.stream = nullptr;
  e.detached = true;
  if (!e.gone) e.deadline = world_->now() + kLossWait;
  ReleaseHeldReports(e);
}

void Registration::TakeFromExecutor(uint64_t epoch, const Stream* stream,
                                    const api::Report& report) {
  if (epoch != process_->epoch()) return;
  const auto found = executors_.find(report.executor);
  if (found == executors_.end() || found->second.stream.get() != stream) return;
  process_->Report(registration_id_, report);
}

}  // namespace tessera::sim
