// The api::Service that Session::Connect returns for a remote coordinator (connect.cc). Each method
// converts its arguments to a protobuf message, makes one call, and converts the response. The long
// methods also choose the fastest way. Execute chooses between the unary call, the stream and
// sending the run ahead, and Put and Get between the relay, inline results and tickets.
#include "client/remote/remote_service.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/status.h"
#include "client/remote/channel.h"
#include "client/remote/reach.h"
#include "client/remote/resolve.h"
#include "client/remote/retry.h"
#include "client/remote/status.h"
#include "ir/api/placement.h"
#include "ir/serial/probe.h"
#include "ir/serial/program.h"
#include "ir/serial/service.h"
#include "ir/serial/status.h"
#include "ir/strided.h"

namespace tessera::remote {
namespace {

using Arrays = v1::ArrayService::Stub;
using Clusters = v1::ClusterService::Stub;
using Operations = v1::OperationService::Stub;
using Programs = v1::ProgramService::Stub;

// If there is no connection within this time, Connect looks for a mismatch of TLS.
constexpr absl::Duration kFirstConnectTimeout = absl::Seconds(1);
constexpr absl::Duration kDiagnoseTimeout = absl::Milliseconds(200);
constexpr absl::Duration kOnWaitInterval = absl::Milliseconds(100);
constexpr absl::Duration kCompileTimeout = absl::Minutes(5);    // large programs take long to plan
constexpr absl::Duration kTransferTimeout = absl::Minutes(10);  // timeout for one array
// How much later than the timeout of a call that waits at the server its answer may arrive.
constexpr absl::Duration kServerGracePeriod = absl::Seconds(5);
// How long workers may take to find a coordinator again that was restarted without its state.
constexpr absl::Duration kReturnTimeout = absl::Seconds(30),
                         kReturnInterval = absl::Milliseconds(100);
// How long the coordinator may take to answer a call that finds out whether it answers at all.
constexpr absl::Duration kProbeTimeout = absl::Seconds(2);
// How long the coordinator may take to detect a lost executor.
constexpr absl::Duration kLossReportTimeout = absl::Seconds(2),
                         kLossPollInterval = absl::Milliseconds(20);
// After an executor has restarted, the coordinator gives new tickets for it within this time. For a
// shard that another executor has too, it gives tickets for that one.
constexpr absl::Duration kTicketRetryTimeout = absl::Seconds(5),
                         kMaxTicketBackoff = absl::Milliseconds(500);
constexpr absl::Duration kFileTimeout = absl::Seconds(90);  // a worker opens the file
constexpr size_t kDeletesPerCall = 10'000;
constexpr absl::Duration kWatchTimeout = absl::Minutes(2);  // longer than the server's timeout
constexpr size_t kMaxWatchedRuns = 256;                     // the server's limit is 1,000
constexpr size_t kMaxCachedResults = 256;                   // results of at most 64 KiB each

// The backoff between attempts while an executor restarts.
class TicketRetries {
 public:
  // Sleeps; returns false once kTicketRetryTimeout has passed since the first call.
  bool WaitToRetry() {
    deadline_ = std::min(deadline_, SteadyNow() + kTicketRetryTimeout);
    if (SteadyNow() >= deadline_) return false;
    absl::SleepFor(backoff_);
    backoff_ = std::min(2 * backoff_, kMaxTicketBackoff);
    return true;
  }

