// The client's end of ProgramService.ExecutePrograms: executes programs over one stream to the
// coordinator. The completions arrive on the same stream, with small results inline.
//
// Thread-safe. There is no background thread, which would add latency: one of the waiting threads
// polls the stream for all of them, and passes this role on when its own event has arrived. A
// broken stream is replaced at the next run. For each run that had not completed, FailureOf then
// returns the status of the broken stream.
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

class ExecutionClient {
 public:
  class Stream;
  // One run of an executable. The polling thread sets each field once.
  class Run {
   public:
    Run(std::shared_ptr<Stream> stream, uint64_t number)
        : stream_(std::move(stream)), number_(number) {}

   private:
    friend class Stream;
    friend class ExecutionClient;
    const std::shared_ptr<Stream> stream_;
    const uint64_t number_;
    // Guarded by the mutex of the stream.
    bool accepted_ = false, over_ = false;
    api::ExecuteReply reply_;
    std::optional<api::Operation> operation_;  // the record of the run, once it has ended
    std::map<uint64_t, ir::Array> results_;
    // The reason why the run was refused, or the status of a stream that broke before the run
    // ended.
    grpc::Status failure_;
  };

  // `stub` and the captures of `prepare` must outlive this object.
  ExecutionClient(v1::ProgramService::Stub* stub, PrepareFn prepare);
  ExecutionClient(const ExecutionClient&) = delete;
  ExecutionClient& operator=(const ExecutionClient&) = delete;
  // Closes the stream. The runs go on at the coordinator.
  ~ExecutionClient();

  // Sends the request and waits until the run is accepted or refused, at most `timeout`.
  grpc::Status SendAndAwaitAcceptance(const v1::ExecuteProgramRequest& request,
                                      absl::Duration timeout, std::shared_ptr<Run>* run,
                                      api::ExecuteReply* reply) ABSL_LOCKS_EXCLUDED(mu_);
  // Sends a request that already has a number, and does not wait for its acceptance. If `after` is
  // not null, the request goes over the stream of that run, behind it. If the stream is broken, the
  // run that is returned has already ended, and its failure is the stream's status.
  std::shared_ptr<Run> Send(v1::ExecuteProgramsRequest request, const Run* after)
      ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t NextNumber() { return ++last_number_; }
  // Waits until the run is accepted or refused, at most `timeout`.
  static grpc::Status AwaitAcceptance(const Run& run, absl::Duration timeout,
                                      api::ExecuteReply* reply);
  // Ends the stream, so that all waits on it return.
  void CancelStream() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until the stream of the run has ended, at most for `wait`, and ends it if it has not. The
  // next run opens another stream.
  static void EndStream(const Run& run, absl::Duration wait);
  // Waits for the completion of the run, at most until `deadline`. Returns whether the completion
  // or the end of the stream has arrived.
  bool AwaitEnd(const Run& run, absl::Time deadline) const;
  // Returns the result `array` of the run, if it came inline with the completion.
  std::optional<ir::Array> ResultOf(const Run& run, uint64_t array) const;
  // Returns the ids of the run's operation and results, if the run is accepted.
  static std::optional<api::ExecuteReply> ReplyOf(const Run& run);
  // Returns the record of the run, if it has ended.
  static std::optional<api::Operation> OperationOf(const Run& run);
  // Returns whether the completion of the run, its refusal or the end of the stream has arrived.
  static bool IsOver(const Run& run);
  // Returns whether the completion of the run has arrived.
  static bool IsCompleted(const Run& run);
  // Drops the inline results of the run. From now on the run's results are read by ticket.
  static void DropResults(Run& run);
  // Returns the error of a run that was refused, or the status of a stream that broke before the
  // run completed. Returns OK for any other run.
  grpc::Status FailureOf(const Run& run) const;
  // Returns the number of runs on the current stream that have not completed.
  size_t num_open_runs() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Returns the current stream or, if that has ended, a new one.
  std::shared_ptr<Stream> UsableStream() ABSL_LOCKS_EXCLUDED(mu_);

  v1::ProgramService::Stub* const stub_;
  const PrepareFn prepare_;
  std::atomic<uint64_t> last_number_{0};
  mutable absl::Mutex mu_;
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::remote
