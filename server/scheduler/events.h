// What happens to the scheduler: requests of clients, news of workers, plans, time.
//
// Requests of clients carry the number under which the Reply comes, and who calls.  They have
// passed admission.  What another tenant owns is NOT_FOUND, exactly as what does not exist.
//
// A session is named by its id; 0 is the caller's tenant's own, which has no lease.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/api/service.h"
#include "ir/api/worker_link.h"
#include "server/core/caller.h"
#include "server/core/plan.h"

namespace tessera::server::scheduler {

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
// A client keeps the session alive until DropHold.  `request` is answered with the SessionInfo;
// `end_request` with nothing when the hold is dropped, or with an error when the session ends.
struct HoldSession : Request {
  uint64_t session = 0;
  uint64_t hold = 0;  // an id that the caller chose, never used twice
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
// Answered with every executor and its devices.
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

// Forgets a worker that is not connected; the ids of its devices mean nothing any more.
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
  std::string key;  // a hash of the program and of its names and source lines
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
// Answered with what tickets to write the array need.  VALUE_ERROR unless it is being written.
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
  std::vector<api::ArrayToSave> arrays;
  std::string path;
  bool overwrite = false;
};
// Answered with the Making, once an executor has looked at the file.
struct LoadArrays : Request {
  uint64_t session = 0;
  std::string path;
  std::vector<api::ArrayToLoad> arrays;
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
// Answered with the arrays in the file, once an executor has looked at it.
struct DescribeFile : Request {
  std::string path;
};
// Answered when it has ended or the timeout is over; a zero timeout answers at once.
struct WaitOperation : Request {
  uint64_t operation = 0;
  absl::Duration timeout;
  // When set, answered as soon as the state differs from it.
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
// Answered with a reading of the whole state, for metrics and health (server/core/telemetry.h).
struct ReadTelemetry : Request {
  enum Part : uint8_t { kEverything, kWorkers, kNothing } part = kEverything;
  uint64_t first_array = 0;  // kEverything: if not 0, only arrays, from this id on
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

}  // namespace tessera::server::scheduler
