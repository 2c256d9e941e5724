// Runs programs over streams: ExecuteAndWatch for a single run, ExecutePrograms for all runs of a
// client. gRPC calls the two handlers. Each run goes to the coordinator as an Execute event, and
// its acceptance and its end come back as events of the stream.
#include "server/rpc/executions.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grpcpp/alarm.h"
#include "ir/serial/service.h"
#include "ir/serial/status.h"
#include "server/rpc/handlers.h"
#include "server/rpc/message_stream.h"

namespace tessera::server::rpc {
namespace {

using ir::serial::FromProto;
using ir::serial::ToProto;

// The largest number of runs of one stream that have not ended. At this number the next request is
// read only when a run has ended.
constexpr size_t kRunsMax = 1'000;

// The largest size of the inline results that are queued for a caller who reads slowly. Results
// beyond it are left out of their event, and the caller reads them by ticket.
constexpr int64_t kQueuedResultBytesMax = 1 << 20;

// A request may name results of earlier runs of its stream that were sent `in_order`. The last
// kNamedRunsMax of these runs are remembered, and fewer if they have more than kNamedResultsMax
// results together.
constexpr size_t kNamedRunsMax = 1'000, kNamedResultsMax = 1'000'000;
// If the queue is full, or the tenant calls too often, a run sent `in_order` is tried again every
// kRetryEvery, for kRetryFor at most.
constexpr absl::Duration kRetryFor = absl::Minutes(1), kRetryEvery = absl::Milliseconds(10);

int64_t ResultBytes(const v1::ExecuteProgramsEvent& event) {
  int64_t bytes = 0;
  for (const v1::InlineResult& result : event.ended().results())
    bytes += static_cast<int64_t>(result.value().data().size());
  return bytes;
}

// An event of a run: its acceptance, its end, or an error. The end and an error are the last event.
using RunEvent = std::variant<v1::ExecuteProgramResponse, api::Completion, absl::Status>;

// One run, from the request to its end. A request with the request_id of an earlier request starts
// no run: it waits for the end of the earlier run. Results that the first request gets inline do
// not come a second time; the caller reads them by ticket. The callbacks keep the object alive.
class WatchedRun {
 public:
  using OnEventFn = std::function<void(RunEvent)>;

  // Starts the run. Calls `on_event` for one event at a time.
  static void Start(Coordinator* coordinator, const core::Caller& caller,
                    v1::ExecuteProgramRequest request, OnEventFn on_event) {
    const std::shared_ptr<WatchedRun> run(new WatchedRun(std::move(on_event)));
    absl::StatusOr<scheduler::RequestId> id = TakeRequestId(request.mutable_request_id(), request);
    if (!id.ok()) return run->ReportError(id.status());
    coordinator->ExecuteToEndAsync(
        {0, caller, *std::move(id)}, FromProto(request),
        [run](const absl::StatusOr<api::ExecuteReply>& reply) { run->OnAccepted(reply); },
        [run](absl::StatusOr<api::Completion> end) { run->OnEnded(std::move(end)); });
  }

 private:
  explicit WatchedRun(OnEventFn on_event) : on_event_(std::move(on_event)) {}

  void OnAccepted(const absl::StatusOr<api::ExecuteReply>& reply) {
    if (!reply.ok()) return ReportError(reply.status());
    on_event_(ToProto(*reply));
  }
  void OnEnded(absl::StatusOr<api::Completion> end) {
    if (!end.ok()) return ReportError(end.status());
    // A run whose acceptance could not be made durable goes on and may end well. The caller was
    // told the error and hears no more.
    if (!refused_) on_event_(*std::move(end));
  }
  // Reports the error, but only once: if a run is not accepted, both callbacks of ExecuteToEndAsync
  // get the error.
  void ReportError(const absl::Status& why) {
    if (!std::exchange(refused_, true)) on_event_(why);
  }

