// One step of the state machine: the state, the time, and the effects gathered so far.  Lives for
// one Step.  Its functions are grouped by file, each of which belongs to one part of the state:
//
//   cluster    workers.cc (registration, reports, loss), inventory.cc (lists, cordons, drains,
//              meshes)
//   ownership  sessions.cc
//   catalogue  arrays.cc, programs.cc
//   order      operations.cc, run.cc, transfer.cc, files.cc, save.cc, load.cc, queries.cc
//   answers    again.cc
//   uploads    uploads.cc
//   all        state.cc, telemetry.cc, restore.cc (what the next life gets, and what this one got)
//
// The calls from part to part:
//
//   cluster -> order             RetryBlocked, RetryHeld: executors are back, a drain has ended
//                                ExecutorLeft, Fail: an executor is lost
//   cluster -> catalogue         ArrayFailed, ExecutableFailed, RestartLoadWaits
//   ownership -> order           CancelOperations: a session ends
//   ownership -> catalogue       Delete: a session ends
//   catalogue -> order           TryStart, Fail: an array or an executable is ready, or has failed
//   order -> catalogue           NewArray, ArrayScheduled, ArrayReady, ArrayFailed: results
//                                SetDeleted, TryFree: arguments
//                                FindOrPlan, LoadWhereAlive: executables
//   catalogue, order -> cluster  MarkOverdue: a wait for an executor has timed out
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

// What a timer is for. Its id is that of an operation, an array, a request or a client's session;
// for kLeaseTimer, of a worker's session.
enum TimerKind : int {
  kLeaseTimer,
  kRequestTimer,
  kDeadlineTimer,
  kExecutorsTimer,
  kVerdictTimer,
  kUploadTimer,
  kSessionTimer,
  kKillTimer,
  kSilenceTimer,
  kAwayTimer  // of executors that are away; its id is the session that ended, 0 after a restart
};

template <class... Parts>
ABSL_ATTRIBUTE_COLD absl::Status Error(ErrorKind kind, const Parts&... parts) {
  return MakeError(kind, absl::StrCat(parts...));
}

// The calls that happen once if they come with a request_id (answers.h).
constexpr CallKind KindOfCall(const OpenSession&) { return CallKind::kOpenSession; }
constexpr CallKind KindOfCall(const CloseSession&) { return CallKind::kCloseSession; }
constexpr CallKind KindOfCall(const CreateMesh&) { return CallKind::kCreateMesh; }
constexpr CallKind KindOfCall(const DeleteMesh&) { return CallKind::kDeleteMesh; }
constexpr CallKind KindOfCall(const DeleteProgram&) { return CallKind::kDeleteProgram; }
constexpr CallKind KindOfCall(const Execute&) { return CallKind::kExecute; }
constexpr CallKind KindOfCall(const CreateArray&) { return CallKind::kCreateArray; }
constexpr CallKind KindOfCall(const ReshardArray&) { return CallKind::kReshardArray; }
constexpr CallKind KindOfCall(const SaveArrays&) { return CallKind::kSaveArrays; }
constexpr CallKind KindOfCall(const LoadArrays&) { return CallKind::kLoadArrays; }
constexpr CallKind KindOfCall(const DeleteArrays&) { return CallKind::kDeleteArrays; }

// What a caller wants to do with a tenant's resource.
enum class Access : uint8_t { kRead, kChange };

class Machine {
 public:
  // `effects`: memory for them.
  Machine(State& state, absl::Time now, std::vector<Effect> effects)
      : s_(state),
        now_(now),
        cluster_(state.cluster),
        ownership_(state.ownership),
        catalogue_(state.catalogue),
        order_(state.order),
        effects_(std::move(effects)) {
    effects_.clear();
  }

