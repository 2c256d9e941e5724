// One step of the state machine: the state, the time, and the effects gathered so far. A Machine
// lives for one Step. The state, the events and the effects are plain data; the functions of
// Machine are the rules that act on them. The functions are grouped by file, and each file belongs
// to one part of the state:
//
//   cluster    workers.cc (registration, reports, loss), inventory.cc (lists, cordons, drains,
//              meshes)
//   ownership  sessions.cc
//   catalogue  arrays.cc, holders.cc, programs.cc
//   order      operations.cc, run.cc, transfer.cc, files.cc, save.cc, load.cc, queries.cc
//   answers    repeated_calls.cc
//   uploads    uploaded_programs.cc
//   all        step.cc, telemetry.cc, commit.cc (makes the rows of a commit),
//              restore.cc (reads the rows of earlier lives; takes executors back)
//
// The calls from part to part, each with the reason for it:
//
//   cluster -> order             RetryBlocked, RetryHeld: executors are back, a drain has ended
//                                RecordExecutorLeft, Fail: an executor is lost
//   cluster -> catalogue         DropHolders, FailArray, FailExecutable, RestartCompileTimeouts
//   ownership -> order           CancelOperations: a session ends
//   ownership -> catalogue       Delete: a session ends
//   catalogue -> order           TryStart, Fail: an array or an executable is ready, or has failed
//   order -> catalogue           NewArray, SetArrayScheduled, SetArrayReady, FailArray: results
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
#include "server/scheduler/effects.h"
#include "server/scheduler/events.h"
#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

// The purpose of a timer. The id of a timer is the id of an operation, an array, a request or a
// client's session. For kLeaseTimer it is the id of a worker's registration.
enum TimerKind : int {
  kLeaseTimer,      // end of a worker's lease
  kRequestTimer,    // timeout of a request that waits (waits.h)
  kDeadlineTimer,   // deadline of an operation
  kExecutorsTimer,  // end of an operation's wait for executors
  kVerdictTimer,    // end of the wait for the root cause of a failure
  kUploadTimer,     // end of an array's upload
  kSessionTimer,    // end of a client's lease
  kKillTimer,       // end of executors' time to leave an ended operation
  kSilenceTimer,    // end of the grace of a session without a client
  // Ends the wait for executors that are away. The id is the registration id that their worker had,
  // or 0 after a restart.
  kAwayTimer
};

template <class... Parts>
ABSL_ATTRIBUTE_COLD absl::Status Error(ErrorKind kind, const Parts&... parts) {
  return MakeError(kind, absl::StrCat(parts...));
}

// The calls that take effect only once, even if the client repeats them with their request_id
// (answers.h).
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

class LossErrors;  // replicas.h

// The access to a tenant's resource that a caller wants.
enum class Access : uint8_t { kRead, kChange };

class Machine {
 public:
  // The effects of the step use the memory of `effects`.
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

  // The value that a handler returns is the reply to its request. A handler that returns void
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
  // uploaded_programs.cc
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
  absl::StatusOr<PendingArrays> On(const ReshardArray& e);
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
  void On(const ExecutorGone& e);
  void On(const WorkerReported& e);
  // restore.cc
  void On(const Restore& e);
  // step.cc
  void On(const Tick& e);

  // Sets the caller whose request the step serves; null, the default, if it serves none.
  void SetCaller(const core::Caller* caller) { caller_ = caller; }
  // Call it before the step's event. Records that the commands which waited for commits that are
  // durable by now have left.
  void RecordCommandsSent();
  // Ends the step and returns its effects.
  std::vector<Effect> Finish();

  // The functions below are for the files of the scheduler. They are public, because functions in
  // the unnamed namespaces of these files call them too.
  State& state() { return s_; }