  const OnEventFn on_event_;
  bool refused_ = false;
};

// The stream of one ExecuteAndWatch.
class WatchedRunStream final
    : public MessageStream<WatchedRunStream, grpc::ServerWriteReactor<v1::ExecuteProgramEvent>,
                           v1::ExecuteProgramEvent> {
 public:
  void OnEvent(const RunEvent& event) {
    v1::ExecuteProgramEvent out;
    if (const auto* accepted = std::get_if<v1::ExecuteProgramResponse>(&event)) {
      *out.mutable_accepted() = *accepted;
      Send(std::move(out));
    } else if (const auto* ended = std::get_if<api::Completion>(&event)) {
      *out.mutable_ended() = ToProto(*ended);
      SendLast(std::move(out));
    } else {
      End(std::get<absl::Status>(event));
    }
  }
};

}  // namespace

// The stream of one ExecutePrograms. Requests are read one at a time. A request that is `in_order`
// holds back the requests behind it until its run is accepted or refused ("settled"), because they
// may name its results (docs/decisions/0029).
class RunsStream final : public MessageStream<RunsStream, BidiReactor<v1::ExecuteProgramsEvent>,
                                              v1::ExecuteProgramsEvent> {
 public:
  explicit RunsStream(BidiCall call)
      : executions_(call.context->executions), call_(std::move(call)) {}
  void Start() { ReadIfRoom(); }

  // Takes the request that was read, starts its run, and reads the next request if there is room.
  // When the caller has sent all requests, the stream ends with the last event of the last run.
  // Bytes that do not decode end the whole stream, because their run's number is unknown.
  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    if (!ok) {
      bool done = false;
      {
        absl::MutexLock lock(&mu_);
        reading_ = false;
        all_read_ = true;
        done = unfinished_runs_ == 0;
      }
      if (done) End(absl::OkStatus());
      return;
    }
    v1::ExecuteProgramsRequest request;
    const absl::Status decoded = Decode(bytes_, ErrorKind::kValueError, &request);
    if (!decoded.ok()) return void(Cut(decoded));
    {
      absl::MutexLock lock(&mu_);
      reading_ = false;
      ++unfinished_runs_;
      settling_ = request.in_order();
    }
    executions_->metrics_.Begin();
    if (request.in_order()) {
      ordered_request_ = std::move(request);
      began_at_ = call_.context->clock->Steady();
      StartOrdered();
    } else {
      StartUnordered(std::move(request));
    }
    ReadIfRoom();
  }
  void OnDone() override {
    {
      absl::MutexLock lock(&mu_);
      gone_ = true;
    }
    executions_->Remove(this);
    MessageStream::OnDone();
  }

 private:
  // The ids of the results of a run in order, or the error with which the run was refused.
  using ResultIds = absl::StatusOr<std::vector<uint64_t>>;