  // The value that a handler returns is the reply to its request; a handler that returns void
  // replies itself, at once or later.
  //
  // sessions.cc
  absl::StatusOr<SessionInfo> On(const OpenSession& e);
  absl::StatusOr<SessionInfo> On(const GetSession& e);
  absl::StatusOr<Page<SessionInfo>> On(const ListSessions& e);
  absl::StatusOr<std::monostate> On(const CloseSession& e);
  void On(const HoldSession& e);
  void On(const DropHold& e);
  // inventory.cc
  absl::StatusOr<Page<api::Device>> On(const ListDevices& e);
  absl::StatusOr<Page<WorkerInfo>> On(const ListWorkers& e);
  absl::StatusOr<WorkerInfo> On(const GetWorker& e);
  absl::StatusOr<std::vector<ExecutorPlace>> On(const GetTopology& e);
  absl::StatusOr<WorkerInfo> On(const Cordon& e);
  void On(const Drain& e);
  void On(const DeleteWorker& e);
  absl::StatusOr<MeshInfo> On(const CreateMesh& e);
  absl::StatusOr<MeshInfo> On(const GetMesh& e);
  absl::StatusOr<Page<MeshInfo>> On(const ListMeshes& e);
  absl::StatusOr<std::monostate> On(const DeleteMesh& e);
  // arrays.cc
  void On(const CreateArray& e);
  absl::StatusOr<ArrayInfo> On(const DescribeUpload& e);
  absl::StatusOr<Page<ArrayInfo>> On(const ListArrays& e);
  void On(const WriteShard& e);
  void On(const ReadShard& e);
  void On(const DescribeArray& e);
  void On(const WaitArray& e);
  absl::StatusOr<MissingArrays> On(const DeleteArrays& e);
  // files.cc, save.cc, load.cc
  void On(const DescribeFile& e);
  absl::StatusOr<api::Operation> On(const SaveArrays& e);
  void On(const LoadArrays& e);
  // uploads.cc
  absl::StatusOr<UploadProgress> On(const UploadProgram& e);
  absl::StatusOr<UploadProgress> On(const KeepProgram& e);
  absl::StatusOr<ProgramInfo> On(const GetProgram& e);
  absl::StatusOr<Page<ProgramInfo>> On(const ListPrograms& e);
  absl::StatusOr<std::monostate> On(const DeleteProgram& e);
  // programs.cc
  void On(const Compile& e);
  void On(const Planned& e);
  // run.cc, transfer.cc
  void On(const Execute& e);
  absl::StatusOr<Making> On(const ReshardArray& e);
  // operations.cc
  void On(const WaitOperation& e);
  absl::StatusOr<std::monostate> On(const CancelOperation& e);
  // queries.cc
  absl::StatusOr<Page<api::Operation>> On(const ListOperations& e);
  absl::StatusOr<PendingInfo> On(const ExplainPending& e);
  // telemetry.cc
  absl::StatusOr<core::ClusterReading> On(const ReadTelemetry& e);
  // workers.cc
  void On(const WorkerRegistered& e);
  void On(const WorkerGone& e);
  void On(const WorkerReported& e);
  // restore.cc
  void On(const Restore& e);
  // state.cc
  void On(const Tick& e);

  // The caller whose request the step serves; null (the default) when it serves none.
  void SetCaller(const core::Caller* caller) { caller_ = caller; }
  // Before the step's event: what waited for commits that are durable now has left.
  void CommandsHaveLeft();
  // Ends the step.
  std::vector<Effect> Finish();

  // The functions below are also called by the kinds of work (operation.h) and of waits (waits.h).
  State& state() { return s_; }
  absl::Time now() const { return now_; }

