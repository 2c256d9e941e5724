// Executes programs over one stream to the coordinator (ProgramService.ExecutePrograms), on which
// completions arrive, with small results inline.
//
// Thread-safe. One of the waiting threads polls the stream for all, and passes the role on when its
// own event has arrived: no background thread adds latency. A broken stream is replaced at the next
// run; FailureOf is then its status, for each run that had not completed.
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
  // One run. Its fields are set once, by the polling thread.
  class Run {
   public:
    Run(std::shared_ptr<Stream> stream, uint64_t number)
        : stream_(std::move(stream)), number_(number) {}

   private:
    friend class Stream;
    friend class Executions;
    const std::shared_ptr<Stream> stream_;
    const uint64_t number_;
    // Guarded by the mutex of the stream.
    bool accepted_ = false, over_ = false;
    api::ExecuteReply reply_;
    std::optional<api::Operation> operation_;  // as it ended
    std::map<uint64_t, ir::Array> results_;
    grpc::Status failure_;  // the error of its acceptance, or of a stream that broke before its end
  };

  // Captures of `prepare` must outlive this object.
  Executions(v1::ProgramService::Stub* stub, PrepareFn prepare);
  Executions(const Executions&) = delete;
  Executions& operator=(const Executions&) = delete;
  // Closes the stream. The runs continue.
  ~Executions();

  // Sends the request and waits until the run is accepted or rejected, at most `timeout`.
  grpc::Status Execute(const v1::ExecuteProgramRequest& request, absl::Duration timeout,
                       std::shared_ptr<Run>* run, api::ExecuteReply* reply)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Sends a request with a number of its own, which is not waited for: `after`, if there is one, is
  // the run that was sent before it, on whose stream it goes. Of a stream that is broken the run
  // has ended at once, with its status.
  std::shared_ptr<Run> Send(v1::ExecuteProgramsRequest request, const Run* after)
      ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t NextNumber() { return ++last_number_; }
  // Waits until the run is accepted or rejected, at most `timeout`.
  static grpc::Status AwaitAcceptance(const Run& run, absl::Duration timeout,
                                      api::ExecuteReply* reply);
  // Ends the stream, and whoever waits on it.
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the completion, at most until `deadline`; returns whether it or the end of the stream
  // has arrived.
  bool AwaitEnd(const Run& run, absl::Time deadline) const;
  // The result, if it was inline in the completion.
  std::optional<ir::Array> ResultOf(const Run& run, uint64_t array) const;
  // Its ids, if it is accepted.
  static std::optional<api::ExecuteReply> ReplyOf(const Run& run);
  // Its record, if it has ended.
  static std::optional<api::Operation> OperationOf(const Run& run);
  static bool IsOver(const Run& run);
  // Results are read by ticket from now on.
  static void DropResults(Run& run);
  // The status of a stream that broke before the completion; else OK.
  grpc::Status FailureOf(const Run& run) const;
  // The number of runs that have not completed.
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
