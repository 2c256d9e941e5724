// The life of an operation: acceptance, start, end and what executors report about it. run.cc,
// transfer.cc, save.cc and load.cc make operations; arrays, plans and executors that become ready
// call TryStart; reports end them.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_exception.h"
#include "ir/api/placement.h"
#include "ir/api/ticket.h"
#include "ir/builder.h"
#include "ir/type.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {
namespace {

// Returns how much an error that blames a peer says about the cause, or 0 if the error blames no
// peer. An executor that reports is not lost itself: its WORKER_LOST is about a peer.
int BlameOfAPeer(const absl::Status& status) {
  switch (KindOf(status)) {
    case ErrorKind::kPeerFailed:
      return 1;
    case ErrorKind::kPeerAborted:
      return 2;
    case ErrorKind::kCollectiveTimeout:
    case ErrorKind::kWorkerLost:
      return 3;
    default:
      return 0;
  }
}

const char* StateName(api::OperationState state) {
  constexpr const char* kNames[] = {"pending", "running", "done", "failed", "cancelled"};
  return kNames[static_cast<int>(state)];
}

}  // namespace

uint64_t Machine::NewOperation(Operation&& op, const std::vector<SpecRef>& results) {
  Session& session = ownership_.session(op.session);
  const uint64_t id = op.id = ownership_.NewId(session.tenant, s_.config.owners_max);
  op.tenant = session.tenant;
  op.client_session_id = session.own ? 0 : op.session;
  op.created = now_;
  op.wall_ahead = s_.wall_ahead;
  session.operations.insert(id);
  for (const SpecRef& spec : results)
    op.results.push_back(NewArray(spec, ArrayState::kPlanned, op.session));
  for (uint64_t a : op.args) {
    catalogue_.array(a).unscheduled_readers.insert(id);
    catalogue_.array(a).readers.insert(id);
  }
  if (Executable* const x = ExecutableOf(op)) {
    x->operations.insert(id);
    op.planned_late = x->state != ExecutableState::kPlanned;
  }
  Note(core::OperationSubmitted{op.tenant, op.kind});
  Arm(op.deadline, kDeadlineTimer, id);
  MarkChanged(op);
  order_.Add(std::move(op));
  return id;
}

std::vector<std::string> Machine::ExecutorsOf(const Operation& op) {
  // For an operation that was sent these are the executors that have not left it. The work of such
  // an operation could not name them: its results may have been lost and deleted, and their records
  // freed.
  if (op.sequence != 0) {
    std::vector<std::string> executors;
    for (const auto& [name, incarnation] : op.outstanding) executors.push_back(name);
    return executors;
  }
  return std::visit([&](const auto& work) { return ExecutorsFor(work, op); }, op.work);
}

Executable* Machine::ExecutableOf(const Operation& op) const {
  return op.run() == nullptr ? nullptr : catalogue_.FindExecutable(op.run()->executable);
}

void Machine::TryStart(uint64_t id) {
  due_.push_back({id, absl::OkStatus(), {}});
  StartAndFailDue();
}

void Machine::Fail(uint64_t id, absl::Status error, api::OperationState state) {
  due_.push_back({id, std::move(error), state});
  StartAndFailDue();
}

void Machine::StartAndFailDue() {
  if (processing_due_) return;
  processing_due_ = true;
  for (size_t next = 0; next < due_.size(); ++next) {
    const DueOperation due = std::move(due_[next]);
    if (due.status.ok()) {
      TryStartNow(due.operation);
    } else {
      FailNow(due.operation, due.status, due.state);
    }
  }
  due_.clear();
  processing_due_ = false;
}

