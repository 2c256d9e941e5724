#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "ir/serial/service.h"
#include "server/rpc/handlers.h"
#include "server/rpc/paging.h"

namespace tessera::server::rpc {
namespace {

using ir::serial::ToProto;
using scheduler::Page;
using scheduler::PendingInfo;

void Fill(const api::Operation& operation, v1::Operation* out) { *out = ToProto(operation); }

// One WatchOperation: it asks the scheduler for the next change when the last one has been written.
// At most one write is in flight, and Finish is called once, when none is.
class WatchStream final : public grpc::ServerWriteReactor<v1::Operation>,
                          public std::enable_shared_from_this<WatchStream> {
 public:
  explicit WatchStream(StreamCall<v1::WatchOperationRequest, v1::Operation> call)
      : coordinator_(call.context->coordinator),
        call_(std::move(call)),
        until_(coordinator_->clock()->Now() + coordinator_->config().result_wait_max) {}

  static WatchStream* Start(const std::shared_ptr<WatchStream>& stream) {
    stream->self_ = stream;
    stream->Ask(std::nullopt);
    return stream.get();
  }

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    bool end = false, over = false;
    {
      absl::MutexLock lock(&mu_);
      writing_ = false;
      over = last_.state() >= v1::OPERATION_STATE_DONE || coordinator_->clock()->Now() >= until_;
      if (!ok) end_.Update(absl::CancelledError("the caller has left"));
      end = TakeEnd(over);
      if (end || ending_) over = true;
    }
    if (end) return End();
    if (!over) Ask(seen_);
  }
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mu_) {
    bool end = false;
    {
      absl::MutexLock lock(&mu_);
      end_.Update(absl::CancelledError("the caller has left"));
      end = TakeEnd(false);
    }
    if (end) End();
  }
  void OnDone() override { const std::shared_ptr<WatchStream> last = std::move(self_); }

 private:
  void Ask(std::optional<api::OperationState> seen) {
    scheduler::WaitOperation wait{{0, call_.caller}, call_.request.operation(), {}, seen};
    if (seen) wait.timeout = std::max(until_ - coordinator_->clock()->Now(), absl::Seconds(0));
    coordinator_->Ask<api::Operation>(
        std::move(wait), [self = shared_from_this()](const absl::StatusOr<api::Operation>& now) {
          self->Tell(now);
        });
  }
  void Tell(const absl::StatusOr<api::Operation>& now) ABSL_LOCKS_EXCLUDED(mu_) {
    bool end = false;
    {
      absl::MutexLock lock(&mu_);
      if (ending_) return;
      end_.Update(now.status());
      end = TakeEnd(false);
      if (!end && now.ok()) {
        writing_ = true;
        seen_ = now->state;
        last_ = ToProto(*now);
      }
    }
    if (end) return End();
    StartWrite(&last_);
  }
  // Returns whether the caller must call End.
  bool TakeEnd(bool over) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || ending_ || (!over && end_.ok())) return false;
    ending_ = true;
    return true;
  }
  // What it reads is constant once ending_ is set.
  void End() ABSL_NO_THREAD_SAFETY_ANALYSIS { Finish(ToGrpc(end_)); }

  Coordinator* const coordinator_;
  const StreamCall<v1::WatchOperationRequest, v1::Operation> call_;
  const absl::Time until_;
  std::shared_ptr<WatchStream> self_;
  // Of the write in flight, or the last one: written by Tell, when no write is.
  v1::Operation last_;
  std::optional<api::OperationState> seen_;
  absl::Mutex mu_;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

void GetOperation(const CallRef<v1::GetOperationRequest, v1::Operation>& call) {
  Answer<api::Operation>(
      call, scheduler::WaitOperation{{0, call->caller()}, call->request().operation(), {}}, Fill);
}

void ListOperations(const CallRef<v1::ListOperationsRequest, v1::ListOperationsResponse>& call) {
  const v1::ListOperationsRequest& q = call->request();
  AnswerPage<api::Operation>(
      call,
      scheduler::ListOperations{
          {0, call->caller()}, q.session(), q.all_sessions(), q.live_only(), {}},
      absl::StrCat(q.session(), "|", q.all_sessions(), "|", q.live_only()),
      [](const api::Operation& operation, auto* out) { Fill(operation, out->add_operations()); },
      [](const api::Operation& operation) { return operation.id; });
}

void ExplainPending(const CallRef<v1::ExplainPendingRequest, v1::ExplainPendingResponse>& call) {
  Answer<PendingInfo>(
      call, scheduler::ExplainPending{{0, call->caller()}, call->request().operation()},
      [](const PendingInfo& info, v1::ExplainPendingResponse* out) {
        out->set_state(static_cast<v1::OperationState>(static_cast<int>(info.state) + 1));
        for (const api::PendingReason& r : info.reasons) *out->add_reasons() = ToProto(r);
        out->set_position(info.position);
      });
}

grpc::ServerWriteReactor<v1::Operation>* WatchOperation(
    StreamCall<v1::WatchOperationRequest, v1::Operation> call) {
  return WatchStream::Start(std::make_shared<WatchStream>(std::move(call)));
}

void WaitOperation(const CallRef<v1::WaitOperationRequest, v1::Operation>& call) {
  const v1::WaitOperationRequest& q = call->request();
  Answer<api::Operation>(
      call,
      scheduler::WaitOperation{
          {0, call->caller()}, q.operation(), call->Wait(q.has_timeout(), q.timeout())},
      Fill);
}

void CancelOperation(const CallRef<v1::CancelOperationRequest, v1::CancelOperationResponse>& call) {
  AnswerDone(call, scheduler::CancelOperation{{0, call->caller()}, call->request().operation()});
}

}  // namespace tessera::server::rpc
