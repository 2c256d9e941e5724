// The handlers of SessionService. A client keeps its session alive by renewing the lease; if the
// lease runs out, the scheduler ends the session and deletes what is in it. The stream of
// HoldSession shows that a client is connected; some time after the last such stream has ended, the
// scheduler cancels the session's operations.
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/serial/status.h"
#include "server/rpc/handlers.h"
#include "server/rpc/message_stream.h"
#include "server/rpc/paging.h"

namespace tessera::server::rpc {
namespace {

using scheduler::SessionInfo;

constexpr size_t kDisplayNameMax = 256;

void Fill(const SessionInfo& info, v1::Session* out) {
  out->set_name(absl::StrCat("tenants/", info.tenant, "/sessions/", info.id));
  out->set_id(info.id);
  out->set_tenant(info.tenant);
  out->set_display_name(info.display_name);
  if (info.lease < absl::InfiniteDuration())
    *out->mutable_lease() = ir::serial::ToProto(info.lease);
  if (info.expires < absl::InfiniteFuture())
    *out->mutable_expire_time() = ir::serial::ToProto(info.expires);
  out->set_arrays(info.arrays);
  out->set_operations(info.operations);
  if (info.id != 0) *out->mutable_grace() = ir::serial::ToProto(info.grace);
}

// The stream of one HoldSession. It writes the session once, and then nothing until the caller
// leaves or the session ends.
class HoldStream final
    : public MessageStream<HoldStream, grpc::ServerWriteReactor<v1::Session>, v1::Session> {
 public:
  HoldStream(Coordinator* coordinator, uint64_t session)
      : coordinator_(coordinator), session_(session) {}

  // Starts the hold. It runs before gRPC gets the stream, so that hold_ is set when OnCancel is
  // called.
  void Start(const core::Caller& caller) {
    hold_ = coordinator_->HoldSessionAsync(
        caller, session_,
        [self = shared_from_this()](const absl::StatusOr<SessionInfo>& info) {
          v1::Session session;
          if (!info.ok()) return;
          Fill(*info, &session);
          self->Send(std::move(session));
        },
        [self = shared_from_this()](const absl::Status& why) {
          self->End(why.ok() ? absl::CancelledError("the hold was dropped") : why);
        });
  }
  void OnCancel() override {
    coordinator_->ReleaseHold(session_, hold_);
    MessageStream::OnCancel();
  }

 private:
  Coordinator* const coordinator_;
  const uint64_t session_;
  uint64_t hold_ = 0;
};

}  // namespace

void CreateSession(const CallRef<v1::CreateSessionRequest, v1::Session>& call) {
  const v1::CreateSessionRequest& q = call->request();
  Answer<SessionInfo>(
      call,
      scheduler::OpenSession{call->identity(), q.display_name().substr(0, kDisplayNameMax),
                             ir::serial::FromProto(q.lease())},
      Fill);
}

void GetSession(const CallRef<v1::GetSessionRequest, v1::Session>& call) {
  Answer<SessionInfo>(
      call, scheduler::GetSession{{0, call->caller()}, call->request().session(), /*renew=*/false},
      Fill);
}

void RenewSession(const CallRef<v1::RenewSessionRequest, v1::Session>& call) {
  Answer<SessionInfo>(
      call, scheduler::GetSession{{0, call->caller()}, call->request().session(), /*renew=*/true},
      Fill);
}

void ListSessions(const CallRef<v1::ListSessionsRequest, v1::ListSessionsResponse>& call) {
  AnswerPage<SessionInfo>(
      call, scheduler::ListSessions{{0, call->caller()}, {}}, /*filter=*/"",
      [](const SessionInfo& info, auto* out) { Fill(info, out->add_sessions()); },
      [](const SessionInfo& info) { return info.id; });
}

grpc::ServerWriteReactor<v1::Session>* HoldSession(
    StreamCall<v1::HoldSessionRequest, v1::Session> call) {
  const auto stream = HoldStream::Make(call.context->coordinator, call.request.session());
  stream->Start(call.caller);
  return stream.get();
}

void DeleteSession(const CallRef<v1::DeleteSessionRequest, v1::DeleteSessionResponse>& call) {
  AnswerEmpty(call, scheduler::CloseSession{call->identity(), call->request().session()});
}

}  // namespace tessera::server::rpc