// Starts the operation, unless something that it needs is missing. When its plan or an argument
// becomes ready, TryStart is called again. If executors are missing or have not compiled its
// program, the operation is blocked; on a draining worker it is held. RetryBlocked and RetryHeld
// then try it again. If its devices have lost shards of an argument, the operation waits for a copy
// of the argument. A failed argument fails the operation.
void Machine::TryStartNow(uint64_t id) {
  auto* const found = order_.Find(id);
  if (found == nullptr) return;
  Operation& op = *found;
  if (op.ended() || op.sequence != 0) return;
  const Executable* const program = ExecutableOf(op);
  if (program != nullptr && program->state != ExecutableState::kPlanned) return;
  for (uint64_t arg : op.args) {
    const ArrayRecord& a = catalogue_.array(arg);
    if (!a.error.ok()) {
      const absl::Status error = ErrorOf(arg, a);
      return Fail(id, error);
    }
    if (a.state != ArrayState::kReady && a.state != ArrayState::kScheduled) return;
  }
  const std::vector<std::string> executors = ExecutorsOf(op);
  for (const std::string& name : executors) {
    if (cluster_.executor(name).alive()) continue;
    return Block(op, /*loading=*/false);
  }
  // Executors that alone have a shard which the operation reads must be there, too.
  if (AnyAway(op)) return Block(op, /*loading=*/false);
  if (!cluster_.draining().empty()) {
    for (const std::string& name : executors) {
      if (!cluster_.IsDraining(cluster_.executor(name).worker)) continue;
      order_.Hold(id);
      Unblock(op);
      return;
    }
  }
  // An executor that has restarted has none of the shards that its devices had.
  if (program != nullptr && !HasArguments(*op.run(), op, /*executor=*/""))
    return CopyLostArguments(op);
  if (program != nullptr && !IsLoaded(*program)) {
    LoadWhereAlive(op.run()->executable);
    return Block(op, /*loading=*/true);
  }
  Start(op, executors);
}

bool Machine::AnyAway(const Operation& op) {
  if (cluster_.num_away() == 0) return false;
  for (const std::string& name : ExecutorsOf(op))
    if (cluster_.executor(name).away) return true;
  return op.reads_peers() && std::any_of(op.args.begin(), op.args.end(), [this](uint64_t a) {
           return !IsAllAlive(catalogue_.array(a));
         });
}

void Machine::Block(Operation& op, bool loading) {
  if (!order_.Block(op.id) && op.loading == loading) return;
  Disarm(op.executors_until, kExecutorsTimer, op.id);
  op.loading = loading;
  op.executors_wait = loading       ? s_.config.compile_timeout
                      : AnyAway(op) ? s_.config.outage_grace
                                    : s_.config.recovery_wait;
  op.executors_until = now_ + op.executors_wait;
  Arm(op.executors_until, kExecutorsTimer, op.id);
}

void Machine::Unblock(const Operation& op) {
  order_.Unblock(op.id);
  Disarm(op.executors_until, kExecutorsTimer, op.id);
}

void Machine::OnExecutorsTimer(uint64_t id) {
  const Operation& op = order_.operation(id);
  if (op.loading) {
    const Executable& x = *ExecutableOf(op);
    MarkLoadersOverdue(x, absl::StrCat("operation ", id));
    return Fail(id, NotLoadedError(x, absl::StrCat("operation ", id)));
  }
  Fail(id, Error(ErrorKind::kWorkerLost, "operation ", id, ": ", DescribeDelay(op),
                 ", and it was not back within ", absl::FormatDuration(op.executors_wait)));
}

uint64_t Machine::NextCommit(const Operation& op) const {
  return s_.config.durable && op.tenant != core::kSystemTenant ? s_.last_commit + 1 : 0;
}

// Gives the operation its place in the order, and sends it to all of its executors in this step
// (gang order, step.h). The commands are sent before the deletions of the arguments, because
// executors take commands in the order sent. From now on the results are scheduled, so that
// operations which read them can start too.
void Machine::Start(Operation& op, const std::vector<std::string>& executors) {
  Unblock(op);
  order_.Place(op);
  op.state = api::OperationState::kRunning;
  op.started = now_;
  MarkChanged(op);
  op.started_in_commit = NextCommit(op);
  AnswerChangeWaits(op);
  const bool uses_devices = op.uses_devices();
  for (const std::string& name : executors) {
    Executor& x = cluster_.executor(name);
    op.outstanding[name] = x.info.incarnation;
    if (!uses_devices) continue;
    x.running[op.sequence] = op.id;
    x.last_sent_sequence = op.sequence;
  }
  std::visit([&](const auto& work) { SendWork(work, op, executors, /*only=*/""); }, op.work);
  StartRunDeadline(op);
  // Operations and deletions sent from now on run after this launch.
  for (uint64_t a : op.args) {
    catalogue_.array(a).unscheduled_readers.erase(op.id);
    TryFree(a);
  }
  FreeOriginals(op);
  for (uint64_t r : op.results) {
    // A result that is loaded from a file is kWriting now, like an upload.
    if (const ArrayRecord* a = catalogue_.FindArray(r); a && a->state == ArrayState::kPlanned)
      SetArrayScheduled(r);
    TryFree(r);
  }
}

