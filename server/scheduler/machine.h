// One step of the state machine: the state, the time, and the effects gathered so far.  Lives for
// one Step.  Its functions are grouped in files by what they are about.
#pragma once
#include <map>
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
  kUploadTimer
};

class Machine {
 public:
  Machine(State& state, absl::Time now) : s_(state), now_(now) {}

  // clients.cc, arrays.cc
  void On(const ListDevices& e);
  void On(const CreateArray& e);
  void On(const WriteShard& e);
  void On(const ReadShard& e);
  void On(const DescribeArray& e);
  void On(const WaitArray& e);
  void On(const DeleteArrays& e);
  // programs.cc
  void On(const Compile& e);
  void On(const Planned& e);
  // operations.cc
  void On(const Execute& e);
  void On(const WaitOperation& e);
  void On(const CancelOperation& e);
  // workers.cc
  void On(const WorkerRegistered& e);
  void On(const WorkerGone& e);
  void On(const WorkerReported& e);
  // timers.cc
  void On(const Tick& e);

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

  // ---- arrays.cc ----
  Executor& ExecutorOf(int64_t device);
  bool DeviceExists(int64_t device) const;
  absl::Status CheckDevices(const std::vector<int64_t>& devices) const;
  // The record, or ARRAY_NOT_FOUND or ARRAY_DELETED.
  absl::StatusOr<ArrayRecord*> FindArray(uint64_t id);
  uint64_t NewArray(api::ArraySpec spec, ArrayState state);
  // Its shards are, or will be, at the current incarnations of its devices.
  void HoldByCurrent(ArrayRecord& array);
  ArrayInfo Info(uint64_t id);
  bool TryCreate(uint64_t request, const api::ArraySpec& spec);
  void SendRead(uint64_t request, const ArrayRecord& array);
  void ArrayScheduled(uint64_t id);
  void ArrayReady(uint64_t id);
  void ArrayFailed(uint64_t id, const absl::Status& error, ArrayState state = ArrayState::kFailed);
  void EndArrayWaits(uint64_t id, const absl::Status& error);
  // Unknown and deleted ones are no error.
  void Delete(const std::vector<uint64_t>& arrays);
  // What was freed so far; else it goes at the end of the step.
  void SendDeletes();
  // Deletes buffers once no operation without a place needs them, and the record once nothing does.
  void TryFree(uint64_t id);
  void Written(Executor& executor, const api::BufferWritten& report);

  // ---- programs.cc ----
  absl::StatusOr<std::vector<int64_t>> ChooseDevices(const api::CompileRequest& request) const;
  absl::StatusOr<uint64_t> FindOrPlan(const api::CompileRequest& request, const std::string& key);
  // How long a Compile waits for executors: less while one of them is away.
  absl::Duration LoadWait(const Executable& executable) const;
  // The executor has gone or come back.
  void RestartLoadWaits(const std::string& executor);
  // Why a Compile that waits for executors has waited in vain.
  std::string NotLoaded(const Executable& executable) const;
  void SendLoad(uint64_t id, Executable& executable, const Executor& executor);
  void LoadWhereAlive(uint64_t id);
  void AnswerCompiled(uint64_t id);
  void ExecutableFailed(uint64_t id, const absl::Status& error);
  void DropOldExecutables();
  void Unload(uint64_t id);
  void Loaded(const Executor& executor, const api::ProgramLoaded& report);

  // ---- operations.cc ----
  absl::Status CheckExecute(const api::ExecuteRequest& body);
  // An array like `source` that lies as `wanted` says, made by an operation of its own.
  absl::StatusOr<uint64_t> Reshard(uint64_t source, const api::ArraySpec& wanted);
  uint64_t NewOperation(Operation op, std::vector<api::ArraySpec> results);
  std::vector<std::string> ExecutorsOf(const Operation& op);
  // Gives the operation its place if nothing stands in the way.
  void TryStart(uint64_t id);
  void Start(Operation& op, const std::vector<std::string>& executors);
  void SendLaunches(Operation& op, const std::vector<std::string>& executors);
  void SendTransfers(Operation& op, const std::vector<std::string>& executors);
  uint64_t GenerationFor(const std::vector<std::string>& executors);
  // No later launch uses it; it is closed when those that do have ended.
  void Retire(uint64_t generation);
  void CloseRetired(uint64_t generation);
  void Done(uint64_t id);
  void Fail(uint64_t id, absl::Status error,
            api::OperationState state = api::OperationState::kFailed);
  void End(Operation& op, api::OperationState state);
  std::string PendingReason(const Operation& op);
  api::Operation Describe(const Operation& op);
  void LaunchEnded(const Executor& executor, uint64_t launch, const absl::Status& status);
  // The distinct shards of results that are to come along, as (result, ordinal); none when they are
  // too large.
  std::vector<std::pair<int32_t, int>> InlineShards(const Operation& op) const;
  void KeepInlined(const Executor& executor, const api::LaunchDone& done);
  // Takes what came along.
  api::Completion Complete(Operation& op);

  // ---- workers.cc ----
  absl::Status CheckRegistration(const api::Registration& r) const;
  void Up(const std::string& worker, const std::string& host, uint64_t session,
          const api::ExecutorInfo& info);
  void Lose(const std::string& executor, const std::string& reason, uint64_t launch,
            const std::string& op);
  void LoseWorker(const std::string& worker, const std::string& reason);
  // "executor w0/0 of worker w0 is lost (its connection ended)"; empty when all are alive.
  std::string FirstLost(const std::vector<std::string>& executors) const;
  // What waited for executors goes on.
  void Retry();

  State& s_;
  const absl::Time now_;
  std::vector<Effect> effects_;
  std::map<std::string, std::vector<uint64_t>> deletes_;  // executor -> arrays, sent by Finish
};

// ---- transfer.cc: pure geometry. ----
// Each device of `wanted` finds its block of `array`, whole, on the same device.
bool LiesAs(const api::ArraySpec& array, const api::ArraySpec& wanted);
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
