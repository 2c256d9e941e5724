#include "server/rpc/worker_service.h"

#include <grpcpp/alarm.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/serial/worker.h"
#include "server/rpc/message_stream.h"

namespace tessera::server::rpc {
namespace {

// Maximum of queued commands for a worker that does not read; beyond it the worker is lost.
constexpr size_t kCommandsMax = 100'000;
// How long the last write may take once the stream ends; then the stream is cancelled.
constexpr std::chrono::seconds kLastWriteWait{1};

// One stream: gRPC's reactor and the coordinator's link in one.
class WorkerStream final : public MessageStream<WorkerStream, WorkerReactor, v1::Envelope>,
                           public api::WorkerLink {
 public:
  // `name`: the only one that the worker may register under; empty: any.
  WorkerStream(grpc::CallbackServerContext* context, api::WorkerEvents* events, std::string name)
      : MessageStream(/*begun=*/false),
        context_(context),
        events_(events),
        name_(std::move(name)) {}
  void Start() { StartRead(&report_); }

  // ---- api::WorkerLink ----
  void Accept() override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      accepted_ = true;
    }
    BeginIfReady();
  }
  void Send(int32_t executor, uint64_t incarnation, api::Command command) override {
    if (MessageStream::Send(ir::serial::ToEnvelope(executor, incarnation, command)) > kCommandsMax)
      Close(MakeError(ErrorKind::kWorkerLost,
                      absl::StrCat("worker: ", kCommandsMax, " commands wait for it")));
  }
  void Close(const absl::Status& why) override {
    // A write that the worker does not take would hold the end back for ever.
    if (!Cut(why)) return;
    last_write_.Set(std::chrono::system_clock::now() + kLastWriteWait,
                    [self = shared_from_this()](bool expired) {
                      // What the cancelling sets off runs after this callback has returned.
                      absl::MutexLock lock(&self->context_mu_);
                      if (expired && !self->done_) self->context_->TryCancel();
                    });
  }

  // ---- grpc::ServerBidiReactor ----
  void OnReadDone(bool ok) override {
    if (!ok) return Leave(absl::OkStatus(), "its connection ended");
    if (session_ == 0) {
      if (absl::Status s = Welcome(); !s.ok()) return Leave(s, "its registration was refused");
    } else if (report_.epoch() == epoch_) {  // What is of another is dropped.
      absl::StatusOr<api::Report> report = ir::serial::ReadReport(report_);
      if (!report.ok())
        return Leave(report.status(),
                     absl::StrCat("it sent what does not read: ", report.status().message()));
      events_->OnReport(session_, *std::move(report));
    }
    StartRead(&report_);
  }
  void OnCancel() override {
    Leave(absl::CancelledError("the stream was cancelled"), "its connection ended");
  }
  void OnDone() override ABSL_LOCKS_EXCLUDED(context_mu_) {
    if (session_ != 0)
      events_->Disconnect(session_, absl::UnavailableError("its connection ended"));
    {
      absl::MutexLock lock(&context_mu_);
      done_ = true;
    }
    last_write_.Cancel();
    MessageStream::OnDone();
  }

 private:
  // Answers the first report.
  absl::Status Welcome() ABSL_LOCKS_EXCLUDED(mu_) {
    TESSERA_ASSIGN_OR_RETURN(const api::Registration registration,
                             ir::serial::ReadRegistration(report_));
    if (!name_.empty() && registration.worker != name_)
      return MakeError(
          ErrorKind::kRoleMissing,
          absl::StrCat("worker: registers as '", registration.worker, "' with the certificate of '",
                       name_, "'; join it under its own name"));
    TESSERA_ASSIGN_OR_RETURN(const api::Welcome welcome,
                             events_->Register(registration, shared_from_this()));
    session_ = welcome.session;
    epoch_ = welcome.epoch;
    {
      absl::MutexLock lock(&mu_);
      welcome_ = ir::serial::ToEnvelope(welcome);
    }
    BeginIfReady();
    return absl::OkStatus();
  }
  // Commands may have been sent already; the Welcome still comes first.
  void BeginIfReady() ABSL_LOCKS_EXCLUDED(mu_) {
    std::optional<v1::Envelope> first;
    {
      absl::MutexLock lock(&mu_);
      if (accepted_) first = std::exchange(welcome_, std::nullopt);
    }
    if (first) Begin(*std::move(first));
  }
  void OnSending(v1::Envelope* command) override { command->set_epoch(epoch_); }
  void Leave(const absl::Status& status, const std::string& why) {
    if (session_ != 0) events_->Disconnect(session_, absl::UnavailableError(why));
    Cut(status);
  }

  grpc::CallbackServerContext* const context_;
  api::WorkerEvents* const events_;
  const std::string name_;
  v1::Envelope report_;  // of the read in flight
  std::atomic<uint64_t> session_{0}, epoch_{0};
  grpc::Alarm last_write_;
  absl::Mutex context_mu_;  // held while the alarm uses context_, which ends with OnDone
  bool done_ ABSL_GUARDED_BY(context_mu_) = false;

  absl::Mutex mu_;
  bool accepted_ ABSL_GUARDED_BY(mu_) = false;  // by the scheduler
  std::optional<v1::Envelope> welcome_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

WorkerReactor* WorkerService::Connect(grpc::CallbackServerContext* context) {
  const absl::StatusOr<core::Caller> caller = gate_->Admit(context, Method::kWorkerService_Connect);
  if (!caller.ok()) return new RefusedStream<WorkerReactor>(caller.status());
  const auto stream = WorkerStream::Make(context, events_, Gate::WorkerOfCertificate(*context));
  stream->Start();
  return stream.get();
}

}  // namespace tessera::server::rpc