void Machine::Succeed(uint64_t id) {
  Operation& op = order_.operation(id);
  End(op, api::OperationState::kDone);
  for (uint64_t r : op.results) {
    // An array loaded from a file is ready since its last shard was written.
    if (auto* const it = catalogue_.FindArray(r);
        it == nullptr || !it->error.ok() || it->state == ArrayState::kReady)
      continue;
    SetArrayReady(r);
    TryFree(r);
  }
}

absl::Status Machine::CheckQueue(const char* what) const {
  if (order_.num_live() < s_.config.queue_bound) return absl::OkStatus();
  return Error(ErrorKind::kQueueFull, what, ": ", order_.num_live(),
               " operations have not ended, at most ", s_.config.queue_bound,
               " are accepted; wait and retry");
}

Requests* Machine::WaitersFor(const OperationWait& wait) {
  return &order_.operation(wait.operation).waiters;
}

void Machine::AnswerTimeout(const OperationWait& wait, uint64_t request) {
  Answer(request, Describe(order_.operation(wait.operation)));
}

// Fails the operation with the error that blames a peer, because the root cause was not reported in
// time. Each executor that has reported names a peer that it misses, which may itself be waiting.
// The executors that have not reported are the ones that all others wait for, so the error names
// these.
void Machine::OnVerdictTimer(uint64_t id) {
  constexpr size_t kNamedMax = 4;
  const Operation& op = order_.operation(id);
  std::vector<std::string> unreported;
  for (const auto& [name, incarnation] : op.outstanding)
    if (unreported.size() < kNamedMax) unreported.push_back(NameWithSilence(name));
  std::string who = absl::StrCat("no report from ", absl::StrJoin(unreported, ", "));
  if (op.outstanding.size() > kNamedMax)
    absl::StrAppend(&who, " and ", op.outstanding.size() - kNamedMax, " more");
  Fail(id, Annotate(op.peer_error, who));
}

void Machine::OnDeadlineTimer(uint64_t id) {
  const Operation& op = order_.operation(id);
  if (op.loading && op.sequence == 0)
    MarkLoadersOverdue(*ExecutableOf(op), absl::StrCat("operation ", id));
  Fail(id, Error(ErrorKind::kDeadlineExceeded, "operation ", id, " (", op.name,
                 ") did not end within its deadline of ", absl::FormatDuration(op.time_allowed),
                 ": ", DescribeDelay(op)));
}

void Machine::FailNow(uint64_t id, const absl::Status& error, api::OperationState state) {
  Operation& op = order_.operation(id);
  if (op.ended()) return;
  op.error = error;
  const ErrorKind kind = KindOf(error);
  const absl::Status stop_error =
      kind == ErrorKind::kCancelled || kind == ErrorKind::kDeadlineExceeded
          ? error
          : Error(ErrorKind::kPeerFailed, "operation ", id, " (", op.name,
                  ") was stopped; first failure: ", error.message());
  for (const auto& [name, incarnation] : op.outstanding) {
    const Executor& x = cluster_.executor(name);
    if (x.alive() && x.info.incarnation == incarnation) Send(x, api::CancelLaunch{id, stop_error});
  }
  // The executors may have left their collectives at different points, so no later launch may use
  // the communicator.
  if (op.generation != 0) order_.Retire(op.generation);
  End(op, state);
  if (op.outstanding.empty()) SettleDonated(op);
  for (uint64_t r : op.results) FailArray(r, error);
}

// Decides what becomes of donated arrays, now that every executor has left the operation. An array
// is given back if no executor has consumed it, it still has its shards, and its session lives.
// Requests that asked for it meanwhile are answered now, because only now the answer is certain.
void Machine::SettleDonated(const Operation& op) {
  std::vector<uint64_t> donated = op.args;
  if (const Run* const run = op.run(); run != nullptr && op.sequence == 0)
    donated.insert(donated.end(), run->originals.begin(), run->originals.end());
  for (uint64_t a : donated) {
    auto* const it = catalogue_.FindArray(a);
    if (it == nullptr || it->donated_to != op.id) continue;
    // An array that has failed has no shards to lose.
    const bool gone = op.inputs_gone || (it->freed && it->error.ok());
    if (gone || ownership_.FindSession(it->session) == nullptr) {
      if (!op.inputs_gone) it->donated_to = 0;
      MarkChanged(a, *it);
      TryFree(a);
    } else {
      it->donated_to = 0;
      SetDeleted(a, false);
    }
  }
  for (uint64_t request : IdSet(op.waiters)) {
    const auto* wait = WaitOf<DonationWait>(request);
    if (wait == nullptr) continue;
    const uint64_t array = wait->array;
    EndWait(request);
    auto* const it = catalogue_.FindArray(array);
    if (it != nullptr && !it->deleted) {
      Answer(request, ArrayInfoOf(array));
    } else {
      Answer(request, Error(ErrorKind::kArrayDeleted, "array ", array, " was donated to operation ",
                            op.id, " and has been deleted"));
    }
  }
}