  // ---- state.cc: replies, commands, timers. ----
  void Answer(uint64_t request, absl::Status error);
  template <class T>
  void Answer(uint64_t request, T body) {
    Reply& r = std::get<Reply>(effects_.emplace_back(std::in_place_type<Reply>));
    r.request = request;
    if constexpr (std::is_same_v<T, api::Operation>) r.ended_in = EndedIn(body.id);
    if constexpr (std::is_same_v<T, api::Completion>) r.ended_in = EndedIn(body.operation.id);
    r.body = std::move(body);
  }
  template <class T>
  void Answer(uint64_t request, absl::StatusOr<T> answer) {
    if (!answer.ok()) return Answer(request, answer.status());
    Answer(request, *std::move(answer));
  }
  // The commit with the end of the operation; 0: one of an earlier life, or none.
  uint64_t EndedIn(uint64_t operation);
  // Requires: the executor is alive.
  void Send(const Executor& executor, api::Command command, bool when_durable = false);
  template <class... Parts>
  void Log(const Parts&... parts) {
    if (s_.config.debug) effects_.emplace_back(Debug{absl::StrCat(parts...)});
  }
  // The record is made durable as it is at the end of the step, or its end is. Nothing is kept of
  // the coordinator's own tenant.
  void Changed(core::RowKind kind, uint64_t id, const std::string& tenant) {
    if (s_.config.durable && tenant != core::kSystemTenant) changed_.push_back({kind, id});
  }
  void Changed(core::RowKind kind, std::string name) {
    if (s_.config.durable) changed_.push_back({kind, 0, std::move(name)});
  }
  void Changed(const Operation& op) { Changed(core::RowKind::kOperation, op.id, op.tenant); }
  void Changed(uint64_t array, const ArrayRecord& record) {
    Changed(core::RowKind::kArray, array, record.tenant);
  }
  void CommitChanges();
  void Arm(absl::Time when, TimerKind kind, uint64_t id);
  void Disarm(absl::Time when, TimerKind kind, uint64_t id);
  // The event that ends the wait answers the request, or its timeout does (waits.h).
  template <class W>
  void Wait(uint64_t request, absl::Time until, W wait) {
    if (Requests* listed = wait.Listed(s_)) listed->insert(request);
    Arm(until, kRequestTimer, request);
    s_.waiters.emplace(request, Waiter{until, std::move(wait)});
  }
  // Null if the request does not wait, or its wait is of another kind.
  template <class W>
  W* WaitOf(uint64_t request) {
    const auto it = s_.waiters.find(request);
    return it == s_.waiters.end() ? nullptr : std::get_if<W>(&it->second.on);
  }
  // Ends the wait; the caller answers.
  Waiter EndWait(uint64_t request);
  // Ends the waits of these requests, with the same answer.
  template <class Ids, class T>
  void EndWaits(const Ids& requests, const T& answer) {
    for (uint64_t request : std::vector<uint64_t>(requests.begin(), requests.end())) {
      EndWait(request);
      Answer(request, answer);
    }
  }
  // For waits that time out only because of a fault: logs the timeout too.
  void AnswerLate(uint64_t request, const absl::Status& why);

  int64_t PageSize(int64_t asked) const;
  uint64_t NewId(const std::string& tenant) {
    return ownership_.NewId(tenant, s_.config.owners_max);
  }
  // For the end of an error about an unknown id: ": the coordinator restarted ..." if it cannot be
  // an id of this life, else "".
  std::string HintIfRestarted(uint64_t id) const;
  // As HintIfRestarted, but if the id is of another kind: ": it is an operation, which makes array
  // 7".
  std::string HintAboutId(const core::Caller& caller, uint64_t id, Access access) const;
  static bool Allowed(const core::Caller& caller, const std::string& tenant, Access access) {
    return access == Access::kRead ? caller.Sees(tenant) : caller.Changes(tenant);
  }

