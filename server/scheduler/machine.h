// One step of the state machine: the state, the time, and the effects gathered so far.  Lives for
// one Step.  Its functions are grouped by file, each of which belongs to one part of the state:
//
//   cluster    workers.cc (they come, report and go), inventory.cc (lists, cordons, drains, meshes)
//   ownership  sessions.cc
//   catalogue  arrays.cc, programs.cc
//   order      operations.cc, run.cc, transfer.cc, files.cc, save.cc, load.cc, queries.cc
//
// The calls from part to part:
//
//   cluster -> order             RetryBlocked, RetryHeld: executors are back, a drain is over
//                                ExecutorLeft, Fail: an executor is lost
//   cluster -> catalogue         ArrayFailed, ExecutableFailed, RestartLoadWaits
//   ownership -> order           CancelOperations: a session ends
//   ownership -> catalogue       Delete: a session ends
//   catalogue -> order           TryStart, Fail: an array or an executable is ready, or has failed
//   order -> catalogue           NewArray, ArrayScheduled, ArrayReady, ArrayFailed: results
//                                SetDeleted, TryFree: arguments
//                                FindOrPlan, LoadWhereAlive: executables
//   catalogue, order -> cluster  MarkOverdue: an executor did not do its part in time
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

// What is due; the id beside it is an operation, an array, a request, a session of a client or, of
// kLeaseTimer, of a worker.
enum TimerKind : int {
  kLeaseTimer,
  kRequestTimer,
  kDeadlineTimer,
  kExecutorsTimer,
  kVerdictTimer,
  kUploadTimer,
  kSessionTimer,
  kKillTimer,
  kSilenceTimer
};

template <class... Parts>
absl::Status Error(ErrorKind kind, const Parts&... parts) {
  return MakeError(kind, absl::StrCat(parts...));
}

// What a caller wants to do with what a tenant owns.
enum class Access : uint8_t { kRead, kChange };

class Machine {
 public:
  Machine(State& state, absl::Time now)
      : s_(state),
        now_(now),
        cluster_(state.cluster),
        ownership_(state.ownership),
        catalogue_(state.catalogue),
        order_(state.order) {}

  // A handler that returns something answers the request with it; the others answer themselves, now
  // or later.
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
  // state.cc
  void On(const Tick& e);

  // The caller whose request the step serves; null (the default) when it serves none.
  void SetCaller(const core::Caller* caller) { caller_ = caller; }
  // Ends the step.
  std::vector<Effect> Finish();

  // What follows is for the kinds of work (operation.h) and of waits (waits.h), too.
  State& state() { return s_; }
  absl::Time now() const { return now_; }

  // ---- state.cc: replies, commands, timers. ----
  void Answer(uint64_t request, absl::Status error);
  template <class T>
  void Answer(uint64_t request, T body) {
    Reply r;
    r.request = request;
    r.body = std::move(body);
    effects_.emplace_back(std::move(r));
  }
  template <class T>
  void Answer(uint64_t request, absl::StatusOr<T> answer) {
    if (!answer.ok()) return Answer(request, answer.status());
    Answer(request, *std::move(answer));
  }
  // Requires: the executor is alive.
  void Send(const Executor& executor, api::Command command);
  void Log(std::string record) { effects_.emplace_back(Append{std::move(record)}); }
  void Arm(absl::Time when, TimerKind kind, uint64_t id);
  void Disarm(absl::Time when, TimerKind kind, uint64_t id);
  // The request is answered by what ends the wait, or when its time is over (waits.h).
  template <class W>
  void Wait(uint64_t request, absl::Time until, W wait) {
    if (Requests* listed = wait.Listed(s_)) listed->insert(request);
    Arm(until, kRequestTimer, request);
    s_.waiters.emplace(request, Waiter{until, std::move(wait)});
  }
  // Null when the request does not wait, or for something else.
  template <class W>
  W* WaitOf(uint64_t request) {
    const auto it = s_.waiters.find(request);
    return it == s_.waiters.end() ? nullptr : std::get_if<W>(&it->second.on);
  }
  // Ends the wait; the caller answers.
  Waiter EndWait(uint64_t request);
  // Of a wait that only a fault makes long: the log is told, too.
  void AnswerLate(uint64_t request, const absl::Status& why);

