// The effects of a step of the scheduler: commands, replies, records.  The caller of Step applies
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
  uint64_t executable = 0;  // comes back in Planned
  core::PlanRequest request;
};
struct SendCommand {
  uint64_t session = 0;  // of the worker
  int32_t executor = 0;
  uint64_t incarnation = 0;
  api::Command command;
  bool when_durable = false;  // it may leave once all commits so far are durable
};
// Where the shards of an array are.
struct ArrayInfo {
  // kUnspecified: the request was only validated.
  enum class State : uint8_t { kUnspecified, kPending, kReady, kFailed, kLost };
  struct Shard {
    std::string executor, endpoint;
    uint64_t incarnation = 0;
    int32_t device = 0;  // local to the executor
  };
  uint64_t array = 0;
  std::shared_ptr<const api::ArraySpec> spec;
  State state = State::kUnspecified;
  std::vector<Shard> shards;  // per ordinal
  std::string tenant;
  uint64_t session = 0;
  std::vector<int> unwritten;                        // ordinals
  absl::Time upload_until = absl::InfiniteFuture();  // by the clock of tickets
};
struct SessionInfo {
  uint64_t id = 0;  // 0: the tenant's default session
  std::string tenant, display_name;
  absl::Duration lease = absl::InfiniteDuration();
  absl::Time expires = absl::InfiniteFuture();  // by the wall clock
  absl::Duration grace;                         // of its operations once no client is connected
  int64_t arrays = 0, operations = 0;           // existing arrays; operations that have not ended
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
  Build build;           // as it registered last
  int32_t protocol = 0;  // spoken with it; 0: it is lost
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
// How far the upload of a program is.
struct UploadProgress {
  int64_t committed_bytes = 0;
  bool complete = false;                 // it is whole, and is a program
  std::optional<ProgramInfo> unchecked;  // all bytes, which the caller is to check
};
struct ExecutorPlace {
  std::string name, host, device_kind;
  std::vector<int64_t> devices;
  int64_t memory_bytes = 0;
  bool healthy = false;
  bool files = false;  // it has a --files-dir
};
// An operation that loads or reshards arrays, and the arrays that it will produce.
struct Making {
  api::Operation operation;
  std::vector<ArrayInfo> arrays;
};
struct PendingInfo {
  api::OperationState state = api::OperationState::kPending;
  std::vector<api::PendingReason> reasons;
  int64_t position = 0;  // number of earlier live operations on its devices
};
// The ids that DeleteArrays did not find.
struct MissingArrays {
  std::vector<uint64_t> arrays;
};
template <class T>
struct Page {
  std::vector<T> items;
  bool more = false;  // the list goes on after the last item
};
struct Reply {
  uint64_t request = 0;
  absl::Status status;  // `body` is valid when it is OK
  std::variant<std::monostate, Page<api::Device>, core::CompileReply, api::ExecuteReply, ArrayInfo,
               ir::Array, api::Operation, api::Completion, SessionInfo, Page<SessionInfo>,
               WorkerInfo, Page<WorkerInfo>, MeshInfo, Page<MeshInfo>, UploadProgress, ProgramInfo,
               Page<ProgramInfo>, std::vector<ExecutorPlace>, Page<ArrayInfo>, Page<api::Operation>,
               PendingInfo, core::ClusterReading, Making, std::vector<api::FileArrayInfo>,
               MissingArrays>
      body;
  uint64_t ended_in = 0;  // the commit with the end of the operation that it tells of; 0: none
};
// The registration is accepted.
struct AcceptWorker {
  uint64_t session = 0;
  // Of the executors that came with state; the worker starts the others of these anew.
  std::vector<api::AdoptedExecutor> adopted = {};
};
// Close the connection: the worker is lost, or its registration was rejected.
struct DropWorker {
  uint64_t session = 0;
  absl::Status why;
};
// A line for the log, at debug level.
struct Debug {
  std::string line;
};
// Makes the changes durable. The reply of this step, and of every later one, leaves when that has
// happened (loop.h); commands do not wait.
struct Commit {
  uint64_t number = 0;  // 1, 2, ...
  std::vector<RowChange> rows;
};
// Send a Tick at this time; replaces an earlier SetTimer.
struct SetTimer {
  absl::Time when;
};
using Effect =
    std::variant<MakePlan, SendCommand, Reply, AcceptWorker, DropWorker, Debug, Commit, SetTimer>;

// "READY"; "" of kUnspecified.
inline const char* NameOf(ArrayInfo::State state) {
  constexpr const char* kNames[] = {"", "PENDING", "READY", "FAILED", "LOST"};
  return kNames[static_cast<int>(state)];
}

}  // namespace tessera::server::scheduler
