// A run that was accepted and is watched: its results come along with its end, if they are small.
//
// The thread that waits for the end polls for it: no other thread stands between the socket and the
// caller. Thread-safe. The destructor ends the watch; the run goes on.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "ir/api/service.h"
#include "tessera/v1/program_service.grpc.pb.h"

namespace tessera::remote {

class Execution {
 public:
  // `context` has its deadline and metadata.
  Execution(v1::ProgramService::Stub* stub, std::unique_ptr<grpc::ClientContext> context,
            const v1::ExecuteProgramRequest& request);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  ~Execution();

  // Once, first: waits until the run is accepted, or the context's deadline.
  grpc::Status Accept(api::ExecuteReply* reply) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the end, at most until `deadline`, which may be in the past. Returns whether the end
  // has come, or the watch is over without it.
  bool AwaitEnd(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // A result that came with the end.
  std::optional<ir::Array> ResultOf(uint64_t array) const ABSL_LOCKS_EXCLUDED(mu_);
  // Why the watch ended before the run; OK otherwise.
  grpc::Status failure() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Cancels the stream and drains its queue.
  void Leave();
  // The status of the stream, after a read of it has failed.
  grpc::Status Finish();
  void KeepEnd(bool ok) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<grpc::ClientContext> context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::ExecuteProgramEvent>> reader_;
  v1::ExecuteProgramEvent event_;  // of the read in flight

  mutable absl::Mutex mu_;
  bool polling_ ABSL_GUARDED_BY(mu_) = false;  // a thread waits on the queue
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  std::map<uint64_t, ir::Array> results_ ABSL_GUARDED_BY(mu_);
  grpc::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::remote
