// Gives the PJRT plugin runs that cost no round trip: RemoteService::Execute comes here with every
// run that may be sent ahead, and turns local ids into the coordinator's where another call needs
// them. Each run waits in `unsettled_` until the thread (Drive) has seen it accepted, so that it
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
// index of one of its results. The id of the operation has kOperation in place of the index.
constexpr uint64_t kLocal = uint64_t{1} << 63;
constexpr int kIndexBits = 20;
constexpr uint64_t kOperation = (uint64_t{1} << kIndexBits) - 1;
uint64_t LocalId(uint64_t number, uint64_t index) { return kLocal | number << kIndexBits | index; }
uint64_t NumberOf(uint64_t id) { return (id & ~kLocal) >> kIndexBits; }
uint64_t IndexOf(uint64_t id) { return id & kOperation; }

// Longer than the minute that the coordinator waits for room before it refuses a run.
constexpr absl::Duration kAcceptTimeout = absl::Minutes(2);
// The most runs of a client that have not ended. It is below the 1,000 runs at which the
// coordinator stops reading from the stream.
constexpr size_t kInFlightMax = 512;
// The most runs that are not accepted. The results of such runs cannot be deleted yet, so with more
// of them the devices would hold many arrays that a client far ahead of the devices has already
// dropped.
constexpr size_t kUnacceptedMax = 16;
// The most runs whose inline results are kept; each result has at most 64 KiB.
constexpr size_t kKeptResultsMax = 256;
constexpr absl::Duration kSlice = absl::Seconds(1);

absl::Status GoneOf(uint64_t id) {
  return IndexOf(id) == kOperation
             ? MakeError(ErrorKind::kOperationNotFound,
                         "the record of a run whose results have all been deleted is not kept")
             : MakeError(ErrorKind::kArrayDeleted, "the array was deleted or donated");
}

}  // namespace

RunsAhead::RunsAhead(Executions* executions, std::shared_ptr<grpc::Channel> channel, Outage* outage,
                     ToStatusFn to_status, Calls calls)
    : executions_(executions),
      channel_(std::move(channel)),
      outage_(outage),
      to_status_(std::move(to_status)),
      calls_(std::move(calls)),
      thread_([this] { Drive(); }) {}

RunsAhead::~RunsAhead() {
  stopping_.Notify();
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    if (!unsettled_.empty()) executions_->Cancel();
  }
  thread_.join();
}

RunsAhead::SentRef RunsAhead::Find(uint64_t id) const {
  const auto it = by_number_.find(NumberOf(id));
  return it == by_number_.end() ? nullptr : it->second;
}

RunsAhead::SentRef RunsAhead::FindAlive(uint64_t id) const {
  SentRef sent = Find(id);
  const uint64_t index = IndexOf(id);
  const bool gone = sent != nullptr && index != kOperation &&
                    (index >= sent->alive.size() || !sent->alive[index]);
  return gone ? nullptr : sent;
}

