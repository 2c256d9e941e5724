// OperationService: what became of runs, and why they wait.
#pragma once
#include <vector>

#include "server/coordinator.h"
#include "server/rpc/call.h"
#include "tessera/v1/operation.pb.h"

namespace tessera::server::rpc {

// Thread-safe; the coordinator outlives it.
class OperationService {
 public:
  explicit OperationService(Coordinator* coordinator) : coordinator_(coordinator) {}
  std::vector<Row> Rows();

 private:
  template <class Q, class R>
  using CallRef = std::shared_ptr<Call<Q, R>>;
  void GetOperation(const CallRef<v1::GetOperationRequest, v1::Operation>& call);
  void ListOperations(const CallRef<v1::ListOperationsRequest, v1::ListOperationsResponse>& call);
  void ExplainPending(const CallRef<v1::ExplainPendingRequest, v1::ExplainPendingResponse>& call);
  grpc::ServerWriteReactor<v1::Operation>* WatchOperation(
      StreamCall<v1::WatchOperationRequest, v1::Operation> call);
  void WaitOperation(const CallRef<v1::WaitOperationRequest, v1::Operation>& call);
  void CancelOperation(
      const CallRef<v1::CancelOperationRequest, v1::CancelOperationResponse>& call);

  Coordinator* const coordinator_;
};

}  // namespace tessera::server::rpc
