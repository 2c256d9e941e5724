// The handlers of OperationService: the state of operations, waiting for them, and cancelling them.
// No handler blocks while it waits: the scheduler answers when the state changes or the time is
// over.
#include "absl/strings/str_cat.h"
#include "ir/serial/service.h"
#include "server/rpc/handlers.h"
#include "server/rpc/message_stream.h"
#include "server/rpc/paging.h"

namespace tessera::server::rpc {
namespace {

using ir::serial::ToProto;
using scheduler::PendingInfo;

void Fill(const api::Operation& operation, v1::Operation* out) { *out = ToProto(operation); }

// The stream of one WatchOperation. It asks for the next change of state only when the last one has
// been written, so that nothing piles up for a slow reader.
class WatchStream final
    : public MessageStream<WatchStream, grpc::ServerWriteReactor<v1::Operation>, v1::Operation> {
 public:
  explicit WatchStream(StreamCall<v1::WatchOperationRequest, v1::Operation> call)
      : coordinator_(call.context->coordinator),
        call_(std::move(call)),
        until_(coordinator_->clock()->Now() + coordinator_->config().result_wait_max) {}

  // Sends the operation when its state differs from the state that was sent last.
  void AwaitChange() {
    scheduler::WaitOperation wait{{0, call_.caller}, call_.request.operation(), {}, sent_state_};
    if (sent_state_)
      wait.timeout = std::max(until_ - coordinator_->clock()->Now(), absl::Seconds(0));
    coordinator_->Post<api::Operation>(
        std::move(wait), [self = shared_from_this()](const absl::StatusOr<api::Operation>& now) {
          self->SendState(now);
        });
  }

 private:
  void SendState(const absl::StatusOr<api::Operation>& now) {
    if (!now.ok()) return End(now.status());
    if (now->state >= api::OperationState::kDone) return SendLast(ToProto(*now));
    sent_state_ = now->state;
    Send(ToProto(*now));
  }
  void OnSent() override {
    coordinator_->clock()->Now() < until_ ? AwaitChange() : End(absl::OkStatus());
  }

  Coordinator* const coordinator_;
  const StreamCall<v1::WatchOperationRequest, v1::Operation> call_;
  const absl::Time until_;
  std::optional<api::OperationState>
      sent_state_;  // state sent last; not read while a message is sent
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
  const auto stream = WatchStream::Make(std::move(call));
  stream->AwaitChange();
  return stream.get();
}

void WaitOperation(const CallRef<v1::WaitOperationRequest, v1::Operation>& call) {
  const v1::WaitOperationRequest& q = call->request();
  Answer<api::Operation>(call,
                         scheduler::WaitOperation{{0, call->caller()},
                                                  q.operation(),
                                                  call->WaitTime(q.has_timeout(), q.timeout()),
                                                  /*seen_state=*/{},
                                                  q.fail_fast()},
                         Fill);
}

void CancelOperation(const CallRef<v1::CancelOperationRequest, v1::CancelOperationResponse>& call) {
  AnswerEmpty(call, scheduler::CancelOperation{{0, call->caller()}, call->request().operation()});
}

}  // namespace tessera::server::rpc