  int64_t PageSize(int64_t asked) const;
  uint64_t NewId(const std::string& tenant) {
    return ownership_.NewId(tenant, s_.config.owners_max);
  }
  // The end of an error that says that an id is not known: ": the coordinator restarted ..." when
  // it cannot be an id of this life, else "".
  std::string HintIfRestarted(uint64_t id) const;
  // The same, where the caller may have taken one of its ids for another: ": it is an operation,
  // which makes array 7".
  std::string HintAboutId(const core::Caller& caller, uint64_t id, Access access) const;
  static bool Allowed(const core::Caller& caller, const std::string& tenant, Access access) {
    return access == Access::kRead ? caller.Sees(tenant) : caller.Changes(tenant);
  }

  // ---- telemetry.cc ----
  template <class T>
  void Note(T note) {
    s_.notes.emplace_back(std::move(note));
  }
  void NoteEnded(const Operation& op);
  // For the log.
  void LogIncident(const char* what, std::vector<std::pair<std::string, std::string>> fields);
  void LogIncident(const char* what, std::vector<std::pair<std::string, std::string>> fields,
                   const absl::Status& why);
  void ReadOperations(core::ClusterReading* out);
  void ReadWorkers(core::ClusterReading* out);

  // ---- sessions.cc ----
  // The key of the session that the caller calls `id`; one that is to be changed is renewed.
  absl::StatusOr<uint64_t> FindSession(const core::Caller& caller, uint64_t id, Access access);
  absl::Status NoSession(uint64_t id) const;
  SessionInfo Info(uint64_t key, const Session& session) const;
  void EndSession(uint64_t key, const std::string& why);
  void SessionTimer(uint64_t key);
  // A client of the session is connected again.
  void EndSilence(uint64_t key, Session& session);
  void SilenceTimer(uint64_t key);
  void CancelOperations(const std::set<uint64_t>& operations, const std::string& why);

  // ---- inventory.cc ----
  WorkerInfo WorkerInfoOf(const std::string& name, const Worker& worker) const;
  static absl::Status NoWorker(const std::string& name);
  WorkerInfo Info(const std::string& worker) const;
  // Those that wait for its drain are told how it is.
  void AnswerDrains(const std::string& worker);
  // Fills in how many arrays have shards on each worker.
  void CountArrays(std::vector<WorkerInfo>& workers) const;
  int64_t OperationsOn(const Worker& worker) const;
  // Answers the drain requests of workers where nothing runs any more.
  void EndDrains();
  // Tries to start the operations that a drain held back.
  void RetryHeld();
  absl::StatusOr<const NamedMesh*> FindMesh(const core::Caller& caller, const std::string& name);

  // ---- arrays.cc ----
  // LIMIT_EXCEEDED when there is no room for so many arrays more.
  absl::Status CheckRoom(const char* what, int64_t more) const;
  // The record, or ARRAY_NOT_FOUND or ARRAY_DELETED.
  absl::StatusOr<ArrayRecord*> FindArray(const core::Caller& caller, uint64_t id, Access access);
  uint64_t NewArray(api::ArraySpec spec, ArrayState state, uint64_t session);
  // A deleted array is gone for later requests; its shards stay while operations need them.
  void SetDeleted(uint64_t id, bool deleted);
  // Its shards are, or will be, held by the current incarnations of its devices' executors.
  void SetHolders(ArrayRecord& array);
  ArrayInfo Info(uint64_t id);
  // Its shards are written from now on, at the current incarnations.  False when it is gone.
  bool BeginWrites(uint64_t id);
  void UploadTimer(uint64_t id);
  bool TryCreate(uint64_t request, uint64_t session, const api::ArraySpec& spec);
  void SendRead(uint64_t request, const ArrayRecord& array);
  void ArrayScheduled(uint64_t id);
  void ArrayReady(uint64_t id);
  void ArrayFailed(uint64_t id, const absl::Status& error, ArrayState state = ArrayState::kFailed);
  void EndArrayWaits(uint64_t id, const absl::Status& error);
  // Ids that are unknown, deleted or of other tenants are skipped.
  void Delete(const core::Caller& caller, const std::vector<uint64_t>& arrays);
  void Delete(uint64_t id);
  // Sends the deletions that have gathered so far, which otherwise go at the end of the step.
  void SendDeletes();
  // Of a deleted array: deletes the buffers once no operation that has yet to be placed needs them,
  // and the record once nothing refers to it.
  void TryFree(uint64_t id);