  // ---- step.cc: replies, commands, timers. ----
  void Answer(uint64_t request, absl::Status error);
  template <class T>
  void Answer(uint64_t request, T body) {
    Reply& r = std::get<Reply>(effects_.emplace_back(std::in_place_type<Reply>));
    r.request = request;
    if constexpr (std::is_same_v<T, api::Operation>) r.ended_in_commit = EndCommitOf(body.id);
    if constexpr (std::is_same_v<T, api::Completion>)
      r.ended_in_commit = EndCommitOf(body.operation.id);
    r.body = std::move(body);
  }
  template <class T>
  void Answer(uint64_t request, absl::StatusOr<T> answer) {
    if (!answer.ok()) return Answer(request, answer.status());
    Answer(request, *std::move(answer));
  }
  // Returns the commit that contains the end of the operation; 0 if there is none or an earlier
  // life made it.
  uint64_t EndCommitOf(uint64_t operation);
  // Requires: the executor is alive.
  void Send(const Executor& executor, api::Command command, bool when_durable = false);
  template <class... Parts>
  void Log(const Parts&... parts) {
    if (s_.config.wants_debug) effects_.emplace_back(Debug{absl::StrCat(parts...)});
  }
  // Marks a record as changed, so that the step commits it as it is at the end of the step, or
  // commits its removal. Records of the coordinator's own tenant are not kept.
  void MarkChanged(core::RowKind kind, uint64_t id, const std::string& tenant) {
    if (s_.config.durable && tenant != core::kSystemTenant) changed_.push_back({kind, id});
  }
  void MarkChanged(core::RowKind kind, std::string name) {
    if (s_.config.durable) changed_.push_back({kind, 0, std::move(name)});
  }
  void MarkChanged(const Operation& op) {
    MarkChanged(core::RowKind::kOperation, op.id, op.tenant);
  }
  void MarkChanged(uint64_t array, const ArrayRecord& record) {
    MarkChanged(core::RowKind::kArray, array, record.tenant);
  }
  void CommitChanges();
  void Arm(absl::Time when, TimerKind kind, uint64_t id);
  void Disarm(absl::Time when, TimerKind kind, uint64_t id);
  // Lets the request wait. The event that ends the wait answers the request; otherwise its timeout
  // does (waits.h).
  template <class W>
  void BeginWait(uint64_t request, absl::Time until, W wait) {
    if (Requests* waiters = WaitersFor(wait)) waiters->insert(request);
    Arm(until, kRequestTimer, request);
    s_.waiters.emplace(request, Waiter{until, std::move(wait)});
  }
  // Returns null if the request does not wait, or if its wait is of another kind.
  template <class W>
  W* WaitOf(uint64_t request) {
    const auto it = s_.waiters.find(request);
    return it == s_.waiters.end() ? nullptr : std::get_if<W>(&it->second.wait);
  }
  // Ends the wait. The caller answers the request.
  Waiter EndWait(uint64_t request);
  // Ends the waits of these requests, all with the same answer.
  template <class Ids, class T>
  void EndWaits(const Ids& requests, const T& answer) {
    for (uint64_t request : std::vector<uint64_t>(requests.begin(), requests.end())) {
      EndWait(request);
      Answer(request, answer);
    }
  }
  // Like Answer, for waits that time out only because of a fault: it logs the timeout too.
  void AnswerAndLogTimeout(uint64_t request, const absl::Status& why);

  int64_t PageSize(int64_t requested) const;
  uint64_t NewId(const std::string& tenant) {
    return ownership_.NewId(tenant, s_.config.owners_max);
  }
  // Returns the end of an error about an unknown id: ": the coordinator restarted ..." if it cannot
  // be an id of this life, and "" otherwise.
  std::string HintIfRestarted(uint64_t id) const;
  // Like HintIfRestarted, but if the id belongs to another kind of object, says so: ": it is an
  // operation, which makes array 7".
  std::string HintAboutId(const core::Caller& caller, uint64_t id, Access access) const;
  static bool Allowed(const core::Caller& caller, const std::string& tenant, Access access) {
    return access == Access::kRead ? caller.MayRead(tenant) : caller.MayChange(tenant);
  }

  // ---- repeated_calls.cc ----
  // If the call has come before, answers it like the first one, or with REQUEST_ID_REUSED if it has
  // another payload. Returns whether it has come before; if not, the call must run.
  template <class E>
  bool AnswerIfRepeated(const E& e) {
    const AnswerRecord* const first = FindAnswer(e.caller, KindOfCall(e), e.request_id.text);
    if (first == nullptr) return false;
    if (first->payload == e.request_id.payload) {
      AnswerRepeatedCall(e, *first);
    } else {
      Answer(e.request, RequestIdReusedError(e));
      if constexpr (requires { e.end_request; }) {
        if (e.end_request != 0) Answer(e.end_request, RequestIdReusedError(e));
      }
    }
    return true;
  }
  // Returns null if the call has no request id, or if no such call has been accepted.
  const AnswerRecord* FindAnswer(const core::Caller& caller, CallKind call,
                                 const std::string& request_id) const;
  static absl::Status RequestIdReusedError(const Request& e);
  // Records that the call is accepted and what it has made. If the call comes again, it makes
  // nothing.
  template <class E>
  void Remember(const E& e, uint64_t made = 0, const std::vector<uint64_t>& arrays = {}) {
    if (!e.request_id.text.empty()) Remember(e, KindOfCall(e), made, arrays);
  }
  void Remember(const Request& e, CallKind call, uint64_t made,
                const std::vector<uint64_t>& arrays);
  absl::StatusOr<PendingArrays> PendingArraysOf(const core::Caller& caller,
                                                const AnswerRecord& first);
  // These functions answer a repeated call from what the first one has made.
  void AnswerRepeatedCall(const OpenSession& e, const AnswerRecord& first);
  void AnswerRepeatedCall(const CloseSession& e, const AnswerRecord& first);
  void AnswerRepeatedCall(const CreateMesh& e, const AnswerRecord& first);
  void AnswerRepeatedCall(const DeleteMesh& e, const AnswerRecord& first);
  void AnswerRepeatedCall(const DeleteProgram& e, const AnswerRecord& first);
  void AnswerRepeatedCall(const Execute& e, const AnswerRecord& first);
  void AnswerRepeatedCall(const CreateArray& e, const AnswerRecord& first);
  void AnswerRepeatedCall(const ReshardArray& e, const AnswerRecord& first);
  void AnswerRepeatedCall(const SaveArrays& e, const AnswerRecord& first);
  void AnswerRepeatedCall(const LoadArrays& e, const AnswerRecord& first);
  void AnswerRepeatedCall(const DeleteArrays& e, const AnswerRecord& first);

