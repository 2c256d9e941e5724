// The coordinator as a pure state machine: Step(state, event, now) -> effects.
//
// No I/O, no threads, no clock, no randomness: the same events at the same times give the same
// effects, in the driver, in tests and in the simulator.  One thread owns a State (driver.h).
//
// Gang order: a launch gets its place in the one global order, and goes to all of its executors in
// the same step, once its program is compiled there and each argument is ready or produced earlier
// in that order.  What waits for an upload, for a plan, for a compiler or for an executor that is
// coming back has no place yet and stalls nobody.
//
// Every table is bounded by Config; what happens at a bound is an error that says so.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/api/service.h"
#include "ir/api/worker_link.h"
#include "server/core/caller.h"
#include "server/core/life.h"
#include "server/core/plan.h"
#include "server/core/telemetry.h"

namespace tessera::server::scheduler {

struct Config {
  int64_t queue_bound = 1024;        // operations accepted and not ended; then QUEUE_FULL
  int64_t plans_bound = 64;          // plans being made; then QUEUE_FULL
  int64_t arrays_max = 1'000'000;    // then LIMIT_EXCEEDED
  int64_t executables_max = 4096;    // then the one used longest ago is dropped
  int64_t operations_kept = 10'000;  // records of ended operations
  int64_t workers_max = 1024;
  int64_t sessions_max = 10'000;  // that have a lease; then LIMIT_EXCEEDED
  int64_t meshes_max = 1'000;     // with a name, over all tenants; then LIMIT_EXCEEDED
  int64_t page_size = 100;        // of lists, when none is asked for
  int64_t page_size_max = 1000;
  int64_t owners_max = 100'000;  // runs of ids whose tenant is remembered; older ids are unknown
  core::Life life;               // no id is of another
  // Of the lives before, by first_device; and whether the next is to know those of this one.
  std::vector<core::KnownExecutor> executors;
  bool keeps_executors = false;
  int64_t communicators_max = 256;  // then the one used longest ago is closed
  absl::Duration lease = absl::Milliseconds(1500);
  absl::Duration heartbeat = absl::Milliseconds(300);  // silence of two makes a worker suspect
  absl::Duration session_lease = absl::Seconds(60);    // when none is asked for
  absl::Duration session_lease_max = absl::Hours(24);
  absl::Duration session_grace = absl::Seconds(5);  // for a client whose connection broke
  absl::Duration recovery_wait = absl::Seconds(3);  // for an executor that was lost to come back
  absl::Duration verdict_wait = absl::Seconds(2);   // for the first cause when peers report theirs
  absl::Duration load_wait = absl::Seconds(120);    // for executors to compile
  absl::Duration write_wait = absl::Minutes(5);     // for an upload to finish; a ticket's life
  absl::Duration result_wait_max = absl::Seconds(60);
  absl::Duration run_deadline = absl::Hours(1);   // of a run whose caller gives none, from its turn
  absl::Duration file_deadline = absl::Hours(1);  // of work on a file: disks may be slow
  absl::Duration cancel_grace = absl::Seconds(2);  // for an executor to leave what was ended
  absl::Duration unresponsive = absl::Seconds(3);  // silence that makes an executor not ready
  bool tenant_folders = true;  // each tenant's files lie in a folder of its name
  std::string ticket_key;
  std::string communicator_secret;
};

// ---- Events. ------------------------------------------------------------------------------------
// Requests of clients carry the number under which the Reply comes, and who calls.  They have
// passed admission.  What another tenant owns is NOT_FOUND, exactly as what does not exist.
//
// A session is named by its id; 0 is the caller's tenant's own, which has no lease.
struct Request {
  uint64_t request = 0;
  core::Caller caller;
};
// One page of a list: what comes after the key `after`, in order; 0: the default size.
template <class Key>
struct PageRequest {
  Key after = {};
  int64_t size = 0;
};

struct OpenSession : Request {
  std::string display_name;
  absl::Duration lease;  // 0: the default
};
struct GetSession : Request {
  uint64_t session = 0;
  bool renew = false;
};
struct ListSessions : Request {
  PageRequest<uint64_t> page;
};
struct CloseSession : Request {
  uint64_t session = 0;
};
// A client is there until DropHold: `request` is answered with the SessionInfo; `end_request` when
// the hold is dropped, with nothing, or when the session ends, with why.
struct HoldSession : Request {
  uint64_t session = 0;
  uint64_t hold = 0;  // the caller's name for it, never used twice
  uint64_t end_request = 0;
};
struct DropHold {
  uint64_t session = 0;
  uint64_t hold = 0;
};

struct ListDevices : Request {
  PageRequest<int64_t> page{-1, 0};  // a size of 0: all
};
struct ListWorkers : Request {
  PageRequest<std::string> page;
};
struct GetWorker : Request {
  std::string worker;
};
// Every executor.
struct GetTopology : Request {};
struct Cordon : Request {
  std::string worker, reason;
  bool on = true;
};
// Answered when nothing runs there any more, or at the timeout.
struct Drain : Request {
  std::string worker, reason;
  absl::Duration timeout;
};

// One that is gone: nothing of it is kept, and its devices' ids mean nothing any more.
struct DeleteWorker : Request {
  std::string worker;
};

struct CreateMesh : Request {
  std::string name;
  ir::Mesh mesh;
  std::vector<int64_t> devices;  // empty: chosen
  bool check_only = false;
};
struct GetMesh : Request {
  std::string name;
};
struct ListMeshes : Request {
  PageRequest<std::string> page;
};
struct DeleteMesh : Request {
  std::string name;
};

struct Compile : Request {
  std::string key;  // of the program with its names and lines, which errors and plans show
  api::CompileRequest body;
};
struct Execute : Request {
  api::ExecuteRequest body;
  // When not 0, answered too: with the Completion, or as `request` is refused.
  uint64_t end_request = 0;
};
struct CreateArray : Request {
  uint64_t session = 0;
  api::ArraySpec spec;  // its devices need not exist
  bool check_only = false;
};
// What tickets to write an array need; it must be one that is still being written.
struct DescribeUpload : Request {
  uint64_t array = 0;
};
// A shard relayed by the coordinator; answered when the executor has it.
struct WriteShard : Request {
  uint64_t array = 0;
  int ordinal = 0;
  ir::Array value;
  absl::Duration timeout = absl::InfiniteDuration();
};
struct ReadShard : Request {
  uint64_t array = 0;
  int ordinal = 0;
  absl::Duration timeout;
};
struct DescribeArray : Request {
  uint64_t array = 0;
};
struct ListArrays : Request {
  uint64_t session = 0;
  PageRequest<uint64_t> page;
};
// Answered with the ArrayInfo once it is ready, or with its error.
struct WaitArray : Request {
  uint64_t array = 0;
  absl::Duration timeout;
};
struct SaveArrays : Request {
  std::vector<api::NamedArray> arrays;
  std::string path;
  bool overwrite = false;
};
// Answered with the Making, once an executor has looked at the file.
struct LoadArrays : Request {
  uint64_t session = 0;
  std::string path;
  std::vector<api::PlacedName> arrays;
};
struct DeleteArrays : Request {
  std::vector<uint64_t> arrays;
};
// Answered with the Making.
struct ReshardArray : Request {
  uint64_t session = 0;  // whose the result is
  uint64_t array = 0;
  api::Placement placement;
};
// Answered with what the file holds, once an executor has looked at it.
struct DescribeFile : Request {
  std::string path;
};
// Answered when it has ended or the timeout is over; a zero timeout answers at once.
struct WaitOperation : Request {
  uint64_t operation = 0;
  absl::Duration timeout;
  // When set, answered as soon as the state is another.
  std::optional<api::OperationState> seen = {};
};
struct CancelOperation : Request {
  uint64_t operation = 0;
};
struct ListOperations : Request {
  uint64_t session = 0;
  bool all_sessions = false;  // of the tenant; of every tenant that the caller sees
  bool live_only = false;
  PageRequest<uint64_t> page;
};
struct ExplainPending : Request {
  uint64_t operation = 0;
};
// What is, for metrics and health (server/core/telemetry.h).
struct ReadTelemetry : Request {
  enum Part : uint8_t { kEverything, kWorkers, kNothing } part = kEverything;
  uint64_t first_array = 0;  // kEverything: above 0, arrays from this one on and nothing else
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

using Event =
    std::variant<OpenSession, GetSession, ListSessions, CloseSession, HoldSession, DropHold,
                 ReshardArray, DescribeFile, ListDevices, ListWorkers, GetWorker, GetTopology,
                 Cordon, Drain, DeleteWorker, CreateMesh, GetMesh, ListMeshes, DeleteMesh, Compile,
                 Execute, CreateArray, DescribeUpload, WriteShard, ReadShard, DescribeArray,
                 ListArrays, WaitArray, SaveArrays, LoadArrays, DeleteArrays, WaitOperation,
                 CancelOperation, ListOperations, ExplainPending, ReadTelemetry, Planned,
                 WorkerRegistered, WorkerGone, WorkerReported, Tick>;

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
  // kUnspecified: a check alone, nothing was made.
  enum class State : uint8_t { kUnspecified, kPending, kReady, kFailed, kLost };
  struct Shard {
    std::string executor, endpoint;
    uint64_t incarnation = 0;
    int32_t device = 0;  // local to the executor
  };
  uint64_t array = 0;
  api::ArraySpec spec;
  State state = State::kUnspecified;
  std::vector<Shard> shards;  // per ordinal
  std::string tenant;
  uint64_t session = 0;
  std::vector<int> unwritten;                        // ordinals
  absl::Time upload_until = absl::InfiniteFuture();  // by the clock of tickets
};
struct SessionInfo {
  uint64_t id = 0;  // 0: the tenant's own
  std::string tenant, display_name;
  absl::Duration lease = absl::InfiniteDuration();
  absl::Time expires = absl::InfiniteFuture();  // by the wall clock
  absl::Duration grace;                         // once nobody holds it any more
  int64_t arrays = 0, operations = 0;           // that exist; that have not ended
};
enum class WorkerState : uint8_t { kReady, kSuspect, kCordoned, kDraining, kLost };
struct WorkerInfo {
  std::string name, host;
  WorkerState state = WorkerState::kReady;
  std::string reason;  // why it is not ready
  std::vector<int64_t> devices;
  absl::Duration heartbeat_age = absl::InfiniteDuration();  // of a lost one
  int64_t operations = 0, arrays = 0;
  std::vector<std::string> data_endpoints;
};
struct MeshInfo {
  std::string name, tenant;
  ir::Mesh mesh;
  std::vector<int64_t> devices;
};
struct ExecutorPlace {
  std::string name, host, device_kind;
  std::vector<int64_t> devices;
  int64_t memory_bytes = 0;
  bool healthy = false;
  bool files = false;  // it has a folder of files
};
// An operation that loads or moves arrays, and those that it will make.
struct Making {
  api::Operation operation;
  std::vector<ArrayInfo> arrays;
};
struct PendingInfo {
  api::OperationState state = api::OperationState::kPending;
  std::vector<api::PendingReason> reasons;
  int64_t position = 0;  // live operations accepted before it on devices that it wants
};
// What DeleteArrays found nothing to delete of.
struct MissingArrays {
  std::vector<uint64_t> arrays;
};
template <class T>
struct Page {
  std::vector<T> items;
  bool more = false;  // something comes after the last item
};
struct Reply {
  uint64_t request = 0;
  absl::Status status;  // the rest holds when it is OK
  std::variant<std::monostate, Page<api::Device>, api::CompileReply, api::ExecuteReply, ArrayInfo,
               ir::Array, api::Operation, api::Completion, SessionInfo, Page<SessionInfo>,
               WorkerInfo, Page<WorkerInfo>, MeshInfo, Page<MeshInfo>, std::vector<ExecutorPlace>,
               Page<ArrayInfo>, Page<api::Operation>, PendingInfo, core::ClusterReading, Making,
               std::vector<api::FileArray>, MissingArrays>
      body;
};
// The registration is taken.
struct AcceptWorker {
  uint64_t session = 0;
};
// Close the connection: it is fenced, or was never taken.
struct DropWorker {
  uint64_t session = 0;
  absl::Status why;
};
// Goes to the store before any later Reply of the same step.
struct Append {
  std::string record;
};
// What the next life of the coordinator is to know.  Goes to the store before any Reply of the
// step.
struct KeepExecutors {
  std::vector<core::KnownExecutor> executors;
};
// Send a Tick at this time; replaces the one asked for before.
struct SetTimer {
  absl::Time when;
};
using Effect = std::variant<MakePlan, SendCommand, Reply, AcceptWorker, DropWorker, Append,
                            KeepExecutors, SetTimer>;

// ---- State. -------------------------------------------------------------------------------------
//
// Of a worker that was deleted nothing is left but the ids of its devices, which all belong to one
// executor that never comes: its name and its worker's is "".
struct Executor {
  std::string name;  // "worker/index"
  std::string worker, host;
  uint64_t session = 0;  // 0: gone
  api::ExecutorInfo info;
  int64_t first_device = 0;  // ids are first_device + local device
  std::string lost_reason;   // when gone
  int64_t memory_bytes = 0;  // per device: what it offers, or its share of what its host has
  // For health: launches it has ended well, those with collectives, and what its worker said last.
  int64_t ended = 0, ended_collectives = 0;
  absl::Duration progress_age;
  api::Heartbeat::Executor seen;  // as its worker saw it last
  // What was sent to it in the order and has not left it, ended for its client or not:
  // sequence -> operation.
  std::map<uint64_t, uint64_t> running;
  // Who has waited for it in vain; it is killed if it turns out that it does not answer.
  std::string missed_by;
  bool alive() const { return session != 0; }
};
struct Worker {
  uint64_t session = 0;  // 0: gone
  absl::Time last_seen;
  std::vector<std::string> executors;
  std::string host;
  int64_t host_memory_bytes = 0;  // as it says
  std::string lost_reason;        // when gone
  bool cordoned = false;          // takes no new programs
  std::string cordon_reason;
  std::set<uint64_t> drains;  // requests that wait until nothing runs there
};
// What a client owns, and for how long.
struct Session {
  std::string tenant, display_name;
  bool own = false;  // the tenant's own: no lease, called 0
  absl::Duration lease = absl::InfiniteDuration();
  absl::Time until = absl::InfiniteFuture();
  std::set<uint64_t> arrays;                         // not deleted
  std::set<uint64_t> operations;                     // not ended
  std::map<uint64_t, uint64_t> holds;                // hold -> request that waits for its end
  absl::Time silent_until = absl::InfiniteFuture();  // then its client is gone; nobody holds it
};
struct NamedMesh {
  ir::Mesh mesh;
  std::vector<int64_t> devices;
};
struct Device {
  std::string executor;
  int32_t local = 0;
};

// kPlanned: its producer has no place in the order yet.  kScheduled: it has.
enum class ArrayState : uint8_t { kWriting, kPlanned, kScheduled, kReady, kFailed, kLost };
struct ArrayRecord {
  api::ArraySpec spec;
  std::string tenant;
  uint64_t session = 0;  // a key of State::sessions; it may have ended
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
  std::string key, name, tenant;
  bool plan_only = false;           // made to be looked at; gone once it is planned
  int64_t absent_memory_bytes = 0;  // > 0: for devices that are absent, of so much memory each
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

// What is saved or loaded.
struct FileWork {
  std::string path;  // below the workers' folder: the tenant's, then as the client said
  bool overwrite = false;
  std::vector<api::FileArray> arrays;  // of args, of results
};

struct Operation {
  uint64_t id = 0;
  std::string name;
  std::string tenant;
  uint64_t session = 0;       // a key of State::sessions; it may have ended
  uint64_t session_name = 0;  // as clients call it
  api::OperationKind kind = api::OperationKind::kExecute;
  absl::Time created, started = absl::InfiniteFuture(), ended_at = absl::InfiniteFuture();
  absl::Duration wall_ahead;  // when it was made, so that its dates stay what they are
  api::OperationState state = api::OperationState::kPending;
  absl::Status error;
  uint64_t executable = 0;               // 0: a transfer, or work on a file
  std::shared_ptr<const FileWork> file;  // null but for kSave and kLoad
  std::vector<uint64_t> args, results;
  std::vector<bool> donate;
  absl::Time deadline = absl::InfiniteFuture();
  absl::Duration time_allowed = absl::InfiniteDuration();  // that `deadline` stands for
  // When it has ended: executors that have not left it by then are killed.
  absl::Time kill_at = absl::InfiniteFuture();
  // While it waits for executors: to come back or, if `loading`, to compile its program.
  absl::Time executors_until = absl::InfiniteFuture();
  bool loading = false;
  uint64_t sequence = 0;    // 0: no place yet
  uint64_t generation = 0;  // communicator of its launch; 0: none
  // Executors that have not reported -> incarnation; of one that has ended, that have not left it.
  std::map<std::string, uint64_t> outstanding;
  bool inputs_gone = false;    // an executor was lost, or has given its donated inputs to devices
  std::set<uint64_t> waiters;  // requests
  absl::Status peer_error;     // the first report that blames a peer
  absl::Time verdict_until = absl::InfiniteFuture();  // then peer_error is the verdict
  int64_t inline_bytes_max = 0;  // results that come along with the end; 0: none are wanted
  std::map<std::pair<uint64_t, int64_t>, ir::Array> inlined;  // (array, device id), until it ends
  // For notes: of the executors' runs the longest, and the sum over devices.
  absl::Duration run_longest, run_total;
  bool planned_late = false;  // its program was not planned yet when it was accepted
  bool ended() const { return state >= api::OperationState::kDone; }
};

struct Communicator {
  uint64_t generation = 0;
  uint64_t last_use = 0;
};

// A request that waits.
struct Waiter {
  enum Kind : uint8_t {
    kArray,
    kOperation,
    kChange,  // of an operation's state
    kEnd,
    kShard,
    kWrite,
    kCompile,
    kCreate,
    kDrain,
    kInspect,
    kHold,
    kSettled  // what becomes of an array that was donated to an operation that has ended
  } kind = kArray;
  uint64_t id = 0;     // array, operation or executable; kCreate, kHold: session
  uint64_t array = 0;  // kSettled
  int ordinal = 0;     // kShard
  absl::Time until;
  std::string executor;                        // kShard, kWrite once sent; kDrain: the worker
  absl::Time latest = absl::InfiniteFuture();  // kCompile: that the caller waits
  int64_t device = -1;                         // kWrite
  bool explain = false;                        // kCompile
  api::ArraySpec spec;                         // kCreate, until its executors are back
  std::shared_ptr<const LoadArrays> load;      // kInspect; null: what the file holds is the answer
};

struct State {
  Config config;
  // By how much other clocks are ahead of the `now` of a step. Whoever calls Step says so; nothing
  // is decided by them, they go into what leaves us: dates for people, and the ends of tickets,
  // which executors check by a clock that does not stand still when we do.
  absl::Duration wall_ahead, steady_ahead;
  uint64_t last_id = 0;  // arrays, executables, operations: one sequence
  uint64_t last_sequence = 0;
  uint64_t last_generation = 0;
  uint64_t uses = 0;  // of executables and communicators, to know the oldest
  std::map<std::string, Worker> workers;
  std::map<uint64_t, std::string> registrations;  // sessions of live workers -> worker
  // Of clients: those that have a lease under their ids, tenants' own under ids of their own.
  std::map<uint64_t, Session> sessions;
  std::map<std::string, uint64_t> own_sessions;  // tenant -> key of sessions
  uint64_t last_session = 0;
  int64_t leased_sessions = 0;
  std::map<std::pair<std::string, std::string>, NamedMesh> meshes;  // (tenant, name)
  // Whose the ids of arrays, executables and operations are: the tenant of each id from the key up
  // to the next key.
  std::map<uint64_t, std::string> owners;
  std::map<std::string, Executor> executors;
  std::vector<Device> devices;  // by id
  int64_t devices_deleted = 0;  // of these
  std::map<uint64_t, ArrayRecord> arrays;
  std::map<uint64_t, Executable> executables;
  std::map<std::string, uint64_t> executable_of;  // key
  int64_t plans = 0;
  std::map<uint64_t, Operation> operations;  // not ended, and the last that have
  std::set<uint64_t> live;                   // not ended
  std::set<uint64_t> lingering;              // ended, and not yet left by all of their executors
  // Arguments are there; executors are not, or have not compiled the program.
  std::set<uint64_t> blocked_on_executors;
  std::set<std::string> draining;  // workers, cordoned ones, where nothing starts
  std::set<uint64_t> held;         // operations that could start but for a drain
  std::deque<uint64_t> ended;      // and left; oldest first
  // Likewise of the coordinator's canaries, whose records make room for those of tenants.
  std::deque<uint64_t> ended_canaries;
  std::map<std::vector<std::pair<std::string, uint64_t>>, Communicator> communicators;
  // Generations that only launches sent earlier still use, and their members.
  std::map<uint64_t, std::vector<std::pair<std::string, uint64_t>>> retired;
  std::map<uint64_t, Waiter> waiters;                                // by request
  std::set<std::pair<absl::Time, std::pair<int, uint64_t>>> timers;  // (TimerKind, id), machine.h
  absl::Time armed = absl::InfiniteFuture();  // the Tick that was asked for last
  std::vector<core::Note> notes;              // of the last step
};

// "READY"; "" of kUnspecified.
std::string_view NameOf(ArrayInfo::State state);

// Before the first step.
State Begin(const Config& config);
std::vector<Effect> Step(State& state, const Event& event, absl::Time now);

// One line each, for transcripts and logs; none ("") of an AcceptWorker.  No array contents, no
// secrets.
std::string ToString(const Effect& effect);

}  // namespace tessera::server::scheduler