  // ---- programs.cc ----
  // The devices asked for, checked; or, when there are none, those that suit `mesh` best.  With
  // `cordoned` also those of workers that take no new programs.
  absl::StatusOr<std::vector<int64_t>> ChooseDevices(const char* what, const ir::Mesh& mesh,
                                                     const std::vector<int64_t>& devices,
                                                     bool cordoned) const;
  // Adds an executable that is to be planned.  QUEUE_FULL.
  absl::StatusOr<uint64_t> NewExecutable(const api::CompileRequest& request,
                                         const std::string& tenant);
  // The request to the planner, without its cluster snapshot.
  MakePlan PlanOf(const api::CompileRequest& request, uint64_t executable) const;
  // Plans for devices that are absent; the executable is dropped once the plan was answered.
  absl::StatusOr<uint64_t> PlanForAbsent(const api::CompileRequest& request,
                                         const std::string& tenant);
  // The tenant's executable of this key on the devices that are asked for, planned if there is
  // none; with `cordoned` also on workers that take no new programs.
  absl::StatusOr<uint64_t> FindOrPlan(const api::CompileRequest& request, const std::string& key,
                                      const std::string& tenant, bool cordoned);
  // What a run of the program on these devices would wait for.
  std::vector<api::PendingReason> PendingOn(const std::vector<int64_t>& devices, bool compiled);
  // How long a Compile waits for executors: less while one of them is away.
  absl::Duration LoadWait(const Executable& executable) const;
  // The executor was lost or has come back: compiles that wait for it wait anew.
  void RestartLoadWaits(const std::string& executor);
  // The error of `what`, which waited until its executors had compiled the program, and too long.
  absl::Status NotLoaded(const Executable& executable, const std::string& what,
                         bool callers_time_is_over = false) const;
  // Whether every executor of it is alive and has compiled it.
  bool IsLoaded(const Executable& executable) const;
  void SendLoad(uint64_t id, Executable& executable, const Executor& executor);
  void LoadWhereAlive(uint64_t id);
  // Answers those that wait for it.
  void AnswerCompiles(const Executable& executable);
  // The same, if every executor has compiled it.
  void AnswerCompiled(uint64_t id);
  // Answers those that asked for the plan alone, and drops the executable.
  void AnswerPlanned(uint64_t id);
  void ExecutableFailed(uint64_t id, const absl::Status& error);
  void DropOldExecutables();
  void Unload(uint64_t id);

  // ---- run.cc ----
  absl::Status CheckExecute(const core::Caller& caller, const api::ExecuteRequest& body);
  // LIMIT_EXCEEDED when there is no room for what the run would make.
  absl::Status CheckResultsFit(const Executable& x, const api::ExecuteRequest& body);
  static absl::Status CheckDonations(const api::ExecuteRequest& body);
  // The distinct shards of results that are to come along, as (result, ordinal); none when they are
  // too large.
  std::vector<std::pair<int32_t, int>> InlineShards(const Operation& op, int64_t bytes_max) const;
  void KeepInlined(const Executor& executor, const api::LaunchDone& done);
  // How it ended, with the results that came along with the end.  Requires: it is a run.
  api::Completion Complete(Operation& op);
  // The communicator of these executors, in this order, as they are; opened if there is none.
  uint64_t GenerationFor(const std::vector<std::string>& executors);
  // Has those of its members that are there close it.
  void CloseCommunicator(uint64_t generation, const Order::Members& members);

  // ---- transfer.cc ----
  // The operation that makes an array of the contents of `source`, placed as `wanted` says.
  absl::StatusOr<uint64_t> Reshard(uint64_t session, uint64_t source, const api::ArraySpec& wanted);

