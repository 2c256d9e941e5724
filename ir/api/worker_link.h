// The seam between the coordinator and a worker: plain messages, carried by a direct call (embed/)
// or by one gRPC stream (server/rpc, worker/rpc; proto/tessera/v1/worker.proto has the same names).
//
// Commands go down, reports come up; neither waits for the other.  The coordinator calls
// WorkerLink, the worker calls WorkerEvents; both are thread-safe and never block.  An executor is
// named by (worker, index, incarnation): a command for an incarnation that is gone is dropped,
// since ExecutorLost has already failed what it belonged to.
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
#include "ir/api/files.h"
#include "ir/array.h"
#include "ir/mesh.h"
#include "ir/program.h"

namespace tessera::api {

// ---- Who is there. ------------------------------------------------------------------------------
struct ExecutorInfo {
  int32_t index = 0;         // within the worker
  uint64_t incarnation = 0;  // another for every process; never 0
  std::string device_kind;   // "cpu", "gpu"
  int32_t num_devices = 1;
  std::string data_endpoint;  // host:port of its DataService as clients reach it; "" in process
  std::string peer_endpoint;  // host:port for collectives as peers reach it; "" in process
  // host:port of its DataService as peers reach it, which copy arrays from it; "" in process
  std::string peer_data_endpoint;
  int64_t memory_bytes = 0;  // per device; 0: unknown
  bool files = false;        // it has a folder of files: arrays can be saved and loaded
  std::string files_folder;  // executors that name the same one share it; "": unknown
};
struct Registration {
  std::string worker;  // unique in the cluster, stable over restarts
  std::string host;
  int opset = ir::kOpset;  // the newest op set it runs
  std::vector<ExecutorInfo> executors;
  int64_t host_memory_bytes = 0;  // that its devices on the host may take together; 0: unknown
};
// What the coordinator answers.
struct Welcome {
  uint64_t session = 0;      // names this registration in every report
  uint64_t epoch = 0;        // of the coordinator: another after every start
  absl::Duration heartbeat;  // report at least this often
  absl::Duration lease;      // silence after which the worker is lost
  std::string ticket_key;    // the worker's, of the tickets of data transfers (ir/api/ticket.h)
  absl::Time clock;          // the coordinator's by which they expire, when this was written
};

// ---- Coordinator -> executor. -------------------------------------------------------------------
// Opens connections to the other members.  A generation is one set of executor incarnations; it is
// never reused.  Answered by CommunicatorReady.  Launches name the generation they use.
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
  std::string secret;  // peers prove that they know it
};
// Closes connections and fails what still waits on them.
struct CloseCommunicator {
  uint64_t generation = 0;
};
// Compiles the device program.  Answered by ProgramLoaded.
struct LoadProgram {
  struct Coordinate {
    int32_t member = 0;  // whose executor, index into the communicator's members
    int32_t device = 0;  // local to that executor
    bool operator==(const Coordinate&) const = default;
  };
  uint64_t executable = 0;
  std::string name;  // for people
  // One lane: params, results and every type are local blocks; all mesh axes are Manual and
  // check_vma is false.  entry->scope.mesh is the mesh.
  ir::Program program;
  std::vector<Coordinate> coordinates;  // per mesh device, row-major
  int32_t self = 0;                     // the receiver's member index
  // The mesh devices that are the receiver's: {mesh device, local device}.
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
// d), result r becomes (results[r], d).  Answered by LaunchDone or LaunchFailed once every local
// device has ended.  A launch whose argument has failed fails with the argument's error.
struct Launch {
  uint64_t launch = 0;
  uint64_t sequence = 0;  // place in the global order
  uint64_t executable = 0;
  uint64_t generation = 0;  // communicator; 0: one executor, none needed
  std::vector<uint64_t> args, results;
  // Empty: none.  The buffer is freed, or reused, by the launch; not by one that fails before the
  // device is given it.
  std::vector<bool> donate;
  absl::Duration timeout = absl::InfiniteDuration();  // from when it starts
  // Shards of results, small ones, that LaunchDone brings along.
  struct InlineResult {
    int32_t result = 0;  // index into results
    int32_t device = 0;  // local
    bool operator==(const InlineResult&) const = default;
  };
  std::vector<InlineResult> inline_results = {};
};
// Builds shards of a new array from blocks of shards of another, wherever those lie.  In the same
// order as launches; answered by LaunchDone or LaunchFailed.  A source on another executor is read
// from its DataService with the ticket, which waits for the source's producer.
struct Transfer {
  struct Piece {
    bool local = false;  // the source is on this executor: (source, source_device)
    uint64_t source = 0;
    int32_t source_device = 0;
    std::string endpoint, ticket;                // when not local
    ir::Dims source_starts, dest_starts, shape;  // a block of each shard
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
// Small bytes relayed by the coordinator (RunProgram, or everything when embedded).  Answered by
// BufferWritten.
struct WriteBuffer {
  uint64_t array = 0;
  int32_t device = 0;
  ir::Array value;
};
// Answered by BufferRead when the buffer is ready or has failed.
struct ReadBuffer {
  uint64_t request = 0;
  uint64_t array = 0;
  int32_t device = 0;
};
// Blocks of arrays of a file and the shards that hold them, or are to hold them.
struct FileShard {
  int32_t index = 0;  // into the file's arrays
  uint64_t array = 0;
  int32_t device = 0;
  ir::Dims starts, shape;  // the block
  bool operator==(const FileShard&) const = default;
};
// Writes shards, which have been produced earlier in the order, into one file below the worker's
// folder of files (ir/api/files.h), together with other executors, which see the same folder. The
// file is there, whole, once part 0 is done. In the same order as launches; answered by LaunchDone
// or LaunchFailed.
struct SaveShards {
  uint64_t launch = 0;
  uint64_t sequence = 0;
  std::string path;
  std::string token;              // names the file while it is not whole; never reused
  bool overwrite = false;         // a file that is there
  int32_t part = 0, parts = 1;    // of the executors that write it
  std::vector<FileArray> arrays;  // all that the file will hold, in this order
  std::vector<FileShard> shards;  // the receiver's
  absl::Duration timeout = absl::InfiniteDuration();
};
// Makes shards of what a file holds. Each is reported by BufferWritten; then, once, LaunchDone or
// LaunchFailed. Stands in no order: whoever reads the arrays waits until they are written.
struct LoadShards {
  uint64_t launch = 0;
  std::string path;
  std::vector<FileArray> arrays;  // as InspectFile found them
  std::vector<FileShard> shards;
  absl::Duration timeout = absl::InfiniteDuration();
};
// Answered by FileInspected.
struct InspectFile {
  uint64_t request = 0;
  std::string path;
};
// Frees the shards of these arrays on every local device; unknown ids are no error.
struct DeleteBuffers {
  std::vector<uint64_t> arrays;
};
// Ends the launch with `why`, whether it waits or runs; one that has ended is left alone.
struct CancelLaunch {
  uint64_t launch = 0;
  absl::Status why;
};
// Finish what was sent, then report LaunchDone for it and exit.
struct Drain {};
// Kills the process and starts another: for one that does not leave what it was told to end. The
// worker carries it out without asking the process; answered by ExecutorLost with the reason. An
// executor inside the coordinator's process cannot be killed: there it does nothing.
struct KillExecutor {
  std::string reason;
};

using Command = std::variant<ConfigureCommunicator, CloseCommunicator, LoadProgram, UnloadPrograms,
                             Launch, Transfer, WriteBuffer, ReadBuffer, DeleteBuffers, CancelLaunch,
                             Drain, SaveShards, LoadShards, InspectFile, KillExecutor>;

// ---- Worker -> coordinator. ---------------------------------------------------------------------
// Every report of an executor names its incarnation; those of an old one are dropped.
struct Heartbeat {
  // What an executor does, as its daemon sees it without asking it.
  struct Executor {
    int32_t executor = 0;         // index
    absl::Duration progress_age;  // since what it runs last went on; 0 when it runs nothing
    absl::Duration silence = {};  // since it last answered its daemon; 0 while it answers
    uint64_t launch = 0;          // what it runs; 0: nothing or unknown
    std::string op = {};          // that it is at; "": unknown
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
  int64_t memory_bytes = 0;  // true peak per device, scratch included
};
struct LaunchDone {
  uint64_t launch = 0;
  absl::Duration run_time;
  // Of what the launch asked for, that which was not deleted meanwhile.
  struct InlineResult {
    uint64_t array = 0;
    int32_t device = 0;
    ir::Array value;
  };
  std::vector<InlineResult> inline_results = {};
};
// The status names the op, the site and, for a collective, who was missing.
struct LaunchFailed {
  uint64_t launch = 0;
  absl::Status status;
  // It failed before any device of the executor was given its arguments: those that were donated
  // are there still.
  bool inputs_kept = false;
};
// A shard came in whole, by ticket or by WriteBuffer; or never will.
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
  absl::StatusOr<std::vector<FileArray>> arrays = absl::UnknownError("");
};
// The process is gone and its buffers with it.
struct ExecutorLost {
  std::string reason;   // "killed by signal 9"
  uint64_t launch = 0;  // what it ran; 0: nothing or unknown
  std::string op;       // the op in flight, "psum (model.cc:41)"; "" when unknown
};
// A new process serves the index.
struct ExecutorReady {
  ExecutorInfo info;
};

using ReportBody =
    std::variant<Heartbeat, CommunicatorReady, ProgramLoaded, LaunchDone, LaunchFailed,
                 BufferWritten, BufferRead, ExecutorLost, ExecutorReady, FileInspected>;
struct Report {
  int32_t executor = 0;  // index; ignored by Heartbeat
  uint64_t incarnation = 0;
  ReportBody body;
};

// ---- Carriers. ----------------------------------------------------------------------------------
// One registered worker, as the coordinator sees it.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  // The registration is taken; a carrier passes the Welcome on. Before the first Send; one that is
  // not taken is closed without it.
  virtual void Accept() {}
  virtual void Send(int32_t executor, uint64_t incarnation, Command command) = 0;
  // The coordinator has given the worker up and sends nothing more; a carrier closes its
  // connection.
  virtual void Close(const absl::Status& why) { (void)why; }
};

// The coordinator, as a worker sees it.
class WorkerEvents {
 public:
  virtual ~WorkerEvents() = default;
  // `link` may be used from now until Disconnect returns.  One that another worker is registered
  // under the name of, or that is refused for another reason, is closed with it.
  virtual absl::StatusOr<Welcome> Register(const Registration& registration,
                                           std::shared_ptr<WorkerLink> link) = 0;
  // In the order in which things happened on the executor.  Unknown sessions are ignored.
  virtual void OnReport(uint64_t session, Report report) = 0;
  // The worker is gone: its executors and arrays are lost.  One that comes back starts its
  // executors anew, with other incarnations, before it registers.
  virtual void Disconnect(uint64_t session, const absl::Status& why) = 0;
};

}  // namespace tessera::api
