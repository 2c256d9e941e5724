#include "base/log.h"
#include "server/rpc/handlers.h"
#include "server/rpc/token_methods.h"

namespace tessera::server::rpc {

using scheduler::WorkerInfo;

void CordonWorker(const CallRef<v1::CordonWorkerRequest, v1::Worker>& call) {
  const v1::CordonWorkerRequest& q = call->request();
  TESSERA_LOG(INFO) << "worker is cordoned" << Field("worker", q.worker())
                    << Field("token", call->caller().token_name) << Field("reason", q.reason());
  Answer<WorkerInfo>(call,
                     scheduler::Cordon{{0, call->caller()}, q.worker(), q.reason(), /*on=*/true},
                     FillWorker);
}

void UncordonWorker(const CallRef<v1::UncordonWorkerRequest, v1::Worker>& call) {
  const v1::UncordonWorkerRequest& q = call->request();
  TESSERA_LOG(INFO) << "worker is uncordoned" << Field("worker", q.worker())
                    << Field("token", call->caller().token_name);
  Answer<WorkerInfo>(call, scheduler::Cordon{{0, call->caller()}, q.worker(), "", /*on=*/false},
                     FillWorker);
}

void DrainWorker(const CallRef<v1::DrainWorkerRequest, v1::Worker>& call) {
  const v1::DrainWorkerRequest& q = call->request();
  TESSERA_LOG(INFO) << "worker is drained" << Field("worker", q.worker())
                    << Field("token", call->caller().token_name) << Field("reason", q.reason());
  Answer<WorkerInfo>(
      call,
      scheduler::Drain{
          {0, call->caller()}, q.worker(), q.reason(), call->Wait(q.has_timeout(), q.timeout())},
      FillWorker);
}

void DeleteWorker(const CallRef<v1::DeleteWorkerRequest, v1::Worker>& call) {
  const v1::DeleteWorkerRequest& q = call->request();
  TESSERA_LOG(INFO) << "worker is deleted" << Field("worker", q.worker())
                    << Field("token", call->caller().token_name);
  Answer<WorkerInfo>(call, scheduler::DeleteWorker{{0, call->caller()}, q.worker()}, FillWorker);
}

void CreateToken(const CallRef<v1::CreateTokenRequest, v1::CreateTokenResponse>& call) {
  call->Finish(rpc::CreateToken(*call->context().gate, call->request(), &call->response()));
}
void ListTokens(const CallRef<v1::ListTokensRequest, v1::ListTokensResponse>& call) {
  call->Finish(rpc::ListTokens(*call->context().gate, call->request(), &call->response()));
}
void RevokeToken(const CallRef<v1::RevokeTokenRequest, v1::Token>& call) {
  call->Finish(rpc::RevokeToken(*call->context().gate, call->request(), &call->response()));
}

}  // namespace tessera::server::rpc
