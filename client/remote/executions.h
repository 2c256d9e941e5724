// Runs that are watched, all over one stream to the coordinator (ProgramService.ExecutePrograms):
// small results come along with the end of their run.
//
// Whoever waits polls for all who wait, and hands over when its own answer has come: no thread of
// ours stands between the socket and the caller. Thread-safe. A stream that broke is followed by
// another with the next run. FailureOf says why it broke, of each run whose end had not come.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/remote/retry.h"
#include "grpcpp/grpcpp.h"
#include "ir/api/service.h"
#include "tessera/v1/program_service.grpc.pb.h"

namespace tessera::remote {

class Executions {
 public:
  class Stream;
  // One run. What it holds is set once, by whoever polls.
  class Run {
   public:
    Run(std::shared_ptr<Stream> stream, uint64_t number)
        : stream_(std::move(stream)), number_(number) {}

   private:
    friend class Stream;
    friend class Executions;
    const std::shared_ptr<Stream> stream_;
    const uint64_t number_;
    // Guarded by the stream's lock.
    bool accepted_ = false, over_ = false;
    api::ExecuteReply reply_;
    std::map<uint64_t, ir::Array> results_;
    grpc::Status failure_;  // why it was refused, or how the watch ended without saying how it did
  };

  // What `prepare` refers to outlives it.
  Executions(v1::ProgramService::Stub* stub, PrepareFn prepare);
  Executions(const Executions&) = delete;
  Executions& operator=(const Executions&) = delete;
  // Leaves; the runs go on.
  ~Executions();

  // Sends the request and waits until the run is accepted or refused, at most `limit`.
  grpc::Status Execute(const v1::ExecuteProgramRequest& request, absl::Duration limit,
                       std::shared_ptr<Run>* run, api::ExecuteReply* reply)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the end, at most until `deadline`. Whether it has come, or can come no more.
  bool AwaitEnd(const Run& run, absl::Time deadline) const;
  // What came along with the end.
  std::optional<ir::Array> ResultOf(const Run& run, uint64_t array) const;
  // How the watch ended without saying how the run did; OK while it has not.
  grpc::Status FailureOf(const Run& run) const;
  // Runs whose end has not come.
  size_t open() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::shared_ptr<Stream> Open() ABSL_LOCKS_EXCLUDED(mu_);

  v1::ProgramService::Stub* const stub_;
  const PrepareFn prepare_;
  std::atomic<uint64_t> last_number_{0};
  mutable absl::Mutex mu_;
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::remote
