// Gives the PJRT plugin runs that cost no round trip: RemoteService::Execute comes here with every
// run that may be sent ahead, and turns local ids into the coordinator's where another call needs
// them. Each run waits in `unsettled_` until the thread has seen that it is accepted, so that it
// can be sent again with the same request_id if the stream breaks.
#include "client/remote/runs_ahead.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "client/remote/status.h"
#include "ir/serial/service.h"

namespace tessera::remote {
namespace {

// A local id consists of a bit that no id of a coordinator has, the number of the run, and the
// index of one of its results. The id of the operation has kOperationIndex in place of the index.
constexpr uint64_t kLocalBit = uint64_t{1} << 63;
constexpr int kIndexBits = 20;
constexpr uint64_t kOperationIndex = (uint64_t{1} << kIndexBits) - 1;
uint64_t MakeLocalId(uint64_t number, uint64_t index) {
  return kLocalBit | number << kIndexBits | index;
}
uint64_t RunNumberOf(uint64_t id) { return (id & ~kLocalBit) >> kIndexBits; }
uint64_t ResultIndexOf(uint64_t id) { return id & kOperationIndex; }

// The longest wait for an acceptance. It is longer than the minute that the coordinator waits for
// room before it refuses a run.
constexpr absl::Duration kAcceptTimeout = absl::Minutes(2);
// The code of a run that the coordinator holds back for longer, although it answers other calls.
constexpr grpc::StatusCode kHeldBack = grpc::StatusCode::ABORTED;
// If a run is neither accepted nor refused for so long, or for the time for which calls wait for a
// coordinator that is away if that is longer, another call finds out whether the coordinator
// answers.
constexpr absl::Duration kMinSilence = absl::Seconds(10);
// A stream that the coordinator ends behind a refused run ends within this time, or is cancelled.
constexpr absl::Duration kStreamEndTimeout = absl::Seconds(5);
// The most runs of a client that have not ended. It is below the 1,000 runs at which the
// coordinator stops reading from the stream.
constexpr size_t kInFlightMax = 512;
// The most runs that are not accepted. The results of such runs cannot be deleted yet, so with more
// of them the devices would hold many arrays that a client far ahead of the devices has already
// dropped.
constexpr size_t kUnacceptedMax = 16;
// The most runs whose inline results are kept; each result has at most 64 KiB.
constexpr size_t kKeptResultsMax = 256;
constexpr absl::Duration kWaitSlice = absl::Seconds(1);  // longest wait between checks for room

absl::Status ForgottenError(uint64_t id) {
  return ResultIndexOf(id) == kOperationIndex
             ? MakeError(ErrorKind::kOperationNotFound,
                         "the record of a run whose results have all been deleted is not kept")
             : MakeError(ErrorKind::kArrayDeleted, "the array was deleted or donated");
}

}  // namespace

RunsAhead::RunsAhead(ExecutionClient* execution_client, std::shared_ptr<grpc::Channel> channel,
                     Outage* outage, ToStatusFn to_status, Callbacks callbacks)
    : execution_client_(execution_client),
      channel_(std::move(channel)),
      outage_(outage),
      to_status_(std::move(to_status)),
      callbacks_(std::move(callbacks)),
      thread_([this] { RunThread(); }) {}

RunsAhead::~RunsAhead() {
  stopping_.Notify();
  callbacks_.stop();
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    if (!unsettled_.empty()) execution_client_->CancelStream();
  }
  thread_.join();
}

RunsAhead::SentRunRef RunsAhead::Find(uint64_t id) const {
  const auto it = by_number_.find(RunNumberOf(id));
  return it == by_number_.end() ? nullptr : it->second;
}

RunsAhead::SentRunRef RunsAhead::FindAlive(uint64_t id) const {
  SentRunRef sent = Find(id);
  const uint64_t index = ResultIndexOf(id);
  const bool forgotten = sent != nullptr && index != kOperationIndex &&
                         (index >= sent->alive.size() || !sent->alive[index]);
  return forgotten ? nullptr : sent;
}

