#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "ir/serial/status.h"
#include "server/rpc/handlers.h"
#include "server/rpc/paging.h"

namespace tessera::server::rpc {
namespace {

using scheduler::Page;
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

// One HoldSession: writes the session, then nothing, until the caller leaves or the session ends.
// Finish is called once, when no write is in flight.
class HoldStream final : public grpc::ServerWriteReactor<v1::Session>,
                         public std::enable_shared_from_this<HoldStream> {
 public:
  static HoldStream* Start(Coordinator* coordinator, const core::Caller& caller, uint64_t session) {
    const auto stream = std::make_shared<HoldStream>(coordinator, session);
    stream->self_ = stream;
    // gRPC hears of the stream when this returns, so that OnCancel comes after hold_ is set.
    stream->hold_ = coordinator->HoldSessionAsync(
        caller, session,
        [stream](const absl::StatusOr<SessionInfo>& info) {
          if (info.ok()) stream->Held(*info);
        },
        [stream](const absl::Status& why) {
          stream->Leave(why.ok() ? absl::CancelledError("the hold was dropped") : why);
        });
    return stream.get();
  }

  HoldStream(Coordinator* coordinator, uint64_t session)
      : coordinator_(coordinator), session_(session) {}

  void OnWriteDone(bool) override ABSL_LOCKS_EXCLUDED(mu_) {
    bool end = false;
    {
      absl::MutexLock lock(&mu_);
      writing_ = false;
      end = TakeEnd();
    }
    if (end) End();
  }
  void OnCancel() override {
    coordinator_->ReleaseHold(session_, hold_);
    Leave(absl::CancelledError("the caller has left"));
  }
  void OnDone() override { const std::shared_ptr<HoldStream> last = std::move(self_); }

 private:
  void Held(const SessionInfo& info) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (ending_) return;
      writing_ = true;
    }
    Fill(info, &message_);
    StartWrite(&message_);
  }
  void Leave(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_) {
    bool end = false;
    {
      absl::MutexLock lock(&mu_);
      why_.Update(why);
      end = TakeEnd();
    }
    if (end) End();
  }
  // Whether the caller is to call End.
  bool TakeEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || ending_ || why_.ok()) return false;
    ending_ = true;
    return true;
  }
  // Nothing changes what it reads once ending_ is set.
  void End() ABSL_NO_THREAD_SAFETY_ANALYSIS { Finish(ToGrpc(why_)); }

  Coordinator* const coordinator_;
  const uint64_t session_;
  uint64_t hold_ = 0;
  std::shared_ptr<HoldStream> self_;
  v1::Session message_;
  absl::Mutex mu_;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

void CreateSession(const CallRef<v1::CreateSessionRequest, v1::Session>& call) {
  const v1::CreateSessionRequest& q = call->request();
  Answer<SessionInfo>(call,
                      scheduler::OpenSession{{0, call->caller()},
                                             q.display_name().substr(0, kDisplayNameMax),
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
  return HoldStream::Start(call.context->coordinator, call.caller, call.request.session());
}

void DeleteSession(const CallRef<v1::DeleteSessionRequest, v1::DeleteSessionResponse>& call) {
  AnswerDone(call, scheduler::CloseSession{{0, call->caller()}, call->request().session()});
}

}  // namespace tessera::server::rpc