  void ReadIfRoom() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (reading_ || all_read_ || settling_ || unfinished_runs_ >= kRunsMax) return;
      reading_ = true;
    }
    if (StartUnlessEnding([this] { StartRead(&bytes_); })) return;
    absl::MutexLock lock(&mu_);
    reading_ = false;
  }
  void StartUnordered(v1::ExecuteProgramsRequest request) {
    StartRun(&request,
             [self = shared_from_this(), number = request.number(),
              began = call_.context->clock->Steady(), answered = false](RunEvent event) mutable {
               if (!std::exchange(answered, true)) self->CountRun(event, began);
               self->SendEvent(number, std::move(event));
             });
  }
  // Starts the run in `ordered_request_`. No other code uses `ordered_request_` until the run is
  // settled.
  void StartOrdered() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (gone_) return;
    }
    v1::ExecuteProgramsRequest request = ordered_request_;
    StartRun(&request, [self = shared_from_this(), number = request.number(),
                        settled = false](RunEvent event) mutable {
      if (std::exchange(settled, true)) {
        self->SendEvent(number, std::move(event));
      } else {
        self->SettleOrdered(std::move(event));
      }
    });
  }
  // Starts the run of the request. A refusal is the run's only event.
  void StartRun(v1::ExecuteProgramsRequest* request, const WatchedRun::OnEventFn& on_event) {
    if (absl::Status s = SetNamedArgs(request); !s.ok()) return on_event(std::move(s));
    if (absl::Status s = call_.context->gate->AdmitAnother(call_.caller); !s.ok())
      return on_event(std::move(s));
    WatchedRun::Start(call_.context->coordinator, call_.caller, std::move(*request->mutable_run()),
                      on_event);
  }
  // Handles the first event of the run in order.
  void SettleOrdered(RunEvent event) ABSL_LOCKS_EXCLUDED(mu_) {
    const auto* const refused = std::get_if<absl::Status>(&event);
    if (refused != nullptr && RetryLater(*refused)) return;
    CountRun(event, began_at_);
    const uint64_t number = ordered_request_.number();
    const bool stop = refused != nullptr && ordered_request_.stop_if_not_found() &&
                      (KindOf(*refused) == ErrorKind::kProgramNotFound ||
                       KindOf(*refused) == ErrorKind::kSessionNotFound);
    {
      absl::MutexLock lock(&mu_);
      if (refused != nullptr) {
        RememberResults(number, *refused);
      } else {
        const auto& outputs = std::get<v1::ExecuteProgramResponse>(event).outputs();
        RememberResults(number, std::vector<uint64_t>(outputs.begin(), outputs.end()));
      }
      settling_ = false;
      if (stop) all_read_ = true;  // the requests behind it are never read
    }
    SendEvent(number, std::move(event));
    if (stop) return End(absl::OkStatus());
    ReadIfRoom();
  }
  void RememberResults(uint64_t number, ResultIds results) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto size = [](const ResultIds& results) { return results.ok() ? results->size() : 0; };
    const auto [it, added] = remembered_runs_.emplace(number, std::move(results));
    if (!added) return;  // The caller has used the number before.
    oldest_first_.push_back(number);
    remembered_results_ += size(it->second);
    while (oldest_first_.size() > 1 &&
           (oldest_first_.size() > kNamedRunsMax || remembered_results_ > kNamedResultsMax)) {
      const auto oldest = remembered_runs_.find(oldest_first_.front());
      oldest_first_.pop_front();
      remembered_results_ -= size(oldest->second);
      remembered_runs_.erase(oldest);
    }
  }
  // Tries the run again later if it was refused because there is no room for it yet. Returns
  // whether it does so.
  bool RetryLater(const absl::Status& refused) {
    const ErrorKind kind = KindOf(refused);
    if (kind != ErrorKind::kQueueFull && kind != ErrorKind::kRateLimited) return false;
    if (call_.context->clock->Steady() - began_at_ >= kRetryFor) return false;
    // Makes a new alarm, because the old one may be calling this function.
    retry_alarm_ = std::make_unique<grpc::Alarm>();
    retry_alarm_->Set(WallDeadline(kRetryEvery),
                      [self = shared_from_this()](bool) { self->StartOrdered(); });
    return true;
  }
  // Sets the arguments that the request names as results of earlier runs.
  absl::Status SetNamedArgs(v1::ExecuteProgramsRequest* request) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    for (const v1::ResultOfRun& result : request->results_of_runs()) {
      const std::string what = absl::StrCat("argument ", result.arg(), ", result ", result.result(),
                                            " of run ", result.number(), " of the stream");
      const auto found = remembered_runs_.find(result.number());
      if (found == remembered_runs_.end())
        return MakeError(ErrorKind::kValueError,
                         absl::StrCat(what, ": the run is not among the last ", kNamedRunsMax,
                                      " runs that were sent in order"));
      const ResultIds& results = found->second;
      if (!results.ok()) return results.status();
      if (result.result() >= results->size() ||
          result.arg() >= static_cast<uint32_t>(request->run().args_size()))
        return MakeError(
            ErrorKind::kValueError,
            absl::StrCat(what, ": the run has ", results->size(), " results, and this request has ",
                         request->run().args_size(), " arguments"));
      request->mutable_run()->set_args(static_cast<int>(result.arg()), (*results)[result.result()]);
    }
    return absl::OkStatus();
  }
  // Counts the run in the metrics, as a call that ends with its first event.
  void CountRun(const RunEvent& event, absl::Time began) const {
    const auto* const refused = std::get_if<absl::Status>(&event);
    executions_->metrics_.End(refused == nullptr ? absl::OkStatus() : *refused,
                              call_.context->clock->Steady() - began);
  }
  void SendEvent(uint64_t number, RunEvent event) ABSL_LOCKS_EXCLUDED(mu_) {
    v1::ExecuteProgramsEvent out;
    out.set_number(number);
    if (auto* accepted = std::get_if<v1::ExecuteProgramResponse>(&event)) {
      *out.mutable_accepted() = std::move(*accepted);
    } else if (auto* ended = std::get_if<api::Completion>(&event)) {
      *out.mutable_ended() = ToProto(*ended);
    } else {
      *out.mutable_refused() = ToProto(std::get<absl::Status>(event));
    }
    {
      absl::MutexLock lock(&mu_);
      if (result_bytes_ + ResultBytes(out) > kQueuedResultBytesMax)
        out.mutable_ended()->clear_results();
      result_bytes_ += ResultBytes(out);
    }
    Send(std::move(out));
  }
  void OnSending(v1::ExecuteProgramsEvent* event) override ABSL_LOCKS_EXCLUDED(mu_) {
    bool done = false;
    {
      absl::MutexLock lock(&mu_);
      result_bytes_ -= ResultBytes(*event);
      if (!event->has_accepted()) --unfinished_runs_;
      done = all_read_ && unfinished_runs_ == 0;
    }
    ReadIfRoom();
    if (done) End(absl::OkStatus());
  }

  Executions* const executions_;
  const BidiCall call_;
  grpc::ByteBuffer bytes_;                      // target of the read in flight
  v1::ExecuteProgramsRequest ordered_request_;  // request of the run in order that is not settled
  absl::Time began_at_;                         // when that request was read
  std::unique_ptr<grpc::Alarm> retry_alarm_;    // alarm at which that run is tried again

  absl::Mutex mu_;
  int64_t result_bytes_ ABSL_GUARDED_BY(mu_) = 0;    // size of the inline results in queued events
  size_t unfinished_runs_ ABSL_GUARDED_BY(mu_) = 0;  // number of runs without a written last event
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool all_read_ ABSL_GUARDED_BY(mu_) = false;
  bool settling_ ABSL_GUARDED_BY(mu_) = false;  // true while `ordered_request_` is not settled
  bool gone_ ABSL_GUARDED_BY(mu_) = false;      // true once gRPC is done with the stream
  // The last runs in order, by number.
  std::map<uint64_t, ResultIds> remembered_runs_ ABSL_GUARDED_BY(mu_);
  std::deque<uint64_t> oldest_first_ ABSL_GUARDED_BY(mu_);  // the numbers of remembered_runs_
  size_t remembered_results_ ABSL_GUARDED_BY(mu_) = 0;  // number of the results in remembered_runs_
};