absl::Status RunsAhead::AwaitRoom(absl::Time deadline) {
  while (true) {
    std::shared_ptr<Executions::Run> oldest;
    {
      absl::MutexLock lock(&mu_);
      const auto ended = [](const Sent& s) {
        return s.settled && (s.run == nullptr || Executions::IsOver(*s.run));
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
    executions_->AwaitEnd(*oldest, std::min(deadline, now + kSlice));
  }
}

absl::StatusOr<v1::ExecuteProgramsRequest> RunsAhead::Numbered(const Sent& sent) {
  v1::ExecuteProgramsRequest out;
  out.set_number(sent.number);
  out.set_in_order(true);
  *out.mutable_run() = sent.request;
  for (const Arg& a : sent.local_args) {
    const Sent& maker = *a.result.sent;
    // Pass the failure on unchanged: if every run added its own context, a long chain would produce
    // an endless message.
    if (!maker.failure.ok()) return maker.failure;
    if (maker.settled) {
      out.mutable_run()->set_args(static_cast<int>(a.arg), maker.reply.outputs.at(a.result.index));
      continue;
    }
    v1::ResultOfRun* const result = out.add_results_of_runs();
    result->set_arg(a.arg);
    result->set_number(maker.number);
    result->set_result(static_cast<uint32_t>(a.result.index));
  }
  return out;
}

// Holds the lock from when the run gets its number until it is sent. So runs are sent in the order
// of their numbers, and each run goes behind the runs that make its arguments. If an argument's run
// has failed, nothing is sent: the run fails with the same error, which is reported where its
// results are used. Arrays to release travel with the request, behind every earlier run that may
// take them.
absl::StatusOr<api::ExecuteReply> RunsAhead::Execute(const api::ExecuteRequest& request,
                                                     size_t num_results, absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  TESSERA_RETURN_IF_ERROR(AwaitRoom(deadline));
  v1::ExecuteProgramRequest proto = ir::serial::ToProto(request);
  proto.set_inline_results_bytes_max(api::kInlineBytesMax);
  proto.set_request_id(NewRequestId());
  absl::MutexLock lock(&mu_);
  const auto few = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return unsettled_.size() < kUnacceptedMax;
  };
  if (!mu_.AwaitWithTimeout(absl::Condition(&few), deadline - SteadyNow()))
    return MakeError(ErrorKind::kQueueFull,
                     absl::StrCat("execute: the coordinator has not accepted ", kUnacceptedMax,
                                  " runs of this client"));
  const auto sent = std::make_shared<Sent>(executions_->NextNumber());
  sent->alive.assign(num_results, true);
  sent->num_alive = num_results;
  for (size_t i = 0; i < request.args.size(); ++i) {
    if (!IsLocal(request.args[i])) continue;
    const SentRef maker = FindAlive(request.args[i]);
    if (maker == nullptr)
      return Annotate(GoneOf(request.args[i]), absl::StrCat("execute: argument ", i));
    proto.set_args(static_cast<int>(i), 0);
    sent->local_args.push_back({static_cast<uint32_t>(i), {maker, IndexOf(request.args[i])}});
  }
  const std::vector<uint64_t> gone = ForgetAll(request.release);
  proto.mutable_release()->Assign(gone.begin(), gone.end());
  sent->request = std::move(proto);
  if (absl::StatusOr<v1::ExecuteProgramsRequest> numbered = Numbered(*sent); numbered.ok()) {
    const Executions::Run* const after =
        unsettled_.empty() ? nullptr : unsettled_.back()->run.get();
    sent->run = executions_->Send(*std::move(numbered), after);
    unsettled_.push_back(sent);
    in_flight_.push_back(sent);
    with_results_.push_back(sent);
    if (with_results_.size() > kKeptResultsMax) {
      if (const SentRef old = with_results_.front().lock(); old != nullptr && old->run != nullptr)
        Executions::DropResults(*old->run);
      with_results_.pop_front();
    }
  } else {
    Settle(sent.get(), numbered.status());
  }
  api::ExecuteReply reply;
  reply.operation = LocalId(sent->number, kOperation);
  for (size_t i = 0; i < num_results; ++i) reply.outputs.push_back(LocalId(sent->number, i));
  if (num_results > 0) by_number_.emplace(sent->number, sent);
  return reply;
}

absl::StatusOr<uint64_t> RunsAhead::IdOf(uint64_t id, absl::Time deadline) {
  if (!IsLocal(id)) return id;
  absl::MutexLock lock(&mu_);
  const SentRef sent = FindAlive(id);
  if (sent == nullptr) return GoneOf(id);
  if (!mu_.AwaitWithTimeout(absl::Condition(&sent->settled), deadline - SteadyNow()))
    return MakeError(ErrorKind::kDeadlineExceeded,
                     "the coordinator has not said in time whether it accepts the run");
  TESSERA_RETURN_IF_ERROR(sent->failure);
  return IndexOf(id) == kOperation ? sent->reply.operation : sent->reply.outputs.at(IndexOf(id));
}

absl::StatusOr<std::vector<uint64_t>> RunsAhead::IdsOf(absl::Span<const uint64_t> ids,
                                                       absl::Time deadline) {
  std::vector<uint64_t> out;
  for (uint64_t id : ids) {
    TESSERA_ASSIGN_OR_RETURN(out.emplace_back(), IdOf(id, deadline));
  }
  return out;
}

std::shared_ptr<Executions::Run> RunsAhead::AwaitEnd(uint64_t id, absl::Time deadline) {
  std::shared_ptr<Executions::Run> run;
  {
    absl::MutexLock lock(&mu_);
    const SentRef sent = Find(id);
    if (sent != nullptr) run = sent->run;
  }
  if (run != nullptr) executions_->AwaitEnd(*run, deadline);
  return run;
}

std::optional<ir::Array> RunsAhead::ResultOf(uint64_t array, absl::Time deadline) {
  const std::shared_ptr<Executions::Run> run = AwaitEnd(array, deadline);
  if (run == nullptr) return std::nullopt;
  const std::optional<api::ExecuteReply> reply = Executions::ReplyOf(*run);
  if (!reply || IndexOf(array) >= reply->outputs.size()) return std::nullopt;
  return executions_->ResultOf(*run, reply->outputs[IndexOf(array)]);
}

std::optional<api::Operation> RunsAhead::OperationOf(uint64_t operation, absl::Time deadline) {
  const std::shared_ptr<Executions::Run> run = AwaitEnd(operation, deadline);
  if (run != nullptr) {
    if (std::optional<api::Operation> ended = Executions::OperationOf(*run)) return ended;
  }
  absl::MutexLock lock(&mu_);
  const SentRef sent = Find(operation);
  if (sent == nullptr || sent->failure.ok()) return std::nullopt;
  api::Operation refused;
  refused.id = operation;
  refused.state = api::OperationState::kFailed;
  refused.error = sent->failure;
  return refused;
}

void RunsAhead::ForgetOne(uint64_t array, std::vector<uint64_t>* gone) {
  if (!IsLocal(array)) return gone->push_back(array);
  const SentRef sent = Find(array);
  const size_t index = IndexOf(array);
  if (sent == nullptr || index >= sent->alive.size() || !sent->alive[index]) return;
  sent->alive[index] = false;
  // A run that has not ended is kept, because the caller may still ask for its operation.
  if (--sent->num_alive == 0 && (sent->run == nullptr || Executions::IsOver(*sent->run)))
    by_number_.erase(sent->number);
  if (!sent->settled) {
    forgotten_early_.push_back({sent, index});
  } else if (sent->failure.ok()) {
    gone->push_back(sent->reply.outputs.at(index));
  }
}

std::vector<uint64_t> RunsAhead::ForgetAll(absl::Span<const uint64_t> arrays) {
  std::vector<uint64_t> gone = std::exchange(deletes_, {});
  for (uint64_t array : arrays) ForgetOne(array, &gone);
  return gone;
}

std::vector<uint64_t> RunsAhead::Forget(absl::Span<const uint64_t> arrays) {
  absl::MutexLock lock(&mu_);
  std::vector<uint64_t> gone = ForgetAll(arrays);
  if (!unsettled_.empty()) deletes_.swap(gone);
  return gone;
}

void RunsAhead::AwaitAccepted(absl::Time deadline) {
  absl::MutexLock lock(&mu_);
  const auto accepted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return unsettled_.empty(); };
  mu_.AwaitWithTimeout(absl::Condition(&accepted), deadline - SteadyNow());
}