  // ---- again.cc ----
  // Answers a call that has come before as the first was, or with REQUEST_ID_REUSED; returns
  // whether it has. Else the call must run.
  template <class E>
  bool AnswerAgain(const E& e) {
    const AnswerRecord* const first = FindAnswer(e.caller, KindOfCall(e), e.id.text);
    if (first == nullptr) return false;
    if (first->payload == e.id.payload) {
      Again(e, *first);
    } else {
      Answer(e.request, Reused(e));
      if constexpr (requires { e.end_request; }) {
        if (e.end_request != 0) Answer(e.end_request, Reused(e));
      }
    }
    return true;
  }
  // Null: no such call has been accepted, or it had no id.
  const AnswerRecord* FindAnswer(const core::Caller& caller, CallKind call,
                                 const std::string& request_id) const;
  static absl::Status Reused(const Request& e);
  // The call is accepted, and has made this; one that comes again makes nothing.
  template <class E>
  void Remember(const E& e, uint64_t made = 0, const std::vector<uint64_t>& arrays = {}) {
    if (!e.id.text.empty()) Remember(e, KindOfCall(e), made, arrays);
  }
  void Remember(const Request& e, CallKind call, uint64_t made,
                const std::vector<uint64_t>& arrays);
  absl::StatusOr<Making> MakingOf(const core::Caller& caller, const AnswerRecord& first);
  // Answers the call from what the first one has made.
  void Again(const OpenSession& e, const AnswerRecord& first);
  void Again(const CloseSession& e, const AnswerRecord& first);
  void Again(const CreateMesh& e, const AnswerRecord& first);
  void Again(const DeleteMesh& e, const AnswerRecord& first);
  void Again(const DeleteProgram& e, const AnswerRecord& first);
  void Again(const Execute& e, const AnswerRecord& first);
  void Again(const CreateArray& e, const AnswerRecord& first);
  void Again(const ReshardArray& e, const AnswerRecord& first);
  void Again(const SaveArrays& e, const AnswerRecord& first);
  void Again(const LoadArrays& e, const AnswerRecord& first);
  void Again(const DeleteArrays& e, const AnswerRecord& first);

  // ---- telemetry.cc ----
  template <class T>
  void Note(T note) {
    if (s_.config.notes) s_.notes.emplace_back(std::move(note));
  }
  void NoteEnded(const Operation& op);
  void LogIncident(const char* what, std::vector<std::pair<std::string, std::string>> fields);
  void LogIncident(const char* what, std::vector<std::pair<std::string, std::string>> fields,
                   const absl::Status& why);
  void ReadOperations(core::ClusterReading* out);
  void ReadWorkers(core::ClusterReading* out);

  // ---- sessions.cc ----
  // The key of the caller's session `id`. With Access::kChange its lease is renewed.
  absl::StatusOr<uint64_t> FindSession(const core::Caller& caller, uint64_t id, Access access);
  absl::Status NoSession(uint64_t id) const;
  SessionInfo Info(uint64_t key, const Session& session) const;
  void EndSession(uint64_t key, const std::string& why);
  void SessionTimer(uint64_t key);
  // A client of the session is connected again.
  void EndSilence(uint64_t key, Session& session);
  void SilenceTimer(uint64_t key);
  void CancelOperations(const IdSet& operations, const std::string& why);

  // ---- inventory.cc ----
  WorkerInfo WorkerInfoOf(const std::string& name, const Worker& worker) const;
  static absl::Status NoWorker(const std::string& name);
  WorkerInfo Info(const std::string& worker);
  // Answers the requests that wait for its drain with its current state.
  void AnswerDrains(const std::string& worker);
  // Fills in how many arrays have shards on each worker.
  void CountArrays(std::vector<WorkerInfo>& workers);
  int64_t OperationsOn(const Worker& worker) const;
  // Answers the drain requests of workers where nothing runs any more.
  void EndDrains();
  // Tries to start the operations that a drain held back.
  void RetryHeld();
  absl::StatusOr<const NamedMesh*> FindMesh(const core::Caller& caller, const std::string& name);

  // ---- uploads.cc ----
  // Whether the chunk is the next one of its upload, and there is room for it.
  absl::Status CheckChunk(const UploadProgram& e) const;

