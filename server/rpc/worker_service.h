// Connects workers to the coordinator over gRPC: by one stream for a worker's daemon, and one for
// each of its executors (proto/tessera/v1/worker.proto). Reference: docs/decisions/0007,
// docs/decisions/0009.
#pragma once
#include "server/rpc/connected_workers.h"
#include "server/rpc/gate.h"
#include "server/rpc/worker_streams.h"
#include "tessera/v1/worker.grpc.pb.h"

namespace tessera::server::rpc {

// Thread-safe.  `workers` and the gate outlive the server with which the service is registered.
class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  WorkerService(ConnectedWorkers* workers, Gate* gate) : workers_(workers), gate_(gate) {}

  WorkerReactor* Connect(grpc::CallbackServerContext* context) override;
  WorkerReactor* Attach(grpc::CallbackServerContext* context) override;

 private:
  ConnectedWorkers* const workers_;
  Gate* const gate_;
};

}  // namespace tessera::server::rpc