grpc::ServerWriteReactor<v1::ExecuteProgramEvent>* ExecuteAndWatch(
    StreamCall<v1::ExecuteProgramRequest, v1::ExecuteProgramEvent> call) {
  const auto stream = WatchedRunStream::Make();
  WatchedRun::Start(call.context->coordinator, call.caller, std::move(call.request),
                    [stream](const RunEvent& event) { stream->OnEvent(event); });
  return stream.get();
}

BidiReactor<v1::ExecuteProgramsEvent>* ExecutePrograms(BidiCall call) {
  Executions* const executions = call.context->executions;
  const auto stream = RunsStream::Make(std::move(call));
  bool stopping = false;
  {
    absl::MutexLock lock(&executions->mu_);
    stopping = executions->stopping_;
    if (!stopping) executions->open_streams_.insert(stream.get());
  }
  stopping ? void(stream->Cut(scheduler::StoppingError())) : stream->Start();
  return stream.get();
}

void Executions::Remove(RunsStream* stream) {
  absl::MutexLock lock(&mu_);
  open_streams_.erase(stream);
}

void Executions::Stop() {
  std::vector<std::shared_ptr<RunsStream>> open;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    for (RunsStream* stream : open_streams_) open.push_back(stream->shared_from_this());
  }
  for (const auto& stream : open) stream->Cut(scheduler::StoppingError());
}

}  // namespace tessera::server::rpc