  // ---- telemetry.cc ----
  template <class T>
  void Note(T note) {
    if (s_.config.wants_notes) s_.notes.emplace_back(std::move(note));
  }
  void NoteEnded(const Operation& op);
  void LogIncident(const char* what, std::vector<std::pair<std::string, std::string>> fields);
  void LogIncident(const char* what, std::vector<std::pair<std::string, std::string>> fields,
                   const absl::Status& why);
  void ReadOperations(core::ClusterReading* out);
  void ReadWorkers(core::ClusterReading* out);

  // ---- sessions.cc ----
  // Returns the key of the caller's session `id`. With Access::kChange, also renews the lease of
  // the session.
  absl::StatusOr<uint64_t> FindSession(const core::Caller& caller, uint64_t id, Access access);
  absl::Status NoSessionError(uint64_t id) const;
  SessionInfo SessionInfoOf(uint64_t key, const Session& session) const;
  void EndSession(uint64_t key, const std::string& why);
  void OnSessionTimer(uint64_t key);
  // Call it when a client of the session is connected again. Stops the timer that would cancel the
  // session's operations.
  void EndSilence(uint64_t key, Session& session);
  void OnSilenceTimer(uint64_t key);
  void CancelOperations(const IdSet& operations, const std::string& why);

  // ---- inventory.cc ----
  WorkerInfo WorkerInfoWithoutArrays(const std::string& name, const Worker& worker) const;
  static absl::Status NoWorkerError(const std::string& name);
  WorkerInfo WorkerInfoWithArrays(const std::string& worker);
  // Returns why the devices of this executor are cordoned. Requires: they are.
  std::string CordonReasonOf(const Executor& x) const;
  void AcceptFaults(const Worker& worker);
  // Cordons the device of the executor if `fault` is not "" and not the last fault that is known.
  void RecordFault(Executor& x, const std::string& fault);
  // Answers the requests that wait for the worker's drain with its current state.
  void AnswerDrains(const std::string& worker);
  // Fills in how many arrays have shards on each worker.
  void CountArrays(std::vector<WorkerInfo>& workers);
  int64_t OperationsOn(const Worker& worker) const;
  // Answers the drain requests of workers where nothing runs any more.
  void AnswerFinishedDrains();
  // Tries to start the operations that a drain held back.
  void RetryHeld();
  absl::StatusOr<const NamedMesh*> FindMesh(const core::Caller& caller, const std::string& name);

  // ---- uploaded_programs.cc ----
  // Returns OK if the chunk is the next one of its upload, and there is room for it.
  absl::Status CheckChunk(const UploadProgram& e) const;