absl::Status RunsAhead::AwaitRoom(absl::Time deadline) {
  while (true) {
    std::shared_ptr<ExecutionClient::Run> oldest;
    {
      absl::MutexLock lock(&mu_);
      const auto ended = [](const SentRun& s) {
        return s.settled && (s.run == nullptr || ExecutionClient::IsOver(*s.run));
      };
      while (!in_flight_.empty() && ended(*in_flight_.front())) {
        if (in_flight_.front()->num_alive == 0) by_number_.erase(in_flight_.front()->number);
        in_flight_.pop_front();
      }
      if (in_flight_.size() < kInFlightMax) return absl::OkStatus();
      oldest = in_flight_.front()->run;
    }
    const absl::Time now = SteadyNow();
    if (now >= deadline)
      return MakeError(ErrorKind::kQueueFull,
                       absl::StrCat("execute: ", kInFlightMax,
                                    " runs of this client have not ended; wait for some"));
    execution_client_->AwaitEnd(*oldest, std::min(deadline, now + kWaitSlice));
  }
}

absl::StatusOr<v1::ExecuteProgramsRequest> RunsAhead::MakeRequest(const SentRun& sent) {
  v1::ExecuteProgramsRequest out;
  out.set_number(sent.number);
  out.set_in_order(true);
  out.set_stop_if_not_found(true);
  *out.mutable_run() = sent.request;
  for (const LocalArg& a : sent.local_args) {
    const SentRun& maker = *a.result.sent;
    // Pass the failure on unchanged: if every run added its own context, a long chain would produce
    // an endless message.
    if (!maker.failure.ok()) return maker.failure;
    if (maker.settled) {
      out.mutable_run()->set_args(static_cast<int>(a.arg_index),
                                  maker.reply.outputs.at(a.result.index));
      continue;
    }
    v1::ResultOfRun* const result = out.add_results_of_runs();
    result->set_arg(a.arg_index);
    result->set_number(maker.number);
    result->set_result(static_cast<uint32_t>(a.result.index));
  }
  return out;
}

// Holds the lock from when the run gets its number until the run is sent. So runs are sent in the
// order of their numbers, and each run goes behind the runs that make its arguments. If an
// argument's run has failed, nothing is sent: the run fails with the same error, which is reported
// where its results are used. Arrays to release travel with the request, behind every earlier run
// that may take them.
absl::StatusOr<api::ExecuteReply> RunsAhead::Execute(const api::ExecuteRequest& request,
                                                     size_t num_results, absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  TESSERA_RETURN_IF_ERROR(AwaitRoom(deadline));
  v1::ExecuteProgramRequest proto = ir::serial::ToProto(request);
  proto.set_inline_results_bytes_max(api::kInlineBytesMax);
  proto.set_request_id(NewRequestId());
  absl::MutexLock lock(&mu_);
  const auto has_room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return unsettled_.size() < kUnacceptedMax;
  };
  if (!mu_.AwaitWithTimeout(absl::Condition(&has_room), deadline - SteadyNow()))
    return MakeError(ErrorKind::kQueueFull,
                     absl::StrCat("execute: the coordinator has not accepted ", kUnacceptedMax,
                                  " runs of this client"));
  const auto sent = std::make_shared<SentRun>(execution_client_->NextNumber());
  sent->kept_program = request.kept_program;
  // While this run waited for room, an earlier one may have had the program compiled again.
  if (sent->kept_program != nullptr) proto.set_executable(sent->kept_program->executable());
  sent->alive.assign(num_results, true);
  sent->num_alive = num_results;
  for (size_t i = 0; i < request.args.size(); ++i) {
    if (!IsLocal(request.args[i])) continue;
    const SentRunRef maker = FindAlive(request.args[i]);
    if (maker == nullptr)
      return Annotate(ForgottenError(request.args[i]), absl::StrCat("execute: argument ", i));
    proto.set_args(static_cast<int>(i), 0);
    sent->local_args.push_back({static_cast<uint32_t>(i), {maker, ResultIndexOf(request.args[i])}});
  }
  const std::vector<uint64_t> deletable = ForgetAll(request.release);
  proto.mutable_release()->Assign(deletable.begin(), deletable.end());
  sent->request = std::move(proto);
  if (absl::StatusOr<v1::ExecuteProgramsRequest> request_to_send = MakeRequest(*sent);
      request_to_send.ok()) {
    const ExecutionClient::Run* const after =
        unsettled_.empty() ? nullptr : unsettled_.back()->run.get();
    sent->run = execution_client_->Send(*std::move(request_to_send), after);
    unsettled_.push_back(sent);
    in_flight_.push_back(sent);
    with_kept_results_.push_back(sent);
    if (with_kept_results_.size() > kKeptResultsMax) {
      if (const SentRunRef old = with_kept_results_.front().lock();
          old != nullptr && old->run != nullptr)
        ExecutionClient::DropResults(*old->run);
      with_kept_results_.pop_front();
    }
  } else {
    Settle(sent.get(), request_to_send.status());
  }
  api::ExecuteReply reply;
  reply.operation = MakeLocalId(sent->number, kOperationIndex);
  for (size_t i = 0; i < num_results; ++i) reply.outputs.push_back(MakeLocalId(sent->number, i));
  if (num_results > 0) by_number_.emplace(sent->number, sent);
  return reply;
}

