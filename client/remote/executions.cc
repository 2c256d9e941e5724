// The client's end of ExecutePrograms. RemoteService uses it for runs whose acceptance it awaits,
// and RunsAhead for runs that are sent ahead; both then take small results from the stream instead
// of asking for read tickets. Reference: docs/decisions/0008-runs-go-over-one-stream.md.
#include "client/remote/executions.h"

#include <deque>
#include <utility>

#include "base/clock.h"
#include "ir/serial/service.h"

namespace tessera::remote {
namespace {

// If a stream was idle for this long, the client checks before the next run whether the stream has
// ended.
constexpr absl::Duration kMaxIdle = absl::Milliseconds(50);
// gRPC ends a cancelled stream at once, without the server.
constexpr absl::Duration kCancelTimeout = absl::Seconds(5);

}  // namespace

// One stream. At most one read and one write are in flight. Only the polling thread takes events
// from the queue, and it starts the next read or write before another thread may poll.
class ExecutionClient::Stream {
 public:
  Stream(v1::ProgramService::Stub* stub, const PrepareFn& prepare) {
    prepare(&context_, absl::InfiniteDuration());
    // The metadata is sent with the first request.
    context_.set_initial_metadata_corked(true);
    stream_ = stub->AsyncExecutePrograms(&context_, &queue_, nullptr);
    stream_->Read(&event_, &event_);
  }
  ~Stream() { Close(); }
  // Cancels the call and drops all runs. Call only when no thread waits. The runs own the stream,
  // so the stream must release the runs, or neither would ever be destroyed.
  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
    std::map<uint64_t, std::shared_ptr<Run>> runs;  // destroyed without the lock
    absl::MutexLock lock(&mu_);
    runs.swap(runs_);
  }

  void Send(const std::shared_ptr<Run>& run, v1::ExecuteProgramsRequest request)
      ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (broken_) {
        run->over_ = true;
        run->failure_ = status_;
        return;
      }
      last_used_ = SteadyNow();
      runs_.emplace(run->number_, run);
      if (writing_) return requests_.push_back(std::move(request));
      writing_ = true;
    }
    stream_->Write(request, &requests_);
  }
  // Waits until `flag` of the run is set or the run is over. Returns false at `deadline`.
  bool Await(const Run& run, bool Run::*flag, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return AwaitThat([&] { return run.*flag || run.over_; }, deadline);
  }
  // Waits until the stream has ended. Returns false at `deadline`.
  bool AwaitEnd(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return AwaitThat([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return broken_; }, deadline);
  }
  // Returns false if the stream has ended. If the stream was idle, polls it first, because it may
  // have ended while no thread polled.
  bool CheckUsable() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (polling_ || SteadyNow() - last_used_ < kMaxIdle) return !broken_;
    polling_ = true;
    while (!broken_ && Poll(SteadyNow())) continue;
    polling_ = false;
    return !broken_;
  }
  size_t num_open_runs() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return runs_.size();
  }
  void Cancel() { context_.TryCancel(); }

  mutable absl::Mutex mu_;

 private:
  // Polls the queue, or waits for another thread that does, until `arrived` returns true. Returns
  // false at `deadline`.
  template <class Arrived>
  bool AwaitThat(const Arrived& arrived, absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto arrived_or_idle = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return arrived() || !polling_;
    };
    while (true) {
      if (!mu_.AwaitWithTimeout(absl::Condition(&arrived_or_idle), deadline - SteadyNow()))
        return false;
      if (arrived()) return true;
      polling_ = true;
      const bool in_time = Poll(deadline);
      polling_ = false;
      if (!in_time) return arrived();
    }
  }
  // Waits for the next event of the queue and handles it. Releases the lock during the wait.
  // Returns false at `deadline`.
  bool Poll(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    void* tag = nullptr;
    bool ok = false;
    mu_.Unlock();
    const auto next = queue_.AsyncNext(&tag, &ok, WallDeadline(deadline - SteadyNow()));
    mu_.Lock();
    if (next != grpc::CompletionQueue::GOT_EVENT) return false;
    if (tag == &requests_) {
      HandleWritten(ok);
    } else if (ok) {
      HandleEvent();
    } else {
      HandleStreamEnd();
    }
    return true;
  }
  void HandleWritten(bool ok) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    writing_ = false;
    if (!ok || requests_.empty()) return;  // The pending read reports a broken stream.
    const v1::ExecuteProgramsRequest request = std::move(requests_.front());
    requests_.pop_front();
    writing_ = true;
    mu_.Unlock();
    stream_->Write(request, &requests_);
    mu_.Lock();
  }
  // Applies the message that was read to the run that it names, and starts the next read. Releases
  // the lock for the call of gRPC, which must not be made with the lock held. Messages about runs
  // that are over are ignored. A run ends with its completion or with its refusal.
  void HandleEvent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto found = runs_.find(event_.number());
    if (found != runs_.end()) {
      Run& run = *found->second;
      if (event_.has_accepted()) {
        run.reply_ = ir::serial::FromProto(event_.accepted());
        run.accepted_ = true;
      } else {
        if (event_.has_refused())
          run.failure_ =
              grpc::Status(static_cast<grpc::StatusCode>(event_.refused().code()),
                           event_.refused().message(), event_.refused().SerializeAsString());
        // If an inline result does not parse, the results are read by ticket later.
        if (absl::StatusOr<api::Completion> end = ir::serial::FromProto(event_.ended()); end.ok()) {
          if (event_.has_ended()) run.operation_ = std::move(end->operation);
          for (auto& [array, value] : end->results)
            run.results_.insert_or_assign(array, std::move(value));
        }
        run.over_ = true;
        runs_.erase(found);
      }
    }
    event_.Clear();
    mu_.Unlock();
    stream_->Read(&event_, &event_);
    mu_.Lock();
  }
  // Ends all runs of the stream with the stream's final status.
  void HandleStreamEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    mu_.Unlock();
    grpc::Status status;
    stream_->Finish(&status, &status);
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok) && tag != &status) continue;
    mu_.Lock();
    broken_ = true;
    status_ =
        status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream ended") : status;
    for (const auto& [number, run] : runs_) {
      run->over_ = true;
      run->failure_ = status_;
    }
    runs_.clear();
    requests_.clear();
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<
      grpc::ClientAsyncReaderWriter<v1::ExecuteProgramsRequest, v1::ExecuteProgramsEvent>>
      stream_;
  v1::ExecuteProgramsEvent event_;  // filled by the read in flight

  bool polling_ ABSL_GUARDED_BY(mu_) = false;  // true while a thread polls the queue
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<v1::ExecuteProgramsRequest> requests_ ABSL_GUARDED_BY(mu_);  // requests to write
  std::map<uint64_t, std::shared_ptr<Run>> runs_ ABSL_GUARDED_BY(mu_);    // runs that are not over
  absl::Time last_used_ ABSL_GUARDED_BY(mu_) = SteadyNow();
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);  // valid once broken_
};