  // ---- arrays.cc ----
  // Returns LIMIT_EXCEEDED if `more` arrays would be too many.
  absl::Status CheckRoomForArrays(const char* what, int64_t more) const;
  // Returns the record, or ARRAY_NOT_FOUND or ARRAY_DELETED.
  absl::StatusOr<ArrayRecord*> FindArray(const core::Caller& caller, uint64_t id, Access access);
  uint64_t NewArray(SpecRef spec, ArrayState state, uint64_t session);
  // Later requests do not find a deleted array, but the shards stay while operations need them.
  void SetDeleted(uint64_t id, bool deleted);
  // Records that the current incarnations of the executors of the array's devices have its shards,
  // or will have them.
  void SetHolders(ArrayRecord& array);
  ArrayInfo ArrayInfoOf(uint64_t id);
  // Marks the array as being written, on the current incarnations of its executors. Returns false
  // if the array no longer exists.
  bool BeginWrites(uint64_t id);
  void OnUploadTimer(uint64_t id);
  // Creates the array and answers the request. Returns false, and does nothing, if an executor of
  // the array is not alive.
  bool TryCreate(const CreateArray& e, uint64_t session);
  void TrySendRead(uint64_t request, const ArrayRecord& array);
  void SetArrayScheduled(uint64_t id);
  void SetArrayReady(uint64_t id);
  void FailArray(uint64_t id, const absl::Status& error, ArrayState state = ArrayState::kFailed);
  // Like FailArray, with the state kLost. `why` must have the form of ArrayRecord::error.
  void LoseArray(uint64_t id, const absl::Status& why) { FailArray(id, why, ArrayState::kLost); }
  // Like FailArray, for an array that has no waiters and no readers and is not to be freed.
  void MarkFailed(uint64_t id, ArrayRecord& a, const absl::Status& error, ArrayState state);
  // Returns the error that uses of the array report; OK if the array has not failed.
  static absl::Status ErrorOf(uint64_t id, const ArrayRecord& a);
  void EndArrayWaits(uint64_t id, const absl::Status& error);
  // Skips ids that are unknown or belong to other tenants.
  void Delete(const core::Caller& caller, const std::vector<uint64_t>& arrays);
  void Delete(uint64_t id);
  // Sends the deletions gathered so far, instead of at the end of the step.
  void SendDeletes();
  // Returns whether some executor may still read the array from another one. While this holds, no
  // executor may delete the array or consume it in a launch.
  bool HasPeerReaders(const ArrayRecord& array);
  // Returns the operation that the array was donated to and that reads a copy of it, or null.
  const Operation* RunReadingCopy(uint64_t id, const ArrayRecord& array) const;
  // Returns whether the array is donated to an operation that reads a copy of it and has not
  // started. If that operation fails before its start, the array is given back.
  bool IsKeptOriginal(uint64_t id, const ArrayRecord& array) const;
  // Frees the originals of the operation's arguments (Run::originals). Call it when the operation
  // has started, because they are not given back after that.
  void FreeOriginals(const Operation& op);
  // Deletes the buffers of a deleted array once no unscheduled operation needs them, and its record
  // once nothing refers to it.
  void TryFree(uint64_t id);
  // Tells the executors that are alive to delete their shards of the array. Does so at most once.
  void FreeShards(uint64_t id, ArrayRecord& a);

  // ---- holders.cc ----
  // Where the process is that holds a device's shard of an array: nowhere, away or here.
  enum class Presence : uint8_t { kNone, kAway, kAlive };
  Presence PresenceOn(const ArrayRecord& array, int64_t device) const;
  // Returns for each ordinal the ordinal of the device from which to read the shard. This is the
  // shard's own device, unless only a replica is on a process that is alive or, if none is alive,
  // away.
  std::vector<int> SourcesOf(const ArrayRecord& array) const;
  // Returns whether every shard of the array is on a process that is alive.
  bool IsAllAlive(const ArrayRecord& array) const;
  // Records that these devices have lost their shards of the array. Returns OK if the array stays,
  // because other devices hold every shard. Otherwise returns the error with which the caller must
  // mark the array as lost.
  absl::Status DropHolders(uint64_t id, ArrayRecord& array, const std::vector<int64_t>& devices,
                           LossErrors& errors);
  // Call it after DropHolders for an array that stays. Sends the reads that the executor has not
  // answered to the other holders, and ends the writes of shards that need not be written there any
  // more.
  void UseOtherHolders(uint64_t id, const std::string& executor);

  // ---- programs.cc ----
  // Returns the requested `devices` after checking them; if none are requested, the devices that
  // suit `mesh` best. If `cordoned` is set, devices of cordoned workers count too.
  absl::StatusOr<std::vector<int64_t>> ChooseDevices(const char* what, const ir::Mesh& mesh,
                                                     const std::vector<int64_t>& devices,
                                                     bool cordoned) const;
  // Adds an executable without a plan. Returns QUEUE_FULL if too many are being planned.
  absl::StatusOr<uint64_t> NewExecutable(const api::CompileRequest& request,
                                         const std::string& tenant);
  // Returns the request to the planner, without its cluster snapshot.
  MakePlan PlanRequestFor(const api::CompileRequest& request, uint64_t executable) const;
  // Adds an executable that is planned for absent devices, and requests its plan. The executable is
  // dropped once the requests that wait for it have been answered.
  absl::StatusOr<uint64_t> PlanForAbsent(const api::CompileRequest& request,
                                         const std::string& tenant);
  // Returns the tenant's executable of this key on the chosen devices (see ChooseDevices), and
  // plans it if there is none.
  absl::StatusOr<uint64_t> FindOrPlan(const api::CompileRequest& request, const std::string& key,
                                      const std::string& tenant, bool cordoned);
  // Lists what a run of a program on these devices would wait for.
  std::vector<api::PendingReason> PendingReasonsOn(const std::vector<int64_t>& devices,
                                                   bool compiled);
  // Returns how long a Compile waits for executors; less while an executor is not alive.
  absl::Duration CompileTimeout(const Executable& executable) const;
  // Call it when the executor was lost or has come back. The timeouts of the Compile requests that
  // wait for it begin anew.
  void RestartCompileTimeouts(const std::string& executor);
  // Returns the error for `what`, which waited too long for the executors to compile the program.
  absl::Status NotLoadedError(const Executable& executable, const std::string& what,
                              bool callers_time_is_over = false) const;
  // Returns whether every executor of the executable is alive and has compiled it.
  bool IsLoaded(const Executable& executable) const;
  void SetPlan(uint64_t id, Executable& executable, std::shared_ptr<const core::Plan> made);
  void SendLoad(uint64_t id, Executable& executable, const Executor& executor);
  void LoadWhereAlive(uint64_t id);
  // Answers the requests that wait for the executable.
  void AnswerCompileWaits(const Executable& executable);
  // Returns the reply to a Compile. If `explain` is set, the reply contains the explanation, to
  // whose text core::AddLastRun adds the last run later.
  static core::CompileReply ReplyOf(const Executable& executable, bool explain);
  // Calls AnswerCompileWaits if every executor has compiled the executable.
  void AnswerCompileWaitsIfLoaded(uint64_t id);
  // Answers the requests for the plan alone, and drops the executable.
  void AnswerPlanOnly(uint64_t id);
  void FailExecutable(uint64_t id, const absl::Status& error);
  void DropOldExecutables();
  void DropExecutable(uint64_t id);

