// AdminService: workers in and out of service; tokens (token_methods.h).
#pragma once
#include <vector>

#include "server/coordinator.h"
#include "server/rpc/call.h"
#include "tessera/v1/admin.pb.h"

namespace tessera::server::rpc {

// Thread-safe; the coordinator and the gate outlive it.
class AdminService {
 public:
  AdminService(Coordinator* coordinator, Gate* gate) : coordinator_(coordinator), gate_(gate) {}
  std::vector<Row> Rows();

 private:
  template <class Q, class R>
  using CallRef = std::shared_ptr<Call<Q, R>>;
  void CordonWorker(const CallRef<v1::CordonWorkerRequest, v1::Worker>& call);
  void UncordonWorker(const CallRef<v1::UncordonWorkerRequest, v1::Worker>& call);
  void DrainWorker(const CallRef<v1::DrainWorkerRequest, v1::Worker>& call);
  void DeleteWorker(const CallRef<v1::DeleteWorkerRequest, v1::Worker>& call);
  void CreateToken(const CallRef<v1::CreateTokenRequest, v1::CreateTokenResponse>& call);
  void ListTokens(const CallRef<v1::ListTokensRequest, v1::ListTokensResponse>& call);
  void RevokeToken(const CallRef<v1::RevokeTokenRequest, v1::Token>& call);

  Coordinator* const coordinator_;
  Gate* const gate_;
};

}  // namespace tessera::server::rpc
