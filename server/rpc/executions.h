// The streams over which clients run programs (ExecutePrograms). Reference: docs/decisions/0008.
//
// Thread-safe. Executions outlives the gRPC server.
#pragma once
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/rpc/call.h"
#include "server/rpc/rpc_metrics.h"
#include "tessera/v1/program_service.pb.h"

namespace tessera::server::rpc {

class RunsStream;

class Executions {
 public:
  // `metrics` may be null. It outlives this object.
  explicit Executions(Metrics* metrics)
      : metrics_(metrics, Method::kProgramService_ExecutePrograms) {}

  // Ends all open streams with SERVER_STOPPING. Later streams are refused.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class RunsStream;
  friend BidiReactor<v1::ExecuteProgramsEvent>* ExecutePrograms(BidiCall call);
  void Remove(RunsStream* stream) ABSL_LOCKS_EXCLUDED(mu_);

  const RequestMetrics metrics_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::set<RunsStream*> open_streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::server::rpc