  // ---- arrays.cc ----
  // LIMIT_EXCEEDED if `more` arrays would be too many.
  absl::Status CheckRoom(const char* what, int64_t more) const;
  // The record, or ARRAY_NOT_FOUND or ARRAY_DELETED.
  absl::StatusOr<ArrayRecord*> FindArray(const core::Caller& caller, uint64_t id, Access access);
  uint64_t NewArray(SpecRef spec, ArrayState state, uint64_t session);
  // Later requests do not find a deleted array; its shards stay while operations need them.
  void SetDeleted(uint64_t id, bool deleted);
  // Records that the current incarnations of its devices' executors have, or will have, its shards.
  void SetHolders(ArrayRecord& array);
  ArrayInfo Info(uint64_t id);
  // Its shards are written from now on, at the current incarnations.  False if it no longer exists.
  bool BeginWrites(uint64_t id);
  void UploadTimer(uint64_t id);
  // False: an executor is away.
  bool TryCreate(const CreateArray& e, uint64_t session);
  void SendRead(uint64_t request, const ArrayRecord& array);
  void ArrayScheduled(uint64_t id);
  void ArrayReady(uint64_t id);
  void ArrayFailed(uint64_t id, const absl::Status& error, ArrayState state = ArrayState::kFailed);
  // `why` as ArrayRecord::error.
  void ArrayLost(uint64_t id, const absl::Status& why) { ArrayFailed(id, why, ArrayState::kLost); }
  // As ArrayFailed for one that nothing waits for, reads or frees.
  void MarkFailed(uint64_t id, ArrayRecord& a, const absl::Status& error, ArrayState state);
  // What is said of it when it is used; OK if it has not failed.
  static absl::Status ErrorOf(uint64_t id, const ArrayRecord& a);
  void EndArrayWaits(uint64_t id, const absl::Status& error);
  // Ids that are unknown, deleted or of other tenants are skipped.
  void Delete(const core::Caller& caller, const std::vector<uint64_t>& arrays);
  void Delete(uint64_t id);
  // Sends the deletions gathered so far, instead of at the end of the step.
  void SendDeletes();
  // Whether executors may still read it from others, which must not get to its deletion, or to a
  // launch that it is donated to, before that.
  bool ReadFromAfar(const ArrayRecord& array);
  // The operation that the array was donated to and that reads a copy of it; else null.
  const Operation* DoneeOfCopy(uint64_t id, const ArrayRecord& array) const;
  // Whether that has not started: the array is given back if it fails before.
  bool IsKeptOriginal(uint64_t id, const ArrayRecord& array) const;
  // The operation has started: the originals of its arguments are not given back any more.
  void FreeOriginals(const Operation& op);
  // Deletes the buffers of a deleted array once no operation that is not placed yet needs them, and
  // its record once nothing refers to it.
  void TryFree(uint64_t id);
  // Has the executors that are there delete its shards, once.
  void FreeShards(uint64_t id, ArrayRecord& a);

  // ---- programs.cc ----
  // The requested `devices`, checked; if there are none, those that suit `mesh` best.  With
  // `cordoned` also devices of cordoned workers.
  absl::StatusOr<std::vector<int64_t>> ChooseDevices(const char* what, const ir::Mesh& mesh,
                                                     const std::vector<int64_t>& devices,
                                                     bool cordoned) const;
  // Adds an executable without a plan.  QUEUE_FULL.
  absl::StatusOr<uint64_t> NewExecutable(const api::CompileRequest& request,
                                         const std::string& tenant);
  // The request to the planner, without its cluster snapshot.
  MakePlan PlanOf(const api::CompileRequest& request, uint64_t executable) const;
  // Plans for hypothetical devices; the executable is dropped once the requests have been answered.
  absl::StatusOr<uint64_t> PlanForAbsent(const api::CompileRequest& request,
                                         const std::string& tenant);
  // The tenant's executable of this key on the chosen devices (see ChooseDevices); plans it if
  // there is none.
  absl::StatusOr<uint64_t> FindOrPlan(const api::CompileRequest& request, const std::string& key,
                                      const std::string& tenant, bool cordoned);
  // What a run of a program on these devices would wait for.
  std::vector<api::PendingReason> PendingOn(const std::vector<int64_t>& devices, bool compiled);
  // How long a Compile waits for executors: less while one of them is away.
  absl::Duration LoadWait(const Executable& executable) const;
  // The executor was lost or has come back: compiles that wait for it wait anew.
  void RestartLoadWaits(const std::string& executor);
  // The error of `what`, which waited too long for the executors to compile the program.
  absl::Status NotLoaded(const Executable& executable, const std::string& what,
                         bool callers_time_is_over = false) const;
  // Whether every executor of it is alive and has compiled it.
  bool IsLoaded(const Executable& executable) const;
  void SetPlan(uint64_t id, Executable& executable, std::shared_ptr<const core::Plan> made);
  void SendLoad(uint64_t id, Executable& executable, const Executor& executor);
  void LoadWhereAlive(uint64_t id);
  // Answers the requests that wait for it.
  void AnswerCompiles(const Executable& executable);
  // The reply, with explanations that lack the last run (core::AddLastRun adds it), or without.
  static core::CompileReply ReplyOf(const Executable& executable, bool explain);
  // As AnswerCompiles, if every executor has compiled it.
  void AnswerCompiled(uint64_t id);
  // Answers the requests for the plan alone, and drops the executable.
  void AnswerPlanned(uint64_t id);
  void ExecutableFailed(uint64_t id, const absl::Status& error);
  void DropOldExecutables();
  void Unload(uint64_t id);