void Machine::StartRunDeadline(Operation& op) {
  if (op.ended() || op.deadline < absl::InfiniteFuture()) return;
  const bool uses_devices = op.uses_devices();
  if (uses_devices)
    for (const auto& [name, incarnation] : op.outstanding)
      if (const auto& running = cluster_.executor(name).running;
          !running.empty() && running.begin()->second != op.id)
        return;
  op.time_allowed = uses_devices ? s_.config.run_deadline : s_.config.file_deadline;
  op.deadline = now_ + op.time_allowed;
  Arm(op.deadline, kDeadlineTimer, op.id);
}

void Machine::RecordExecutorLeft(Operation& op, const std::string& executor) {
  if (op.outstanding.erase(executor) == 0) return;
  // The executor does not repeat a report once it is acknowledged, so its effect must be durable.
  MarkChanged(op);
  auto& running = cluster_.executor(executor).running;
  running.erase(op.sequence);
  if (!running.empty()) StartRunDeadline(order_.operation(running.begin()->second));
  // The operation may be next on the executors where it is still to run.
  if (!op.outstanding.empty()) StartRunDeadline(op);
  if (!op.ended() || !op.outstanding.empty()) return;
  if (op.state == api::OperationState::kCancelled)
    Note(core::CancelDone{core::CancelDone::kStopped, now_ - op.ended_at});
  Disarm(op.kill_at, kKillTimer, op.id);
  order_.EndLingering(op);
  SettleDonated(op);
}

uint64_t Machine::OperationAhead(const Operation& op, const Executor& executor) const {
  const auto devices_of = [this](const Operation& o) -> const std::vector<int64_t>* {
    if (o.run() != nullptr) {
      const Executable* const x = ExecutableOf(o);
      return x == nullptr ? nullptr : &x->devices;
    }
    const ArrayRecord* const a = o.results.empty() ? nullptr : catalogue_.FindArray(o.results[0]);
    return a == nullptr ? nullptr : &a->spec->placement.devices;
  };
  const std::vector<int64_t>* const mine = devices_of(op);
  const auto here = [&](int64_t d) {
    return d >= executor.first_device && d < executor.first_device + executor.info.num_devices;
  };
  for (const auto& [sequence, id] : executor.running) {
    if (sequence >= op.sequence) break;
    const Operation& other = order_.operation(id);
    if (other.ended()) continue;
    const std::vector<int64_t>* const theirs = devices_of(other);
    if (mine == nullptr || theirs == nullptr) return id;
    for (int64_t d : *theirs)
      if (here(d) && std::find(mine->begin(), mine->end(), d) != mine->end()) return id;
  }
  return 0;
}

// Returns whether the executor may still have the operation although the executor works as it
// should: the launch may wait for the disk, the executor may be busy with an earlier operation, or
// the operation is a save or a load, which may wait for a file.
bool Machine::IsBehind(const Operation& op, const Executor& x) const {
  return op.started_in_commit > s_.durable_commit || !op.uses_devices() ||
         OperationAhead(op, x) != 0;
}

