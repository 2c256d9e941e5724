// The client's seam to a cluster: plain messages, carried by a direct call (embed/) or by gRPC
// (client/remote, server/rpc).
//
// Everything is asynchronous: Execute answers with ids before the work has run; the ids may be used
// in the next call, and an error travels along them to whoever asks for the value.  Implementations
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
  std::string reason;         // why not
  int64_t memory_bytes = 0;   // 0: unknown
  bool cordoned = false;      // its worker takes no new programs
  bool unresponsive = false;  // its executor is there and does not answer its worker
};

// Where an array lies: a block of `spec` of `mesh`, whose device k (row-major) is `devices[k]`.
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
  std::string name;  // for people: metrics, explain, errors
  bool explain = false;
  std::string mesh = {};   // a named mesh, whose devices are taken; not with `devices`
  bool plan_only = false;  // no executable; the reply's is 0
  // > 0, and only with plan_only: planned for devices that need not be there, one per coordinate of
  // the program's mesh, each with so much memory; not with `devices` or `mesh`.  The reply names
  // no devices and nothing that it would wait for.  OUT_OF_MEMORY: it does not fit.
  int64_t device_memory_bytes = 0;
  absl::Duration timeout = absl::InfiniteDuration();  // for the answer; DEADLINE_EXCEEDED
};

// One of the reasons why an operation waits.
struct PendingReason {
  std::string code;                    // "WORKER_LOST", ...: see operation.proto
  std::string message;                 // for people
  std::vector<std::string> resources;  // "workers/w0", "arrays/7", ...
};

struct CompileReply {
  uint64_t executable = 0;
  std::vector<ArraySpec> in, out;           // as the plan wants arguments and leaves results
  std::string explain_text, explain_json;   // when asked for
  int64_t memory_bound_bytes = 0;           // per device
  std::vector<int64_t> devices = {};        // per mesh coordinate
  std::vector<PendingReason> pending = {};  // plan_only: what it would wait for if it ran now
};

struct ExecuteRequest {
  uint64_t executable = 0;
  std::vector<uint64_t> args;  // array ids, resharded by the server where they lie otherwise
  std::vector<bool> donate;    // empty: none.  A donated array is deleted once it has been read
  std::optional<absl::Duration> deadline;  // for the run, from acceptance; unset: the server's own
  // Arrays to delete first, as Delete does; of a call that fails they may be left.
  std::vector<uint64_t> release;
  // Carriers that report the end of a run ask for results with it that are together no larger.
  int64_t inline_bytes_max = 0;
  uint64_t session = 0;  // whose the results are; carriers that have a session of their own set it
  bool check_only = false;  // nothing is run, released or made
};
struct ExecuteReply {
  uint64_t operation = 0;
  std::vector<uint64_t> outputs;
};

enum class OperationState : uint8_t { kPending, kRunning, kDone, kFailed, kCancelled };
// An array of a file, and where it is to lie.
struct PlacedName {
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
  std::string pending_reason;  // why it has not started
  uint64_t session = 0;
  std::string tenant = {};
  OperationKind kind = OperationKind::kExecute;
  absl::Time created = {};
  absl::Time started = absl::InfiniteFuture();  // not yet
  absl::Time ended = absl::InfiniteFuture();    // not yet
  std::vector<uint64_t> outputs = {};
};

// An operation, and the arrays that it makes, which may be used at once.
struct Making {
  uint64_t operation = 0;
  std::vector<uint64_t> arrays;
  std::vector<ArraySpec> specs;  // of each
};

// What a server brings along at most.
constexpr int64_t kInlineBytesMax = 64 << 10;

// How a run ended, with those of its results that were small enough to come along.
struct Completion {
  Operation operation;
  std::vector<std::pair<uint64_t, ir::Array>> results;
};

class Service {
 public:
  virtual ~Service() = default;

  virtual absl::StatusOr<std::vector<Device>> ListDevices() = 0;
  // Plans and caches: the same program on the same devices answers at once.
  virtual absl::StatusOr<CompileReply> Compile(const CompileRequest& request) = 0;
  virtual absl::StatusOr<ExecuteReply> Execute(const ExecuteRequest& request) = 0;
  // Uploads `value`, cut as the placement says, to the executors.  Returns when the bytes
  // have been handed over; `value` may then be reused.
  virtual absl::StatusOr<uint64_t> Put(const ir::Array& value, const Placement& placement) = 0;
  // Waits until the array is ready or its producer has failed, at most `timeout`.
  virtual absl::StatusOr<ir::Array> Get(uint64_t array, absl::Duration timeout) = 0;
  // One shard, as it lies on `placement.devices[ordinal]`.
  virtual absl::StatusOr<ir::Array> GetShard(uint64_t array, int ordinal,
                                             absl::Duration timeout) = 0;
  virtual absl::StatusOr<ArraySpec> Describe(uint64_t array) = 0;
  // An array of the same contents that lies otherwise; bytes move between devices alone.
  virtual absl::StatusOr<Making> Reshard(uint64_t array, const Placement& placement) = 0;
  // Has the executors write arrays to a file below their folder of files.  The operation: the file
  // is there, whole, once it is done, and not at all when it failed.
  virtual absl::StatusOr<uint64_t> Save(const std::string& path,
                                        const std::vector<NamedArray>& arrays, bool overwrite) = 0;
  // Has them make arrays of what a file holds.
  virtual absl::StatusOr<Making> Load(const std::string& path,
                                      const std::vector<PlacedName>& arrays) = 0;
  // What a file holds, in its order.
  virtual absl::StatusOr<std::vector<FileArray>> DescribeFile(const std::string& path) = 0;
  // Later uses answer ARRAY_DELETED.  Deleting twice, or an unknown id, is not an error.
  virtual absl::Status Delete(absl::Span<const uint64_t> arrays) = 0;
  virtual absl::StatusOr<Operation> GetOperation(uint64_t operation) = 0;
  // Returns when it has ended, or at the timeout with its state as it is.
  virtual absl::StatusOr<Operation> WaitOperation(uint64_t operation, absl::Duration timeout) = 0;
  virtual absl::Status Cancel(uint64_t operation) = 0;
};

}  // namespace tessera::api
