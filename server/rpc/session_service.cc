#include "server/rpc/session_service.h"

#include "absl/strings/str_cat.h"
#include "ir/serial/status.h"
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
}

}  // namespace

std::vector<Row> SessionService::Rows() {
  return {Unary(Method::kSessionService_CreateSession, this, &SessionService::CreateSession),
          Unary(Method::kSessionService_GetSession, this, &SessionService::GetSession),
          Unary(Method::kSessionService_ListSessions, this, &SessionService::ListSessions),
          Unary(Method::kSessionService_RenewSession, this, &SessionService::RenewSession),
          Unary(Method::kSessionService_DeleteSession, this, &SessionService::DeleteSession)};
}

void SessionService::CreateSession(const CallRef<v1::CreateSessionRequest, v1::Session>& call) {
  const v1::CreateSessionRequest& q = call->request();
  coordinator_->Ask<SessionInfo>(scheduler::OpenSession{{0, call->caller()},
                                                        q.display_name().substr(0, kDisplayNameMax),
                                                        ir::serial::FromProto(q.lease())},
                                 Then<SessionInfo>(call, Fill));
}

void SessionService::GetSession(const CallRef<v1::GetSessionRequest, v1::Session>& call) {
  coordinator_->Ask<SessionInfo>(
      scheduler::GetSession{{0, call->caller()}, call->request().session(), /*renew=*/false},
      Then<SessionInfo>(call, Fill));
}

void SessionService::RenewSession(const CallRef<v1::RenewSessionRequest, v1::Session>& call) {
  coordinator_->Ask<SessionInfo>(
      scheduler::GetSession{{0, call->caller()}, call->request().session(), /*renew=*/true},
      Then<SessionInfo>(call, Fill));
}

void SessionService::ListSessions(
    const CallRef<v1::ListSessionsRequest, v1::ListSessionsResponse>& call) {
  scheduler::ListSessions event{{0, call->caller()}, {}};
  const std::string scope = absl::StrCat("sessions|", call->caller().tenant);
  if (absl::Status s = ReadPage(scope, call->request(), &event.page); !s.ok())
    return call->Finish(s);
  coordinator_->Ask<Page<SessionInfo>>(
      std::move(event), Then<Page<SessionInfo>>(call, [scope](const Page<SessionInfo>& page,
                                                              v1::ListSessionsResponse* out) {
        for (const SessionInfo& info : page.items) Fill(info, out->add_sessions());
        if (page.more)
          out->set_next_page_token(PageToken(scope, absl::StrCat(page.items.back().id)));
      }));
}

void SessionService::DeleteSession(
    const CallRef<v1::DeleteSessionRequest, v1::DeleteSessionResponse>& call) {
  coordinator_->Ask<std::monostate>(
      scheduler::CloseSession{{0, call->caller()}, call->request().session()},
      Then<std::monostate>(call, [](const std::monostate&, v1::DeleteSessionResponse*) {}));
}

}  // namespace tessera::server::rpc
