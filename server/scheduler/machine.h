// One step of the state machine: the state, the time, and the effects gathered so far.  Lives for
// one Step.  Its functions are grouped in files by what they are about.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

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

// What somebody wants with what a tenant owns.
enum class Access : uint8_t { kRead, kChange };

class Machine {
 public:
  Machine(State& state, absl::Time now) : s_(state), now_(now) {}

  // sessions.cc
  void On(const OpenSession& e);
  void On(const GetSession& e);
  void On(const ListSessions& e);
  void On(const CloseSession& e);
  void On(const HoldSession& e);
  void On(const DropHold& e);
  // cluster.cc
  void On(const ListDevices& e);
  void On(const ListWorkers& e);
  void On(const GetWorker& e);
  void On(const GetTopology& e);
  void On(const Cordon& e);
  void On(const Drain& e);
  void On(const DeleteWorker& e);
  void On(const CreateMesh& e);
  void On(const GetMesh& e);
  void On(const ListMeshes& e);
  void On(const DeleteMesh& e);
  // arrays.cc
  void On(const CreateArray& e);
  void On(const DescribeUpload& e);
  void On(const ListArrays& e);
  void On(const WriteShard& e);
  void On(const ReadShard& e);
  void On(const DescribeArray& e);
  void On(const WaitArray& e);
  void On(const DeleteArrays& e);
  void On(const ReshardArray& e);
  // files.cc
  void On(const SaveArrays& e);
  void On(const LoadArrays& e);
  void On(const DescribeFile& e);
  // programs.cc
  void On(const Compile& e);
  void On(const Planned& e);
  // operations.cc
  void On(const Execute& e);
  void On(const WaitOperation& e);
  void On(const CancelOperation& e);
  // queries.cc
  void On(const ListOperations& e);
  void On(const ExplainPending& e);
  // telemetry.cc
  void On(const ReadTelemetry& e);
  // workers.cc
  void On(const WorkerRegistered& e);
  void On(const WorkerGone& e);
  void On(const WorkerReported& e);
  // state.cc
  void On(const Tick& e);

  // Before the first step: executors of earlier lives, which have not come yet.
  void Restore(const std::vector<core::KnownExecutor>& executors);
  // Who asks for the step; null, as it is at first: nobody does.
  void SetCaller(const core::Caller* caller) { caller_ = caller; }
  // Ends the step.
  std::vector<Effect> Finish();

 private:
  // ---- state.cc: replies, commands, timers. ----
  void Answer(uint64_t request, absl::Status error);
  template <class T>
  void Answer(uint64_t request, T body) {
    Reply r;
    r.request = request;
    r.body = std::move(body);
    effects_.emplace_back(std::move(r));
  }
  // Requires: the executor is alive.
  void Send(const Executor& executor, api::Command command);
  void Log(std::string record) { effects_.emplace_back(Append{std::move(record)}); }
  void Arm(absl::Time when, TimerKind kind, uint64_t id);
  void Disarm(absl::Time when, TimerKind kind, uint64_t id);
  void Wait(uint64_t request, Waiter waiter);
  // Ends the wait; the caller answers.
  Waiter EndWait(uint64_t request);

  int64_t PageSize(int64_t asked) const;
  // The next id of arrays, executables and operations.
  uint64_t NewId(const std::string& tenant);
  // What to add to the words that nothing is known of an id.
  std::string IfRestarted(uint64_t id) const;
  // The same, where the caller may have taken one of its ids for another: ": it is an operation,
  // which makes array 7".
  std::string WhatElse(const core::Caller& caller, uint64_t id, Access access) const;
  // Whose the id is, or was; null when it was given to nobody, or so long ago that it is forgotten.
  const std::string* OwnerOf(uint64_t id) const;
  static bool May(const core::Caller& caller, const std::string& tenant, Access access) {
    return access == Access::kRead ? caller.Sees(tenant) : caller.Changes(tenant);
  }

  // ---- telemetry.cc ----
  template <class T>
  void Note(T note) {
    s_.notes.emplace_back(std::move(note));
  }
  void NoteEnded(const Operation& op);
  // For the log.
  void Tell(const char* what, std::vector<std::pair<std::string, std::string>> fields);
  void Tell(const char* what, std::vector<std::pair<std::string, std::string>> fields,
            const absl::Status& why);
  void ReadOperations(core::ClusterReading* out);
  void ReadWorkers(core::ClusterReading* out);