  // ---- run.cc ----
  absl::Status CheckExecute(const core::Caller& caller, const api::ExecuteRequest& body);
  // Returns LIMIT_EXCEEDED if the run would make too many arrays.
  absl::Status CheckResultsFit(const Executable& x, const api::ExecuteRequest& body);
  static absl::Status CheckDonations(const api::ExecuteRequest& body);
  // Returns the distinct shards of the results to send back inline, as (index of the result,
  // ordinal). Results that are too large are left out.
  std::vector<std::pair<int32_t, int>> InlineShards(const Operation& op, int64_t bytes_max) const;
  // Returns whether every device of the run on this executor has its shards of the arguments. If
  // `executor` is empty, returns this for all devices of the run.
  bool HasArguments(const Run& run, const Operation& op, const std::string& executor) const;
  // Lets the run read copies of the arguments whose shards some of its devices have lost, and
  // starts these copies. If they cannot be made, fails the run.
  void CopyLostArguments(Operation& op);
  // Like StartReshard, but checks first that there is room for the operation and its result.
  absl::StatusOr<uint64_t> TryCopy(uint64_t session, uint64_t source, const api::ArraySpec& wanted);
  void KeepInlined(const Executor& executor, const api::LaunchDone& done);
  // Returns the operation, with its inline results if it has succeeded. Requires: the operation is
  // a run.
  api::Completion TakeCompletion(Operation& op);
  // Returns the generation of the communicator of the executors' current incarnations, in this
  // order. Opens the communicator if there is none.
  uint64_t FindOrOpenCommunicator(const std::vector<std::string>& executors);
  // Sends the communicator's configuration to one of its members.
  void SendConfiguration(uint64_t generation, const std::vector<std::string>& members,
                         const std::string& to);
  // Tells the members that are still alive to close the communicator.
  void CloseCommunicator(uint64_t generation, const Order::Members& members);

  // ---- transfer.cc ----
  // Starts an operation that copies `source` to the placement of `wanted`, and returns its id.
  absl::StatusOr<uint64_t> StartReshard(uint64_t session, uint64_t source,
                                        const api::ArraySpec& wanted);
  // Returns the executable that moves an array from the sharding of `has` to that of `wanted`,
  // which is on the same mesh.
  absl::StatusOr<uint64_t> FindOrPlanReshard(const std::string& tenant, const api::ArraySpec& has,
                                             const api::ArraySpec& wanted);
  // Finds or plans the executable of a reshard of an earlier life.
  absl::Status PlanReshard(Operation& op);