 private:
  absl::Time deadline_ = absl::InfiniteFuture();
  absl::Duration backoff_ = kLossPollInterval;
};

// Calls `attempt`, which creates and uses tickets, until none of them turns out to be stale. Gives
// up when TicketRetries does. The loop also ends if the array is lost, because `attempt` then fails
// to get tickets.
template <class F>
auto WithFreshTickets(const F& attempt) -> decltype(attempt()) {
  TicketRetries tries;
  while (true) {
    auto result = attempt();
    if (KindOf(result.status()) != ErrorKind::kTicketStale || !tries.WaitToRetry()) return result;
  }
}

// Returns whether the error says that an array is gone.
bool IsLoss(const absl::Status& status) {
  const ErrorKind kind = KindOf(status);
  return !status.ok() && (kind == ErrorKind::kWorkerLost || kind == ErrorKind::kArrayDeleted ||
                          kind == ErrorKind::kArrayNotFound);
}

// Returns the name of the method that takes such a request: "GetArray".
template <class Request>
std::string CallName() {
  return std::string(absl::StripSuffix(Request::descriptor()->name(), "Request"));
}

// Each returns the ids that a call has made.
std::vector<uint64_t> IdsOf(const v1::CreateArrayResponse& made) { return {made.array()}; }
std::vector<uint64_t> IdsOf(const v1::WriteArrayResponse& made) { return {made.array()}; }
std::vector<uint64_t> IdsOf(const v1::ReshardArrayResponse& made) {
  return {made.operation().id(), made.array().id()};
}
std::vector<uint64_t> IdsOf(const v1::LoadArraysResponse& made) {
  std::vector<uint64_t> ids = {made.operation().id()};
  for (const v1::Array& array : made.arrays()) ids.push_back(array.id());
  return ids;
}
std::vector<uint64_t> IdsOf(const api::ExecuteReply& made) {
  std::vector<uint64_t> ids = made.outputs;
  ids.push_back(made.operation);
  return ids;
}

template <class Arrays>
absl::StatusOr<api::PendingArrays> PendingArraysOf(const v1::Operation& operation,
                                                   const Arrays& arrays) {
  api::PendingArrays out{operation.id(), {}, {}};
  for (const v1::Array& array : arrays) {
    out.arrays.push_back(array.id());
    TESSERA_ASSIGN_OR_RETURN(api::ArraySpec spec, ir::serial::FromProto(array.spec()));
    out.specs.push_back(std::move(spec));
  }
  return out;
}

}  // namespace

// Waits in two steps: if there is no connection after a second, a mismatch of TLS and plain text is
// reported at once, while a coordinator that is still starting gets the rest of the timeout. A host
// name that does not exist is reported at once, too. The lease and the RunsAhead are made last,
// since both call back into the service from their threads.
absl::StatusOr<std::shared_ptr<api::Service>> RemoteService::Connect(
    const std::string& address, const ConnectOptions& options) {
  if (const absl::Status address_status = CheckAddress(address); !address_status.ok())
    return Annotate(address_status, "the coordinator's address");
  const absl::Time end = SteadyNow() + options.timeout;
  const std::string thing = absl::StrCat("the coordinator at ", address);
  const auto keep_waiting = [&] {
    return !options.on_wait || options.on_wait(thing, end - SteadyNow());
  };
  TESSERA_RETURN_IF_ERROR(ResolveHost(address, options.timeout, keep_waiting));
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials,
                           CredentialsFor(address, options));
  std::shared_ptr<RemoteService> service(new RemoteService(address, options, credentials));
  const auto cancelled = [&] {
    return MakeError(ErrorKind::kCancelled, absl::StrCat("the wait for ", thing, " was cancelled"));
  };
  // Waits until `until`. Returns whether there is a connection, or an error if the caller gives up.
  const auto connected = [&](absl::Time until) -> absl::StatusOr<bool> {
    while (true) {
      const absl::Duration left = until - SteadyNow();
      const absl::Duration slice = options.on_wait ? std::min(left, kOnWaitInterval) : left;
      if (service->channel_->WaitForConnected(WallDeadline(slice))) return true;
      if (SteadyNow() >= until) return false;
      if (!keep_waiting()) return cancelled();
    }
  };
  TESSERA_ASSIGN_OR_RETURN(bool is_connected,
                           connected(std::min(end, SteadyNow() + kFirstConnectTimeout)));
  if (!is_connected) {
    // The coordinator may still be starting, but a mismatch of TLS and plain text is final.
    const absl::Status diagnosed =
        DiagnoseUnreachable(MakeError(ErrorKind::kUnreachable, "no answer yet"), address,
                            !options.ca_file.empty(), credentials);
    if (KindOf(diagnosed) != ErrorKind::kUnreachable) return diagnosed;
    TESSERA_ASSIGN_OR_RETURN(is_connected, connected(end));
    if (!is_connected) return service->NoAnswerWithin(options.timeout);
  }
  RemoteService* const self = service.get();
  TESSERA_ASSIGN_OR_RETURN(
      service->lease_, Lease::Open(
                           service->channel_, &service->outage_,
                           {.display_name = ProcessDisplayName(),
                            .lease = options.lease,
                            .session = options.session},
                           [self](grpc::ClientContext* context, absl::Duration timeout) {
                             self->Prepare(context, timeout);
                           },
                           [self](const grpc::Status& status) { return self->ToStatus(status); }));
  service->runs_ahead_ = std::make_unique<RunsAhead>(
      &service->execution_client_, service->channel_, &service->outage_,
      [self](const grpc::Status& status) { return self->ToStatus(status); },
      RunsAhead::Callbacks{
          .replace_session =
              [self](uint64_t session) { return self->lease_->ReplaceSession(session); },
          // If the call fails, the arrays are freed with the session.
          .free_arrays =
              [self](const std::vector<uint64_t>& arrays) {
                self->DeleteNow(arrays).IgnoreError();
              },
          .compile =
              [self](const api::CompileRequest& request) {
                return self->CompileUntilStopped(request);
              },
          .stop = [self] { self->StopCalls(); },
          .on_accepted =
              [self](uint64_t session, const api::ExecuteReply& reply) {
                self->lease_->NoteMade(session, IdsOf(reply));
              },
          .check_held =
              [self](absl::Span<const uint64_t> ids) { return self->lease_->CheckHeld(ids); },
          .answers = [self] { return self->Answers(); }});
  return std::shared_ptr<api::Service>(std::move(service));
}

absl::Status RemoteService::NoAnswerWithin(absl::Duration timeout) const {
  // A call that does not wait for a connection fails with the error of the last attempt to connect.
  grpc::ClientContext context;
  Prepare(&context, kDiagnoseTimeout);
  v1::GetCapabilitiesResponse ignored;
  const std::string message = cluster_->GetCapabilities(&context, {}, &ignored).error_message();
  return MakeError(
      ErrorKind::kUnreachable,
      absl::StrCat("no coordinator answers at ", address_, " within ",
                   absl::FormatDuration(timeout),
                   ir::serial::NeverConnected(message) ? ": " + ir::serial::CauseOf(message) : "",
                   ". Check that it runs and that the address is right"));
}

template <class F>
auto RemoteService::InSession(F call) {
  const uint64_t session = lease_->session();
  auto result = call(session);
  if (result.ok() || KindOf(result.status()) != ErrorKind::kSessionNotFound) return result;
  const absl::StatusOr<uint64_t> replaced = lease_->ReplaceSession(session);
  if (!replaced.ok()) return decltype(result)(replaced.status());
  return call(*replaced);
}

RemoteService::RemoteService(const std::string& address, const ConnectOptions& options,
                             std::shared_ptr<grpc::ChannelCredentials> credentials)
    : address_(address),
      token_(options.token),
      outage_(options.reconnect, options.keepalive.time + options.keepalive.timeout),
      answer_timeout_(std::max(options.reconnect, kMinAnswer)),
      channel_(ChannelTo(address, credentials, options.keepalive)),
      cluster_(v1::ClusterService::NewStub(channel_)),
      programs_(v1::ProgramService::NewStub(channel_)),
      arrays_(v1::ArrayService::NewStub(channel_)),
      operations_(v1::OperationService::NewStub(channel_)),
      transfer_(credentials, {.keepalive = options.keepalive,
                              .patience = options.reconnect,
                              .on_bytes = options.on_bytes}),
      execution_client_(programs_.get(),
                        [this](grpc::ClientContext* context, absl::Duration timeout) {
                          Prepare(context, timeout);
                        }) {}

