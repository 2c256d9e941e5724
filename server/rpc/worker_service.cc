#include "server/rpc/worker_service.h"

#include <grpcpp/alarm.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/serial/worker.h"

namespace tessera::server::rpc {
namespace {

// Maximum of queued commands for a worker that does not read; beyond it the worker is lost.
constexpr size_t kCommandsMax = 100'000;
// How long the last write may take once the stream ends; then the stream is cancelled.
constexpr std::chrono::seconds kLastWriteWait{1};

// One stream: gRPC's reactor and the coordinator's link in one.  Keeps itself alive until OnDone.
//
// gRPC is never called under mu_.  At most one write is in flight, and Finish is called once, when
// none is: so the stream cannot end between a decision and the call that carries it out.
class WorkerStream final : public WorkerReactor,
                           public api::WorkerLink,
                           public std::enable_shared_from_this<WorkerStream> {
 public:
  // `name`: the only one that the worker may register under; empty: any.
  static WorkerStream* Start(grpc::CallbackServerContext* context, api::WorkerEvents* events,
                             std::string name) {
    auto stream = std::shared_ptr<WorkerStream>(new WorkerStream(context, events, std::move(name)));
    stream->self_ = stream;
    stream->StartRead(&stream->report_);
    return stream.get();
  }

  // ---- api::WorkerLink ----
  void Accept() override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      accepted_ = true;
    }
    Pump();
  }
  void Send(int32_t executor, uint64_t incarnation, api::Command command) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    Enqueue(ir::serial::ToEnvelope(executor, incarnation, command));
  }
  void Close(const absl::Status& why) override ABSL_LOCKS_EXCLUDED(mu_) {
    bool stuck = false;
    {
      absl::MutexLock lock(&mu_);
      if (ending_) return;
      ending_ = true;
      end_ = why;
      queue_.clear();
      stuck = writing_;
    }
    // A write that the worker does not read would block Finish for ever.
    if (stuck) {
      last_write_.Set(std::chrono::system_clock::now() + kLastWriteWait,
                      [self = shared_from_this()](bool expired) {
                        // Cancellation callbacks run after this one has returned.
                        absl::MutexLock lock(&self->context_mu_);
                        if (expired && !self->done_) self->context_->TryCancel();
                      });
    }
    Pump();
  }

  // ---- grpc::ServerBidiReactor ----
  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::OkStatus(), "its connection ended");
    if (session_ == 0) {
      if (absl::Status s = Welcome(); !s.ok()) return End(s, "its registration was refused");
    } else if (report_.epoch() == epoch_) {  // Reports of another epoch are dropped.
      absl::StatusOr<api::Report> report = ir::serial::ReadReport(report_);
      if (!report.ok())
        return End(report.status(),
                   absl::StrCat("it sent what does not read: ", report.status().message()));
      events_->OnReport(session_, *std::move(report));
    }
    StartRead(&report_);
  }
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      writing_ = false;
      if (!ok) {
        ending_ = true;
        queue_.clear();
      }
    }
    Pump();
  }
  void OnCancel() override {
    End(absl::CancelledError("the stream was cancelled"), "its connection ended");
  }
  void OnDone() override ABSL_LOCKS_EXCLUDED(context_mu_) {
    if (session_ != 0)
      events_->Disconnect(session_, absl::UnavailableError("its connection ended"));
    {
      absl::MutexLock lock(&context_mu_);
      done_ = true;
    }
    last_write_.Cancel();
    const std::shared_ptr<WorkerStream> last = std::move(self_);
  }

 private:
  WorkerStream(grpc::CallbackServerContext* context, api::WorkerEvents* events, std::string name)
      : context_(context), events_(events), name_(std::move(name)) {}

  // Replies to the first report.
  absl::Status Welcome() {
    TESSERA_ASSIGN_OR_RETURN(const api::Registration registration,
                             ir::serial::ReadRegistration(report_));
    if (!name_.empty() && registration.worker != name_)
      return MakeError(
          ErrorKind::kRoleMissing,
          absl::StrCat("worker: registers as '", registration.worker, "' with the certificate of '",
                       name_, "'; join it under its own name"));
    TESSERA_ASSIGN_OR_RETURN(const api::Welcome welcome, events_->Register(registration, self_));
    session_ = welcome.session;
    epoch_ = welcome.epoch;
    {
      // Commands may have been sent already; the Welcome still comes first. One that has been
      // rejected already gets nothing.
      absl::MutexLock lock(&mu_);
      if (ending_) return absl::OkStatus();
      queue_.push_front(ir::serial::ToEnvelope(welcome));
      welcomed_ = true;
    }
    Pump();
    return absl::OkStatus();
  }

  void Enqueue(v1::Envelope command) ABSL_LOCKS_EXCLUDED(mu_) {
    bool overrun = false;
    {
      absl::MutexLock lock(&mu_);
      if (ending_) return;
      queue_.push_back(std::move(command));
      overrun = queue_.size() > kCommandsMax;
    }
    if (overrun)
      return Close(MakeError(ErrorKind::kWorkerLost,
                             absl::StrCat("worker: ", kCommandsMax, " commands wait for it")));
    Pump();
  }

  void End(const absl::Status& status, const std::string& why) ABSL_LOCKS_EXCLUDED(mu_) {
    if (session_ != 0) events_->Disconnect(session_, absl::UnavailableError(why));
    {
      absl::MutexLock lock(&mu_);
      if (!ending_) end_ = status;
      ending_ = true;
      queue_.clear();
    }
    Pump();
  }

  // Starts the next write, or the end, if nothing is in flight.
  void Pump() ABSL_LOCKS_EXCLUDED(mu_) {
    bool write = false;
    absl::Status end;
    {
      absl::MutexLock lock(&mu_);
      if (writing_ || finished_) return;
      if (ending_) {
        finished_ = true;
        end = end_;
      } else if (accepted_ && welcomed_ && !queue_.empty()) {
        command_ = std::move(queue_.front());
        command_.set_epoch(epoch_);
        queue_.pop_front();
        writing_ = write = true;
      } else {
        return;
      }
    }
    if (write) {
      StartWrite(&command_);
    } else {
      Finish(ToGrpc(end));
    }
  }

  grpc::CallbackServerContext* const context_;
  api::WorkerEvents* const events_;
  const std::string name_;
  std::shared_ptr<WorkerStream> self_;
  v1::Envelope report_;   // of the read in flight
  v1::Envelope command_;  // of the write in flight
  std::atomic<uint64_t> session_{0}, epoch_{0};
  grpc::Alarm last_write_;
  absl::Mutex context_mu_;  // held while the alarm uses context_, which ends with OnDone
  bool done_ ABSL_GUARDED_BY(context_mu_) = false;

  absl::Mutex mu_;
  std::deque<v1::Envelope> queue_ ABSL_GUARDED_BY(mu_);
  bool accepted_ ABSL_GUARDED_BY(mu_) = false;  // by the scheduler
  bool welcomed_ ABSL_GUARDED_BY(mu_) = false;  // the Welcome is at the front of queue_
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

WorkerReactor* WorkerService::Connect(grpc::CallbackServerContext* context) {
  const absl::StatusOr<core::Caller> caller = gate_->Admit(context, Method::kWorkerService_Connect);
  if (!caller.ok()) return new RefusedStream<WorkerReactor>(caller.status());
  return WorkerStream::Start(context, events_, Gate::WorkerOfCertificate(*context));
}

}  // namespace tessera::server::rpc