ExecutionClient::ExecutionClient(v1::ProgramService::Stub* stub, PrepareFn prepare)
    : stub_(stub), prepare_(std::move(prepare)) {}

ExecutionClient::~ExecutionClient() {
  if (stream_ != nullptr) stream_->Close();
}

std::shared_ptr<ExecutionClient::Stream> ExecutionClient::UsableStream() {
  absl::MutexLock lock(&mu_);
  if (stream_ == nullptr || !stream_->CheckUsable())
    stream_ = std::make_shared<Stream>(stub_, prepare_);
  return stream_;
}

std::shared_ptr<ExecutionClient::Run> ExecutionClient::Send(v1::ExecuteProgramsRequest request,
                                                            const Run* after) {
  const std::shared_ptr<Stream> stream = after == nullptr ? UsableStream() : after->stream_;
  auto run = std::make_shared<Run>(stream, request.number());
  stream->Send(run, std::move(request));
  return run;
}

grpc::Status ExecutionClient::AwaitAcceptance(const Run& run, absl::Duration timeout,
                                              api::ExecuteReply* reply) {
  if (!run.stream_->Await(run, &Run::accepted_, SteadyNow() + timeout))
    return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded");
  absl::MutexLock lock(&run.stream_->mu_);
  if (!run.accepted_ && run.failure_.ok())
    return grpc::Status(grpc::StatusCode::INTERNAL, "the coordinator did not say what it ran");
  if (!run.accepted_) return run.failure_;
  *reply = run.reply_;
  return grpc::Status::OK;
}

grpc::Status ExecutionClient::SendAndAwaitAcceptance(const v1::ExecuteProgramRequest& request,
                                                     absl::Duration timeout,
                                                     std::shared_ptr<Run>* run,
                                                     api::ExecuteReply* reply) {
  v1::ExecuteProgramsRequest numbered_request;
  numbered_request.set_number(NextNumber());
  *numbered_request.mutable_run() = request;
  *run = Send(std::move(numbered_request), /*after=*/nullptr);
  return AwaitAcceptance(**run, timeout, reply);
}

void ExecutionClient::CancelStream() {
  absl::MutexLock lock(&mu_);
  if (stream_ != nullptr) stream_->Cancel();
}

void ExecutionClient::EndStream(const Run& run, absl::Duration wait) {
  Stream& stream = *run.stream_;
  if (stream.AwaitEnd(SteadyNow() + wait)) return;
  stream.Cancel();
  stream.AwaitEnd(SteadyNow() + kCancelTimeout);
}

bool ExecutionClient::AwaitEnd(const Run& run, absl::Time deadline) const {
  return run.stream_->Await(run, &Run::over_, deadline);
}

std::optional<ir::Array> ExecutionClient::ResultOf(const Run& run, uint64_t array) const {
  absl::MutexLock lock(&run.stream_->mu_);
  const auto it = run.results_.find(array);
  if (it == run.results_.end()) return std::nullopt;
  return it->second;
}

std::optional<api::ExecuteReply> ExecutionClient::ReplyOf(const Run& run) {
  absl::MutexLock lock(&run.stream_->mu_);
  return run.accepted_ ? std::optional(run.reply_) : std::nullopt;
}

std::optional<api::Operation> ExecutionClient::OperationOf(const Run& run) {
  absl::MutexLock lock(&run.stream_->mu_);
  return run.operation_;
}

bool ExecutionClient::IsOver(const Run& run) {
  absl::MutexLock lock(&run.stream_->mu_);
  return run.over_;
}

bool ExecutionClient::IsCompleted(const Run& run) {
  absl::MutexLock lock(&run.stream_->mu_);
  return run.operation_.has_value();
}

void ExecutionClient::DropResults(Run& run) {
  std::map<uint64_t, ir::Array> dropped;  // destroyed without the lock
  absl::MutexLock lock(&run.stream_->mu_);
  dropped.swap(run.results_);
}

grpc::Status ExecutionClient::FailureOf(const Run& run) const {
  absl::MutexLock lock(&run.stream_->mu_);
  return run.failure_;
}

size_t ExecutionClient::num_open_runs() const {
  absl::MutexLock lock(&mu_);
  return stream_ == nullptr ? 0 : stream_->num_open_runs();
}

}  // namespace tessera::remote