void RemoteService::Prepare(grpc::ClientContext* context, absl::Duration timeout) const {
  context->set_deadline(WallDeadline(timeout));
  if (!token_.empty()) context->AddMetadata("authorization", "Bearer " + token_);
}

absl::Status RemoteService::ToStatus(const grpc::Status& status) const {
  return FromGrpc(status, absl::StrCat("the coordinator at ", address_),
                  ErrorKind::kServerStopping);
}

CallBounds RemoteService::Bounds(absl::Time deadline) const {
  return {.what = "", .answer = answer_timeout_, .deadline = deadline};
}

CallBounds RemoteService::BoundsOf(absl::Duration answer) {
  return {.what = "", .answer = answer, .server_wait = answer};
}

template <class Stub, class Request, class Response>
absl::StatusOr<Response> RemoteService::Call(
    const std::unique_ptr<Stub>& stub, Method<Stub, Request, Response> method, Request request,
    CallBounds bounds, const std::function<void(Request*)>& before_attempt) const {
  Response response;
  bounds.what = CallName<Request>();
  TESSERA_RETURN_IF_ERROR(CallUntilAnswered(
      channel_, std::move(bounds), &outage_,
      [this](grpc::ClientContext* context, absl::Duration left) { Prepare(context, left); },
      [this](const grpc::Status& status) { return ToStatus(status); },
      [&](grpc::ClientContext* context) {
        if (before_attempt) before_attempt(&request);
        return ((*stub).*method)(context, request, &response);
      }));
  return response;
}

template <class Stub, class Request, class Response>
absl::StatusOr<Response> RemoteService::CallAndWait(const std::unique_ptr<Stub>& stub,
                                                    Method<Stub, Request, Response> method,
                                                    Request request, absl::Time end) const {
  const auto left = [&] { return std::max(end - SteadyNow(), absl::ZeroDuration()); };
  const absl::Duration wait = left();
  return Call(stub, method, std::move(request),
              {.what = "",
               .answer = wait + kServerGracePeriod,
               .server_wait = wait,
               .deadline = end,
               .grace = kServerGracePeriod},
              std::function<void(Request*)>(
                  [&](Request* r) { *r->mutable_timeout() = ir::serial::ToProto(left()); }));
}

template <class Stub, class Request, class Response>
absl::StatusOr<Response> RemoteService::CallInSession(const std::unique_ptr<Stub>& stub,
                                                      Method<Stub, Request, Response> method,
                                                      Request request, CallBounds bounds) {
  return WhileWorkersReturn(bounds.deadline, [&] {
    return InSession([&](uint64_t session) {
      request.set_session(session);
      request.set_request_id(NewRequestId());
      absl::StatusOr<Response> made = Call(stub, method, request, bounds);
      if (made.ok()) lease_->NoteMade(session, IdsOf(*made));
      return made;
    });
  });
}

template <class F>
auto RemoteService::WhileWorkersReturn(absl::Time deadline, F call) const -> decltype(call()) {
  auto result = call();
  while (!result.ok() && KindOf(result.status()) == ErrorKind::kNotEnoughDevices &&
         lease_->WasReplacedWithin(kReturnTimeout) && SteadyNow() + kReturnInterval < deadline) {
    absl::SleepFor(kReturnInterval);
    auto again = call();
    // The refusal says what the call has waited for, which the deadline's error does not.
    if (absl::IsDeadlineExceeded(again.status())) break;
    result = std::move(again);
  }
  return result;
}

absl::Status RemoteService::CheckHeld(absl::Span<const uint64_t> ids) const {
  if (!lease_->MayHaveLost()) return absl::OkStatus();
  return lease_->CheckHeld(runs_ahead_->KnownCoordinatorIds(ids));
}

absl::Status RemoteService::CheckHeld(uint64_t id) { return CheckHeld({&id, 1}); }

template <class F>
auto RemoteService::Using(absl::Span<const uint64_t> ids, F call) const -> decltype(call()) {
  TESSERA_RETURN_IF_ERROR(CheckHeld(ids));
  auto result = call();
  if (!::tessera::internal::AsStatus(result).ok()) TESSERA_RETURN_IF_ERROR(CheckHeld(ids));
  return result;
}

void RemoteService::StopCalls() {
  lease_->StopCalls();
  absl::MutexLock lock(&calls_mu_);
  if (!stop_.HasBeenNotified()) stop_.Notify();
  if (stoppable_call_ != nullptr) stoppable_call_->TryCancel();
}

bool RemoteService::Answers() const {
  grpc::ClientContext context;
  Prepare(&context, kProbeTimeout);
  v1::GetCapabilitiesResponse ignored;
  const grpc::Status status = cluster_->GetCapabilities(&context, {}, &ignored);
  const bool answers = status.ok() || !status.error_details().empty();
  if (answers) outage_.NoteAnswered();
  return answers;
}

absl::StatusOr<std::vector<api::Device>> RemoteService::ListDevices() {
  TESSERA_ASSIGN_OR_RETURN(const v1::ListDevicesResponse response,
                           Call(cluster_, &Clusters::ListDevices, v1::ListDevicesRequest()));
  std::vector<api::Device> out;
  for (const v1::Device& d : response.devices()) out.push_back(ir::serial::FromProto(d));
  return out;
}

absl::StatusOr<api::CompileReply> RemoteService::CompileBy(
    const api::CompileRequest& request,
    const std::function<absl::Status(const v1::CompileProgramRequest&,
                                     v1::CompileProgramResponse*)>& call) {
  v1::CompileProgramRequest proto = ir::serial::ToProto(request);
  proto.set_request_id(NewRequestId());
  v1::CompileProgramResponse response;
  TESSERA_RETURN_IF_ERROR(call(proto, &response));
  absl::StatusOr<api::CompileReply> reply = ir::serial::FromProto(response);
  if (!reply.ok()) return reply;
  std::vector<const api::ArraySpec*> specs;
  for (const api::ArraySpec& s : reply->out) specs.push_back(&s);
  absl::MutexLock lock(&mu_);
  results_info_[reply->executable] = {
      specs.size(), !api::IndicesOfInlineResults(specs, api::kInlineBytesMax).empty()};
  return reply;
}

