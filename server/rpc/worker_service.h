// Connects workers to the coordinator over gRPC: by one stream for a worker's daemon, and one for
// each of its executors (proto/tessera/v1/worker.proto). Reference: docs/decisions/0007,
// docs/decisions/0009.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ir/api/worker_link.h"
#include "server/rpc/gate.h"
#include "server/rpc/run_program.h"
#include "tessera/v1/worker.grpc.pb.h"

namespace tessera::server::rpc {

using WorkerReactor = grpc::ServerBidiReactor<v1::Envelope, v1::Envelope>;

class WorkerStream;

// Thread-safe.  `events` and the gate outlive the server with which the service is registered.
class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  WorkerService(api::WorkerEvents* events, Gate* gate) : events_(events), gate_(gate) {}

  WorkerReactor* Connect(grpc::CallbackServerContext* context) override;
  WorkerReactor* Attach(grpc::CallbackServerContext* context) override;

  // Records that `worker` is registered under the session. The stream itself calls this.
  void Add(uint64_t session, const std::shared_ptr<WorkerStream>& worker) ABSL_LOCKS_EXCLUDED(mu_);
  // Removes the worker of the session. Returns false if there was none.
  bool Remove(uint64_t session) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the worker of the session, or null if there is none.
  std::shared_ptr<WorkerStream> Find(uint64_t session) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns every connected worker, by name.
  std::map<std::string, std::shared_ptr<WorkerStream>> ByName() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the threads for inquiries that block. Inquiries do not share the threads for
  // RunProgram, because those may all be stuck.
  JobPool& inquiry_pool() { return inquiry_pool_; }
  api::WorkerEvents& events() { return *events_; }
  const Clock& clock() const { return gate_->clock(); }

 private:
  api::WorkerEvents* const events_;
  Gate* const gate_;
  JobPool inquiry_pool_;
  absl::Mutex mu_;
  std::map<uint64_t, std::weak_ptr<WorkerStream>> workers_ ABSL_GUARDED_BY(mu_);  // key: session
};

}  // namespace tessera::server::rpc