  // ---- run.cc ----
  absl::Status CheckExecute(const core::Caller& caller, const api::ExecuteRequest& body);
  // LIMIT_EXCEEDED if the run would make too many arrays.
  absl::Status CheckResultsFit(const Executable& x, const api::ExecuteRequest& body);
  static absl::Status CheckDonations(const api::ExecuteRequest& body);
  // The distinct shards of the results to return inline, as (result, ordinal); none if the results
  // are too large.
  std::vector<std::pair<int32_t, int>> InlineShards(const Operation& op, int64_t bytes_max) const;
  void KeepInlined(const Executor& executor, const api::LaunchDone& done);
  // How it ended, with its inline results.  Requires: it is a run.
  api::Completion Complete(Operation& op);
  // The communicator of the executors' current incarnations, in this order; opened if there is
  // none.
  uint64_t GenerationFor(const std::vector<std::string>& executors);
  // Tells one of the members of a communicator.
  void Configure(uint64_t generation, const std::vector<std::string>& members,
                 const std::string& to);
  // Has the members that are still alive close it.
  void CloseCommunicator(uint64_t generation, const Order::Members& members);

  // ---- transfer.cc ----
  // Starts an operation that copies `source` to the placement of `wanted`; returns its id.
  absl::StatusOr<uint64_t> Reshard(uint64_t session, uint64_t source, const api::ArraySpec& wanted);
  // The executable that moves an array to a sharding on its own mesh.
  absl::StatusOr<uint64_t> FindOrPlanReshard(const std::string& tenant, const api::ArraySpec& has,
                                             const api::ArraySpec& wanted);
  // Plans the executable of a reshard of an earlier life anew.
  absl::Status PlanReshard(Operation& op);

  // ---- operations.cc ----
  // QUEUE_FULL.
  absl::Status CheckQueue(const char* what) const;
  // OPERATION_NOT_FOUND.
  absl::StatusOr<Operation*> FindOperation(const core::Caller& caller, uint64_t id, Access access);
  uint64_t NewOperation(Operation&& op, const std::vector<SpecRef>& results);
  std::vector<std::string> ExecutorsOf(const Operation& op);
  // Null if it is not a run, or its executable has been dropped.
  Executable* ExecutableOf(const Operation& op) const;
  // Starts the operation if it need not wait; if called within another's start, after that.
  void TryStart(uint64_t id);
  void TryStartNow(uint64_t id);
  // The operation waits, with a bound, until executors are back or have compiled its program.
  void Block(Operation& op, bool loading);
  // Whether an executor that it runs on, or reads from, may still come back after a restart.
  bool AnyAway(const Operation& op);
  void Unblock(const Operation& op);
  void DeadlineTimer(uint64_t id);
  void VerdictTimer(uint64_t id);
  // Its wait for executors has timed out.
  void ExecutorsLate(uint64_t id);
  void Start(Operation& op, const std::vector<std::string>& executors);
  void Done(uint64_t id);
  // If called within another's failure, fails it after that.
  void Fail(uint64_t id, absl::Status error,
            api::OperationState state = api::OperationState::kFailed);
  void FailNow(uint64_t id, const absl::Status& error, api::OperationState state);
  void End(Operation& op, api::OperationState state);
  // The executor has ended the operation, or is lost.
  void ExecutorLeft(Operation& op, const std::string& executor);
  // The default deadline of a run begins when it is the first on all of its executors.
  void StartRunDeadline(Operation& op);
  // Kills the executors that have not acknowledged the operation's end, except those that are
  // behind, or were a moment ago, which it checks again later.
  void KillLingering(uint64_t id);
  // Its executors have the grace of a cancel from now on to leave it.
  void RestartKillTimer(Operation& op);
  bool IsBehind(const Operation& op, const Executor& x) const;
  // An earlier operation that this one waits for on the executor; 0: none.
  uint64_t OperationAhead(const Operation& op, const Executor& executor) const;
  // What each of its executors is doing for it, as their workers have reported.
  std::string DescribeProgress(const Operation& op);
  // Which of its executors is away; "" when none is.
  std::string AwayReason(const Operation& op) const;
  // Where it runs, or the first reason for which it does not.
  std::string PendingReason(const Operation& op);
  // Every reason for which it has not started, the most important first.
  std::vector<api::PendingReason> PendingReasons(const Operation& op);
  void AddPlaceReasons(const std::vector<std::string>& executors,
                       std::vector<api::PendingReason>* reasons) const;
  // The commit that has what this step changes of it; 0: it is not kept.
  uint64_t NextCommit(const Operation& op) const;
  api::Operation Describe(const Operation& op);
  // Answers the requests that wait for its state to change.
  void AnswerChangeWaits(Operation& op);
  void LaunchEnded(const Executor& executor, uint64_t launch, const absl::Status& status,
                   bool inputs_kept = false);
  // For a failed operation whose end every executor has acknowledged: the client gets its donated
  // arrays back if no executor has consumed them, and those that it would have read a copy of if it
  // never started; else they are freed.  Answers the DonationWaits.
  void SettleDonated(const Operation& op);
  // Starts and fails operations in a loop instead of by recursion, because a chain of operations
  // that depend on each other may be as long as the queue.
  void RunDue();