absl::StatusOr<api::CompileReply> RemoteService::Compile(const api::CompileRequest& request) {
  CallBounds bounds = BoundsOf(kCompileTimeout);
  if (request.timeout != absl::InfiniteDuration()) bounds.deadline = SteadyNow() + request.timeout;
  return CompileBy(request,
                   [&](const v1::CompileProgramRequest& proto,
                       v1::CompileProgramResponse* response) -> absl::Status {
                     TESSERA_ASSIGN_OR_RETURN(*response, WhileWorkersReturn(bounds.deadline, [&] {
                       return Call(programs_, &Programs::CompileProgram, proto, bounds);
                     }));
                     return absl::OkStatus();
                   });
}

// The thread of runs_ahead_ compiles here. The service may be destroyed then, and must not wait
// for the minutes that a compilation may take, so StopCalls cancels the attempt that is under way.
absl::StatusOr<api::CompileReply> RemoteService::CompileUntilStopped(
    const api::CompileRequest& request) {
  return CompileBy(
      request,
      [this](const v1::CompileProgramRequest& proto,
             v1::CompileProgramResponse* response) -> absl::Status {
        const auto call = [&](grpc::ClientContext* context) {
          {
            absl::MutexLock lock(&calls_mu_);
            stoppable_call_ = context;
            if (stop_.HasBeenNotified()) context->TryCancel();
          }
          const grpc::Status status = programs_->CompileProgram(context, proto, response);
          absl::MutexLock lock(&calls_mu_);
          stoppable_call_ = nullptr;
          return status;
        };
        return WhileWorkersReturn(
                   absl::InfiniteFuture(),
                   [&]() -> absl::StatusOr<bool> {
                     TESSERA_RETURN_IF_ERROR(CallUntilAnswered(
                         channel_, {"CompileProgram", kCompileTimeout, kCompileTimeout}, &outage_,
                         [this](grpc::ClientContext* context, absl::Duration left) {
                           Prepare(context, left);
                         },
                         [this](const grpc::Status& status) { return ToStatus(status); }, call,
                         &stop_));
                     return true;
                   })
            .status();
      });
}

bool RemoteService::IsWorthWatching(uint64_t executable) const {
  if (execution_client_.num_open_runs() >= kMaxWatchedRuns) return false;
  absl::MutexLock lock(&mu_);
  const auto it = results_info_.find(executable);
  return it == results_info_.end() || it->second.may_be_inline;
}

std::optional<size_t> RemoteService::NumResultsIfSentAhead(
    const api::ExecuteRequest& request) const {
  if (!request.ahead || request.check_only) return std::nullopt;
  absl::MutexLock lock(&mu_);
  const auto it = results_info_.find(request.executable);
  if (it == results_info_.end() || it->second.count > RunsAhead::kResultsMax) return std::nullopt;
  return it->second.count;
}

absl::StatusOr<bool> RemoteService::ServerTakesRunsAhead() {
  if (const int known = takes_runs_ahead_; known >= 0) return known > 0;
  TESSERA_ASSIGN_OR_RETURN(
      const v1::GetCapabilitiesResponse found,
      Call(cluster_, &Clusters::GetCapabilities, v1::GetCapabilitiesRequest()));
  const auto has = [&](std::string_view feature) {
    return std::find(found.features().begin(), found.features().end(), feature) !=
           found.features().end();
  };
  takes_runs_ahead_ = has("runs_in_order") && has("stop_if_not_found");
  return takes_runs_ahead_ > 0;
}

absl::StatusOr<uint64_t> RemoteService::AwaitCoordinatorId(uint64_t id) const {
  return runs_ahead_->AwaitCoordinatorId(id, SteadyNow() + kWatchTimeout);
}

absl::StatusOr<api::ExecuteRequest> RemoteService::ResolveLocalIds(
    const api::ExecuteRequest& request) {
  // This run may release arrays that earlier runs take, so the earlier runs must be accepted first.
  runs_ahead_->AwaitAccepted(SteadyNow() + kWatchTimeout);
  api::ExecuteRequest out = request;
  TESSERA_ASSIGN_OR_RETURN(
      out.args, runs_ahead_->AwaitCoordinatorIds(request.args, SteadyNow() + kWatchTimeout));
  out.release = runs_ahead_->ForgetAndTakeDeletable(request.release);
  return out;
}

// Repeats the request with the same request_id until the run is accepted or refused, as Call does.
// The time limit of the run also ends the wait for its acceptance.
absl::StatusOr<api::ExecuteReply> RemoteService::ExecuteAndWatch(
    const api::ExecuteRequest& request) {
  v1::ExecuteProgramRequest proto = ir::serial::ToProto(request);
  proto.set_inline_results_bytes_max(api::kInlineBytesMax);
  proto.set_request_id(NewRequestId());
  std::shared_ptr<ExecutionClient::Run> run;
  api::ExecuteReply reply;
  CallBounds bounds = Bounds();
  bounds.what = "a run";
  if (request.time_limit) bounds.deadline = SteadyNow() + *request.time_limit;
  Retries tries(channel_, std::move(bounds), &outage_);
  grpc::Status accepted;
  do {
    accepted = execution_client_.SendAndAwaitAcceptance(proto, tries.BeginAttempt(), &run, &reply);
  } while (tries.WaitToRetry(accepted));
  if (!accepted.ok())
    return tries.FinalStatus([this](const grpc::Status& end) { return ToStatus(end); });
  std::vector<std::shared_ptr<ExecutionClient::Run>>
      dropped;  // destroyed after the lock is released
  absl::MutexLock lock(&mu_);
  for (uint64_t array : reply.outputs) watched_runs_.emplace(array, run);
  while (watched_runs_.size() > kMaxCachedResults) {
    dropped.push_back(std::move(watched_runs_.begin()->second));
    watched_runs_.erase(watched_runs_.begin());
  }
  return reply;
}

