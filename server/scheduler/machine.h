// One step of the state machine: the state, the time, and the effects gathered so far.  Lives for
// one Step.  Its functions are grouped by file, each of which belongs to one part of the state:
//
//   cluster    workers.cc (they come, report and go), inventory.cc (lists, cordons, drains, meshes)
//   ownership  sessions.cc
//   catalogue  arrays.cc, programs.cc
//   order      operations.cc, run.cc, transfer.cc, files.cc, save.cc, load.cc, queries.cc
//
// What one part has another do:
//
//   cluster -> order        Retry and RetryHeld, when executors are back or a drain is over; Left
//                           and Fail, for what a lost executor ran
//   cluster -> catalogue    ArrayFailed and ExecutableFailed, for what was lost; RestartLoadWaits
//   ownership -> the rest   CancelOperations and Delete, when a session ends
//   catalogue -> order      TryStart and Fail, for what waits for an array or an executable
//   order -> catalogue      NewArray; ArrayScheduled, ArrayReady and ArrayFailed, for results;
//                           SetDeleted and TryFree, for arguments; FindOrPlan and LoadWhereAlive
//   catalogue, order -> cluster   Miss, when an executor did not do its part in time
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
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
  Machine(State& state, absl::Time now)
      : s_(state),
        now_(now),
        cluster_(state.cluster),
        ownership_(state.ownership),
        catalogue_(state.catalogue),
        order_(state.order) {}

  // sessions.cc
  void On(const OpenSession& e);
  void On(const GetSession& e);
  void On(const ListSessions& e);
  void On(const CloseSession& e);
  void On(const HoldSession& e);
  void On(const DropHold& e);
  // inventory.cc
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
  // files.cc, save.cc, load.cc
  void On(const DescribeFile& e);
  void On(const SaveArrays& e);
  void On(const LoadArrays& e);
  // programs.cc
  void On(const Compile& e);
  void On(const Planned& e);
  // run.cc, transfer.cc
  void On(const Execute& e);
  void On(const ReshardArray& e);
  // operations.cc
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

  // The caller whose request the step serves; null (the default) when it serves none.
  void SetCaller(const core::Caller* caller) { caller_ = caller; }
  // Ends the step.
  std::vector<Effect> Finish();

  // What follows is for the kinds of work (operation.h) and of waits (waits.h), too.
  State& state() { return s_; }
  const State& state() const { return s_; }
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
  std::string IfRestarted(uint64_t id) const;
  // The same, where the caller may have taken one of its ids for another: ": it is an operation,
  // which makes array 7".
  std::string WhatElse(const core::Caller& caller, uint64_t id, Access access) const;
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
  // The key of the session that the caller calls `id`; one that is to be changed is renewed.
  absl::StatusOr<uint64_t> FindSession(const core::Caller& caller, uint64_t id, Access access);
  absl::Status NoSession(uint64_t id) const;
  SessionInfo Info(uint64_t key, const Session& session) const;
  void EndSession(uint64_t key, const std::string& why);
  void SessionTimer(uint64_t key);
  // Its client is there after all.
  void EndSilence(uint64_t key, Session& session);
  void SilenceTimer(uint64_t key);
  void CancelOperations(const std::set<uint64_t>& operations, const std::string& why);

  // ---- inventory.cc ----
  WorkerInfo WorkerInfoOf(const std::string& name, const Worker& worker) const;
  static absl::Status NoWorker(const std::string& name);
  void AnswerWorker(uint64_t request, const std::string& name);
  // Fills in how many arrays have shards on each.
  void CountArrays(std::vector<WorkerInfo>& workers) const;
  int64_t OperationsOn(const Worker& worker) const;
  // Answers the drains of workers where nothing runs any more.
  void EndDrains();
  // What a drain held back.
  void RetryHeld();
  absl::StatusOr<const NamedMesh*> FindMesh(const core::Caller& caller, const std::string& name);

  // ---- arrays.cc ----
  // LIMIT_EXCEEDED when there is no room for so many arrays more.
  absl::Status CheckRoom(const char* what, int64_t more) const;
  // The record, or ARRAY_NOT_FOUND or ARRAY_DELETED.
  absl::StatusOr<ArrayRecord*> FindArray(const core::Caller& caller, uint64_t id, Access access);
  uint64_t NewArray(api::ArraySpec spec, ArrayState state, uint64_t session);
  // For later uses it is gone, or is there again.
  void SetDeleted(uint64_t id, bool deleted);
  // Its shards are, or will be, at the current incarnations of its devices.
  void HoldByCurrent(ArrayRecord& array);
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
  // Answers those that wait for it.
  void AnswerCompiles(const Executable& executable);
  // The same, if every executor has compiled it.
  void AnswerCompiled(uint64_t id);
  // Of a plan that was asked for alone; drops it.
  void AnswerPlanned(uint64_t id);
  void ExecutableFailed(uint64_t id, const absl::Status& error);
  void DropOldExecutables();
  void Unload(uint64_t id);
  void Loaded(const Executor& executor, const api::ProgramLoaded& report);

  // ---- run.cc ----
  absl::Status CheckExecute(const core::Caller& caller, const api::ExecuteRequest& body);
  // The distinct shards of results that are to come along, as (result, ordinal); none when they are
  // too large.
  std::vector<std::pair<int32_t, int>> InlineShards(const Operation& op, int64_t bytes_max) const;
  void KeepInlined(const Executor& executor, const api::LaunchDone& done);
  // Takes what came along.  Requires: it is a run.
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
  std::vector<std::string> ExecutorsOf(const Operation& op) const;
  // What it runs; null when it is no run, or its executable is gone.
  Executable* ExecutableOf(const Operation& op) const;
  // Gives the operation its place if nothing stands in the way. From within another's start it
  // comes after it.
  void TryStart(uint64_t id);
  void TryStartNow(uint64_t id);
  // Waits, for so long and no longer, until executors are back or have compiled its program.
  void Block(Operation& op, bool loading);
  void Unblock(const Operation& op);
  void DeadlineTimer(uint64_t id);
  // It has waited for its executors in vain.
  void ExecutorsLate(uint64_t id);
  void Start(Operation& op, const std::vector<std::string>& executors);
  void Done(uint64_t id);
  // What fails with it comes after it.
  void Fail(uint64_t id, absl::Status error,
            api::OperationState state = api::OperationState::kFailed);
  void FailNow(uint64_t id, const absl::Status& error, api::OperationState state);
  void End(Operation& op, api::OperationState state);
  // The executor has left the operation, or is gone.
  void Left(Operation& op, const std::string& executor);
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

  // ---- files.cc ----
  std::string PathOf(const core::Caller& caller, const std::string& path) const;
  // What the file holds; `load` is what to load of it, null: the contents are the answer.
  void AskForFile(uint64_t request, const Executor& executor, const std::string& path,
                  std::shared_ptr<const LoadArrays> load);
  void Inspected(const Executor& executor, const api::FileInspected& report);
  // ---- save.cc ----
  absl::Status CheckFolders(const std::vector<uint64_t>& arrays) const;
  absl::StatusOr<Save> CheckSave(const SaveArrays& e, std::vector<uint64_t>* args);
  // ---- load.cc ----
  absl::StatusOr<Making> StartLoad(const LoadArrays& e, const api::FileInspected& report);

  // ---- workers.cc ----
  absl::Status CheckName(const api::Registration& r) const;
  absl::Status CheckRegistration(const api::Registration& r) const;
  void Up(const std::string& worker, const std::string& host, const api::ExecutorInfo& info);
  // Nothing is known of it any more.  It is gone.
  void Forget(const std::string& worker);
  void ForgetExecutor(const std::string& name);
  void Lose(const std::string& executor, const std::string& reason, uint64_t launch,
            const std::string& op);
  void LoseWorker(const std::string& worker, const std::string& reason);
  void LeaseTimer(uint64_t session);
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

 private:
  State& s_;
  const absl::Time now_;
  Cluster& cluster_;
  Ownership& ownership_;
  Catalogue& catalogue_;
  Order& order_;
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

}  // namespace tessera::server::scheduler