  // ---- files.cc ----
  std::string PathOf(const core::Caller& caller, const std::string& path) const;
  // Asks the executor for the file's contents, which answer the request; or, if `load` is not null,
  // are loaded.
  void AskForFile(uint64_t request, const Executor& executor, const std::string& path,
                  std::shared_ptr<const LoadArrays> load);
  // ---- save.cc ----
  absl::Status CheckFilesDirectories(const std::vector<uint64_t>& arrays) const;
  absl::StatusOr<Save> CheckSave(const SaveArrays& e, std::vector<uint64_t>* args);
  // ---- load.cc ----
  absl::StatusOr<Making> StartLoad(const LoadArrays& e, const api::FileInspected& report);

  // ---- Reports of executors; each is handled in the file of the part of the state it concerns.
  // ----
  void Take(const std::string& worker, const api::Heartbeat& beat);
  void Take(const std::string& worker, uint64_t session, const api::ExecutorReady& ready);
  void Take(Executor& x, const api::ExecutorLost& lost);
  void Take(Executor& x, const api::CommunicatorReady& ready);
  void Take(Executor& x, const api::ProgramLoaded& loaded);
  void Take(Executor& x, const api::LaunchDone& done);
  void Take(Executor& x, const api::LaunchFailed& failed);
  void Take(Executor& x, const api::BufferWritten& written);
  void Take(Executor& x, const api::BufferRead& read);
  void Take(Executor& x, const api::FileInspected& inspected);