  // ---- sessions.cc ----
  // The key of the tenant's own session, which is made when it is first asked for.
  uint64_t OwnSession(const std::string& tenant);
  // The key of the session that the caller calls `id`; one that is to be changed is renewed.
  absl::StatusOr<uint64_t> FindSession(const core::Caller& caller, uint64_t id, Access access);
  absl::Status NoSession(uint64_t id) const;
  SessionInfo Info(uint64_t key, const Session& session) const;
  // As clients call it.
  uint64_t NameOfSession(uint64_t key) const;
  void EndSession(uint64_t key, const std::string& why);
  void SessionTimer(uint64_t key);
  // Its client is there after all.
  void EndSilence(uint64_t key, Session& session);
  void SilenceTimer(uint64_t key);
  void CancelOperations(const std::set<uint64_t>& operations, const std::string& why);

  // ---- cluster.cc ----
  WorkerInfo WorkerInfoOf(const std::string& name, const Worker& worker) const;
  static absl::Status NoWorker(const std::string& name);
  void AnswerWorker(uint64_t request, const std::string& name);
  // Fills in how many arrays have shards on each.
  void CountArrays(std::vector<WorkerInfo>& workers) const;
  int64_t OperationsOn(const Worker& worker) const;
  bool IsCordoned(int64_t device) const;
  // Answers the drains of workers where nothing runs any more.
  void EndDrains();
  // What a drain held back.
  void RetryHeld();
  absl::StatusOr<const NamedMesh*> FindMesh(const core::Caller& caller, const std::string& name);

  // ---- arrays.cc ----
  Executor& ExecutorOf(int64_t device);
  bool DeviceExists(int64_t device) const;
  absl::Status CheckDevices(const std::vector<int64_t>& devices) const;
  // The record, or ARRAY_NOT_FOUND or ARRAY_DELETED.
  absl::StatusOr<ArrayRecord*> FindArray(const core::Caller& caller, uint64_t id, Access access);
  uint64_t NewArray(api::ArraySpec spec, ArrayState state, uint64_t session);
  // For later uses it is gone, or is there again.
  void SetDeleted(uint64_t id, bool deleted);
  // Its shards are, or will be, at the current incarnations of its devices.
  void HoldByCurrent(ArrayRecord& array);
  ArrayInfo Info(uint64_t id);
  bool TryCreate(uint64_t request, uint64_t session, const api::ArraySpec& spec);
  void SendRead(uint64_t request, const ArrayRecord& array);
  void ArrayScheduled(uint64_t id);
  void ArrayReady(uint64_t id);
  void ArrayFailed(uint64_t id, const absl::Status& error, ArrayState state = ArrayState::kFailed);
  void EndArrayWaits(uint64_t id, const absl::Status& error);
  // Unknown ones, deleted ones and other tenants' are no error.
  void Delete(const core::Caller& caller, const std::vector<uint64_t>& arrays);
  void Delete(uint64_t id);
  // What was freed so far; else it goes at the end of the step.
  void SendDeletes();
  // Deletes buffers once no operation without a place needs them, and the record once nothing does.
  void TryFree(uint64_t id);
  void Written(Executor& executor, const api::BufferWritten& report);