  // ---- operations.cc ----
  // Returns QUEUE_FULL if too many operations have not ended.
  absl::Status CheckQueue(const char* what) const;
  // Returns the operation, or OPERATION_NOT_FOUND.
  absl::StatusOr<Operation*> FindOperation(const core::Caller& caller, uint64_t id, Access access);
  uint64_t NewOperation(Operation&& op, const std::vector<SpecRef>& results);
  std::vector<std::string> ExecutorsOf(const Operation& op);
  // Returns null if the operation is not a run, or if its executable has been dropped.
  Executable* ExecutableOf(const Operation& op) const;
  // Starts the operation if it need not wait. A call from within another operation's start takes
  // effect after that start.
  void TryStart(uint64_t id);
  void TryStartNow(uint64_t id);
  // Lets the operation wait, for a bounded time, until its executors are back or, if `loading` is
  // set, have compiled its program.
  void Block(Operation& op, bool loading);
  // Returns whether an executor that the operation runs on, or that alone has a shard which the
  // operation reads, is away and may still come back.
  bool AnyAway(const Operation& op);
  void Unblock(const Operation& op);
  void OnDeadlineTimer(uint64_t id);
  void OnVerdictTimer(uint64_t id);
  // Fails the operation, because its wait for executors has timed out.
  void OnExecutorsTimer(uint64_t id);
  void Start(Operation& op, const std::vector<std::string>& executors);
  void Succeed(uint64_t id);
  // Fails the operation. A call from within another operation's failure takes effect after that
  // failure.
  void Fail(uint64_t id, absl::Status error,
            api::OperationState state = api::OperationState::kFailed);
  void FailNow(uint64_t id, const absl::Status& error, api::OperationState state);
  void End(Operation& op, api::OperationState state);
  // Records that the executor has left the operation: it has acknowledged the end, or is lost.
  void RecordExecutorLeft(Operation& op, const std::string& executor);
  // Starts the default deadline of an operation that has none. The default deadline of a run begins
  // when the run is the first on all of its executors.
  void StartRunDeadline(Operation& op);
  // Kills the executors that have not acknowledged the operation's end. A responsive executor that
  // is behind (IsBehind), or was at the last check, is spared and checked again later.
  void KillLingering(uint64_t id);
  // Gives the executors cancel_grace from now on to leave the operation.
  void RestartKillTimer(Operation& op);
  bool IsBehind(const Operation& op, const Executor& x) const;
  // Returns an earlier operation that this one waits for on the executor; 0 if there is none.
  uint64_t OperationAhead(const Operation& op, const Executor& executor) const;
  // Describes what each of its executors is doing for the operation, as their workers have
  // reported.
  std::string DescribeProgress(const Operation& op);
  // Describes the first of the operation's executors that is away; "" when none is.
  std::string AwayReason(const Operation& op) const;
  // Says which executor that the operation needs is away or does not answer, and why. Returns "" if
  // there is none.
  std::string DescribeAbsent(const Operation& op);
  static absl::Status AbsentError(const Operation& op, const std::string& why);
  // Answers the waits with fail_fast whose operation needs an executor that is away or does not
  // answer. Call it when an executor has become so.
  void AnswerFailFastWaits();
  // Describes why the operation has not ended: where it runs or, if it has not started, the first
  // reason for that. Returns "" if it has ended.
  std::string DescribeDelay(const Operation& op);
  // Returns every reason for which the operation has not started, the most important first.
  std::vector<api::PendingReason> PendingReasons(const Operation& op);
  void AddPlaceReasons(const std::vector<std::string>& executors,
                       std::vector<api::PendingReason>* reasons) const;
  // Adds the executors that are away and alone have a shard of the array.
  void AddAwaySources(const ArrayRecord& array, std::vector<std::string>* executors) const;
  // Returns the commit that will contain this step's changes of the operation; 0 if operations of
  // its tenant are not kept.
  uint64_t NextCommit(const Operation& op) const;
  api::Operation Describe(const Operation& op);
  // Answers the requests that wait for the operation's state to change.
  void AnswerChangeWaits(Operation& op);
  void HandleLaunchEnd(const Executor& executor, uint64_t launch, const absl::Status& status,
                       bool inputs_kept = false);
  // Settles the donated arrays of a failed operation after every executor has acknowledged its end.
  // The client gets its donated arrays back if no executor has consumed them; otherwise they are
  // freed. If the operation never started, this includes the originals whose copies it would have
  // read. Answers the DonationWaits.
  void SettleDonated(const Operation& op);
  // Starts and fails operations in a loop instead of by recursion, because a chain of operations
  // that depend on each other may be as long as the queue.
  void StartAndFailDue();

  // ---- The kinds of waits (waits.h), each in the file that begins such waits. ----
  // Returns the set in which a request with this wait is registered, so that the event that ends
  // the wait finds it. If there is no such set, that event searches all waits.
  Requests* WaitersFor(const ArrayWait& wait);
  Requests* WaitersFor(const OperationWait& wait);
  Requests* WaitersFor(const CompileWait& wait);
  Requests* WaitersFor(const DrainWait& wait);
  Requests* WaitersFor(const CreateWait&) { return nullptr; }
  Requests* WaitersFor(const InspectWait&) { return nullptr; }
  Requests* WaitersFor(const HoldWait&) { return nullptr; }
  // Answers the request at the timeout of its wait, after the wait has been removed.
  void AnswerTimeout(const ArrayWait& wait, uint64_t request);
  void AnswerTimeout(const ReadWait& wait, uint64_t request);
  void AnswerTimeout(const WriteWait& wait, uint64_t request);
  void AnswerTimeout(const OperationWait& wait, uint64_t request);
  void AnswerTimeout(const CompletionWait& wait, uint64_t request);
  void AnswerTimeout(const DonationWait& wait, uint64_t request);
  void AnswerTimeout(const CompileWait& wait, uint64_t request);
  void AnswerTimeout(const DrainWait& wait, uint64_t request);
  void AnswerTimeout(const CreateWait& wait, uint64_t request);
  void AnswerTimeout(const InspectWait& wait, uint64_t request);
  void AnswerTimeout(const HoldWait&, uint64_t) {}  // has no timeout

