// The interface between the coordinator and a worker: plain messages, passed by a direct call
// (embed/) or over gRPC streams (server/rpc, worker/rpc; worker.proto has the same names).
//
// Commands go down, reports come up; neither waits for the other.  The coordinator calls
// WorkerLink, the worker calls WorkerEvents; both are thread-safe and never block.  An executor is
// named by (worker, index, incarnation): a command for a lost incarnation is dropped, since
// ExecutorLost has already failed what it belonged to.
//
// Order.  An executor carries out the Launch and Transfer commands in the order sent, which is the
// same global order on every executor, so collectives cannot deadlock.  LoadProgram and
// ConfigureCommunicator take effect before any later Launch; the worker may prepare them at once.
// DeleteBuffers takes effect after every earlier Launch.  WriteBuffer, ReadBuffer and CancelLaunch
// do not wait for launches, except that a read waits for the buffer's producer.
//
// Buffers.  A shard is (array id, local device): an array has at most one shard on a device.  Ids
// are given by the coordinator and are never used twice.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/build.h"
#include "ir/api/files.h"
#include "ir/array.h"
#include "ir/mesh.h"
#include "ir/program.h"

namespace tessera::api {

// ---- Registration. ------------------------------------------------------------------------------
struct ExecutorInfo {
  int32_t index = 0;         // within the worker
  uint64_t incarnation = 0;  // unique to the process; never 0
  std::string device_kind;   // "cpu", "gpu"
  int32_t num_devices = 1;
  std::string data_endpoint;  // host:port of its DataService as clients reach it; "" in process
  std::string peer_endpoint;  // host:port for collectives as peers reach it; "" in process
  // host:port of its DataService as peers reach it, which copy arrays from it; "" in process
  std::string peer_data_endpoint;
  int64_t memory_bytes = 0;  // per device; 0: unknown
  bool files = false;        // it has a --files-dir: arrays can be saved and loaded
  std::string files_folder;  // executors with the same value share the directory; "": unknown
  // It has served a coordinator since it started, and is of use only to one that adopts it.
  bool has_state = false;
  // Measured when it started, of a device while all of them work: f32 arithmetic, and memory read
  // and written; 0: not measured.
  double flops_per_second = 0, memory_bytes_per_second = 0;
};
struct Registration {
  std::string worker;  // unique in the cluster, stable over restarts
  std::string host;
  int opset = ir::kOpset;  // the newest op set it runs
  std::vector<ExecutorInfo> executors;
  int64_t host_memory_bytes = 0;  // for all its CPU devices together; 0: unknown
  Build build = {};
};
// An executor whose state the coordinator knows, and goes on with.
struct AdoptedExecutor {
  int32_t executor = 0;  // index
  uint64_t incarnation = 0;
  bool operator==(const AdoptedExecutor&) const = default;
};
// The coordinator's reply to a registration.
struct Welcome {
  uint64_t session = 0;      // the registration id, for every report; no client's session
  uint64_t epoch = 0;        // of the coordinator: greater at each start
  absl::Duration heartbeat;  // report at least this often
  absl::Duration lease;      // the worker is lost after this long without a report
  std::string ticket_key;    // the worker's key for tickets (ir/api/ticket.h)
  absl::Time clock;          // the coordinator's wall clock now, by which tickets expire
  // How long executors keep their state for a coordinator that is away.
  absl::Duration outage_grace = {};
  // Of the executors registered with `has_state`; the others of these are started anew.
  std::vector<AdoptedExecutor> adopted = {};
  Build build = {};      // of the coordinator
  int32_t protocol = 1;  // what both speak
};
// What an executor says first on its own stream to the coordinator.
struct Attachment {
  int32_t executor = 0;  // index
  uint64_t incarnation = 0;
  uint64_t session = 0;  // of its worker's registration
  std::string key;       // its ticket key (ir/api/ticket.h)
  uint64_t epoch = 0;    // of the coordinator that it means
};

// ---- Coordinator -> executor. -------------------------------------------------------------------
// Connects to the other members.  A generation is one set of executor incarnations; its number is
// never reused.  The reply is CommunicatorReady.  Launches name the generation they use.
struct ConfigureCommunicator {
  struct Member {
    std::string executor;  // "worker/index"
    uint64_t incarnation = 0;
    std::string endpoint;     // peer endpoint
    int32_t num_devices = 1;  // of the executor
    bool operator==(const Member&) const = default;
  };
  uint64_t generation = 0;
  std::vector<Member> members;
  int32_t self = 0;    // index of the receiver in members
  std::string secret;  // with which peers authenticate each other
};
// Closes the connections and fails the collectives that wait on them.
struct CloseCommunicator {
  uint64_t generation = 0;
};
// Compiles the device program.  The reply is ProgramLoaded.
struct LoadProgram {
  struct Coordinate {
    int32_t member = 0;  // index of its executor in the communicator's members
    int32_t device = 0;  // local to that executor
    bool operator==(const Coordinate&) const = default;
  };
  uint64_t executable = 0;
  std::string name;  // for messages only
  // The program of one device: params, results and every value are shards; all mesh axes are Manual
  // and check_vma is false.  entry->scope.mesh is the mesh.
  ir::Program program;
  std::vector<Coordinate> coordinates;  // per mesh device, row-major
  int32_t self = 0;                     // the receiver's member index
  std::string tenant = {};              // whose program it is; its code is no one else's
  // The receiver's mesh devices: {mesh device, local device}.
  std::vector<std::pair<int64_t, int32_t>> Local() const {
    std::vector<std::pair<int64_t, int32_t>> local;
    for (size_t k = 0; k < coordinates.size(); ++k)
      if (coordinates[k].member == self)
        local.emplace_back(static_cast<int64_t>(k), coordinates[k].device);
    return local;
  }
};
struct UnloadPrograms {
  std::vector<uint64_t> executables;
};
// Runs an executable on every local device of it.  Argument a on device d is the buffer (args[a],
// d), result r becomes (results[r], d).  The reply is LaunchDone or LaunchFailed once every local
// device has ended.  A launch whose argument has failed fails with the argument's error.
struct Launch {
  uint64_t launch = 0;
  uint64_t sequence = 0;  // place in the global order; 0: not known any more
  uint64_t executable = 0;
  uint64_t generation = 0;  // communicator; 0: one executor, none needed
  std::vector<uint64_t> args, results;
  // Empty: none.  The launch frees or reuses the buffer, unless it fails before it reaches the
  // device.
  std::vector<bool> donate;
  absl::Duration timeout = absl::InfiniteDuration();  // from the start of the launch
  // Small shards of results, whose values LaunchDone returns inline.
  struct InlineResult {
    int32_t result = 0;  // index into results
    int32_t device = 0;  // local
    bool operator==(const InlineResult&) const = default;
  };
  std::vector<InlineResult> inline_results = {};
};
// Assembles shards of a new array from slices of shards of another, on any executors.  In the same
// order as launches; the reply is LaunchDone or LaunchFailed.  A source on another executor is read
// from its DataService with the ticket, which waits for the source's producer.
struct Transfer {
  struct Piece {
    bool local = false;  // the source is on this executor: (source, source_device)
    uint64_t source = 0;
    int32_t source_device = 0;
    std::string endpoint, ticket;                // when not local
    ir::Dims source_starts, dest_starts, shape;  // a slice of each shard
    std::string executor = {};                   // when not local: where it is, for errors
  };
  struct Shard {
    int32_t device = 0;
    std::vector<Piece> pieces;  // cover the shard
  };
  uint64_t launch = 0;
  uint64_t sequence = 0;
  uint64_t result = 0;  // array id
  ir::DType dtype = ir::DType::kF32;
  ir::Dims local_shape;
  std::vector<Shard> shards;
  absl::Duration timeout = absl::InfiniteDuration();
};
// A small shard relayed by the coordinator (RunProgram, or any shard when embedded).  The reply is
// BufferWritten.
struct WriteBuffer {
  uint64_t array = 0;
  int32_t device = 0;
  ir::Array value;
};
// The reply is BufferRead when the buffer is ready or has failed.
struct ReadBuffer {
  uint64_t request = 0;
  uint64_t array = 0;
  int32_t device = 0;
};
// A shard and the part of a file's array that it is saved to or loaded from.
struct FileShard {
  int32_t index = 0;  // into the file's arrays
  uint64_t array = 0;
  int32_t device = 0;
  ir::Dims starts, shape;  // of the shard in the array
  bool operator==(const FileShard&) const = default;
};
// Writes shards, which have been produced earlier in the order, into one file under the worker's
// --files-dir (ir/api/files.h), together with other executors that share the directory. The file is
// complete once part 0 is done. In the same order as launches; the reply is LaunchDone or
// LaunchFailed.
struct SaveShards {
  uint64_t launch = 0;
  uint64_t sequence = 0;
  std::string path;
  std::string token;                  // names the temporary file; never reused
  bool overwrite = false;             // a file that is there
  int32_t part = 0, parts = 1;        // the receiver among those that write the file
  std::vector<FileArrayInfo> arrays;  // all that the file will hold, in this order
  std::vector<FileShard> shards;      // the receiver's
  absl::Duration timeout = absl::InfiniteDuration();
};
// Loads shards from a file. Each is reported by BufferWritten; then, once, LaunchDone or
// LaunchFailed. Unordered: whoever reads the arrays waits until they are written.
struct LoadShards {
  uint64_t launch = 0;
  std::string path;
  std::vector<FileArrayInfo> arrays;  // as InspectFile found them
  std::vector<FileShard> shards;
  absl::Duration timeout = absl::InfiniteDuration();
};
// The reply is FileInspected.
struct InspectFile {
  uint64_t request = 0;
  std::string path;
};
// Frees the shards of these arrays on every local device; unknown ids are no error.
struct DeleteBuffers {
  std::vector<uint64_t> arrays;
};
// Ends the launch with `why`, whether it waits or runs; no effect on one that has ended.
struct CancelLaunch {
  uint64_t launch = 0;
  absl::Status why;
};
// Finish what was sent, then report LaunchDone for it and exit.
struct Drain {};
// Kills the process and starts another, because it did not acknowledge the end of an operation. The
// daemon does so without the process's help; the reply is ExecutorLost with the reason. An executor
// inside the coordinator's process cannot be killed: there it does nothing.
struct KillExecutor {
  std::string reason;
};

// The coordinator has processed the executor's reports up to this number for good: also after its
// own restart it knows what they say. See Report.
struct AcknowledgeReports {
  uint64_t through = 0;
};

using Command =
    std::variant<ConfigureCommunicator, CloseCommunicator, LoadProgram, UnloadPrograms, Launch,
                 Transfer, WriteBuffer, ReadBuffer, DeleteBuffers, CancelLaunch, Drain, SaveShards,
                 LoadShards, InspectFile, KillExecutor, AcknowledgeReports>;

// ---- Worker -> coordinator. ---------------------------------------------------------------------
// Every report of an executor names its incarnation; those of an old one are dropped.
struct Heartbeat {
  // An executor's state as its daemon reads it from shared memory.
  struct Executor {
    int32_t executor = 0;         // index
    absl::Duration progress_age;  // since its launch last made progress; 0 when it runs nothing
    absl::Duration silence = {};  // since it last replied to its daemon; 0 while it does
    uint64_t launch = 0;          // the launch that runs; 0: none or unknown
    std::string op = {};          // the op that runs; "": unknown
    bool waiting = false;         // the op waits for other devices
    bool operator==(const Executor&) const = default;
  };
  std::vector<Executor> executors = {};
};
struct CommunicatorReady {
  uint64_t generation = 0;
  absl::Status status;
};
struct ProgramLoaded {
  uint64_t executable = 0;
  absl::Status status;
  int64_t memory_bytes = 0;  // peak per device, scratch included
};
// What exchanges have shown of links; 0: unknown.
struct LinkSpeed {
  bool between_executors = false;  // or among the executor's devices
  double bytes_per_second = 0;     // that a device sends
  double latency_seconds = 0;      // of one round of an exchange
};
struct LaunchDone {
  uint64_t launch = 0;
  absl::Duration run_time;
  // The requested inline results, without those that were deleted meanwhile.
  struct InlineResult {
    uint64_t array = 0;
    int32_t device = 0;
    ir::Array value;
  };
  std::vector<InlineResult> inline_results = {};
  std::vector<LinkSpeed> links = {};  // those that have changed
};
// The status names the op, its source location and, for a collective, the missing devices.
struct LaunchFailed {
  uint64_t launch = 0;
  absl::Status status;
  // It failed before any device of the executor got its arguments: the donated ones are intact.
  bool inputs_kept = false;
};
// A shard has been written completely, by ticket or by WriteBuffer; or it never will be.
struct BufferWritten {
  uint64_t array = 0;
  int32_t device = 0;
  absl::Status status;
};
struct BufferRead {
  uint64_t request = 0;
  absl::StatusOr<ir::Array> value = absl::UnknownError("");
};
struct FileInspected {
  uint64_t request = 0;
  absl::StatusOr<std::vector<FileArrayInfo>> arrays = absl::UnknownError("");
};
// The process has exited, and its buffers are lost.
struct ExecutorLost {
  std::string reason;   // "killed by signal 9"
  uint64_t launch = 0;  // the launch that ran; 0: none or unknown
  std::string op;       // the op in flight, "psum (model.cc:41)"; "" when unknown
};
// A new process serves the index.
struct ExecutorReady {
  ExecutorInfo info;
};

// What an executor that attaches again has; its first report on the stream. The reports that were
// not acknowledged follow it in order, then those of what happens from then on: one that is listed
// as running is not among those that follow unless it has ended meanwhile.
//
// Of the commands sent before, those whose effect is neither listed nor reported were lost on the
// way; or their effect was undone by a later one: an array that is not listed was deleted, donated
// to an operation that is listed, or never came. A listed array or executable that the coordinator
// does not know is of a command that it has forgotten. ReadBuffer and InspectFile that were not
// answered will not be.
struct ExecutorInventory {
  struct Device {
    // Arrays, ascending: those that have their value, those whose value is still to come, those
    // whose producer has failed.
    std::vector<uint64_t> ready, expected, failed;
    bool operator==(const Device&) const = default;
  };
  std::vector<Device> devices = {};        // all of the executor, in order
  std::vector<uint64_t> running = {};      // operations (`launch`) that wait or run, ascending
  std::vector<uint64_t> ended = {};        // those whose ends follow, ascending
  std::vector<uint64_t> executables = {};  // loaded, ascending
  std::vector<uint64_t> compiling = {};    // executables that ProgramLoaded is still to come of
  std::vector<uint64_t> generations = {};  // of communicators that are configured, ascending
  // By place in `running`: their sequence numbers, and their communicators or 0.
  std::vector<uint64_t> sequences = {}, running_generations = {};
  // The number of the last report that was made before. What those say of arrays and programs that
  // are there is said here, and what has gone since is not.
  uint64_t reports = 0;
};

using ReportBody = std::variant<Heartbeat, CommunicatorReady, ProgramLoaded, LaunchDone,
                                LaunchFailed, BufferWritten, BufferRead, ExecutorLost,
                                ExecutorReady, FileInspected, ExecutorInventory>;
struct Report {
  int32_t executor = 0;  // index; ignored by Heartbeat
  uint64_t incarnation = 0;
  ReportBody body;
  // Of an executor's report that is kept until it is acknowledged, and sent again after its stream
  // has ended: these count from 1. The same number of an incarnation is the same report. 0: others.
  uint64_t number = 0;
};

// ---- Transports. --------------------------------------------------------------------------------
// One registered worker, as the coordinator sees it.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  // The registration is accepted, and these executors that came with state are adopted; a transport
  // passes the Welcome on. Precedes the first Send; a link that is not accepted is closed without
  // it.
  virtual void Accept(const std::vector<AdoptedExecutor>& adopted) { (void)adopted; }
  virtual void Send(int32_t executor, uint64_t incarnation, Command command) = 0;
  // As Send. An executor of this process that has done the command by then may set `*report`, which
  // it then makes in no other way, and return true; it has made those before.
  virtual bool SendForReport(int32_t executor, uint64_t incarnation, Command command,
                             Report* report) {
    (void)report;
    Send(executor, incarnation, std::move(command));
    return false;
  }
  // The executor's reports up to this number are processed for good; a transport says so at some
  // time (AcknowledgeReports).
  virtual void Acknowledge(int32_t executor, uint64_t incarnation, uint64_t number) {
    (void)executor, (void)incarnation, (void)number;
  }
  // The coordinator has dropped the worker and sends nothing more; a transport closes its
  // connection.
  virtual void Close(const absl::Status& why) { (void)why; }
};

// The coordinator, as a worker sees it.
class WorkerEvents {
 public:
  virtual ~WorkerEvents() = default;
  // `link` may be used until Disconnect returns.  If the name is taken, or for another reason the
  // registration is rejected, it is closed with the error.
  virtual absl::StatusOr<Welcome> Register(const Registration& registration,
                                           std::shared_ptr<WorkerLink> link) = 0;
  // Reports come in the order of their events on the executor.  Unknown sessions are ignored.
  virtual void OnReport(uint64_t session, Report report) = 0;
  // The worker is not connected.  One that returns within its outage grace registers with the same
  // incarnations, those that have served with `has_state`.
  virtual void Disconnect(uint64_t session, const absl::Status& why) = 0;
};

}  // namespace tessera::api