void RunsAhead::Settle(Sent* sent, absl::Status failure) {
  // A run that was refused may not have deleted the arrays that it was to release.
  if (!failure.ok())
    deletes_.insert(deletes_.end(), sent->request.release().begin(), sent->request.release().end());
  sent->failure = std::move(failure);
  sent->settled = true;
  sent->request.Clear();
  sent->local_args.clear();
}

void RunsAhead::SendAgain() {
  std::deque<SentRef> left = std::exchange(unsettled_, {});
  for (SentRef& sent : left) {
    absl::StatusOr<v1::ExecuteProgramsRequest> numbered = Numbered(*sent);
    if (!numbered.ok()) {
      Settle(sent.get(), numbered.status());
      continue;
    }
    const Executions::Run* const after =
        unsettled_.empty() ? nullptr : unsettled_.back()->run.get();
    sent->run = executions_->Send(*std::move(numbered), after);
    unsettled_.push_back(std::move(sent));
  }
}

void RunsAhead::Drive() {
  while (true) {
    SentRef first;
    {
      absl::MutexLock lock(&mu_);
      const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stopped_ || !unsettled_.empty();
      };
      mu_.Await(absl::Condition(&due));
      if (stopped_) return;
      first = unsettled_.front();
    }
    AwaitFirst(first);
  }
}

// Waits for the acceptance of the oldest run, with retries on new streams, and settles it. If the
// coordinator could not be reached in time, all later runs are settled with the same error, since
// they wait behind this one. Then deletes arrays: results that were forgotten before the run was
// accepted now have ids, and are deleted once no run that may take them is left.
void RunsAhead::AwaitFirst(const SentRef& first) {
  Retries tries(channel_, kAcceptTimeout, outage_, &stopping_);
  api::ExecuteReply reply;
  grpc::Status status;
  bool again = false;
  do {
    std::shared_ptr<Executions::Run> run;
    {
      absl::MutexLock lock(&mu_);
      if (stopped_) return;
      if (again) SendAgain();
      if (first->settled) return;  // the run of one of its arguments has failed
      run = first->run;
    }
    status = Executions::AwaitAcceptance(*run, tries.left(), &reply);
    again = true;
  } while (tries.Again(status));
  absl::Status failure = status.ok() ? absl::OkStatus() : tries.End(to_status_);
  // Both codes say that the coordinator was not reached. The later runs did not reach it either.
  const bool all = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
                   status.error_code() == grpc::StatusCode::UNAVAILABLE;
  const uint64_t session = first->request.session();
  std::vector<uint64_t> gone;
  {
    absl::MutexLock lock(&mu_);
    if (failure.ok() && reply.outputs.size() != first->alive.size())
      failure = MakeError(ErrorKind::kInternal,
                          absl::StrCat("the coordinator gave ids for ", reply.outputs.size(),
                                       " results of a run that has ", first->alive.size()));
    first->reply = std::move(reply);
    do {
      Settle(unsettled_.front().get(), failure);
      unsettled_.pop_front();
    } while (all && !unsettled_.empty());
    std::vector<Result> later;
    for (Result& r : forgotten_early_) {
      if (!r.sent->settled) {
        later.push_back(std::move(r));
      } else if (r.sent->failure.ok()) {
        deletes_.push_back(r.sent->reply.outputs.at(r.index));
      }
    }
    forgotten_early_.swap(later);
    if (unsettled_.empty()) gone.swap(deletes_);
  }
  if (!failure.ok() && KindOf(failure) == ErrorKind::kSessionNotFound) calls_.no_session(session);
  if (!gone.empty()) calls_.free(gone);
}

}  // namespace tessera::remote
