// Opens the streams of workers. gRPC calls Connect for a daemon and Attach for an executor; the
// streams themselves are in worker_streams.cc.
#include "server/rpc/worker_service.h"

namespace tessera::server::rpc {

WorkerReactor* WorkerService::Connect(grpc::CallbackServerContext* context) {
  const absl::StatusOr<core::Caller> caller = gate_->Admit(context, Method::kWorkerService_Connect);
  if (!caller.ok()) return new RefusedStream<WorkerReactor>(caller.status());
  const auto stream =
      WorkerStream::Make<WorkerStream>(context, workers_, Gate::WorkerOfCertificate(*context));
  stream->Start();
  return stream.get();
}

WorkerReactor* WorkerService::Attach(grpc::CallbackServerContext* context) {
  const absl::StatusOr<core::Caller> caller = gate_->Admit(context, Method::kWorkerService_Attach);
  if (!caller.ok()) return new RefusedStream<WorkerReactor>(caller.status());
  const auto stream = ExecutorStream::Make<ExecutorStream>(context, workers_);
  stream->Start();
  return stream.get();
}

}  // namespace tessera::server::rpc