  // ---- operations.cc ----
  // QUEUE_FULL.
  absl::Status CheckQueue(const char* what) const;
  // OPERATION_NOT_FOUND.
  absl::StatusOr<Operation*> FindOperation(const core::Caller& caller, uint64_t id, Access access);
  uint64_t NewOperation(Operation op, std::vector<api::ArraySpec> results);
  std::vector<std::string> ExecutorsOf(const Operation& op);
  // What it runs; null when it is no run, or its executable is gone.
  Executable* ExecutableOf(const Operation& op) const;
  // Starts the operation if nothing stands in the way; within another's start, after it.
  void TryStart(uint64_t id);
  void TryStartNow(uint64_t id);
  // The operation waits, with a bound, until executors are back or have compiled its program.
  void Block(Operation& op, bool loading);
  void Unblock(const Operation& op);
  void DeadlineTimer(uint64_t id);
  // Its executors were not back, or had not compiled its program, within that bound.
  void ExecutorsLate(uint64_t id);
  void Start(Operation& op, const std::vector<std::string>& executors);
  void Done(uint64_t id);
  // Within another's failure, after it.
  void Fail(uint64_t id, absl::Status error,
            api::OperationState state = api::OperationState::kFailed);
  void FailNow(uint64_t id, const absl::Status& error, api::OperationState state);
  void End(Operation& op, api::OperationState state);
  // The executor has nothing more to do for the operation, or is lost.
  void ExecutorLeft(Operation& op, const std::string& executor);
  // The default deadline of a run counts from when it is first in line on all of its executors.
  void StartRunDeadline(Operation& op);
  // Kills the executors that have not left an operation that has ended; those that are busy with
  // earlier operations are looked at again later.
  void KillLingering(uint64_t id);
  // An earlier operation that this one waits for on the executor; 0: none.
  uint64_t OperationAhead(const Operation& op, const Executor& executor) const;
  // What each of its executors is doing for it, as far as their workers have said.
  std::string DescribeProgress(const Operation& op);
  // Where it runs, or the first reason why it does not.
  std::string PendingReason(const Operation& op);
  // Every reason why it has not started, the one that matters first.
  std::vector<api::PendingReason> PendingReasons(const Operation& op);
  void AddPlaceReasons(const std::vector<std::string>& executors,
                       std::vector<api::PendingReason>* reasons) const;
  api::Operation Describe(const Operation& op);
  // Answers the requests that wait for its state to change.
  void AnswerChangeWaits(Operation& op);
  void LaunchEnded(const Executor& executor, uint64_t launch, const absl::Status& status,
                   bool inputs_kept = false);
  // Of an operation that failed and that every executor has left: arrays that were donated to it
  // are the client's again if no executor has read them, else they are freed.  Answers who waits
  // for that.
  void SettleDonated(const Operation& op);
  // Starts and fails what is due in a loop, not by recursion: chains of operations that depend on
  // each other may be as long as the queue.
  void RunDue();

  // ---- files.cc ----
  std::string PathOf(const core::Caller& caller, const std::string& path) const;
  // What the file holds; `load` is what to load of it, null: the contents are the answer.
  void AskForFile(uint64_t request, const Executor& executor, const std::string& path,
                  std::shared_ptr<const LoadArrays> load);
  // ---- save.cc ----
  absl::Status CheckFilesDirectories(const std::vector<uint64_t>& arrays) const;
  absl::StatusOr<Save> CheckSave(const SaveArrays& e, std::vector<uint64_t>* args);
  // ---- load.cc ----
  absl::StatusOr<Making> StartLoad(const LoadArrays& e, const api::FileInspected& report);

  // ---- What executors report; of each the part of the state that it is about has the function.
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

  // ---- workers.cc ----
  absl::Status CheckName(const api::Registration& r) const;
  absl::Status CheckRegistration(const api::Registration& r) const;
  void ExecutorUp(const std::string& worker, const std::string& host,
                  const api::ExecutorInfo& info);
  // Removes a worker that is lost, with all that is known of it.
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
  // `who` waited too long for the executor, which is killed unless it answers its worker.
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
  bool keep_ = false;  // executors became known or were forgotten, which the store is to know
  std::map<std::string, std::vector<uint64_t>> deletes_;  // executor -> arrays, sent by Finish
  // Operations to start (an OK status) or to fail, in order.
  struct Due {
    uint64_t operation = 0;
    absl::Status error;
    api::OperationState state = api::OperationState::kFailed;
  };
  std::deque<Due> due_;
  bool running_due_ = false;
};

}  // namespace tessera::server::scheduler