absl::StatusOr<uint64_t> RunsAhead::AwaitCoordinatorId(uint64_t id, absl::Time deadline) {
  if (!IsLocal(id)) return id;
  absl::MutexLock lock(&mu_);
  const SentRunRef sent = FindAlive(id);
  if (sent == nullptr) return ForgottenError(id);
  if (!mu_.AwaitWithTimeout(absl::Condition(&sent->settled), deadline - SteadyNow()))
    return MakeError(ErrorKind::kDeadlineExceeded,
                     "the coordinator has not said in time whether it accepts the run");
  TESSERA_RETURN_IF_ERROR(sent->failure);
  return ResultIndexOf(id) == kOperationIndex ? sent->reply.operation
                                              : sent->reply.outputs.at(ResultIndexOf(id));
}

absl::StatusOr<std::vector<uint64_t>> RunsAhead::AwaitCoordinatorIds(absl::Span<const uint64_t> ids,
                                                                     absl::Time deadline) {
  std::vector<uint64_t> out;
  for (uint64_t id : ids) {
    TESSERA_ASSIGN_OR_RETURN(out.emplace_back(), AwaitCoordinatorId(id, deadline));
  }
  return out;
}

std::shared_ptr<ExecutionClient::Run> RunsAhead::AwaitEnd(uint64_t id, absl::Time deadline) {
  std::shared_ptr<ExecutionClient::Run> run;
  {
    absl::MutexLock lock(&mu_);
    const SentRunRef sent = Find(id);
    if (sent != nullptr) run = sent->run;
  }
  if (run != nullptr) execution_client_->AwaitEnd(*run, deadline);
  return run;
}

std::optional<ir::Array> RunsAhead::AwaitInlineResult(uint64_t array, absl::Time deadline) {
  const std::shared_ptr<ExecutionClient::Run> run = AwaitEnd(array, deadline);
  if (run == nullptr) return std::nullopt;
  const std::optional<api::ExecuteReply> reply = ExecutionClient::ReplyOf(*run);
  if (!reply || ResultIndexOf(array) >= reply->outputs.size()) return std::nullopt;
  return execution_client_->ResultOf(*run, reply->outputs[ResultIndexOf(array)]);
}