  // ---- programs.cc ----
  // The devices asked for, checked; or, when there are none, those that suit `mesh` best.  With
  // `cordoned` also those of workers that take no new programs.
  absl::StatusOr<std::vector<int64_t>> ChooseDevices(const char* what, const ir::Mesh& mesh,
                                                     const std::vector<int64_t>& devices,
                                                     bool cordoned) const;
  // One that is still to be planned.  QUEUE_FULL.
  absl::StatusOr<uint64_t> NewExecutable(const api::CompileRequest& request,
                                         const std::string& tenant);
  // What is asked of the planner for it, but for the cluster.
  MakePlan PlanOf(const api::CompileRequest& request, uint64_t executable) const;
  // For devices that are absent: planned, answered and forgotten.
  absl::StatusOr<uint64_t> PlanForAbsent(const api::CompileRequest& request,
                                         const std::string& tenant);
  // Of `tenant`; with `cordoned` also on workers that take no new programs.
  absl::StatusOr<uint64_t> FindOrPlan(const api::CompileRequest& request, const std::string& key,
                                      const std::string& tenant, bool cordoned);
  // What a run of the program on these devices would wait for.
  std::vector<api::PendingReason> PendingOn(const std::vector<int64_t>& devices, bool compiled);
  // How long a Compile waits for executors: less while one of them is away.
  absl::Duration LoadWait(const Executable& executable) const;
  // The executor has gone or come back.
  void RestartLoadWaits(const std::string& executor);
  // Why what waits for its executors, `what`, has waited in vain.
  absl::Status NotLoaded(const Executable& executable, const std::string& what,
                         bool callers_time_is_over = false) const;
  // Whether every executor of it is there and has compiled it.
  bool IsLoaded(const Executable& executable) const;
  void SendLoad(uint64_t id, Executable& executable, const Executor& executor);
  void LoadWhereAlive(uint64_t id);
  void AnswerCompiled(uint64_t id);
  // Of a plan that was asked for alone; drops it.
  void AnswerPlanned(uint64_t id);
  void ExecutableFailed(uint64_t id, const absl::Status& error);
  void DropOldExecutables();
  void Unload(uint64_t id);
  void Loaded(const Executor& executor, const api::ProgramLoaded& report);

  // ---- operations.cc ----
  absl::Status CheckExecute(const core::Caller& caller, const api::ExecuteRequest& body);
  // The operation that makes an array like `source` that lies as `wanted` says.
  absl::StatusOr<uint64_t> Reshard(uint64_t session, uint64_t source, const api::ArraySpec& wanted);
  // OPERATION_NOT_FOUND.
  absl::StatusOr<Operation*> FindOperation(const core::Caller& caller, uint64_t id, Access access);
  uint64_t NewOperation(Operation op, std::vector<api::ArraySpec> results);
  std::vector<std::string> ExecutorsOf(const Operation& op);
  // Gives the operation its place if nothing stands in the way. From within another's start it
  // comes after it.
  void TryStart(uint64_t id);
  void TryStartNow(uint64_t id);
  // Waits, for so long and no longer, until executors are back or have compiled its program.
  void Block(Operation& op, bool loading);
  void Unblock(const Operation& op);
  // It has waited for its executors in vain.
  void ExecutorsLate(uint64_t id);
  void Start(Operation& op, const std::vector<std::string>& executors);
  void SendLaunches(Operation& op, const std::vector<std::string>& executors);
  void SendTransfers(Operation& op, const std::vector<std::string>& executors);
  uint64_t GenerationFor(const std::vector<std::string>& executors);
  // No later launch uses it; it is closed when those that do have ended.
  void Retire(uint64_t generation);
  void CloseRetired(uint64_t generation);
  void Done(uint64_t id);
  // What fails with it comes after it.
  void Fail(uint64_t id, absl::Status error,
            api::OperationState state = api::OperationState::kFailed);
  void FailNow(uint64_t id, const absl::Status& error, api::OperationState state);
  void End(Operation& op, api::OperationState state);
  // The executor has left the operation, or is gone.
  void Left(Operation& op, const std::string& executor);
  // Of one that has ended and been left, until it has to make room for others.
  void KeepRecord(const Operation& op);
  // The time of a run whose caller gave none begins when nothing stands before it on its executors.
  void BeginTurn(Operation& op);
  // Kills the executors that have not left an operation that ended; those that others, which came
  // before it, still use are looked at again later.
  void KillThoseThatStay(uint64_t id);
  // An operation that has not ended and keeps this one waiting on the executor; 0: none.
  uint64_t StandsBefore(const Operation& op, const Executor& executor) const;
  // Where it is, executor by executor, as far as their workers have said.
  std::string Whereabouts(const Operation& op);
  // Where it runs, or the first reason why it does not.
  std::string PendingReason(const Operation& op);
  // Every reason why it has not started, the one that matters first.
  std::vector<api::PendingReason> PendingReasons(const Operation& op);
  void AddPlaceReasons(const std::vector<std::string>& executors,
                       std::vector<api::PendingReason>* reasons) const;
  api::Operation Describe(const Operation& op);
  // Answers those that wait for another state.
  void TellChange(Operation& op);
  void LaunchEnded(const Executor& executor, uint64_t launch, const absl::Status& status,
                   bool inputs_kept = false);
  // Of an operation that failed and that every executor has left: what it was given is the client's
  // again if nothing has been read of it; else it is freed.
  void SettleDonated(const Operation& op);  // and tells who waits for it
  // Starts and fails what the step found to be due, one after the other: chains of operations that
  // depend on each other may be as long as the queue.
  void DrainDue();
  // The distinct shards of results that are to come along, as (result, ordinal); none when they are
  // too large.
  std::vector<std::pair<int32_t, int>> InlineShards(const Operation& op) const;
  void KeepInlined(const Executor& executor, const api::LaunchDone& done);
  // Takes what came along.
  api::Completion Complete(Operation& op);

