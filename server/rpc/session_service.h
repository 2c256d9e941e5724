// SessionService: sessions opened, renewed and ended.
#pragma once
#include <vector>

#include "server/coordinator.h"
#include "server/rpc/call.h"
#include "tessera/v1/session.pb.h"

namespace tessera::server::rpc {

// Thread-safe; the coordinator outlives it.
class SessionService {
 public:
  explicit SessionService(Coordinator* coordinator) : coordinator_(coordinator) {}
  std::vector<Row> Rows();

 private:
  template <class Q, class R>
  using CallRef = std::shared_ptr<Call<Q, R>>;
  void CreateSession(const CallRef<v1::CreateSessionRequest, v1::Session>& call);
  void GetSession(const CallRef<v1::GetSessionRequest, v1::Session>& call);
  void ListSessions(const CallRef<v1::ListSessionsRequest, v1::ListSessionsResponse>& call);
  void RenewSession(const CallRef<v1::RenewSessionRequest, v1::Session>& call);
  void DeleteSession(const CallRef<v1::DeleteSessionRequest, v1::DeleteSessionResponse>& call);
  grpc::ServerWriteReactor<v1::Session>* HoldSession(
      StreamCall<v1::HoldSessionRequest, v1::Session> call);

  Coordinator* const coordinator_;
};

}  // namespace tessera::server::rpc