void Machine::KillLingering(uint64_t id) {
  auto* const it = order_.Find(id);
  if (it == nullptr || order_.lingering().count(id) == 0) return;
  Operation& op = *it;
  const std::set<std::string> was_behind = std::exchange(op.executors_behind, {});
  for (const auto& [name, incarnation] : op.outstanding) {
    const Executor& x = cluster_.executor(name);
    if (!x.alive()) continue;
    const bool is_behind = IsBehind(op, x);
    if (is_behind) op.executors_behind.insert(name);
    // A responsive executor that is behind drops this operation when it gets to it. If it was
    // behind at the last check, it may have got to the operation just now.
    if (Responsive(x) && (is_behind || was_behind.count(name) > 0)) continue;
    // A canary only asks whether the executor works. That it has not ended is evidence, and no
    // reason to destroy arrays.
    if (op.tenant == core::kSystemTenant && !MayKillForSilence(x)) continue;
    std::string reason =
        absl::StrCat("killed: operation ", id, " (", op.name, "), which ended with ",
                     ToAbsl(InfoOf(KindOf(op.error)).reason), ", was not left within ",
                     absl::FormatDuration(s_.config.cancel_grace));
    Log("executor ", name, " ", reason);
    Send(x, api::KillExecutor{std::move(reason), /*if_told=*/true});
  }
  RestartKillTimer(op);
}

void Machine::RecordCommandsSent() {
  const uint64_t before = std::exchange(s_.durable_commit_before, s_.durable_commit);
  if (s_.durable_commit == before) return;
  for (uint64_t id : order_.lingering()) {
    Operation& op = order_.operation(id);
    if (op.started_in_commit > before && op.started_in_commit <= s_.durable_commit)
      RestartKillTimer(op);
  }
}

void Machine::RestartKillTimer(Operation& op) {
  Disarm(op.kill_at, kKillTimer, op.id);
  // The lag is added because the executors are told only now, however long the event has waited.
  op.kill_at = now_ + s_.lag + s_.config.cancel_grace;
  Arm(op.kill_at, kKillTimer, op.id);
}

// Ends the operation for its clients. Removes it from everything that refers to it: timers,
// session, communicator, executable, waiting requests and arguments. Executors may still work on
// it. It then lingers, and the kill timer bounds how long. The donated arguments of a failed
// operation stay until SettleDonated, since an executor may still consume them.
void Machine::End(Operation& op, api::OperationState state) {
  op.state = state;
  const uint64_t id = op.id;
  Disarm(op.deadline, kDeadlineTimer, id);
  Unblock(op);
  Disarm(op.verdict_until, kVerdictTimer, id);
  op.peer_error = absl::OkStatus();  // op.error has its text
  op.ended_at = now_;
  MarkChanged(op);
  op.ended_in_commit = NextCommit(op);
  NoteEnded(op);
  if (state == api::OperationState::kFailed) {
    std::vector<std::string> unreported;  // executors that have not reported its end
    for (const auto& [name, incarnation] : op.outstanding) unreported.push_back(name);
    LogIncident("operation failed",
                {{"operation", absl::StrCat(id)},
                 {"program", op.name},
                 {"session", absl::StrCat(op.client_session_id)},
                 {"tenant", op.tenant},
                 {"executors", absl::StrJoin(unreported, ",")}},
                op.error);
  }
  order_.End(op);
  if (auto* const session = ownership_.FindSession(op.session); session != nullptr)
    session->operations.erase(id);
  if (op.generation != 0)
    CloseCommunicator(op.generation, order_.CloseRetiredIfUnused(op.generation));
  if (Executable* const x = ExecutableOf(op)) x->operations.erase(id);
  Log("operation ", id, " ", StateName(state), op.error.ok() ? "" : ": ",
      op.error.ok() ? "" : ToAbsl(InfoOf(KindOf(op.error)).reason));
  for (uint64_t request : IdSet(op.waiters)) {
    const bool with_results = WaitOf<CompletionWait>(request) != nullptr;
    EndWait(request);
    if (with_results) {
      Answer(request, TakeCompletion(op));
    } else {
      Answer(request, Describe(op));
    }
  }
  if (Run* const run = op.run()) run->inlined.clear();
  if (!op.outstanding.empty()) {
    for (const auto& [name, incarnation] : op.outstanding) {
      const auto& running = cluster_.executor(name).running;
      const bool is_next = !running.empty() && running.begin()->second == id;
      if (!is_next || op.started_in_commit > s_.durable_commit) op.executors_behind.insert(name);
    }
    RestartKillTimer(op);
  }
  for (uint64_t a : op.args)
    if (auto* const it = catalogue_.FindArray(a); it != nullptr) {
      it->unscheduled_readers.erase(id);
      it->readers.erase(id);
      // SettleDonated frees the arrays that were donated to a failed operation.
      if (it->donated_to != id || state == api::OperationState::kDone) TryFree(a);
    }
}