std::shared_ptr<ExecutionClient::Run> RemoteService::WatchedRunOf(uint64_t array) const {
  absl::MutexLock lock(&mu_);
  const auto it = watched_runs_.find(array);
  return it == watched_runs_.end() ? nullptr : it->second;
}

void RemoteService::ForgetWatched(absl::Span<const uint64_t> arrays) {
  std::vector<std::shared_ptr<ExecutionClient::Run>>
      dropped;  // destroyed after the lock is released
  absl::MutexLock lock(&mu_);
  for (uint64_t array : arrays) {
    const auto it = watched_runs_.find(array);
    if (it == watched_runs_.end()) continue;
    dropped.push_back(std::move(it->second));
    watched_runs_.erase(it);
  }
}

absl::StatusOr<api::ExecuteReply> RemoteService::Execute(const api::ExecuteRequest& request) {
  return Using(request.args, [&] { return ExecuteNow(request); });
}

// Chooses between the ways of starting a run: ahead, over the stream with its completion, or by a
// unary call. An executable that the server does not know is forgotten here; the caller compiles
// the program again.
absl::StatusOr<api::ExecuteReply> RemoteService::ExecuteNow(const api::ExecuteRequest& request) {
  ForgetWatched(request.release);
  for (size_t i = 0; i < request.donate.size() && i < request.args.size(); ++i)
    if (request.donate[i]) ForgetWatched({&request.args[i], 1});
  const std::optional<size_t> num_results = NumResultsIfSentAhead(request);
  bool goes_ahead = num_results.has_value();
  if (goes_ahead) {
    TESSERA_ASSIGN_OR_RETURN(goes_ahead, ServerTakesRunsAhead());
  }
  if (goes_ahead) {
    api::ExecuteRequest sent_ahead = request;
    sent_ahead.session = lease_->session();
    return runs_ahead_->Execute(sent_ahead, *num_results, kTransferTimeout);
  }
  TESSERA_ASSIGN_OR_RETURN(api::ExecuteRequest resolved, ResolveLocalIds(request));
  const bool watch = !lacks_execution_stream_ && IsWorthWatching(request.executable);
  absl::StatusOr<api::ExecuteReply> reply = InSession([&](uint64_t session) {
    resolved.session = session;
    absl::StatusOr<api::ExecuteReply> accepted =
        watch ? ExecuteAndWatch(resolved) : ExecuteUnwatched(resolved);
    if (watch) lacks_execution_stream_ = absl::IsUnimplemented(accepted.status());
    if (watch && lacks_execution_stream_) accepted = ExecuteUnwatched(resolved);
    if (accepted.ok()) lease_->NoteMade(session, IdsOf(*accepted));
    return accepted;
  });
  if (!reply.ok() && KindOf(reply.status()) == ErrorKind::kProgramNotFound) {
    absl::MutexLock lock(&mu_);
    results_info_.erase(request.executable);
  }
  return reply;
}

absl::StatusOr<api::ExecuteReply> RemoteService::ExecuteUnwatched(
    const api::ExecuteRequest& request) const {
  v1::ExecuteProgramRequest proto = ir::serial::ToProto(request);
  proto.set_request_id(NewRequestId());
  const absl::Time deadline =
      request.time_limit ? SteadyNow() + *request.time_limit : absl::InfiniteFuture();
  TESSERA_ASSIGN_OR_RETURN(const v1::ExecuteProgramResponse response,
                           Call(programs_, &Programs::ExecuteProgram, proto, Bounds(deadline)));
  return ir::serial::FromProto(response);
}

absl::StatusOr<uint64_t> RemoteService::Put(const ir::Array& value, const api::Placement& placement,
                                            absl::Duration timeout) {
  timeout = std::min(timeout, kTransferTimeout);
  const absl::Time end = SteadyNow() + timeout;
  // If the relay fails, the general path below reports the error. It needs the coordinator as well.
  if (value.shape().empty()) {
    absl::StatusOr<uint64_t> array = PutByRelay(value, placement, end);
    if (array.ok() || KindOf(array.status()) == ErrorKind::kCancelled ||
        KindOf(array.status()) == ErrorKind::kUnreachable)
      return array;
  }
  TicketRetries tries;
  while (true) {
    bool lost = false;
    absl::StatusOr<uint64_t> array = PutOnce(value, placement, end, &lost);
    if (KindOf(array.status()) == ErrorKind::kDeadlineExceeded && SteadyNow() >= end) {
      return Annotate(array.status(),
                      absl::StrCat("put: an array of ", value.num_bytes(),
                                   " bytes was not taken within ", absl::FormatDuration(timeout)));
    }
    // If an executor was lost, try again: the caller has not seen the id of the array yet, so a new
    // array can be created in its place.
    if (array.ok() || !lost || SteadyNow() >= end || !tries.WaitToRetry()) return array;
  }
}

absl::StatusOr<uint64_t> RemoteService::PutByRelay(const ir::Array& value,
                                                   const api::Placement& placement,
                                                   absl::Time end) {
  v1::WriteArrayRequest request;
  *request.mutable_spec() =
      ir::serial::ToProto(api::ArraySpec{value.dtype(), value.shape(), placement});
  request.set_data(value.data(), static_cast<size_t>(value.num_bytes()));
  TESSERA_ASSIGN_OR_RETURN(
      const v1::WriteArrayResponse written,
      CallInSession(arrays_, &Arrays::WriteArray, std::move(request), Bounds(end)));
  absl::Status reported = transfer_.ReportProgress(value.num_bytes());
  if (reported.ok()) return written.array();
  Delete({written.array()}).IgnoreError();
  return reported;
}

