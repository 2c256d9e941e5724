// The client's interface to a cluster: plain messages. It is implemented in-process (embed/) and
// over gRPC (client/remote, server/rpc).
//
// Work on arrays is asynchronous: Execute, Reshard, Save and Load return ids before the work is
// done, and the ids may be used in the next call. An error of the work is passed on to everything
// that depends on it and is reported to the caller that reads a value. Implementations are
// thread-safe. Every call honours its deadline; errors carry a reason (base/status.h).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/api/files.h"
#include "ir/api/gpu_reading.h"
#include "ir/array.h"
#include "ir/mesh.h"
#include "ir/program.h"

namespace tessera::api {

struct Device {
  int64_t id = 0;    // unique in the cluster, stable while its worker is registered
  std::string kind;  // "cpu", "gpu"
  std::string worker, host;
  std::string executor;  // the process that owns the device
  bool healthy = true;
  std::string reason;         // why the device is not healthy, or why it is cordoned
  int64_t memory_bytes = 0;   // 0 if unknown
  bool cordoned = false;      // the device takes no new programs
  bool unresponsive = false;  // the executor runs but does not answer its worker
  bool away = false;          // not healthy, but its executor may come back with its arrays
  std::optional<GpuReading> gpu = {};  // state of a GPU, if its worker knows it
};

// Says where an array's shards are: `spec` says how the array is sharded over `mesh`, whose device
// k (row-major) is `devices[k]`.
struct Placement {
  ir::Mesh mesh;
  ir::PartitionSpec spec;
  std::vector<int64_t> devices;
  bool operator==(const Placement&) const = default;
};

struct ArraySpec {
  ir::DType dtype = ir::DType::kF32;
  ir::Dims shape;
  Placement placement;
};

struct CompileRequest {
  ir::Program program;
  std::vector<int64_t>
      devices;       // one per coordinate of the program's mesh; if empty, the server chooses
  std::string name;  // for metrics, explain and messages only
  bool explain = false;
  std::string mesh = {};   // name of a mesh of the cluster (CreateMesh); not with `devices`
  bool plan_only = false;  // makes no executable; `executable` in the reply is 0
  // If positive, plans for absent devices, one per coordinate of the program's mesh, each
  // with this much memory. Only with plan_only, and not with `devices` or `mesh`. The reply has
  // neither devices nor pending reasons. OUT_OF_MEMORY: the program does not fit.
  int64_t device_memory_bytes = 0;
  absl::Duration timeout = absl::InfiniteDuration();  // limit for the reply (DEADLINE_EXCEEDED)
};

// A reason why an operation is waiting; there may be several.
struct PendingReason {
  std::string code;                    // "WORKER_LOST", ...: see operation.proto
  std::string message;                 // human-readable
  std::vector<std::string> resources;  // "workers/w0", "arrays/7", ...
};

struct CompileReply {
  uint64_t executable = 0;
  std::vector<ArraySpec> in, out;          // the plan's arguments and results
  std::string explain_text, explain_json;  // filled if `explain` is set
  int64_t memory_bound_bytes = 0;          // memory that the program needs on each device, at most
  std::vector<int64_t> devices = {};       // one per mesh coordinate
  // Only with plan_only: the reasons for which a run of the program would have to wait.
  std::vector<PendingReason> pending = {};
};

class KeptProgram;

struct ExecuteRequest {
  uint64_t executable = 0;
  std::vector<uint64_t> args;  // array ids; the server reshards those whose sharding differs
  // Marks the arguments that are donated; empty if there are none. A donated array is deleted once
  // the run has read it. If the operation never starts, the array is available again, even if it
  // had to be copied for the operation.
  std::vector<bool> donate;
  // The time limit of the run, counted from acceptance. The server's own limit applies if it is not
  // set.
  std::optional<absl::Duration> time_limit;
  // Arrays to delete before the run, as Delete does. A call that fails may leave them undeleted.
  std::vector<uint64_t> release;
  // The total size up to which results are returned inline with the run's completion. See
  // kInlineEachMax.
  int64_t inline_bytes_max = 0;
  // The session that owns the results. A transport that has a session of its own fills this in.
  uint64_t session = 0;
  // Validates the request only: nothing is run, released or made.
  bool check_only = false;
  // Whether the reply may come before the run is accepted. If the run is refused, the error is
  // reported where its results are used. The ids in such a reply are valid for this service object
  // only.
  bool ahead = false;
  // The program of `executable`, or null. A service that takes the run ahead compiles it again if
  // the executable is gone when the run's turn comes. For other runs the caller does so.
  std::shared_ptr<KeptProgram> kept_program = nullptr;
};
struct ExecuteReply {
  uint64_t operation = 0;
  std::vector<uint64_t> outputs;
  // Whether the run is known to have ended without an error. If false, its state is not known.
  bool done = false;
};

enum class OperationState : uint8_t { kPending, kRunning, kDone, kFailed, kCancelled };
// An array to load: its name in the file, and the placement that it gets.
struct ArrayToLoad {
  std::string name;
  Placement placement;
};

enum class OperationKind : uint8_t { kExecute, kReshard, kSave, kLoad };
inline std::string_view OperationKindName(OperationKind kind) {
  constexpr std::string_view kNames[] = {"execute", "reshard", "save", "load"};
  return kNames[static_cast<int>(kind)];
}
struct Operation {
  uint64_t id = 0;
  std::string name;
  OperationState state = OperationState::kPending;
  absl::Status error;  // set if the operation failed or was cancelled
  // Why the operation has not started or, while it runs, which of its executors is away; "" if
  // there is nothing to tell.
  std::string pending_reason;
  uint64_t session = 0;
  std::string tenant = {};
  OperationKind kind = OperationKind::kExecute;
  absl::Time created = {};
  absl::Time started = absl::InfiniteFuture();  // infinite if it has not started
  absl::Time ended = absl::InfiniteFuture();    // infinite if it has not ended
  std::vector<uint64_t> outputs = {};
};

// An operation, and the ids of the arrays that it will produce, which may be used at once.
struct PendingArrays {
  uint64_t operation = 0;
  std::vector<uint64_t> arrays;
  std::vector<ArraySpec> specs;  // one for each array
};

// kInlineBytesMax is the total size up to which a server returns results inline with a completion.
// If the results together are larger, it still returns each result of at most kInlineEachMax, such
// as the loss of a training step beside its large state.
constexpr int64_t kInlineBytesMax = 64 << 10;
constexpr int64_t kInlineEachMax = 1 << 10;

// Says how a run ended, and holds its inline results.
struct Completion {
  Operation operation;
  std::vector<std::pair<uint64_t, ir::Array>> results;
};

class Service {
 public:
  virtual ~Service() = default;