// Takes an executor's report that its part of an operation has ended. A failure of its own fails
// the operation at once. A failure that blames a peer is held back for verdict_wait, because the
// peer's own report usually names the cause. The operation is done when all executors have reported
// success.
void Machine::HandleLaunchEnd(const Executor& executor, uint64_t launch, const absl::Status& status,
                              bool inputs_kept) {
  auto* const it = order_.Find(launch);
  if (it == nullptr) return;
  Operation& op = *it;
  if (op.outstanding.count(executor.name) == 0) return;
  if (!op.inputs_gone && !inputs_kept) {
    op.inputs_gone = true;
    MarkChanged(op);
  }
  RecordExecutorLeft(op, executor.name);
  if (op.ended()) return;
  if (!status.ok()) {
    const absl::Status error = Annotate(
        status,
        std::string(absl::StrCat("operation ", launch, " (", op.name, ") on ", executor.name)));
    const int blame = BlameOfAPeer(status);
    if (blame == 0) return Fail(launch, error);
    if (op.peer_error.ok() || BlameOfAPeer(op.peer_error) < blame) op.peer_error = error;
    if (op.verdict_until == absl::InfiniteFuture()) {
      op.verdict_until = now_ + s_.config.verdict_wait;
      Arm(op.verdict_until, kVerdictTimer, launch);
    }
  }
  if (!op.outstanding.empty()) return;
  // A lost executor stays outstanding until its loss is known, so all executors have reported.
  if (op.peer_error.ok()) {
    if (Executable* const x = ExecutableOf(op)) x->last_run = op.run_longest;
    return Succeed(launch);
  }
  const absl::Status error = op.peer_error;
  Fail(launch, error);
}

void Machine::AnswerChangeWaits(Operation& op) {
  std::vector<uint64_t> told;
  for (uint64_t request : op.waiters)
    if (WaitOf<ChangeWait>(request) != nullptr) told.push_back(request);
  for (uint64_t request : told) {
    EndWait(request);
    Answer(request, Describe(op));
  }
}

void Machine::On(const WaitOperation& e) {
  const auto found = FindOperation(e.caller, e.operation, Access::kRead);
  if (!found.ok()) return Answer(e.request, found.status());
  const Operation& op = **found;
  if (op.ended() || e.timeout <= absl::ZeroDuration() ||
      (e.seen_state && *e.seen_state != op.state))
    return Answer(e.request, Describe(op));
  if (e.fail_fast)
    if (const std::string why = DescribeAbsent(op); !why.empty())
      return Answer(e.request, AbsentError(op, why));
  const absl::Time until = now_ + std::min(e.timeout, s_.config.result_wait_max);
  if (e.seen_state) return BeginWait(e.request, until, ChangeWait{{e.operation}});
  BeginWait(e.request, until, OperationWait{e.operation, e.fail_fast});
}

absl::Status Machine::AbsentError(const Operation& op, const std::string& why) {
  return Error(ErrorKind::kWorkerAway, "operation ", op.id, " (", op.name, ") waits: ", why,
               "; nothing is lost, and the operation goes on");
}

void Machine::AnswerFailFastWaits() {
  std::vector<std::pair<uint64_t, absl::Status>> answers;
  for (const auto& [request, w] : s_.waiters)
    if (const auto* wait = std::get_if<OperationWait>(&w.wait); wait != nullptr && wait->fail_fast)
      if (const Operation* const op = order_.Find(wait->operation); op != nullptr)
        if (const std::string why = DescribeAbsent(*op); !why.empty())
          answers.emplace_back(request, AbsentError(*op, why));
  for (auto& [request, error] : answers) {
    EndWait(request);
    Answer(request, std::move(error));
  }
}

absl::StatusOr<std::monostate> Machine::On(const CancelOperation& e) {
  TESSERA_ASSIGN_OR_RETURN(const Operation* op,
                           FindOperation(e.caller, e.operation, Access::kChange));
  if (op->ended()) {
    Note(core::CancelDone{core::CancelDone::kCompleted, absl::ZeroDuration()});
  } else if (op->sequence == 0) {
    Note(core::CancelDone{core::CancelDone::kNotStarted, absl::ZeroDuration()});
  }
  Fail(e.operation,
       Error(ErrorKind::kCancelled, "operation ", e.operation, " (", op->name,
             ") was cancelled on request"),
       api::OperationState::kCancelled);
  return std::monostate();
}

}  // namespace tessera::server::scheduler