  // ---- The kinds of work (work.h): run.cc, transfer.cc, save.cc, load.cc. ----
  // Return the distinct executors that an operation with this work runs on.
  std::vector<std::string> ExecutorsFor(const Run& run, const Operation& op) const;
  std::vector<std::string> ExecutorsFor(const Transfer& transfer, const Operation& op) const;
  std::vector<std::string> ExecutorsFor(const Save& save, const Operation& op) const;
  std::vector<std::string> ExecutorsFor(const Load& load, const Operation& op) const;
  // Send the commands of the operation, which is scheduled, to its `executors`. If `only` is not
  // empty, they send the commands again to this one executor, which never received them.
  void SendWork(const Run& run, Operation& op, const std::vector<std::string>& executors,
                const std::string& only);
  void SendWork(const Transfer& transfer, Operation& op, const std::vector<std::string>& executors,
                const std::string& only);
  void SendWork(const Save& save, Operation& op, const std::vector<std::string>& executors,
                const std::string& only);
  void SendWork(const Load& load, Operation& op, const std::vector<std::string>& executors,
                const std::string& only);

  // ---- files.cc ----
  std::string PathOf(const core::Caller& caller, const std::string& path) const;
  // Asks the executor for the contents of the file. The contents answer the request, or are loaded
  // if `load` is not null.
  void SendInspectFile(uint64_t request, const Executor& executor, const std::string& path,
                       std::shared_ptr<const LoadArrays> load);
  // ---- save.cc ----
  absl::Status CheckFilesDirectories(const std::vector<uint64_t>& arrays) const;
  // Returns for each array the ordinals of the devices that write its distinct shards: those of the
  // save if it has been sent.
  std::vector<std::vector<int>> OrdinalsToSave(const Save& save,
                                               const std::vector<uint64_t>& arrays) const;
  absl::StatusOr<Save> CheckSave(const SaveArrays& e, std::vector<uint64_t>* args);
  // ---- load.cc ----
  absl::StatusOr<PendingArrays> StartLoad(const LoadArrays& e, const api::FileInspected& report);

  // ---- Reports of executors. ----
  // Each report is handled in the file of the part of the state that it concerns.
  void HandleReport(const std::string& worker, const api::Heartbeat& beat);
  void HandleReport(const std::string& worker, uint64_t registration_id,
                    const api::ExecutorReady& ready);
  void HandleReport(Executor& x, const api::CommunicatorReady& ready);
  void HandleReport(Executor& x, const api::ProgramLoaded& loaded);
  void HandleReport(Executor& x, const api::LaunchDone& done);
  void HandleReport(Executor& x, const api::LaunchFailed& failed);
  void HandleReport(Executor& x, const api::BufferWritten& written);
  void HandleReport(Executor& x, const api::BufferRead& read);
  void HandleReport(Executor& x, const api::FileInspected& inspected);

