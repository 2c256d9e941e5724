// The interface between the coordinator and a worker: plain messages, passed by a direct call
// (embed/) or over gRPC streams (server/rpc, worker/rpc). worker.proto has the same names, but
// calls a registration id a session.
//
// The coordinator sends commands, the worker sends reports, and neither side waits for the other.
// The coordinator calls WorkerLink, the worker calls WorkerEvents; both are thread-safe and never
// block. An executor is named by (worker, index, incarnation). A command for a lost incarnation is
// dropped, since ExecutorLost has already failed the operation that the command belonged to.
//
// Order. An executor carries out the Launch and Transfer commands in the order in which they were
// sent. This order is the same global order on every executor, so collectives cannot deadlock.
// LoadProgram and ConfigureCommunicator take effect before any later Launch; the worker may prepare
// them at once. DeleteBuffers takes effect after every earlier Launch. WriteBuffer, ReadBuffer and
// CancelLaunch do not wait for launches, except that a read waits for the buffer's producer.
//
// Buffers. A shard is named by (array id, local device): an array has at most one shard on a
// device. The coordinator assigns the ids and never uses one twice.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
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
#include "ir/api/gpu_reading.h"
#include "ir/array.h"
#include "ir/mesh.h"
#include "ir/program.h"

namespace tessera::api {

// ---- Registration. ------------------------------------------------------------------------------
struct ExecutorInfo {
  int32_t index = 0;         // index within the worker
  uint64_t incarnation = 0;  // unique to the process; never 0
  std::string device_kind;   // "cpu", "gpu"
  int32_t num_devices = 1;
  std::string data_endpoint;  // host:port of its DataService as clients reach it; "" in process
  std::string peer_endpoint;  // host:port for collectives as peers reach it; "" in process
  // host:port of its DataService for peers, which copy arrays from it; "" in process
  std::string peer_data_endpoint;
  int64_t memory_bytes = 0;  // memory per device; 0 if unknown
  bool files = false;        // has a --files-dir: arrays can be saved and loaded
  std::string files_folder;  // name of the directory, the same for all that share it; "" if unknown
  // Whether the executor has served a coordinator since it started. If it has, only a coordinator
  // that adopts it (AdoptedExecutor) can use it.
  bool has_state = false;
  // Speeds of one device while all devices work, measured at the start of the executor: f32
  // arithmetic, and memory read and written. 0 if not measured.
  double flops_per_second = 0, memory_bytes_per_second = 0;
};
struct Registration {
  std::string worker;  // unique in the cluster, stable over restarts
  std::string host;
  int opset = ir::kOpset;  // the newest op set that the worker runs
  std::vector<ExecutorInfo> executors;
  int64_t host_memory_bytes = 0;  // memory for all CPU devices of the worker together; 0 if unknown
  Build build = {};
};
// An executor whose state the coordinator knows and continues to use.
struct AdoptedExecutor {
  int32_t executor = 0;  // index of the executor
  uint64_t incarnation = 0;
  bool operator==(const AdoptedExecutor&) const = default;
};
// The coordinator's reply to a registration.
struct Welcome {
  uint64_t registration_id = 0;  // named in every report
  uint64_t epoch = 0;            // greater at each start of a coordinator with the same state
  absl::Duration heartbeat;      // the worker reports at least this often
  absl::Duration lease;          // the worker is away after this long without a report
  std::string ticket_key;        // the worker's key for tickets (ir/api/ticket.h)
  absl::Time clock;              // the coordinator's wall clock now; tickets expire by this clock
  // How long executors keep their state while the coordinator is away.
  absl::Duration outage_grace = {};
  // The executors that the coordinator adopts, among those registered with `has_state`. The worker
  // starts the other executors with state anew.
  std::vector<AdoptedExecutor> adopted = {};
  Build build = {};      // the coordinator's build
  int32_t protocol = 1;  // the version that both sides speak
  // When the coordinator's state began. Epochs are numbers within one state. InfiniteFuture if the
  // coordinator is too old to say.
  absl::Time state_began = absl::InfiniteFuture();
};
// The first message of an executor on its own stream to the coordinator.
struct Attachment {
  int32_t executor = 0;  // index of the executor
  uint64_t incarnation = 0;
  uint64_t registration_id = 0;  // the id of its worker's registration
  std::string key;               // its ticket key (ir/api/ticket.h)
  uint64_t epoch = 0;            // epoch of the coordinator that the executor means to reach
};

// ---- Coordinator -> executor. -------------------------------------------------------------------
// Connects the receiver to the other members of a communicator. A generation is one set of executor
// incarnations; its number is never reused. The reply is CommunicatorReady. Launches name the
// generation that they use.
struct ConfigureCommunicator {
  struct Member {
    std::string executor;  // "worker/index"
    uint64_t incarnation = 0;
    std::string endpoint;     // the member's peer endpoint
    int32_t num_devices = 1;  // number of devices of the executor
    bool operator==(const Member&) const = default;
  };
  uint64_t generation = 0;
  std::vector<Member> members;
  int32_t self = 0;    // index of the receiver in members
  std::string secret;  // secret with which peers authenticate each other
};
// Closes the communicator's connections and fails the collectives that wait on them.
struct CloseCommunicator {
  uint64_t generation = 0;
};
// Compiles the device program.  The reply is ProgramLoaded.
struct LoadProgram {
  struct Coordinate {
    int32_t member = 0;  // index of its executor in the communicator's members
    int32_t device = 0;  // local index at that executor
    bool operator==(const Coordinate&) const = default;
  };
  uint64_t executable = 0;
  std::string name;  // for messages only
  // The program of one device: params, results and all other values are shards, all mesh axes are
  // Manual, and check_vma is false. entry->scope.mesh is the mesh.
  ir::Program program;
  std::vector<Coordinate> coordinates;  // one per mesh device, row-major
  int32_t self = 0;                     // index of the receiver in the members
  std::string tenant = {};  // the owner of the program; its code is shared with no other tenant
  // Returns the receiver's mesh devices as pairs {mesh device, local device}.
  std::vector<std::pair<int64_t, int32_t>> LocalDevices() const {
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
// Runs an executable on all of the receiver's devices that the executable uses. Argument a on
// device d is the buffer (args[a], d), and result r becomes (results[r], d). The reply is
// LaunchDone or LaunchFailed once the launch has ended on all of these devices. If an argument has
// failed, the launch fails with the argument's error.
struct Launch {
  uint64_t launch = 0;
  uint64_t sequence = 0;  // place in the global order; 0 if it is not known any more
  uint64_t executable = 0;
  uint64_t generation = 0;  // generation of the communicator; 0: one executor, none needed
  std::vector<uint64_t> args, results;
  // Marks donated arguments; empty if there are none. The launch frees or reuses their buffers,
  // unless it fails before it reaches the device.
  std::vector<bool> donate;
  absl::Duration timeout = absl::InfiniteDuration();  // from the start of the launch
  // A small shard of a result; LaunchDone returns its value inline.
  struct InlineResult {
    int32_t result = 0;  // index into results
    int32_t device = 0;  // local index
    bool operator==(const InlineResult&) const = default;
  };
  std::vector<InlineResult> inline_results = {};
};
// Assembles shards of a new array from slices of the shards of one other array, whose shards may
// lie on any executors. The command is ordered like a launch; the reply is LaunchDone or
// LaunchFailed. A source on another executor is read from that executor's DataService with the
// ticket; the read waits for the source's producer.
struct Transfer {
  struct Piece {
    bool local = false;  // the source is on this executor: (source, source_device)
    uint64_t source = 0;
    int32_t source_device = 0;
    std::string endpoint, ticket;                // if not local
    ir::Dims source_starts, dest_starts, shape;  // a slice of each of the two shards
    std::string executor = {};  // if not local: the executor of the source, for errors
  };
  struct Shard {
    int32_t device = 0;
    std::vector<Piece> pieces;  // together they cover the shard
  };
  uint64_t launch = 0;
  uint64_t sequence = 0;
  uint64_t result = 0;  // array id
  ir::DType dtype = ir::DType::kF32;
  ir::Dims local_shape;
  std::vector<Shard> shards;
  absl::Duration timeout = absl::InfiniteDuration();
};
// Writes a shard whose value comes with the command: a small shard that the coordinator relays (for
// RunProgram), or any shard if the executor is in the coordinator's process. The reply is
// BufferWritten.
struct WriteBuffer {
  uint64_t array = 0;
  int32_t device = 0;
  ir::Array value;
};
// Reads a shard. The reply is BufferRead when the buffer is ready or has failed.
struct ReadBuffer {
  uint64_t request = 0;
  uint64_t array = 0;
  int32_t device = 0;
};
// A shard, and the part of a file's array that it is saved to or loaded from.
struct FileShard {
  int32_t index = 0;  // index into the file's arrays
  uint64_t array = 0;
  int32_t device = 0;
  ir::Dims starts, shape;  // position and shape of the shard in the array
  bool operator==(const FileShard&) const = default;
};
// Writes shards that were produced earlier in the global order into one file under the worker's
// --files-dir (ir/api/files.h). Other executors that share the directory write their parts of the
// same file. The file is complete once part 0 is done. The command is ordered like a launch; the
// reply is LaunchDone or LaunchFailed.
struct SaveShards {
  uint64_t launch = 0;
  uint64_t sequence = 0;
  std::string path;
  // Names the temporary file. A token is never reused.
  std::string token;
  bool overwrite = false;  // whether to replace an existing file
  // The receiver's number among the executors that write the file, and the number of these
  // executors.
  int32_t part = 0, parts = 1;
  std::vector<FileArrayInfo> arrays;  // all arrays that the file will hold, in this order
  std::vector<FileShard> shards;      // the shards that the receiver writes
  absl::Duration timeout = absl::InfiniteDuration();
};
// Loads shards from a file. Each shard is reported by one BufferWritten. Then LaunchDone or
// LaunchFailed follows once. The command is not ordered like a launch: a reader of the arrays waits
// until they are written.
struct LoadShards {
  uint64_t launch = 0;
  std::string path;
  std::vector<FileArrayInfo> arrays;  // as InspectFile found them
  std::vector<FileShard> shards;
  absl::Duration timeout = absl::InfiniteDuration();
};
// Reads the description of a file. The reply is FileInspected.
struct InspectFile {
  uint64_t request = 0;
  std::string path;
};
// Frees the shards of these arrays on every local device. Unknown ids are not an error.
struct DeleteBuffers {
  std::vector<uint64_t> arrays;
};
// Ends the launch with the error `why`, whether it is waiting or running. Has no effect if it has
// ended.
struct CancelLaunch {
  uint64_t launch = 0;
  absl::Status why;
};
// Finishes the commands sent so far, reports LaunchDone for them, and exits.
struct Drain {};
// Kills the executor's process and starts another one, because the executor did not acknowledge the
// end of an operation. The daemon does this without the process's help; the reply is ExecutorLost
// with the reason. An executor inside the coordinator's process cannot be killed: there the command
// does nothing.
struct KillExecutor {
  std::string reason;
  // Whether the process is spared if it answers its daemon and has not been told yet to end any of
  // its launches: the CancelLaunch is then still on its way. The coordinator repeats the command.
  bool if_told = false;
};

// The coordinator has processed the executor's reports up to this number, and remembers them even
// after its own restart. See Report.
struct AcknowledgeReports {
  uint64_t through = 0;
};

using Command =
    std::variant<ConfigureCommunicator, CloseCommunicator, LoadProgram, UnloadPrograms, Launch,
                 Transfer, WriteBuffer, ReadBuffer, DeleteBuffers, CancelLaunch, Drain, SaveShards,
                 LoadShards, InspectFile, KillExecutor, AcknowledgeReports>;

// ---- Worker -> coordinator. ---------------------------------------------------------------------
// The body types of reports. A report of an executor names its incarnation; reports of an old
// incarnation are dropped.
struct Heartbeat {
  // The state of an executor. The daemon reads it from shared memory.
  struct Executor {
    int32_t executor = 0;         // index of the executor
    absl::Duration progress_age;  // time since its launch made progress; 0 if it runs nothing
    absl::Duration silence = {};  // time since it replied to its daemon; 0 while it replies
    uint64_t launch = 0;          // the launch that runs; 0: none or unknown
    std::string op = {};          // the op that runs; "" if unknown
    bool waiting = false;         // the op is waiting for other devices
    std::string fault = {};       // last fault of its device and its time; "" if there was none
    std::optional<GpuReading> gpu = {};  // state of its GPU, if it has one and the state is known
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
  int64_t memory_bytes = 0;  // peak per device, including scratch memory
};
// The speed of links between devices, as measured during exchanges. 0 means unknown.
struct LinkSpeed {
  // Whether the links are between executors; otherwise they are among the executor's own devices.
  bool between_executors = false;
  double bytes_per_second = 0;  // rate at which one device sends
  double latency_seconds = 0;   // latency of one round of an exchange
};
struct LaunchDone {
  uint64_t launch = 0;
  absl::Duration run_time;
  // A requested inline result. Results that were deleted meanwhile, or that the host has not copied
  // from the device as part of the launch, are left out.
  struct InlineResult {
    uint64_t array = 0;
    int32_t device = 0;
    ir::Array value;
  };
  std::vector<InlineResult> inline_results = {};
  std::vector<LinkSpeed> links = {};  // links whose speed has changed
};
// The status names the op, its source location and, for a collective, the missing devices.
struct LaunchFailed {
  uint64_t launch = 0;
  absl::Status status;
  // Whether the launch failed before any device of the executor got its arguments. Donated
  // arguments are then intact.
  bool inputs_kept = false;
};
// A shard has been written completely, by ticket or by WriteBuffer, or it never will be (see
// `status`).
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
// The executor's process has exited, and its buffers are lost.
struct ExecutorLost {
  std::string reason;   // "killed by signal 9"
  uint64_t launch = 0;  // the launch that ran; 0: none or unknown
  std::string op;       // the op in flight, such as "psum (model.cc:41)"; "" if unknown
};
// The executor's process says that it ends, because its daemon has died or stops it. It is the last
// report on the executor's own stream. It counts even when the daemon's connection has ended
// before, which by itself proves nothing about the executor.
struct ExecutorFarewell {
  std::string reason;  // "its daemon has ended"
};
// A new process serves as the executor of this index.
struct ExecutorReady {
  ExecutorInfo info;
};

// The state of an executor that attaches again. It is the first report on the stream. The reports
// that were not acknowledged follow it in order, and then the reports of later events. The end of
// an operation that is listed as running is therefore not among the old reports; it follows only if
// the operation has ended meanwhile.
//
// Commands sent earlier whose effect is neither listed nor reported were lost on the way, or a
// later command undid their effect. For example, an array that is not listed was deleted, was
// donated to an operation that is listed, or never came. A listed array or executable that the
// coordinator does not know belongs to a command that the coordinator has forgotten. A ReadBuffer
// or InspectFile that was not answered will never be.
struct ExecutorInventory {
  struct Device {
    // Array ids, ascending: arrays that have their value, arrays whose value is still to come, and
    // arrays whose producer has failed.
    std::vector<uint64_t> ready, expected, failed;
    bool operator==(const Device&) const = default;
  };
  std::vector<Device> devices = {};        // all devices of the executor, in order
  std::vector<uint64_t> running = {};      // operations (`launch`) that wait or run, ascending
  std::vector<uint64_t> ended = {};        // operations whose ends follow, ascending
  std::vector<uint64_t> executables = {};  // loaded executables, ascending
  std::vector<uint64_t> compiling = {};    // executables whose ProgramLoaded is still to come
  std::vector<uint64_t> generations = {};  // generations of configured communicators, ascending
  // For each entry of `running`, its sequence number and the generation of its communicator. Each
  // may be 0 (see Launch).
  std::vector<uint64_t> sequences = {}, running_generations = {};
  // The number of the last report made before this one. The inventory includes the effects of those
  // reports on arrays and programs that still exist; arrays and programs that have gone since are
  // not mentioned.
  uint64_t reports = 0;
};

using ReportBody = std::variant<Heartbeat, CommunicatorReady, ProgramLoaded, LaunchDone,
                                LaunchFailed, BufferWritten, BufferRead, ExecutorLost,
                                ExecutorReady, FileInspected, ExecutorInventory, ExecutorFarewell>;
struct Report {
  int32_t executor = 0;  // index; ignored by Heartbeat
  uint64_t incarnation = 0;
  ReportBody body;
  // The number of a report that the executor keeps until the report is acknowledged, and sends
  // again after its stream has ended. Numbers count from 1. If an incarnation sends two reports
  // with the same number, they are the same report. 0 for all other reports.
  uint64_t number = 0;
};

// ---- Transports. --------------------------------------------------------------------------------
// One registered worker, as the coordinator sees it.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  // The coordinator has accepted the registration and adopts these executors, which came with
  // state. A transport passes the Welcome on. Called before the first Send; a link that is not
  // accepted is closed without this call.
  virtual void Accept(const std::vector<AdoptedExecutor>& adopted) { (void)adopted; }
  virtual void Send(int32_t executor, uint64_t incarnation, Command command) = 0;
  // Like Send, for an executor that has a connection of its own. `attachment` is the number that
  // the last DisconnectExecutor before the command gave, or 0. If the transport has given a later
  // number meanwhile, it drops the command, because the executor's inventory was made before.
  virtual void SendOn(int32_t executor, uint64_t incarnation, uint64_t attachment,
                      Command command) {
    (void)attachment;
    Send(executor, incarnation, std::move(command));
  }
  // Like Send, for an executor in this process. If the executor completes the command during the
  // call, and has made all earlier reports, it may set `*report` and return true. It then makes
  // this report in no other way.
  virtual bool SendForReport(int32_t executor, uint64_t incarnation, Command command,
                             Report* report) {
    (void)report;
    Send(executor, incarnation, std::move(command));
    return false;
  }
  // The executor's reports up to this number have been processed, and stay processed after a
  // restart of the coordinator. A transport tells the executor so at some time
  // (AcknowledgeReports).
  virtual void Acknowledge(int32_t executor, uint64_t incarnation, uint64_t number) {
    (void)executor, (void)incarnation, (void)number;
  }
  // The coordinator has dropped the worker and sends nothing more. A transport closes its
  // connection with the daemon. The executors' own connections stay, so that their farewells still
  // come; only if the coordinator stops (SERVER_STOPPING) are they closed as well.
  virtual void Close(const absl::Status& why) { (void)why; }
};

// The coordinator, as a worker sees it.
class WorkerEvents {
 public:
  virtual ~WorkerEvents() = default;
  // Registers a worker. `link` may be used until Disconnect returns. If the registration is
  // rejected, for example because the name is taken, the link is closed with the error.
  virtual absl::StatusOr<Welcome> Register(const Registration& registration,
                                           std::shared_ptr<WorkerLink> link) = 0;
  // Receives a report. The reports of an executor come in the order of its events. Reports with an
  // unknown registration id are ignored, except for an ExecutorFarewell.
  virtual void OnReport(uint64_t registration_id, Report report) = 0;
  // The worker is no longer connected. This does not mean that it has lost anything. If it returns
  // within its outage grace, it registers with the same incarnations; those that have served a
  // coordinator have `has_state` set.
  virtual void Disconnect(uint64_t registration_id, const absl::Status& why) = 0;
  // The executor's own connection has ended, and commands may be lost with it, while its worker is
  // still connected. If the executor connects again, its first report is an ExecutorInventory.
  // `attachment` counts these calls for one registration and incarnation. Not called for executors
  // that have no connection of their own.
  virtual void DisconnectExecutor(uint64_t registration_id, int32_t executor, uint64_t incarnation,
                                  uint64_t attachment, const absl::Status& why) {
    (void)registration_id, (void)executor, (void)incarnation, (void)attachment, (void)why;
  }
};

}  // namespace tessera::api