std::optional<api::Operation> RunsAhead::AwaitOperation(uint64_t operation, absl::Time deadline) {
  const std::shared_ptr<ExecutionClient::Run> run = AwaitEnd(operation, deadline);
  if (run != nullptr) {
    if (std::optional<api::Operation> ended = ExecutionClient::OperationOf(*run)) return ended;
  }
  absl::MutexLock lock(&mu_);
  const SentRunRef sent = Find(operation);
  if (sent == nullptr || sent->failure.ok()) return std::nullopt;
  api::Operation refused;
  refused.id = operation;
  refused.state = api::OperationState::kFailed;
  refused.error = sent->failure;
  return refused;
}

// A run that this object does not know any more has ended: a run that is under way is kept even if
// all its results are forgotten.
bool RunsAhead::HasEnded(uint64_t operation) {
  absl::MutexLock lock(&mu_);
  const SentRunRef sent = Find(operation);
  if (sent == nullptr) return true;
  if (!sent->settled) return false;
  return sent->run == nullptr || !sent->failure.ok() || ExecutionClient::IsCompleted(*sent->run);
}

void RunsAhead::ForgetOne(uint64_t array, std::vector<uint64_t>* deletable) {
  if (!IsLocal(array)) return deletable->push_back(array);
  const SentRunRef sent = Find(array);
  const size_t index = ResultIndexOf(array);
  if (sent == nullptr || index >= sent->alive.size() || !sent->alive[index]) return;
  sent->alive[index] = false;
  // A run that has not ended is kept, because the caller may still ask for its operation.
  if (--sent->num_alive == 0 && (sent->run == nullptr || ExecutionClient::IsOver(*sent->run)))
    by_number_.erase(sent->number);
  if (!sent->settled) {
    forgotten_early_.push_back({sent, index});
  } else if (sent->failure.ok()) {
    deletable->push_back(sent->reply.outputs.at(index));
  }
}

std::vector<uint64_t> RunsAhead::ForgetAll(absl::Span<const uint64_t> arrays) {
  std::vector<uint64_t> deletable = std::exchange(to_delete_, {});
  for (uint64_t array : arrays) ForgetOne(array, &deletable);
  return deletable;
}

std::vector<uint64_t> RunsAhead::ForgetAndTakeDeletable(absl::Span<const uint64_t> arrays) {
  absl::MutexLock lock(&mu_);
  std::vector<uint64_t> deletable = ForgetAll(arrays);
  if (!unsettled_.empty()) to_delete_.swap(deletable);
  return deletable;
}

void RunsAhead::AwaitAccepted(absl::Time deadline) {
  absl::MutexLock lock(&mu_);
  const auto accepted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return unsettled_.empty(); };
  mu_.AwaitWithTimeout(absl::Condition(&accepted), deadline - SteadyNow());
}

void RunsAhead::Settle(SentRun* sent, absl::Status failure) {
  // A run that was refused may not have deleted the arrays that it was to release.
  if (!failure.ok())
    to_delete_.insert(to_delete_.end(), sent->request.release().begin(),
                      sent->request.release().end());
  sent->failure = std::move(failure);
  sent->settled = true;
  sent->request.Clear();
  sent->kept_program = nullptr;
  sent->local_args.clear();
}

void RunsAhead::ResendUnsettled() {
  std::deque<SentRunRef> to_resend = std::exchange(unsettled_, {});
  for (SentRunRef& sent : to_resend) {
    absl::StatusOr<v1::ExecuteProgramsRequest> request_to_send = MakeRequest(*sent);
    if (!request_to_send.ok()) {
      Settle(sent.get(), request_to_send.status());
      continue;
    }
    const ExecutionClient::Run* const after =
        unsettled_.empty() ? nullptr : unsettled_.back()->run.get();
    sent->run = execution_client_->Send(*std::move(request_to_send), after);
    unsettled_.push_back(std::move(sent));
  }
}

void RunsAhead::RunThread() {
  while (true) {
    SentRunRef oldest_run;
    {
      absl::MutexLock lock(&mu_);
      const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stopped_ || !unsettled_.empty();
      };
      mu_.Await(absl::Condition(&has_work));
      if (stopped_) return;
      oldest_run = unsettled_.front();
    }
    SettleOldest(oldest_run);
  }
}

