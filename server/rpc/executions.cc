#include "server/rpc/executions.h"

#include <functional>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "ir/serial/service.h"
#include "ir/serial/status.h"
#include "server/rpc/handlers.h"
#include "server/rpc/message_stream.h"

namespace tessera::server::rpc {
namespace {

using ir::serial::FromProto;
using ir::serial::ToProto;

// Runs of one stream that have not ended. With so many, the next request is read when one has
// ended.
constexpr size_t kRunsMax = 1'000;

// Inline results that are queued for a caller who reads slowly. Results beyond that are left out of
// their event; the caller reads them by ticket.
constexpr int64_t kQueuedResultBytesMax = 1 << 20;

int64_t ResultBytes(const v1::ExecuteProgramsEvent& event) {
  int64_t bytes = 0;
  for (const v1::InlineResult& result : event.ended().results())
    bytes += static_cast<int64_t>(result.value().data().size());
  return bytes;
}

// The events of a run: its acceptance, then its end; or an error, which is the last.
using RunEvent = std::variant<v1::ExecuteProgramResponse, api::Completion, absl::Status>;

// One run, from the request to its end. A request with the request_id of an earlier one starts no
// run: it waits for the end of the earlier run, and reads by ticket the results that came with that
// end to the first. Kept alive by the callbacks that it waits for.
class WatchedRun {
 public:
  using OnEventFn = std::function<void(RunEvent)>;

  // `on_event` is called for one event at a time.
  static void Start(Coordinator* coordinator, const core::Caller& caller,
                    v1::ExecuteProgramRequest request, OnEventFn on_event) {
    const std::shared_ptr<WatchedRun> run(new WatchedRun(std::move(on_event)));
    absl::StatusOr<scheduler::RequestId> id = TakeRequestId(request.mutable_request_id(), request);
    if (!id.ok()) return run->Refuse(id.status());
    coordinator->ExecuteToEndAsync(
        {0, caller, *std::move(id)}, FromProto(request),
        [run](const absl::StatusOr<api::ExecuteReply>& reply) { run->Accepted(reply); },
        [run](absl::StatusOr<api::Completion> end) { run->Ended(std::move(end)); });
  }

 private:
  explicit WatchedRun(OnEventFn on_event) : on_event_(std::move(on_event)) {}

  void Accepted(const absl::StatusOr<api::ExecuteReply>& reply) {
    if (!reply.ok()) return Refuse(reply.status());
    on_event_(ToProto(*reply));
  }
  void Ended(absl::StatusOr<api::Completion> end) {
    if (!end.ok()) return Refuse(end.status());
    // A run whose acceptance could not be made durable goes on, and may end well.
    if (!refused_) on_event_(*std::move(end));
  }
  // Only once: for a run that is not accepted, both callbacks of ExecuteToEndAsync get the error.
  void Refuse(const absl::Status& why) {
    if (!std::exchange(refused_, true)) on_event_(why);
  }

  const OnEventFn on_event_;
  bool refused_ = false;
};

// One ExecuteAndWatch.
class ExecutionStream final
    : public MessageStream<ExecutionStream, grpc::ServerWriteReactor<v1::ExecuteProgramEvent>,
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

// One ExecutePrograms.
class ExecutionsStream final
    : public MessageStream<ExecutionsStream, BidiReactor<v1::ExecuteProgramsEvent>,
                           v1::ExecuteProgramsEvent> {
 public:
  explicit ExecutionsStream(BidiCall call)
      : executions_(call.context->executions), call_(std::move(call)) {}
  void Start() { StartRead(&bytes_); }

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    if (!ok) {
      bool done = false;
      {
        absl::MutexLock lock(&mu_);
        all_read_ = true;
        done = runs_ == 0;
      }
      if (done) End(absl::OkStatus());
      return;
    }
    v1::ExecuteProgramsRequest request;
    const absl::Status decoded = Decode(bytes_, ErrorKind::kValueError, &request);
    if (!decoded.ok()) return void(Cut(decoded));
    Run(std::move(request));
    {
      absl::MutexLock lock(&mu_);
      reading_ = runs_ < kRunsMax;
      if (!reading_) return;
    }
    StartRead(&bytes_);
  }
  void OnDone() override {
    executions_->Forget(this);
    MessageStream::OnDone();
  }

 private:
  void Run(v1::ExecuteProgramsRequest request) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      ++runs_;
    }
    executions_->metrics_.Begin();
    const WatchedRun::OnEventFn on_event = [self = shared_from_this(), number = request.number(),
                                            began = call_.context->clock->Steady(),
                                            answered = false](RunEvent event) mutable {
      if (!std::exchange(answered, true)) {
        const auto* const refused = std::get_if<absl::Status>(&event);
        self->executions_->metrics_.End(refused == nullptr ? absl::OkStatus() : *refused,
                                        self->call_.context->clock->Steady() - began);
      }
      self->SendEvent(number, std::move(event));
    };
    if (absl::Status s = call_.context->gate->AdmitAnother(call_.caller); !s.ok())
      return on_event(std::move(s));
    WatchedRun::Start(call_.context->coordinator, call_.caller, std::move(*request.mutable_run()),
                      on_event);
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
    bool read = false, done = false;
    {
      absl::MutexLock lock(&mu_);
      result_bytes_ -= ResultBytes(*event);
      if (!event->has_accepted()) --runs_;
      read = !reading_ && runs_ < kRunsMax;
      reading_ |= read;
      done = all_read_ && runs_ == 0;
    }
    if (read) StartRead(&bytes_);
    if (done) End(absl::OkStatus());
  }

  Executions* const executions_;
  const BidiCall call_;
  grpc::ByteBuffer bytes_;  // of the read in flight

  absl::Mutex mu_;
  int64_t result_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // in queued events
  size_t runs_ ABSL_GUARDED_BY(mu_) = 0;           // runs whose last event has not been written
  bool reading_ ABSL_GUARDED_BY(mu_) = true;
  bool all_read_ ABSL_GUARDED_BY(mu_) = false;
};

grpc::ServerWriteReactor<v1::ExecuteProgramEvent>* ExecuteAndWatch(
    StreamCall<v1::ExecuteProgramRequest, v1::ExecuteProgramEvent> call) {
  const auto stream = ExecutionStream::Make();
  WatchedRun::Start(call.context->coordinator, call.caller, std::move(call.request),
                    [stream](const RunEvent& event) { stream->OnEvent(event); });
  return stream.get();
}

BidiReactor<v1::ExecuteProgramsEvent>* ExecutePrograms(BidiCall call) {
  Executions* const executions = call.context->executions;
  const auto stream = ExecutionsStream::Make(std::move(call));
  bool stopping = false;
  {
    absl::MutexLock lock(&executions->mu_);
    stopping = executions->stopping_;
    if (!stopping) executions->open_.insert(stream.get());
  }
  stopping ? void(stream->Cut(scheduler::Stopping())) : stream->Start();
  return stream.get();
}

void Executions::Forget(ExecutionsStream* stream) {
  absl::MutexLock lock(&mu_);
  open_.erase(stream);
}

void Executions::Stop() {
  std::vector<std::shared_ptr<ExecutionsStream>> open;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    for (ExecutionsStream* stream : open_) open.push_back(stream->shared_from_this());
  }
  for (const auto& stream : open) stream->Cut(scheduler::Stopping());
}

}  // namespace tessera::server::rpc
