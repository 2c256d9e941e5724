// The effects of a step of the scheduler: commands, replies, records. The caller of Step applies
// them in order (driver.h).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/build.h"
#include "ir/api/service.h"
#include "ir/api/worker_link.h"
#include "server/core/plan.h"
#include "server/core/plan_time.h"
#include "server/core/telemetry.h"
#include "server/scheduler/rows.h"
#include "server/scheduler/uploads.h"

namespace tessera::server::scheduler {

struct MakePlan {
  uint64_t executable = 0;  // id that comes back in Planned
  core::PlanRequest request;
};
struct SendCommand {
  uint64_t registration_id = 0;
  int32_t executor = 0;
  uint64_t incarnation = 0;
  api::Command command;
  bool when_durable = false;  // whether it leaves only once all commits so far are durable
  uint64_t attachment = 0;    // see api::WorkerLink::SendOn
};
// An array, and where its shards are.
struct ArrayInfo {
  // kUnspecified: the request was only validated.
  enum class State : uint8_t { kUnspecified, kPending, kReady, kFailed, kLost };
  struct Shard {
    std::string executor, endpoint;
    uint64_t incarnation = 0;
    int32_t device = 0;  // device index within the executor
  };
  uint64_t array = 0;
  std::shared_ptr<const api::ArraySpec> spec;
  State state = State::kUnspecified;
  // For each ordinal, the device with the shard. For an array that is ready it is the device to
  // read the shard from, which is a replica if the ordinal's own device has lost the shard.
  std::vector<Shard> shards;
  size_t num_held = 0;  // number of devices that hold a shard or will hold one (NumHeld)
  std::string tenant;
  uint64_t session = 0;
  std::vector<int> unwritten;  // ordinals of the shards that are not written yet
  absl::Time upload_until = absl::InfiniteFuture();  // end of the upload, by the tickets' clock
};
struct SessionInfo {
  uint64_t id = 0;  // 0 for the tenant's default session
  std::string tenant, display_name;
  absl::Duration lease = absl::InfiniteDuration();
  absl::Time expires = absl::InfiniteFuture();  // end of the lease, by the wall clock
  absl::Duration grace;  // grace of its operations once no client is connected
  // Number of arrays that exist, and of operations that have not ended.
  int64_t arrays = 0, operations = 0;
};
enum class WorkerState : uint8_t { kReady, kSuspect, kCordoned, kDraining, kLost };
struct WorkerInfo {
  std::string name, host;
  WorkerState state = WorkerState::kReady;
  std::string reason;  // reason for which the worker is not ready
  std::vector<int64_t> devices;
  absl::Duration heartbeat_age = absl::InfiniteDuration();  // infinite for a lost worker
  int64_t operations = 0, arrays = 0;
  std::vector<std::string> data_endpoints;
  Build build;                        // build that the worker registered with last
  int32_t protocol = 0;               // protocol spoken with the worker; 0 if it is lost
  int64_t executors_not_adopted = 0;  // see Worker::executors_not_adopted
};
struct MeshInfo {
  std::string name, tenant;
  ir::Mesh mesh;
  std::vector<int64_t> devices;
};
struct ProgramInfo {
  std::string sha256;
  ProgramBytes bytes;
  ProgramFormat format = ProgramFormat::kTessera;
};
// The progress of a program's upload.
struct UploadProgress {
  int64_t committed_bytes = 0;
  bool complete = false;                 // whether all bytes are there and are a program
  std::optional<ProgramInfo> unchecked;  // all bytes, for the caller to check
};
struct ExecutorPlace {
  std::string name, host, device_kind;
  std::vector<int64_t> devices;
  int64_t memory_bytes = 0;
  bool healthy = false;
  bool has_files_folder = false;  // whether its worker runs with --files-dir
};
// An operation that loads or reshards arrays, and the arrays that it will produce.
struct PendingArrays {
  api::Operation operation;
  std::vector<ArrayInfo> arrays;
};
struct PendingInfo {
  api::OperationState state = api::OperationState::kPending;
  std::vector<api::PendingReason> reasons;
  int64_t position = 0;  // number of earlier live operations on its executors
};
// The ids that DeleteArrays did not find.
struct MissingArrays {
  std::vector<uint64_t> arrays;
};
template <class T>
struct Page {
  std::vector<T> items;
  bool has_more = false;  // whether the list goes on after the last item
};
struct Reply {
  uint64_t request = 0;
  absl::Status status;  // if OK, `body` is valid
  std::variant<std::monostate, Page<api::Device>, core::CompileReply, api::ExecuteReply, ArrayInfo,
               ir::Array, api::Operation, api::Completion, SessionInfo, Page<SessionInfo>,
               WorkerInfo, Page<WorkerInfo>, MeshInfo, Page<MeshInfo>, UploadProgress, ProgramInfo,
               Page<ProgramInfo>, std::vector<ExecutorPlace>, Page<ArrayInfo>, Page<api::Operation>,
               PendingInfo, core::ClusterReading, PendingArrays, std::vector<api::FileArrayInfo>,
               MissingArrays>
      body;
  // If the reply contains the end of an operation, the number of the commit that records this end.
  // Otherwise 0.
  uint64_t ended_in_commit = 0;
};
// Tells the worker that its registration is accepted.
struct AcceptWorker {
  uint64_t registration_id = 0;
  // The adopted executors. The worker restarts the other executors that came with state.
  std::vector<api::AdoptedExecutor> adopted = {};
};
// Closes the connection, because the worker is lost or its registration was rejected.
struct DropWorker {
  uint64_t registration_id = 0;
  absl::Status why;
};
// A line for the log, at debug level.
struct Debug {
  std::string line;
};
// Makes the changes durable. The reply of this step and almost every later reply leave only when
// that has happened. Most commands do not wait for it (loop.h).
struct Commit {
  uint64_t number = 0;  // counts from 1
  std::vector<RowChange> rows;
};
// Asks for a Tick at this time. It replaces an earlier SetTimer.
struct SetTimer {
  absl::Time when;
};
using Effect =
    std::variant<MakePlan, SendCommand, Reply, AcceptWorker, DropWorker, Debug, Commit, SetTimer>;

// Returns for example "READY", and "" for kUnspecified.
inline const char* NameOf(ArrayInfo::State state) {
  constexpr const char* kNames[] = {"", "PENDING", "READY", "FAILED", "LOST"};
  return kNames[static_cast<int>(state)];
}

}  // namespace tessera::server::scheduler