std::vector<uint64_t> RunsAhead::KnownCoordinatorIds(absl::Span<const uint64_t> ids) {
  std::vector<uint64_t> out;
  absl::MutexLock lock(&mu_);
  for (const uint64_t id : ids) {
    if (!IsLocal(id)) {
      out.push_back(id);
      continue;
    }
    const SentRunRef sent = Find(id);
    if (sent == nullptr || !sent->settled || !sent->failure.ok()) continue;
    const uint64_t index = ResultIndexOf(id);
    if (index == kOperationIndex) {
      out.push_back(sent->reply.operation);
    } else if (index < sent->reply.outputs.size()) {
      out.push_back(sent->reply.outputs[index]);
    }
  }
  return out;
}

std::vector<uint64_t> RunsAhead::KnownArgs(const SentRun& sent) {
  std::vector<uint64_t> out;
  for (const uint64_t arg : sent.request.args())
    if (arg != 0) out.push_back(arg);
  for (const LocalArg& arg : sent.local_args) {
    const SentRun& maker = *arg.result.sent;
    if (maker.settled && maker.failure.ok())
      out.push_back(maker.reply.outputs.at(arg.result.index));
  }
  return out;
}

// A coordinator that has no room holds a run back for a minute, so silence alone says nothing:
// another call finds out whether the coordinator answers.
grpc::Status RunsAhead::AwaitAcceptance(const ExecutionClient::Run& run, absl::Duration silence,
                                        api::ExecuteReply* reply) {
  const absl::Time end = SteadyNow() + kAcceptTimeout;
  while (true) {
    const grpc::Status status =
        ExecutionClient::AwaitAcceptance(run, std::min(silence, end - SteadyNow()), reply);
    const bool silent = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
                        status.error_details().empty();
    if (!silent || stopping_.HasBeenNotified() || !callbacks_.answers()) return status;
    if (SteadyNow() >= end)
      return grpc::Status(kHeldBack,
                          absl::StrCat("the coordinator has neither accepted nor refused "
                                       "a run for ",
                                       absl::FormatDuration(kAcceptTimeout)));
    silence = SilenceTimeout();
  }
}

absl::Duration RunsAhead::SilenceTimeout() const {
  return std::max(outage_->patience(), kMinSilence);
}

// The runs may be sent again only over another stream, because their numbers are taken in this one.
std::optional<RunsAhead::Answer> RunsAhead::AwaitAnswer(const SentRunRef& oldest_run) {
  Retries tries(channel_, {"a run", SilenceTimeout()}, outage_, &stopping_);
  Answer answer;
  grpc::Status status;
  std::shared_ptr<ExecutionClient::Run> run;
  do {
    if (run != nullptr) ExecutionClient::EndStream(*run, absl::ZeroDuration());
    {
      absl::MutexLock lock(&mu_);
      if (stopped_) return std::nullopt;
      if (run != nullptr) ResendUnsettled();
      if (oldest_run->settled) return std::nullopt;  // the run of one of its arguments has failed
      run = oldest_run->run;
    }
    status = AwaitAcceptance(*run, tries.BeginAttempt(), &answer.reply);
  } while (tries.WaitToRetry(status));
  if (!status.ok()) answer.failure = tries.FinalStatus(to_status_);
  const bool held_back = status.error_code() == kHeldBack && status.error_details().empty();
  if (held_back) answer.failure = MakeError(ErrorKind::kDeadlineExceeded, status.error_message());
  answer.unreachable = held_back || status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                       (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
                        status.error_details().empty());
  return answer;
}