  // ---- restore.cc ----
  void RestoreCluster(const std::vector<RowChange>& rows);
  void RestoreExecutable(uint64_t id, Executable executable);
  void RestoreArray(uint64_t id, ArrayRecord array);
  void RestoreOperation(Operation op);
  // Starts, or fails, what an operation of an earlier life waits for.
  void ResumeOperation(uint64_t id);
  // Executors that are still away will not come back.
  void AwayTimer();
  // The grace of an executor that is away is over: kills it if its worker is back.
  void KillUnheard(const Executor& executor);
  // The worker is silent: its executors are away.
  void BeginAway(const std::string& worker, const std::string& reason);
  void LeaveUntilBack(const std::string& executor);
  // Whether the process is the one that was there before the restart.
  bool MayAdopt(const std::string& executor, const api::ExecutorInfo& info) const;
  // The executor is back: what it holds is compared with what it should hold.
  void Adopt(Executor& executor, const api::ExecutorInventory& inventory);
  // An operation that an executor has, and how it was sent; 0: that is not known.
  struct Started {
    uint64_t sequence = 0, operation = 0, generation = 0;
    auto operator<=>(const Started&) const = default;
  };
  // What of the inventory runs or has ended, in the order that it was sent in.
  static std::vector<Started> StartedOn(const api::ExecutorInventory& inventory);
  // The operation was sent to the executor, and the coordinator restarted before that was durable.
  void AdoptStarted(const Started& started, const std::string& executor);
  // What the operation asks of the executor was lost on its way when the coordinator ended, with
  // all that came after it. It is sent again, or the operation fails where that is not possible.
  void Resend(uint64_t operation, const std::string& executor);
  bool TryResend(Operation& op, const std::string& executor);
  void AdoptPrograms(const Executor& executor, const api::ExecutorInventory& inventory);
  void AdoptOperations(const Executor& executor, const api::ExecutorInventory& inventory);
  void DidNotReach(uint64_t id, const std::string& executor);
  void LoseAbsent(const Executor& x, const api::ExecutorInventory& inventory);
  bool IsNeeded(uint64_t id, const ArrayRecord& array) const;
  bool MayBeGivenBack(uint64_t id, const ArrayRecord& array,
                      const std::set<uint64_t>& started) const;
  static bool IsHeldOn(const ArrayRecord& array, const Executor& x, int32_t local);
  void AdoptArrays(const Executor& executor, const api::ExecutorInventory& inventory);

  // ---- workers.cc ----
  // The arrays whose placement has a device of the executor, whatever their state, in order of
  // their ids. The records are valid until an array is removed.
  std::vector<ArrayTable::Entry> ArraysOn(const Executor& executor);
  // Whether this incarnation of it has, or will have, a shard.
  static bool IsHeldBy(const ArrayRecord& array, const Executor& executor);
  absl::Status CheckName(const api::Registration& r) const;
  // To make room for another: it is lost, and does not come back with what it holds.
  bool MayForget(const Worker& worker) const;
  absl::Status CheckRegistration(const api::Registration& r) const;
  void ExecutorUp(const std::string& worker, const std::string& host,
                  const api::ExecutorInfo& info);
  // Removes a lost worker and its executors.
  void Forget(const std::string& worker);
  void ForgetExecutor(const std::string& name);
  void LoseExecutor(const std::string& executor, const std::string& reason, uint64_t launch,
                    const std::string& op);
  void LoseWorker(const std::string& worker, const std::string& reason);
  void LeaseTimer(uint64_t session);
  // Executors are back: retries what waits for them.
  void RetryBlocked();
  bool Responsive(const Executor& x) const { return x.seen.silence < s_.config.unresponsive; }
  // "executor w0/0 has not answered its worker for 3.2s"; "" while it does.
  std::string SilenceOf(const Executor& x) const;
  // "executor w0/0", and how long it has not answered.
  std::string NameWithSilence(const std::string& executor) const;
  // `who` waited too long for the executor, which is killed if it does not answer its worker
  // either.
  void MarkOverdue(const std::string& executor, const std::string& who);
  void MarkLoadersOverdue(const Executable& executable, const std::string& who);
  void KillIfOverdue(Executor& x);

 private:
  State& s_;
  const absl::Time now_;
  Cluster& cluster_;
  Ownership& ownership_;
  Catalogue& catalogue_;
  Order& order_;
  const core::Caller* caller_ = nullptr;
  std::vector<Effect> effects_;
  absl::InlinedVector<RowKey, 2> changed_;
  // Executor -> arrays, sent by Finish. Those of arrays that are donated wait until it is durable
  // that the operation has started.
  std::map<std::string, std::vector<uint64_t>> deletes_, deletes_of_donated_;
  // Operations to start (an OK status) or to fail, in order.
  struct Due {
    uint64_t operation = 0;
    absl::Status error;
    api::OperationState state = api::OperationState::kFailed;
  };
  absl::InlinedVector<Due, 2> due_;
  bool running_due_ = false;
};

}  // namespace tessera::server::scheduler
