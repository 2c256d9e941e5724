// The coordinator as a pure state machine: Step(state, event, now) -> effects.
//
// No I/O, no threads, no clock, no randomness: the same events at the same times give the same
// effects, in the driver, in tests and in the simulator.  One thread owns a State (driver.h).
//
// Gang order: a launch gets its place in the one global order, and goes to all of its executors in
// the same step, once each argument is ready or produced earlier in that order.  What waits for an
// upload, for a plan or for an executor that is coming back has no place yet and stalls nobody.
//
// Every table is bounded by Config; what happens at a bound is an error that says so.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/api/service.h"
#include "ir/api/worker_link.h"
#include "server/core/plan.h"

namespace tessera::server::scheduler {

struct Config {
  int64_t queue_bound = 1024;        // operations accepted and not ended; then QUEUE_FULL
  int64_t plans_bound = 64;          // plans being made; then QUEUE_FULL
  int64_t arrays_max = 1'000'000;    // then LIMIT_EXCEEDED
  int64_t executables_max = 4096;    // then the one used longest ago is dropped
  int64_t operations_kept = 10'000;  // records of ended operations
  int64_t workers_max = 1024;
  int64_t communicators_max = 256;  // then the one used longest ago is closed
  absl::Duration lease = absl::Milliseconds(1500);
  absl::Duration recovery_wait = absl::Seconds(3);  // for an executor that was lost to come back
  absl::Duration verdict_wait = absl::Seconds(2);   // for the first cause when peers report theirs
  absl::Duration load_wait = absl::Seconds(120);    // for executors to compile
  absl::Duration write_wait = absl::Minutes(5);     // for an upload to finish; a ticket's life
  absl::Duration result_wait_max = absl::Seconds(60);
  std::string ticket_key;
  std::string communicator_secret;
};

// ---- Events. ------------------------------------------------------------------------------------
// Requests of clients carry the number under which the Reply comes.  They have passed admission.
struct ListDevices {
  uint64_t request = 0;
};
struct Compile {
  uint64_t request = 0;
  std::string key;  // structural hash of the program
  api::CompileRequest body;
};
struct Execute {
  uint64_t request = 0;
  api::ExecuteRequest body;
  // When not 0, answered too: with the Completion, or as `request` is refused.
  uint64_t end_request = 0;
};
struct CreateArray {
  uint64_t request = 0;
  api::ArraySpec spec;  // its devices need not exist
};
// A shard relayed by the coordinator; answered when the executor has it.
struct WriteShard {
  uint64_t request = 0;
  uint64_t array = 0;
  int ordinal = 0;
  ir::Array value;
};
struct ReadShard {
  uint64_t request = 0;
  uint64_t array = 0;
  int ordinal = 0;
  absl::Duration timeout;
};
struct DescribeArray {
  uint64_t request = 0;
  uint64_t array = 0;
};
// Answered with the ArrayInfo once it is ready, or with its error.
struct WaitArray {
  uint64_t request = 0;
  uint64_t array = 0;
  absl::Duration timeout;
};
struct DeleteArrays {
  uint64_t request = 0;
  std::vector<uint64_t> arrays;
};
// Answered when it has ended or the timeout is over; a zero timeout answers at once.
struct WaitOperation {
  uint64_t request = 0;
  uint64_t operation = 0;
  absl::Duration timeout;
};
struct CancelOperation {
  uint64_t request = 0;
  uint64_t operation = 0;
};
struct Planned {
  uint64_t executable = 0;
  absl::StatusOr<core::Plan> plan;
};
struct WorkerRegistered {
  uint64_t session = 0;
  api::Registration registration;
};
struct WorkerGone {
  uint64_t session = 0;
  absl::Status why;
};
struct WorkerReported {
  uint64_t session = 0;
  api::Report report;
};
struct Tick {};

using Event = std::variant<ListDevices, Compile, Execute, CreateArray, WriteShard, ReadShard,
                           DescribeArray, WaitArray, DeleteArrays, WaitOperation, CancelOperation,
                           Planned, WorkerRegistered, WorkerGone, WorkerReported, Tick>;

// ---- Effects. -----------------------------------------------------------------------------------
struct MakePlan {
  uint64_t executable = 0;  // comes back in Planned
  core::PlanRequest request;
};
struct SendCommand {
  uint64_t session = 0;  // of the worker
  int32_t executor = 0;
  uint64_t incarnation = 0;
  api::Command command;
};
// What a client needs to reach the shards of an array.
struct ArrayInfo {
  struct Shard {
    std::string executor, endpoint;
    uint64_t incarnation = 0;
    int32_t device = 0;  // local to the executor
  };
  uint64_t array = 0;
  api::ArraySpec spec;
  std::string state;          // "PENDING", "READY", "FAILED", "LOST"
  std::vector<Shard> shards;  // per ordinal
};
struct Reply {
  uint64_t request = 0;
  absl::Status status;  // the rest holds when it is OK
  std::variant<std::monostate, std::vector<api::Device>, api::CompileReply, api::ExecuteReply,
               ArrayInfo, ir::Array, api::Operation, api::Completion>
      body;
};
// Close the connection: it is fenced.
struct DropWorker {
  uint64_t session = 0;
  absl::Status why;
};
// Goes to the store before any later Reply of the same step.
struct Append {
  std::string record;
};
// Send a Tick at this time; replaces the one asked for before.
struct SetTimer {
  absl::Time when;
};
using Effect = std::variant<MakePlan, SendCommand, Reply, DropWorker, Append, SetTimer>;

// ---- State. -------------------------------------------------------------------------------------
struct Executor {
  std::string name;  // "worker/index"
  std::string worker, host;
  uint64_t session = 0;  // 0: gone
  api::ExecutorInfo info;
  int64_t first_device = 0;  // ids are first_device + local device
  std::string lost_reason;   // when gone
  bool alive() const { return session != 0; }
};
struct Worker {
  uint64_t session = 0;  // 0: gone
  absl::Time last_seen;
  std::vector<std::string> executors;
};
struct Device {
  std::string executor;
  int32_t local = 0;
};

// kPlanned: its producer has no place in the order yet.  kScheduled: it has.
enum class ArrayState : uint8_t { kWriting, kPlanned, kScheduled, kReady, kFailed, kLost };
struct ArrayRecord {
  api::ArraySpec spec;
  ArrayState state = ArrayState::kWriting;
  absl::Status error;                   // kFailed, kLost
  std::map<int64_t, uint64_t> holders;  // device id -> incarnation of its executor, once scheduled
  std::set<int64_t> unwritten;          // device ids, kWriting
  std::set<uint64_t> waiting;           // operations that have no place yet and read it
  std::set<uint64_t> readers;           // operations not ended that read it
  std::set<uint64_t> waiters;           // requests
  bool deleted = false;                 // by the client; gone for later uses
  bool freed = false;                   // its buffers are being deleted
  absl::Time upload_until = absl::InfiniteFuture();  // kWriting
  uint64_t donated_to = 0;                           // operation
};

enum class ExecutableState : uint8_t { kPlanning, kPlanned, kFailed };
struct Executable {
  std::string key, name;
  ExecutableState state = ExecutableState::kPlanning;
  absl::Status error;
  std::vector<int64_t> devices;  // per mesh coordinate
  std::shared_ptr<const core::Plan> plan;
  api::CompileReply reply;
  std::vector<std::string> members;  // executors, in order of first coordinate
  std::vector<api::LoadProgram::Coordinate> coordinates;
  std::map<std::string, uint64_t> sent;    // executor -> incarnation it was sent to
  std::map<std::string, uint64_t> loaded;  // executor -> incarnation that has compiled it
  std::set<uint64_t> waiters;              // Compile requests
  std::set<uint64_t> operations;           // not ended
  uint64_t last_use = 0;                   // grows with every use
};

struct Operation {
  uint64_t id = 0;
  std::string name;
  api::OperationState state = api::OperationState::kPending;
  absl::Status error;
  uint64_t executable = 0;  // 0: a transfer
  std::vector<uint64_t> args, results;
  std::vector<bool> donate;
  absl::Time deadline = absl::InfiniteFuture();
  absl::Time executors_until = absl::InfiniteFuture();  // while it waits for executors
  uint64_t sequence = 0;                                // 0: no place yet
  uint64_t generation = 0;                              // communicator of its launch; 0: none
  std::map<std::string, uint64_t> outstanding;  // executors that have not reported -> incarnation
  std::set<uint64_t> waiters;                   // requests
  absl::Status peer_error;                      // the first report that blames a peer
  absl::Time verdict_until = absl::InfiniteFuture();  // then peer_error is the verdict
  int64_t inline_bytes_max = 0;  // results that come along with the end; 0: none are wanted
  std::map<std::pair<uint64_t, int64_t>, ir::Array> inlined;  // (array, device id), until it ends
  bool ended() const { return state >= api::OperationState::kDone; }
};

struct Communicator {
  uint64_t generation = 0;
  uint64_t last_use = 0;
};

// A request that waits.
struct Waiter {
  enum Kind : uint8_t { kArray, kOperation, kEnd, kShard, kWrite, kCompile, kCreate } kind = kArray;
  uint64_t id = 0;  // array, operation or executable
  int ordinal = 0;  // kShard
  absl::Time until;
  std::string executor;  // kShard, kWrite once sent
  int64_t device = -1;   // kWrite
  bool explain = false;  // kCompile
  api::ArraySpec spec;   // kCreate, until its executors are back
};

struct State {
  Config config;
  uint64_t last_id = 0;  // arrays, executables, operations: one sequence
  uint64_t last_sequence = 0;
  uint64_t last_generation = 0;
  uint64_t uses = 0;  // of executables and communicators, to know the oldest
  std::map<std::string, Worker> workers;
  std::map<uint64_t, std::string> sessions;  // live ones -> worker
  std::map<std::string, Executor> executors;
  std::vector<Device> devices;  // by id
  std::map<uint64_t, ArrayRecord> arrays;
  std::map<uint64_t, Executable> executables;
  std::map<std::string, uint64_t> executable_of;  // key
  int64_t plans = 0;
  std::map<uint64_t, Operation> operations;  // not ended, and the last that have
  std::set<uint64_t> live;                   // not ended
  std::set<uint64_t> blocked_on_executors;   // arguments are there, executors are not
  std::deque<uint64_t> ended;                // oldest first
  std::map<std::vector<std::pair<std::string, uint64_t>>, Communicator> communicators;
  // Generations that only launches sent earlier still use, and their members.
  std::map<uint64_t, std::vector<std::pair<std::string, uint64_t>>> retired;
  std::map<uint64_t, Waiter> waiters;                                // by request
  std::set<std::pair<absl::Time, std::pair<int, uint64_t>>> timers;  // (TimerKind, id), machine.h
  absl::Time armed = absl::InfiniteFuture();  // the Tick that was asked for last
};

std::vector<Effect> Step(State& state, const Event& event, absl::Time now);

// One line each, for transcripts and logs.  No array contents, no secrets.
std::string ToString(const Effect& effect);

}  // namespace tessera::server::scheduler