// Creates the array at the coordinator, then writes each shard to its executor, several at a time.
// If a write fails, the array is deleted, because it would never be complete. If an executor was
// lost, the caller makes another attempt, because a new array may be placed on the executor's next
// incarnation.
absl::StatusOr<uint64_t> RemoteService::PutOnce(const ir::Array& value,
                                                const api::Placement& placement, absl::Time end,
                                                bool* lost) {
  const api::ArraySpec spec{value.dtype(), value.shape(), placement};
  v1::CreateArrayRequest request;
  *request.mutable_spec() = ir::serial::ToProto(spec);
  TESSERA_ASSIGN_OR_RETURN(const v1::CreateArrayResponse response,
                           CallInSession(arrays_, &Arrays::CreateArray, request, Bounds(end)));
  std::vector<std::function<absl::Status()>> jobs;
  for (const v1::ShardTicket& t : response.tickets()) {
    jobs.push_back([&, ticket = &t]() -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(const Block block, BlockOf(spec, ticket->ordinal()));
      const bool is_whole = block.shape == value.shape();
      bool needed = true;
      const auto check = [&] { return CheckTarget(response.array(), ticket->ordinal(), &needed); };
      const absl::Status written = transfer_.Write(
          ticket->endpoint(), ticket->ticket(),
          is_whole ? value : ir::SliceBlock(value, block.starts, block.shape), end, check);
      if (KindOf(written) == ErrorKind::kTicketStale) check().IgnoreError();
      return needed ? written : absl::OkStatus();
    });
  }
  const absl::Status written = AwaitLossReason(response.array(), RunAll(jobs));
  if (!written.ok()) {
    *lost = KindOf(written) == ErrorKind::kTicketStale ||
            KindOf(FetchLossError(response.array())) == ErrorKind::kWorkerLost;
    Delete({response.array()}).IgnoreError();
    return written;
  }
  return response.array();
}

absl::StatusOr<v1::CreateReadTicketsResponse> RemoteService::CreateReadTickets(
    uint64_t array, const std::vector<int>& ordinals, absl::Duration timeout) const {
  v1::CreateReadTicketsRequest request;
  request.set_array(array);
  for (int o : ordinals) request.add_ordinals(o);
  return CallAndWait(arrays_, &Arrays::CreateReadTickets, std::move(request),
                     SteadyNow() + timeout);
}

absl::StatusOr<ir::Array> RemoteService::Get(uint64_t array, absl::Duration timeout) {
  return Using({&array, 1}, [&] { return GetValue(array, timeout); });
}

absl::StatusOr<ir::Array> RemoteService::GetValue(uint64_t array, absl::Duration timeout) {
  const absl::Time start = SteadyNow();
  if (RunsAhead::IsLocal(array)) {
    if (std::optional<ir::Array> value = runs_ahead_->AwaitInlineResult(array, start + timeout))
      return *std::move(value);
    TESSERA_ASSIGN_OR_RETURN(array, runs_ahead_->AwaitCoordinatorId(array, start + timeout));
  }
  grpc::Status stream_end;  // status of the stream, if the coordinator stopped meanwhile
  if (const std::shared_ptr<ExecutionClient::Run> run = WatchedRunOf(array)) {
    execution_client_.AwaitEnd(*run, start + timeout);
    if (std::optional<ir::Array> value = execution_client_.ResultOf(*run, array))
      return *std::move(value);
    // The result is too large to come inline, or failed, or is not ready, so the coordinator is
    // asked below.
    stream_end = execution_client_.FailureOf(*run);
  }
  absl::StatusOr<ir::Array> value = WithFreshTickets([&] {
    return GetOnce(array, std::max(timeout - (SteadyNow() - start), absl::ZeroDuration()));
  });
  if (KindOf(value.status()) == ErrorKind::kUnreachable && !stream_end.error_details().empty())
    return ToStatus(stream_end);
  return value;
}

// Reads the shards for which the coordinator gives tickets, several at a time, and assembles them.
// The tickets cover each element of the array once, even if several devices hold copies of it. An
// array that lies in one shard is returned as it was received, which saves a copy.
absl::StatusOr<ir::Array> RemoteService::GetOnce(uint64_t array, absl::Duration timeout) {
  TESSERA_ASSIGN_OR_RETURN(const v1::CreateReadTicketsResponse tickets,
                           CreateReadTickets(array, {}, timeout));
  TESSERA_ASSIGN_OR_RETURN(const api::ArraySpec spec, ir::serial::FromProto(tickets.spec()));
  const absl::Time end = SteadyNow() + kTransferTimeout;
  const int64_t num_elements = ir::MakeType(spec.dtype, spec.shape).num_elements();
  ir::Array whole;  // allocated only if the array is sharded
  absl::Mutex mu;
  std::vector<std::function<absl::Status()>> jobs;
  int64_t num_ticketed = 0;  // elements that the tickets cover
  for (const v1::ShardTicket& t : tickets.tickets()) {
    TESSERA_ASSIGN_OR_RETURN(Block block, BlockOf(spec, t.ordinal()));
    num_ticketed += ir::MakeType(spec.dtype, block.shape).num_elements();
    if (jobs.empty() && block.shape != spec.shape) whole = ir::Array(spec.dtype, spec.shape);
    jobs.push_back([&, block, ticket = &t]() -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(
          const ir::Array shard,
          transfer_.Read(ticket->endpoint(), ticket->ticket(), spec.dtype, block.shape, end,
                         [&] { return CheckSource(array, *ticket); }));
      absl::MutexLock lock(&mu);
      if (block.shape == spec.shape) {
        whole = shard;
      } else {
        ir::WriteBlock(&whole, block.starts, shard);
      }
      return absl::OkStatus();
    });
  }
  if (num_ticketed != num_elements) {
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat("the coordinator gave tickets for ", num_ticketed, " of ",
                                  num_elements, " elements of array ", array));
  }
  if (jobs.empty()) return ir::Array(spec.dtype, spec.shape);
  TESSERA_RETURN_IF_ERROR(AwaitLossReason(array, RunAll(jobs)));
  return whole;
}

absl::Status RemoteService::FetchLossError(uint64_t array) const {
  const absl::Status status = CreateReadTickets(array, {}, absl::ZeroDuration()).status();
  return IsLoss(status) ? status : absl::OkStatus();
}

