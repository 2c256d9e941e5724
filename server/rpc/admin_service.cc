#include "server/rpc/admin_service.h"

#include "base/log.h"
#include "server/rpc/cluster_service.h"
#include "server/rpc/token_methods.h"

namespace tessera::server::rpc {

using scheduler::WorkerInfo;

std::vector<Row> AdminService::Rows() {
  return {Unary(Method::kAdminService_CordonWorker, this, &AdminService::CordonWorker),
          Unary(Method::kAdminService_UncordonWorker, this, &AdminService::UncordonWorker),
          Unary(Method::kAdminService_DrainWorker, this, &AdminService::DrainWorker),
          Unary(Method::kAdminService_DeleteWorker, this, &AdminService::DeleteWorker),
          Unary(Method::kAdminService_CreateToken, this, &AdminService::CreateToken),
          Unary(Method::kAdminService_ListTokens, this, &AdminService::ListTokens),
          Unary(Method::kAdminService_RevokeToken, this, &AdminService::RevokeToken)};
}

void AdminService::CordonWorker(const CallRef<v1::CordonWorkerRequest, v1::Worker>& call) {
  const v1::CordonWorkerRequest& q = call->request();
  TESSERA_LOG(INFO) << "worker is cordoned" << Field("worker", q.worker())
                    << Field("token", call->caller().token_name) << Field("reason", q.reason());
  coordinator_->Ask<WorkerInfo>(
      scheduler::Cordon{{0, call->caller()}, q.worker(), q.reason(), /*on=*/true},
      Then<WorkerInfo>(call, FillWorker));
}

void AdminService::UncordonWorker(const CallRef<v1::UncordonWorkerRequest, v1::Worker>& call) {
  const v1::UncordonWorkerRequest& q = call->request();
  TESSERA_LOG(INFO) << "worker is uncordoned" << Field("worker", q.worker())
                    << Field("token", call->caller().token_name);
  coordinator_->Ask<WorkerInfo>(
      scheduler::Cordon{{0, call->caller()}, q.worker(), "", /*on=*/false},
      Then<WorkerInfo>(call, FillWorker));
}

void AdminService::DrainWorker(const CallRef<v1::DrainWorkerRequest, v1::Worker>& call) {
  const v1::DrainWorkerRequest& q = call->request();
  TESSERA_LOG(INFO) << "worker is drained" << Field("worker", q.worker())
                    << Field("token", call->caller().token_name) << Field("reason", q.reason());
  coordinator_->Ask<WorkerInfo>(
      scheduler::Drain{
          {0, call->caller()}, q.worker(), q.reason(), call->Wait(q.has_timeout(), q.timeout())},
      Then<WorkerInfo>(call, FillWorker));
}

void AdminService::DeleteWorker(const CallRef<v1::DeleteWorkerRequest, v1::Worker>& call) {
  const v1::DeleteWorkerRequest& q = call->request();
  TESSERA_LOG(INFO) << "worker is deleted" << Field("worker", q.worker())
                    << Field("token", call->caller().token_name);
  coordinator_->Ask<WorkerInfo>(scheduler::DeleteWorker{{0, call->caller()}, q.worker()},
                                Then<WorkerInfo>(call, FillWorker));
}

void AdminService::CreateToken(
    const CallRef<v1::CreateTokenRequest, v1::CreateTokenResponse>& call) {
  call->Finish(rpc::CreateToken(*gate_, call->request(), &call->response()));
}
void AdminService::ListTokens(const CallRef<v1::ListTokensRequest, v1::ListTokensResponse>& call) {
  call->Finish(rpc::ListTokens(*gate_, call->request(), &call->response()));
}
void AdminService::RevokeToken(const CallRef<v1::RevokeTokenRequest, v1::Token>& call) {
  call->Finish(rpc::RevokeToken(*gate_, call->request(), &call->response()));
}

}  // namespace tessera::server::rpc
