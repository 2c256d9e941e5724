// The workers that are connected over gRPC, and what their streams (worker_streams.h) share.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "ir/api/worker_link.h"
#include "server/rpc/run_program.h"

namespace tessera::server::rpc {

class WorkerStream;

// Thread-safe.  `events` and `clock` outlive this object, which outlives the streams.
class ConnectedWorkers {
 public:
  ConnectedWorkers(api::WorkerEvents* events, const Clock* clock)
      : events_(events), clock_(clock) {}

  // Records the stream of the worker `name` under its registration. The stream itself calls this.
  void Add(uint64_t registration_id, const std::string& name,
           const std::shared_ptr<WorkerStream>& stream) ABSL_LOCKS_EXCLUDED(mu_);
  // Removes the worker of the registration. Returns false if there was none.
  bool Remove(uint64_t registration_id) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the stream of the worker with this registration, or null if there is none.
  std::shared_ptr<WorkerStream> Find(uint64_t registration_id) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the streams of all connected workers. The key is the worker's name.
  std::map<std::string, std::shared_ptr<WorkerStream>> StreamsByName() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the threads for inquiries that block. Inquiries do not share the threads for
  // RunProgram, because those may all be stuck.
  JobPool& inquiry_pool() { return inquiry_pool_; }
  api::WorkerEvents& events() { return *events_; }
  const Clock& clock() const { return *clock_; }

 private:
  struct Worker {
    std::string name;
    std::weak_ptr<WorkerStream> stream;
  };

  api::WorkerEvents* const events_;
  const Clock* const clock_;
  JobPool inquiry_pool_;
  absl::Mutex mu_;
  std::map<uint64_t, Worker> workers_ ABSL_GUARDED_BY(mu_);  // key: registration id
};

}  // namespace tessera::server::rpc