  virtual absl::StatusOr<std::vector<Device>> ListDevices() = 0;
  // Plans the program and caches the plan: a second call with the same program and devices returns
  // at once.
  virtual absl::StatusOr<CompileReply> Compile(const CompileRequest& request) = 0;
  virtual absl::StatusOr<ExecuteReply> Execute(const ExecuteRequest& request) = 0;
  // Uploads `value`, sharded as the placement says, to the executors. Returns when the bytes have
  // been handed over; `value` may then be reused. DEADLINE_EXCEEDED after `timeout`, or after the
  // service's own limit for a transfer if that is shorter.
  virtual absl::StatusOr<uint64_t> Put(const ir::Array& value, const Placement& placement,
                                       absl::Duration timeout = absl::InfiniteDuration()) = 0;
  // Waits at most `timeout` until the array is ready or its producer has failed.
  virtual absl::StatusOr<ir::Array> Get(uint64_t array, absl::Duration timeout) = 0;
  // Returns the shard on `placement.devices[ordinal]`.
  virtual absl::StatusOr<ir::Array> GetShard(uint64_t array, int ordinal,
                                             absl::Duration timeout) = 0;
  virtual absl::StatusOr<ArraySpec> Describe(uint64_t array) = 0;
  // Makes an array with the same contents and another placement. The bytes move directly between
  // executors.
  virtual absl::StatusOr<PendingArrays> Reshard(uint64_t array, const Placement& placement) = 0;
  // Lets the executors write arrays to a file under their --files-dir. Once the returned operation
  // is done the file is complete; if the operation fails there is no file.
  virtual absl::StatusOr<uint64_t> Save(const std::string& path,
                                        const std::vector<ArrayToSave>& arrays, bool overwrite) = 0;
  // Lets the executors make arrays from a file.
  virtual absl::StatusOr<PendingArrays> Load(const std::string& path,
                                             const std::vector<ArrayToLoad>& arrays) = 0;
  // Returns the arrays of a file, in the file's order.
  virtual absl::StatusOr<std::vector<FileArrayInfo>> DescribeFile(const std::string& path) = 0;
  // Deletes arrays. Later uses fail with ARRAY_DELETED. Deleting twice, or an unknown id, is not an
  // error.
  virtual absl::Status Delete(absl::Span<const uint64_t> arrays) = 0;
  virtual absl::StatusOr<Operation> GetOperation(uint64_t operation) = 0;
  // Returns when the operation has ended, or at the timeout with its current state.
  virtual absl::StatusOr<Operation> WaitOperation(uint64_t operation, absl::Duration timeout) = 0;
  virtual absl::Status Cancel(uint64_t operation) = 0;
  // Returns whether the operation is known to have ended. Makes no call over a network and waits
  // for nothing, so the answer may be false although the operation has ended.
  virtual bool HasEnded(uint64_t) { return false; }
  // Returns why an array or an operation cannot be used any more, if this client knows it without
  // looking at the object: SESSION_NOT_FOUND if the session that had it ended while this process
  // did not run. Returns OK for any other id.
  virtual absl::Status CheckHeld(uint64_t id) {
    (void)id;
    return absl::OkStatus();
  }
};

}  // namespace tessera::api