absl::Status RemoteService::CheckTarget(uint64_t array, int ordinal, bool* needed) const {
  v1::CreateWriteTicketsRequest request;
  request.set_array(array);
  request.add_ordinals(ordinal);
  const absl::StatusOr<v1::CreateWriteTicketsResponse> tickets =
      Call(arrays_, &Arrays::CreateWriteTickets, request);
  // VALUE_ERROR: every shard that is needed has been written.
  *needed = tickets.ok() ? tickets->tickets_size() > 0
                         : KindOf(tickets.status()) != ErrorKind::kValueError;
  if (!*needed)
    return MakeError(ErrorKind::kCancelled,
                     absl::StrCat("array ", array, ": shard ", ordinal, " is not needed any more"));
  return IsLoss(tickets.status()) ? tickets.status() : absl::OkStatus();
}

absl::Status RemoteService::CheckSource(uint64_t array, const v1::ShardTicket& used) const {
  const absl::StatusOr<v1::CreateReadTicketsResponse> tickets =
      CreateReadTickets(array, {used.ordinal()}, absl::ZeroDuration());
  if (!tickets.ok()) return IsLoss(tickets.status()) ? tickets.status() : absl::OkStatus();
  if (tickets->tickets_size() != 1 || tickets->tickets(0).endpoint() == used.endpoint())
    return absl::OkStatus();
  return MakeError(
      ErrorKind::kTicketStale,
      absl::StrCat("array ", array, ": shard ", used.ordinal(), " is not read from ",
                   used.endpoint(), " any more, but from ", tickets->tickets(0).endpoint()));
}

absl::Status RemoteService::AwaitLossReason(uint64_t array, absl::Status transfer_status) const {
  if (transfer_status.ok() || KindOf(transfer_status) != ErrorKind::kWorkerLost)
    return transfer_status;
  // The coordinator learns of the loss from the worker's daemon at about the same time, so its
  // reason may take a moment.
  const absl::Time deadline = SteadyNow() + kLossReportTimeout;
  while (SteadyNow() < deadline) {
    const absl::Status status = CreateReadTickets(array, {}, absl::ZeroDuration()).status();
    if (KindOf(status) == ErrorKind::kWorkerLost) return status;
    absl::SleepFor(kLossPollInterval);
  }
  return transfer_status;
}

absl::StatusOr<ir::Array> RemoteService::GetShard(uint64_t array, int ordinal,
                                                  absl::Duration timeout) {
  return Using({&array, 1}, [&]() -> absl::StatusOr<ir::Array> {
    TESSERA_ASSIGN_OR_RETURN(const uint64_t id,
                             runs_ahead_->AwaitCoordinatorId(array, SteadyNow() + timeout));
    return WithFreshTickets([&] { return GetShardOnce(id, ordinal, timeout); });
  });
}

absl::StatusOr<ir::Array> RemoteService::GetShardOnce(uint64_t array, int ordinal,
                                                      absl::Duration timeout) {
  TESSERA_ASSIGN_OR_RETURN(const v1::CreateReadTicketsResponse tickets,
                           CreateReadTickets(array, {ordinal}, timeout));
  TESSERA_ASSIGN_OR_RETURN(const api::ArraySpec spec, ir::serial::FromProto(tickets.spec()));
  if (tickets.tickets_size() != 1) {
    return MakeError(
        ErrorKind::kInternal,
        absl::StrCat("the coordinator gave ", tickets.tickets_size(), " tickets for one shard"));
  }
  TESSERA_ASSIGN_OR_RETURN(const Block block, BlockOf(spec, ordinal));
  const v1::ShardTicket& ticket = tickets.tickets(0);
  absl::StatusOr<ir::Array> shard =
      transfer_.Read(ticket.endpoint(), ticket.ticket(), spec.dtype, block.shape,
                     SteadyNow() + kTransferTimeout, [&] { return CheckSource(array, ticket); });
  TESSERA_RETURN_IF_ERROR(AwaitLossReason(array, shard.status()));
  return shard;
}

absl::StatusOr<api::ArraySpec> RemoteService::Describe(uint64_t array) {
  return Using({&array, 1}, [&]() -> absl::StatusOr<api::ArraySpec> {
    v1::GetArrayRequest request;
    TESSERA_ASSIGN_OR_RETURN(const uint64_t id, AwaitCoordinatorId(array));
    request.set_array(id);
    TESSERA_ASSIGN_OR_RETURN(const v1::Array response, Call(arrays_, &Arrays::GetArray, request));
    return ir::serial::FromProto(response.spec());
  });
}

absl::StatusOr<api::PendingArrays> RemoteService::Reshard(uint64_t array,
                                                          const api::Placement& placement) {
  return Using({&array, 1}, [&]() -> absl::StatusOr<api::PendingArrays> {
    v1::ReshardArrayRequest request;
    TESSERA_ASSIGN_OR_RETURN(const uint64_t id, AwaitCoordinatorId(array));
    request.set_array(id);
    *request.mutable_placement() = ir::serial::ToProto(placement);
    TESSERA_ASSIGN_OR_RETURN(const v1::ReshardArrayResponse response,
                             CallInSession(arrays_, &Arrays::ReshardArray, request, Bounds()));
    return PendingArraysOf(response.operation(), absl::MakeConstSpan(&response.array(), 1));
  });
}

absl::StatusOr<uint64_t> RemoteService::Save(const std::string& path,
                                             const std::vector<api::ArrayToSave>& arrays,
                                             bool overwrite) {
  std::vector<uint64_t> ids;
  for (const api::ArrayToSave& a : arrays) ids.push_back(a.array);
  return Using(ids, [&]() -> absl::StatusOr<uint64_t> {
    v1::SaveArraysRequest request;
    for (const api::ArrayToSave& a : arrays) {
      v1::NamedArray* named = request.add_arrays();
      named->set_name(a.name);
      TESSERA_ASSIGN_OR_RETURN(const uint64_t id, AwaitCoordinatorId(a.array));
      named->set_array(id);
    }
    request.set_path(path);
    request.set_overwrite(overwrite);
    request.set_request_id(NewRequestId());
    TESSERA_ASSIGN_OR_RETURN(const v1::Operation response,
                             Call(arrays_, &Arrays::SaveArrays, request));
    return response.id();
  });
}

