// The client's interface to a cluster: plain messages, implemented in-process (embed/) and over
// gRPC (client/remote, server/rpc).
//
// Everything is asynchronous: Execute returns ids before the work has run; the ids may be used in
// the next call, and an error propagates along them to whoever asks for the value.  Implementations
// are thread-safe.  Every call honours its deadline; errors carry a reason (base/status.h).
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
#include "ir/array.h"
#include "ir/mesh.h"
#include "ir/program.h"

namespace tessera::api {

struct Device {
  int64_t id = 0;    // unique in the cluster, stable while its worker is registered
  std::string kind;  // "cpu", "gpu"
  std::string worker, host;
  std::string executor;  // the process that owns it
  bool healthy = true;
  std::string reason;         // why it is not healthy
  int64_t memory_bytes = 0;   // 0: unknown
  bool cordoned = false;      // its worker takes no new programs
  bool unresponsive = false;  // its executor runs and does not answer its worker
};

// Where an array's shards are: `spec` says how it is sharded over `mesh`, whose device k
// (row-major) is `devices[k]`.
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
      devices;       // one per coordinate of the program's mesh; empty: the server chooses
  std::string name;  // for metrics, explain and messages only
  bool explain = false;
  std::string mesh = {};   // a named mesh, whose devices are taken; not with `devices`
  bool plan_only = false;  // makes no executable; the reply's is 0
  // > 0, and only with plan_only: plans for hypothetical devices, one per coordinate of the
  // program's mesh, each with this much memory; not with `devices` or `mesh`.  The reply has
  // neither devices nor pending reasons.  OUT_OF_MEMORY: the program does not fit.
  int64_t device_memory_bytes = 0;
  absl::Duration timeout = absl::InfiniteDuration();  // for the reply; DEADLINE_EXCEEDED
};

// One of the reasons why an operation waits.
struct PendingReason {
  std::string code;                    // "WORKER_LOST", ...: see operation.proto
  std::string message;                 // human-readable
  std::vector<std::string> resources;  // "workers/w0", "arrays/7", ...
};

struct CompileReply {
  uint64_t executable = 0;
  std::vector<ArraySpec> in, out;           // of the plan's arguments and results
  std::string explain_text, explain_json;   // with `explain`
  int64_t memory_bound_bytes = 0;           // per device
  std::vector<int64_t> devices = {};        // per mesh coordinate
  std::vector<PendingReason> pending = {};  // plan_only: what the program would wait for
};

struct ExecuteRequest {
  uint64_t executable = 0;
  std::vector<uint64_t> args;  // array ids; the server reshards those whose sharding differs
  // Empty: none.  A donated array is deleted once it has been read; if the operation never started
  // it is back, ready, whether or not it needed a copy.
  std::vector<bool> donate;
  std::optional<absl::Duration> deadline;  // for the run, from acceptance; unset: the server's own
  // Arrays to delete first, as Delete does; a call that fails may leave them.
  std::vector<uint64_t> release;
  // The total size up to which results are returned inline with the run's completion; see
  // kInlineEachMax.
  int64_t inline_bytes_max = 0;
  uint64_t session = 0;     // owns the results; a transport that has a session of its own sets it
  bool check_only = false;  // validates the request, and runs, releases and makes nothing
  // The reply need not wait until the run is accepted: one that is refused is told where its
  // results are asked for. The ids of such a reply are of this service object only.
  bool ahead = false;
};
struct ExecuteReply {
  uint64_t operation = 0;
  std::vector<uint64_t> outputs;
  bool done = false;  // the run has ended without an error already; false: it is not known
};

enum class OperationState : uint8_t { kPending, kRunning, kDone, kFailed, kCancelled };
// The name of an array in a file, and the placement that it gets.
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
  absl::Status error;          // when failed or cancelled
  std::string pending_reason;  // why the operation has not started
  uint64_t session = 0;
  std::string tenant = {};
  OperationKind kind = OperationKind::kExecute;
  absl::Time created = {};
  absl::Time started = absl::InfiniteFuture();  // not yet
  absl::Time ended = absl::InfiniteFuture();    // not yet
  std::vector<uint64_t> outputs = {};
};

// An operation, and the arrays that it will produce, which may be used at once.
struct Making {
  uint64_t operation = 0;
  std::vector<uint64_t> arrays;
  std::vector<ArraySpec> specs;  // of each
};

// The most bytes of results that a server returns inline with a completion; and where all results
// have more, of each that is returned all the same: the loss beside the state of a training.
constexpr int64_t kInlineBytesMax = 64 << 10;
constexpr int64_t kInlineEachMax = 1 << 10;

// How a run ended, with its inline results.
struct Completion {
  Operation operation;
  std::vector<std::pair<uint64_t, ir::Array>> results;
};

class Service {
 public:
  virtual ~Service() = default;

  virtual absl::StatusOr<std::vector<Device>> ListDevices() = 0;
  // Plans and caches: the same program on the same devices returns at once.
  virtual absl::StatusOr<CompileReply> Compile(const CompileRequest& request) = 0;
  virtual absl::StatusOr<ExecuteReply> Execute(const ExecuteRequest& request) = 0;
  // Uploads `value`, sharded as the placement says, to the executors.  Returns when the bytes
  // have been handed over; `value` may then be reused.  DEADLINE_EXCEEDED after `timeout`, or after
  // the service's own limit for a transfer if that is shorter.
  virtual absl::StatusOr<uint64_t> Put(const ir::Array& value, const Placement& placement,
                                       absl::Duration timeout = absl::InfiniteDuration()) = 0;
  // Waits until the array is ready or its producer has failed, at most `timeout`.
  virtual absl::StatusOr<ir::Array> Get(uint64_t array, absl::Duration timeout) = 0;
  // The shard on `placement.devices[ordinal]`.
  virtual absl::StatusOr<ir::Array> GetShard(uint64_t array, int ordinal,
                                             absl::Duration timeout) = 0;
  virtual absl::StatusOr<ArraySpec> Describe(uint64_t array) = 0;
  // An array of the same contents with another placement; bytes move between devices only.
  virtual absl::StatusOr<Making> Reshard(uint64_t array, const Placement& placement) = 0;
  // Has the executors write arrays to a file under their --files-dir.  Once the returned operation
  // is done the file is complete; if it fails there is no file.
  virtual absl::StatusOr<uint64_t> Save(const std::string& path,
                                        const std::vector<ArrayToSave>& arrays, bool overwrite) = 0;
  // Has the executors make arrays from a file.
  virtual absl::StatusOr<Making> Load(const std::string& path,
                                      const std::vector<ArrayToLoad>& arrays) = 0;
  // The arrays of a file, in the file's order.
  virtual absl::StatusOr<std::vector<FileArrayInfo>> DescribeFile(const std::string& path) = 0;
  // Later uses fail with ARRAY_DELETED.  Deleting twice, or an unknown id, is not an error.
  virtual absl::Status Delete(absl::Span<const uint64_t> arrays) = 0;
  virtual absl::StatusOr<Operation> GetOperation(uint64_t operation) = 0;
  // Returns when the operation has ended, or at the timeout with its current state.
  virtual absl::StatusOr<Operation> WaitOperation(uint64_t operation, absl::Duration timeout) = 0;
  virtual absl::Status Cancel(uint64_t operation) = 0;
};

}  // namespace tessera::api