  // ---- restore.cc ----
  void RestoreCluster(const std::vector<RowChange>& rows);
  void RestoreExecutable(uint64_t id, Executable executable);
  void RestoreArray(uint64_t id, ArrayRecord array);
  void RestoreOperation(Operation op);
  // Starts an operation of an earlier life, or fails it if something that it needs is missing.
  void ResumeOperation(uint64_t id);
  // Handles the loss of the executors whose time to come back is over.
  void OnAwayTimer();
  // Kills the process of an executor whose time to come back is over, if its worker is back.
  void KillUnheard(const Executor& executor);
  // Returns until when an executor that goes away in this step may come back.
  absl::Time AwayUntil() const;
  // Marks the executors of a worker that is silent or whose connection has ended as away.
  void BeginAway(const std::string& worker, const std::string& reason);
  // Marks an executor whose own connection has ended as away.
  void BeginAway(Executor& executor, const std::string& reason);
  // Lets the time to come back begin anew for all executors that are away.
  void RestartGrace();
  // Ends or suspends the waits for an executor that is away from now on.
  void SuspendWaits(const std::string& executor);
  // Returns whether `info` is of the process that the executor had before it went away.
  bool MayAdopt(const std::string& executor, const api::ExecutorInfo& info) const;
  // Takes an executor back that was away. Compares what it holds with what it should hold.
  void Adopt(Executor& executor, const api::ExecutorInventory& inventory);
  // An operation that an executor has, with the sequence number and the communicator's generation
  // that were sent with it; 0 if they are not known.
  struct StartedOperation {
    uint64_t sequence = 0, operation = 0, generation = 0;
    auto operator<=>(const StartedOperation&) const = default;
  };
  // Returns the operations of the inventory that run or have ended, in the order in which they were
  // sent.
  static std::vector<StartedOperation> StartedOperations(const api::ExecutorInventory& inventory);
  // Takes over an operation that was sent to the executor by a life that ended before the start was
  // durable.
  void AdoptStarted(const StartedOperation& started, const std::string& executor);
  // Sends an operation to the executor again, whose command was lost on the way when the connection
  // or the coordinator ended, with all commands after it. Fails the operation if it cannot be sent
  // again.
  void Resend(uint64_t operation, const std::string& executor);
  bool TryResend(Operation& op, const std::string& executor);
  // Returns whether the executor has the shards that its part of the operation reads.
  bool HasArguments(const Operation& op, const std::string& executor) const;
  void AdoptPrograms(const Executor& executor, const api::ExecutorInventory& inventory);
  void AdoptOperations(const Executor& executor, const api::ExecutorInventory& inventory);
  void FailUnreached(uint64_t id, const std::string& executor);
  void LoseMissingArrays(const Executor& x, const api::ExecutorInventory& inventory);
  bool IsNeeded(uint64_t id, const ArrayRecord& array) const;
  bool MayBeGivenBack(uint64_t id, const ArrayRecord& array,
                      const std::set<uint64_t>& started) const;
  static bool IsHeldOn(const ArrayRecord& array, const Executor& x, int32_t local_index);
  void AdoptArrays(const Executor& executor, const api::ExecutorInventory& inventory);

  // ---- workers.cc ----
  // Returns the arrays whose placement has a device of the executor, whatever their state, in order
  // of their ids. The records are valid until an array is removed.
  std::vector<ArrayTable::Entry> ArraysOn(const Executor& executor);
  // Returns whether this incarnation of the executor has a shard of the array, or will have one.
  static bool IsHeldBy(const ArrayRecord& array, const Executor& executor);
  absl::Status CheckNotConnected(const api::Registration& r) const;
  // Returns whether the worker may be forgotten to make room for another one: it is lost, and will
  // not come back with what it holds.
  bool MayForget(const Worker& worker) const;
  absl::Status CheckRegistration(const api::Registration& r) const;
  void RegisterExecutor(const std::string& worker, const std::string& host,
                        const api::ExecutorInfo& info);
  // Removes a lost worker and its executors.
  void Forget(const std::string& worker);
  void ForgetExecutor(const std::string& name);
  void LoseExecutor(const std::string& executor, const std::string& reason, uint64_t launch,
                    const std::string& op);
  void LoseWorker(const std::string& worker, const std::string& reason);
  // Handles the report that this process of the executor has ended, or ends. The executor may be
  // away. `executor` may be null.
  void OnProcessEnd(const Executor* executor, uint64_t incarnation, const std::string& reason,
                    uint64_t launch, const std::string& op);
  void OnLeaseTimer(uint64_t registration_id);
  // Call it when executors are back. Retries the operations and requests that wait for executors.
  void RetryBlocked();
  bool Responsive(const Executor& x) const {
    return x.last_heartbeat.silence < s_.config.unresponsive;
  }
  // Returns for example "it has not answered its worker for 3.2s", and "" while it answers.
  std::string SilenceOf(const Executor& x) const;
  // Returns for example "executor w0/0 (it has not answered its worker for 3.2s)", or "executor
  // w0/0".
  std::string NameWithSilence(const std::string& executor) const;
  // Records that `who`, a description of a request or operation, waited too long for the executor.
  // Kills the executor if it does not answer its worker either.
  void MarkOverdue(const std::string& executor, const std::string& who);
  void MarkLoadersOverdue(const Executable& executable, const std::string& who);
  void KillIfOverdue(Executor& x);
  // Returns whether the executor may be killed because it does not answer. An executor that holds
  // arrays has as much time to answer as one that is away has to come back.
  bool MayKillForSilence(const Executor& x);

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
  // Executor -> arrays to delete. Finish sends the deletions. The deletions of donated arrays leave
  // only once the start of the operation is durable.
  std::map<std::string, std::vector<uint64_t>> deletes_, deletes_of_donated_;
  // The operations to start (if the status is OK) or to fail, in order.
  struct DueOperation {
    uint64_t operation = 0;
    absl::Status status;
    api::OperationState state = api::OperationState::kFailed;
  };
  absl::InlinedVector<DueOperation, 2> due_;
  bool processing_due_ = false;
};

}  // namespace tessera::server::scheduler