  // ---- files.cc ----
  absl::Status CheckFolders(const std::vector<uint64_t>& arrays) const;
  std::string PathOf(const core::Caller& caller, const std::string& path) const;
  absl::StatusOr<FileWork> CheckSave(const SaveArrays& e, std::vector<uint64_t>* args);
  absl::StatusOr<Making> StartLoad(const LoadArrays& e, const api::FileInspected& report);
  // What the file holds; `load` is what to do with that, null: to tell it.
  void AskForFile(uint64_t request, const Executor& executor, const std::string& path,
                  std::shared_ptr<const LoadArrays> load);
  void Inspected(const Executor& executor, const api::FileInspected& report);
  std::vector<std::string> ExecutorsOfFile(const Operation& op);
  void SendSaves(Operation& op, const std::vector<std::string>& executors);
  void SendLoads(Operation& op, const std::vector<std::string>& executors);

  // ---- workers.cc ----
  absl::Status CheckName(const api::Registration& r) const;
  absl::Status CheckRegistration(const api::Registration& r) const;
  void Up(const std::string& worker, const std::string& host, uint64_t session,
          const api::ExecutorInfo& info);
  // The id of a device, or the next id, is nobody's from now on.
  void DeleteDevice(std::optional<int64_t> device);
  // Nothing is known of it any more.  It is gone.
  void Forget(const std::string& worker);
  void ForgetExecutor(const std::string& name);
  std::vector<core::KnownExecutor> KnownExecutors() const;
  // What the workers of a host offer together is at most what it has.
  void ShareMemory(const std::string& host);
  void Lose(const std::string& executor, const std::string& reason, uint64_t launch,
            const std::string& op);
  void LoseWorker(const std::string& worker, const std::string& reason);
  // "executor w0/0 of worker w0 is lost (its connection ended)"; empty when all are alive.
  std::string FirstLost(const std::vector<std::string>& executors) const;
  // What waited for executors goes on.
  void Retry();
  bool Responsive(const Executor& x) const { return x.seen.silence < s_.config.unresponsive; }
  // "executor w0/0 has not answered its worker for 3.2s"; "" while it does.
  std::string SilenceOf(const Executor& x) const;
  // "executor w0/0", and how long it has not answered.
  std::string NotInTime(const std::string& executor) const;
  // Somebody has waited for the executor in vain: it is killed if it does not answer.
  void Miss(const std::string& executor, const std::string& who);
  void MissThoseThatLoad(const Executable& executable, const std::string& who);
  void KillIfMissed(Executor& x);

  State& s_;
  const absl::Time now_;
  const core::Caller* caller_ = nullptr;
  std::vector<Effect> effects_;
  bool keep_ = false;                                     // which executors are known has changed
  std::map<std::string, std::vector<uint64_t>> deletes_;  // executor -> arrays, sent by Finish
  // Operations to start (an OK status) or to fail, in order.
  struct Due {
    uint64_t operation = 0;
    absl::Status error;
    api::OperationState state = api::OperationState::kFailed;
  };
  std::deque<Due> due_;
  bool draining_due_ = false;
};

// ---- transfer.cc: pure geometry. ----
// Whether each device of `wanted` holds exactly its block of `array` already, so that no bytes
// move.
bool BlocksMatch(const api::ArraySpec& array, const api::ArraySpec& wanted);
// The pieces that make the block of `ordinal` of `wanted` out of blocks of `array`; a source is
// given as ordinal of `array`.  Of the replicas of a block `prefer` picks one.
struct SourcePiece {
  int64_t source = 0;
  ir::Dims source_starts, dest_starts, shape;
};
std::vector<SourcePiece> PiecesOf(const api::ArraySpec& array, const api::ArraySpec& wanted,
                                  int64_t ordinal,
                                  const std::function<int(int64_t source)>& prefer);

}  // namespace tessera::server::scheduler