// The coordinator keeps no answer to a run that it has refused, so the run keeps its request_id. If
// it was accepted after all, say before a restart that the client has not noticed, it is not run
// again: the same request_id in another request is refused.
bool RunsAhead::Repair(const SentRunRef& refused, absl::Status* failure) {
  v1::ExecuteProgramRequest& request = refused->request;
  const uint64_t session = request.session(), executable = request.executable();
  uint64_t new_session = session, new_executable = executable;
  if (KindOf(*failure) == ErrorKind::kSessionNotFound) {
    if (refused->session_replaced) return false;
    const absl::StatusOr<uint64_t> replaced = callbacks_.replace_session(session);
    if (!replaced.ok()) {
      *failure = replaced.status();
      return false;
    }
    new_session = *replaced;
    refused->session_replaced = true;
  } else {
    if (refused->kept_program == nullptr) return false;
    // Another call may have had the program compiled again since this run was sent. That does not
    // count, because the run has not tried the present executable yet.
    new_executable = refused->kept_program->executable();
    if (new_executable == executable) {
      if (refused->lost_executable != 0) {
        *failure = refused->kept_program->LostAgainError(refused->lost_executable, executable);
        return false;
      }
      const absl::StatusOr<uint64_t> replaced =
          refused->kept_program->Replace(executable, callbacks_.compile, absl::InfiniteFuture());
      if (!replaced.ok()) {
        *failure = replaced.status();
        return false;
      }
      new_executable = *replaced;
      refused->lost_executable = executable;
    }
  }
  absl::MutexLock lock(&mu_);
  for (const SentRunRef& sent : unsettled_) {
    if (sent->request.session() == session) sent->request.set_session(new_session);
    if (sent->request.executable() == executable) sent->request.set_executable(new_executable);
  }
  ResendUnsettled();
  return true;
}

// If the coordinator could not be reached in time, all later runs are settled with the error of the
// oldest run, since they wait behind it. Then deletes arrays: results that were forgotten before
// the run was accepted now have ids, and are deleted once no run that may take them is left.
void RunsAhead::SettleOldest(const SentRunRef& oldest_run) {
  std::optional<Answer> answer;
  do {
    answer = AwaitAnswer(oldest_run);
    if (!answer) return;
    const ErrorKind kind = KindOf(answer->failure);
    answer->stream_ended =
        kind == ErrorKind::kProgramNotFound || kind == ErrorKind::kSessionNotFound;
    if (answer->stream_ended) ExecutionClient::EndStream(*oldest_run->run, kStreamEndTimeout);
  } while (answer->stream_ended && Repair(oldest_run, &answer->failure));
  absl::Status& failure = answer->failure;
  if (failure.ok()) {
    callbacks_.on_accepted(oldest_run->request.session(), answer->reply);
  } else if (absl::Status lost = callbacks_.check_held(KnownArgs(*oldest_run)); !lost.ok()) {
    failure = std::move(lost);
  }
  std::vector<uint64_t> deletable;
  {
    absl::MutexLock lock(&mu_);
    if (failure.ok() && answer->reply.outputs.size() != oldest_run->alive.size())
      failure =
          MakeError(ErrorKind::kInternal,
                    absl::StrCat("the coordinator gave ids for ", answer->reply.outputs.size(),
                                 " results of a run that has ", oldest_run->alive.size()));
    oldest_run->reply = std::move(answer->reply);
    do {
      Settle(unsettled_.front().get(), failure);
      unsettled_.pop_front();
    } while (answer->unreachable && !unsettled_.empty());
    if (answer->stream_ended) ResendUnsettled();
    std::vector<ResultRef> still_unsettled;
    for (ResultRef& r : forgotten_early_) {
      if (!r.sent->settled) {
        still_unsettled.push_back(std::move(r));
      } else if (r.sent->failure.ok()) {
        to_delete_.push_back(r.sent->reply.outputs.at(r.index));
      }
    }
    forgotten_early_.swap(still_unsettled);
    if (unsettled_.empty()) deletable.swap(to_delete_);
  }
  if (!deletable.empty()) callbacks_.free_arrays(deletable);
}

}  // namespace tessera::remote
