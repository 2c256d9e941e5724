// The events of the scheduler: requests of clients, reports of workers, finished plans, ticks.
//
// A request has the id that its Reply will have, and its caller. It has passed admission. Another
// tenant's resources are NOT_FOUND, exactly as if they did not exist. A session is named by its id;
// 0 is the default session of the caller's tenant, without a lease.
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
#include "server/scheduler/rows.h"

namespace tessera::server::scheduler {

// Chosen by the client for a call that it may repeat (answers.h).
struct RequestId {
  std::string text;     // empty: none
  std::string payload;  // identifies the rest of the request
};
struct Request {
  uint64_t request = 0;
  core::Caller caller;
  RequestId id = {};
};
// One page of a list: the items after the key `after`, in order; a size of 0 is the default.
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
// A client keeps the session alive until DropHold.  The reply to `request` is the SessionInfo; that
// to `end_request` is empty when the hold is dropped, or an error when the session ends.
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
// The reply lists every executor and its devices.
struct GetTopology : Request {};
struct Cordon : Request {
  std::string worker, reason;
  bool on = true;
};
// The reply is sent when nothing runs there any more, or at the timeout.
struct Drain : Request {
  std::string worker, reason;
  absl::Duration timeout;
};

// Deletes a worker that is not connected, and invalidates the ids of its devices.
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

// A chunk of a program. The reply is the UploadProgress: once all bytes are there the caller checks
// them, and says in KeepProgram what it found.
struct UploadProgram : Request {
  std::string sha256;
  ProgramFormat format = ProgramFormat::kTessera;
  int64_t size_bytes = 0;  // of the whole program
  int64_t offset = 0;
  std::string data;  // empty: only asks
};
// All bytes of an upload are a program of this hash, or are not for this reason, which is the reply
// then.
struct KeepProgram : Request {
  std::string sha256;
  absl::Status checked;
};
// The reply is the ProgramInfo.
struct GetProgram : Request {
  std::string sha256;
};
struct ListPrograms : Request {
  PageRequest<std::string> page;
};
struct DeleteProgram : Request {
  std::string sha256;
};

struct Compile : Request {
  std::string key;  // a hash of the program and of its names and source lines
  api::CompileRequest body;
};
struct Execute : Request {
  api::ExecuteRequest body;
  // If not 0, the id of a second reply: the Completion, or the same error as for `request`.
  uint64_t end_request = 0;
};
struct CreateArray : Request {
  uint64_t session = 0;
  api::ArraySpec spec;  // its devices need not exist
  bool check_only = false;
};
// The reply has what write tickets need.  VALUE_ERROR unless the array is being written.
struct DescribeUpload : Request {
  uint64_t array = 0;
};
// A shard relayed by the coordinator; the reply is sent when the executor has it.
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
// The reply is the ArrayInfo once the array is ready, or its error.
struct WaitArray : Request {
  uint64_t array = 0;
  absl::Duration timeout;
};
struct SaveArrays : Request {
  std::vector<api::ArrayToSave> arrays;
  std::string path;
  bool overwrite = false;
};
// The reply is the Making, once an executor has read the file's header.
struct LoadArrays : Request {
  uint64_t session = 0;
  std::string path;
  std::vector<api::ArrayToLoad> arrays;
};
struct DeleteArrays : Request {
  std::vector<uint64_t> arrays;
  // The request id of the CreateArray that made them, which counts as never made; "": of none.
  std::string creation = {};
};
// The reply is the Making.
struct ReshardArray : Request {
  uint64_t session = 0;  // owns the result
  uint64_t array = 0;
  api::Placement placement;
};
// The reply lists the arrays in the file, once an executor has read its header.
struct DescribeFile : Request {
  std::string path;
};
// The reply is sent when the operation has ended, or at the timeout; zero: at once.
struct WaitOperation : Request {
  uint64_t operation = 0;
  absl::Duration timeout;
  // If set, the reply is sent as soon as the state differs from it.
  std::optional<api::OperationState> seen = {};
};
struct CancelOperation : Request {
  uint64_t operation = 0;
};
struct ListOperations : Request {
  uint64_t session = 0;
  bool all_sessions = false;  // of every tenant that the caller may read
  bool live_only = false;
  PageRequest<uint64_t> page;
};
struct ExplainPending : Request {
  uint64_t operation = 0;
};
// The reply is a ClusterReading, for metrics and health (server/core/telemetry.h).
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
// The rows that earlier lives have committed. At most one, before every other event.
struct Restore {
  std::vector<RowChange> rows;
};
struct Tick {};

using Event =
    std::variant<OpenSession, GetSession, ListSessions, CloseSession, HoldSession, DropHold,
                 ReshardArray, DescribeFile, ListDevices, ListWorkers, GetWorker, GetTopology,
                 Cordon, Drain, DeleteWorker, CreateMesh, GetMesh, ListMeshes, DeleteMesh,
                 UploadProgram, KeepProgram, GetProgram, ListPrograms, DeleteProgram, Compile,
                 Execute, CreateArray, DescribeUpload, WriteShard, ReadShard, DescribeArray,
                 ListArrays, WaitArray, SaveArrays, LoadArrays, DeleteArrays, WaitOperation,
                 CancelOperation, ListOperations, ExplainPending, ReadTelemetry, Planned,
                 WorkerRegistered, WorkerGone, WorkerReported, Restore, Tick>;

}  // namespace tessera::server::scheduler