absl::StatusOr<api::PendingArrays> RemoteService::Load(
    const std::string& path, const std::vector<api::ArrayToLoad>& arrays) {
  v1::LoadArraysRequest request;
  request.set_path(path);
  for (const api::ArrayToLoad& a : arrays) {
    v1::LoadArray* wanted = request.add_arrays();
    wanted->set_name(a.name);
    *wanted->mutable_placement() = ir::serial::ToProto(a.placement);
  }
  TESSERA_ASSIGN_OR_RETURN(
      const v1::LoadArraysResponse response,
      CallInSession(arrays_, &Arrays::LoadArrays, request, BoundsOf(kFileTimeout)));
  return PendingArraysOf(response.operation(), response.arrays());
}

absl::StatusOr<std::vector<api::FileArrayInfo>> RemoteService::DescribeFile(
    const std::string& path) {
  v1::GetFileRequest request;
  request.set_path(path);
  TESSERA_ASSIGN_OR_RETURN(const v1::File response,
                           Call(arrays_, &Arrays::GetFile, request, BoundsOf(kFileTimeout)));
  std::vector<api::FileArrayInfo> out;
  for (const v1::FileEntry& entry : response.arrays()) {
    const std::optional<ir::DType> dtype = ir::ParseDType(entry.dtype());
    if (!dtype)
      return MakeError(ErrorKind::kNotImplemented,
                       absl::StrCat(path, ": array '", entry.name(), "' is of dtype ",
                                    entry.dtype(), ", which this client does not know"));
    out.push_back({entry.name(), *dtype, {entry.shape().begin(), entry.shape().end()}});
  }
  return out;
}

absl::Status RemoteService::Delete(absl::Span<const uint64_t> arrays) {
  // The arrays have been freed with the session.
  if (lease_->ended()) return absl::OkStatus();
  ForgetWatched(arrays);
  return DeleteNow(runs_ahead_->ForgetAndTakeDeletable(arrays));
}

absl::Status RemoteService::DeleteNow(const std::vector<uint64_t>& ids) const {
  for (size_t at = 0; at < ids.size(); at += kDeletesPerCall) {
    v1::DeleteArraysRequest request;
    for (uint64_t id : absl::MakeConstSpan(ids).subspan(at, kDeletesPerCall))
      request.add_arrays(id);
    request.set_request_id(NewRequestId());
    TESSERA_RETURN_IF_ERROR(Call(arrays_, &Arrays::DeleteArrays, request));
  }
  return absl::OkStatus();
}

absl::StatusOr<api::Operation> RemoteService::GetOperation(uint64_t operation) {
  return Using({&operation, 1}, [&]() -> absl::StatusOr<api::Operation> {
    v1::GetOperationRequest request;
    TESSERA_ASSIGN_OR_RETURN(const uint64_t id, AwaitCoordinatorId(operation));
    request.set_operation(id);
    TESSERA_ASSIGN_OR_RETURN(const v1::Operation response,
                             Call(operations_, &Operations::GetOperation, request));
    return ir::serial::FromProto(response);
  });
}

// A run of a session that has ended was cancelled with it, so the error in its record says less
// than the end of the session does.
absl::StatusOr<api::Operation> RemoteService::WaitOperation(uint64_t operation,
                                                            absl::Duration timeout) {
  return Using({&operation, 1}, [&]() -> absl::StatusOr<api::Operation> {
    TESSERA_ASSIGN_OR_RETURN(api::Operation found, AwaitOperation(operation, timeout));
    if (!found.error.ok()) TESSERA_RETURN_IF_ERROR(CheckHeld(operation));
    return found;
  });
}

// If the coordinator is away until the end of the timeout, the operation is returned as pending,
// and its pending_reason says so: the caller may wait again. If the outage lasts too long, that is
// an error.
absl::StatusOr<api::Operation> RemoteService::AwaitOperation(uint64_t operation,
                                                             absl::Duration timeout) {
  const absl::Time end = SteadyNow() + timeout;
  if (RunsAhead::IsLocal(operation)) {
    if (std::optional<api::Operation> known = runs_ahead_->AwaitOperation(operation, end);
        known && known->state >= api::OperationState::kDone)
      return *std::move(known);
    const absl::StatusOr<uint64_t> id = runs_ahead_->AwaitCoordinatorId(operation, end);
    if (!id.ok() && KindOf(id.status()) == ErrorKind::kDeadlineExceeded) {
      api::Operation pending;
      pending.id = operation;
      return pending;
    }
    TESSERA_RETURN_IF_ERROR(id.status());
    operation = *id;
  }
  v1::WaitOperationRequest request;
  request.set_operation(operation);
  const absl::StatusOr<v1::Operation> response =
      CallAndWait(operations_, &Operations::WaitOperation, std::move(request), end);
  if (response.ok()) return ir::serial::FromProto(*response);
  if (KindOf(response.status()) != ErrorKind::kDeadlineExceeded) return response.status();
  // The time is over, and the state of the operation is not known.
  api::Operation pending;
  pending.id = operation;
  pending.pending_reason = std::string(response.status().message());
  return pending;
}

absl::Status RemoteService::Cancel(uint64_t operation) {
  return Using({&operation, 1}, [&]() -> absl::Status {
    v1::CancelOperationRequest request;
    TESSERA_ASSIGN_OR_RETURN(const uint64_t id, AwaitCoordinatorId(operation));
    request.set_operation(id);
    return Call(operations_, &Operations::CancelOperation, request).status();
  });
}

bool RemoteService::HasEnded(uint64_t operation) {
  return RunsAhead::IsLocal(operation) && runs_ahead_->HasEnded(operation);
}

}  // namespace tessera::remote
