// Opens the streams of workers. gRPC calls Connect for a daemon and Attach for an executor; the
// streams themselves are in worker_streams.cc.
#include "server/rpc/worker_service.h"

#include "server/rpc/worker_streams.h"

namespace tessera::server::rpc {

WorkerReactor* WorkerService::Connect(grpc::CallbackServerContext* context) {
  const absl::StatusOr<core::Caller> caller = gate_->Admit(context, Method::kWorkerService_Connect);
  if (!caller.ok()) return new RefusedStream<WorkerReactor>(caller.status());
  const auto stream =
      WorkerStream::Make<WorkerStream>(context, this, Gate::WorkerOfCertificate(*context));
  stream->Start();
  return stream.get();
}

WorkerReactor* WorkerService::Attach(grpc::CallbackServerContext* context) {
  const absl::StatusOr<core::Caller> caller = gate_->Admit(context, Method::kWorkerService_Attach);
  if (!caller.ok()) return new RefusedStream<WorkerReactor>(caller.status());
  const auto stream = ExecutorStream::Make<ExecutorStream>(context, this);
  stream->Start();
  return stream.get();
}

void WorkerService::Add(uint64_t session, const std::shared_ptr<WorkerStream>& worker) {
  absl::MutexLock lock(&mu_);
  workers_[session] = worker;
}

bool WorkerService::Remove(uint64_t session) {
  absl::MutexLock lock(&mu_);
  return workers_.erase(session) > 0;
}

std::shared_ptr<WorkerStream> WorkerService::Find(uint64_t session) {
  absl::MutexLock lock(&mu_);
  const auto found = workers_.find(session);
  return found == workers_.end() ? nullptr : found->second.lock();
}

std::map<std::string, std::shared_ptr<WorkerStream>> WorkerService::ByName() {
  std::map<std::string, std::shared_ptr<WorkerStream>> found;
  absl::MutexLock lock(&mu_);
  for (const auto& [session, weak] : workers_) {
    // If a name has several sessions, the latest one is connected.
    if (std::shared_ptr<WorkerStream> worker = weak.lock())
      found[worker->worker()] = std::move(worker);
  }
  return found;
}

}  // namespace tessera::server::rpc
