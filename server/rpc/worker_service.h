// The worker link over gRPC: one bidirectional stream per worker (proto/tessera/v1/worker.proto).
#pragma once
#include "ir/api/worker_link.h"
#include "server/rpc/gate.h"
#include "tessera/v1/worker.grpc.pb.h"

namespace tessera::server::rpc {

using WorkerReactor = grpc::ServerBidiReactor<v1::Envelope, v1::Envelope>;

// Thread-safe.  `events` and the gate outlive the server that this is registered with.
class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  WorkerService(api::WorkerEvents* events, Gate* gate) : events_(events), gate_(gate) {}

  WorkerReactor* Connect(grpc::CallbackServerContext* context) override;

 private:
  api::WorkerEvents* const events_;
  Gate* const gate_;
};

}  // namespace tessera::server::rpc
