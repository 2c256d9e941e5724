#include "server/rpc/operation_service.h"

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "ir/serial/service.h"
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
  WatchStream(Coordinator* coordinator, StreamCall<v1::WatchOperationRequest, v1::Operation> call)
      : coordinator_(coordinator),
        call_(std::move(call)),
        until_(coordinator->clock()->Now() + coordinator->config().result_wait_max) {}

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
  // Whether the caller is to call End.
  bool TakeEnd(bool over) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || ending_ || (!over && end_.ok())) return false;
    ending_ = true;
    return true;
  }
  // Nothing changes what it reads once ending_ is set.
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

std::vector<Row> OperationService::Rows() {
  return {
      Unary(Method::kOperationService_GetOperation, this, &OperationService::GetOperation),
      Unary(Method::kOperationService_ListOperations, this, &OperationService::ListOperations),
      Unary(Method::kOperationService_ExplainPending, this, &OperationService::ExplainPending),
      Stream(Method::kOperationService_WatchOperation, this, &OperationService::WatchOperation),
      Unary(Method::kOperationService_WaitOperation, this, &OperationService::WaitOperation),
      Unary(Method::kOperationService_CancelOperation, this, &OperationService::CancelOperation)};
}

void OperationService::GetOperation(const CallRef<v1::GetOperationRequest, v1::Operation>& call) {
  coordinator_->Ask<api::Operation>(
      scheduler::WaitOperation{{0, call->caller()}, call->request().operation(), {}},
      Then<api::Operation>(call, Fill));
}

void OperationService::ListOperations(
    const CallRef<v1::ListOperationsRequest, v1::ListOperationsResponse>& call) {
  const v1::ListOperationsRequest& q = call->request();
  scheduler::ListOperations event{
      {0, call->caller()}, q.session(), q.all_sessions(), q.live_only(), {}};
  const std::string scope = absl::StrCat("operations|", call->caller().tenant, "|", q.session(),
                                         "|", q.all_sessions(), "|", q.live_only());
  if (absl::Status s = ReadPage(scope, q, &event.page); !s.ok()) return call->Finish(s);
  coordinator_->Ask<Page<api::Operation>>(
      std::move(event), Then<Page<api::Operation>>(call, [scope](const Page<api::Operation>& page,
                                                                 v1::ListOperationsResponse* out) {
        for (const api::Operation& op : page.items) Fill(op, out->add_operations());
        if (page.more)
          out->set_next_page_token(PageToken(scope, absl::StrCat(page.items.back().id)));
      }));
}

void OperationService::ExplainPending(
    const CallRef<v1::ExplainPendingRequest, v1::ExplainPendingResponse>& call) {
  coordinator_->Ask<PendingInfo>(
      scheduler::ExplainPending{{0, call->caller()}, call->request().operation()},
      Then<PendingInfo>(call, [](const PendingInfo& info, v1::ExplainPendingResponse* out) {
        out->set_state(static_cast<v1::OperationState>(static_cast<int>(info.state) + 1));
        for (const api::PendingReason& r : info.reasons) *out->add_reasons() = ToProto(r);
        out->set_position(info.position);
      }));
}

grpc::ServerWriteReactor<v1::Operation>* OperationService::WatchOperation(
    StreamCall<v1::WatchOperationRequest, v1::Operation> call) {
  return WatchStream::Start(std::make_shared<WatchStream>(coordinator_, std::move(call)));
}

void OperationService::WaitOperation(const CallRef<v1::WaitOperationRequest, v1::Operation>& call) {
  const v1::WaitOperationRequest& q = call->request();
  coordinator_->Ask<api::Operation>(
      scheduler::WaitOperation{
          {0, call->caller()}, q.operation(), call->Wait(q.has_timeout(), q.timeout())},
      Then<api::Operation>(call, Fill));
}

void OperationService::CancelOperation(
    const CallRef<v1::CancelOperationRequest, v1::CancelOperationResponse>& call) {
  coordinator_->Ask<std::monostate>(
      scheduler::CancelOperation{{0, call->caller()}, call->request().operation()},
      Then<std::monostate>(call, [](const std::monostate&, v1::CancelOperationResponse*) {}));
}

}  // namespace tessera::server::rpc
