// The events of the scheduler: requests of clients, reports of workers, finished plans, ticks.
//
// A request carries its caller and the id of its Reply. The gate has admitted it
// (server/rpc/gate.h). Another tenant's resources are NOT_FOUND, exactly as if they did not exist.
// A session is named by its id. 0 is the default session of the caller's tenant, which has no
// lease.
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

// Identifies a call that the client may repeat (answers.h). The client chooses the text.
struct RequestId {
  std::string text;     // if empty, the call has no request id
  std::string payload;  // identifies the rest of the request
};
struct Request {
  uint64_t request = 0;
  core::Caller caller;
  RequestId request_id = {};
};
// One page of a list: the items after the key `after`, in order. A size of 0 is the default.
template <class Key>
struct PageRequest {
  Key after = {};
  int64_t size = 0;
};

struct OpenSession : Request {
  std::string display_name;
  absl::Duration lease;  // 0 is the default
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
// Says that a client of the session is connected, until DropHold. The reply to `request` is the
// SessionInfo. The reply to `end_request` is empty when the hold is dropped, and an error when the
// session ends.
struct HoldSession : Request {
  uint64_t session = 0;
  uint64_t hold = 0;  // id chosen by the caller and never used twice
  uint64_t end_request = 0;
};
struct DropHold {
  uint64_t session = 0;
  uint64_t hold = 0;
};

struct ListDevices : Request {
  PageRequest<int64_t> page{-1, 0};  // a size of 0 means all
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
// The reply is sent when nothing runs on the worker any more, or at the timeout.
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
  std::vector<int64_t> devices;  // if empty, the scheduler chooses them
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

// A chunk of a program. The reply is the UploadProgress. Once all bytes have come, the caller
// checks them and sends the result as KeepProgram.
struct UploadProgram : Request {
  std::string sha256;
  ProgramFormat format = ProgramFormat::kTessera;
  int64_t size_bytes = 0;  // size of the whole program
  int64_t offset = 0;
  std::string data;  // if empty, the request only asks for the progress
};
// Says whether the bytes of a complete upload are a program with this hash. If `checked` is an
// error, it is the reply.
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
  std::string key;  // hash of the program including its names and source lines
  api::CompileRequest body;
};
struct Execute : Request {
  api::ExecuteRequest body;
  // If not 0, the id of a second reply, which is the Completion or the same error as for `request`.
  uint64_t end_request = 0;
};
struct CreateArray : Request {
  uint64_t session = 0;
  api::ArraySpec spec;  // the devices of its placement need not exist
  bool check_only = false;
};
// The reply is the ArrayInfo, from which the caller makes write tickets. The error is VALUE_ERROR
// if the array is not being written.
struct DescribeUpload : Request {
  uint64_t array = 0;
};
// Writes a shard that the client has sent to the coordinator (a relay). The reply is sent when the
// executor has the shard.
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
// The reply is a PendingArrays, once an executor has read the file's header.
struct LoadArrays : Request {
  uint64_t session = 0;
  std::string path;
  std::vector<api::ArrayToLoad> arrays;
};
struct DeleteArrays : Request {
  std::vector<uint64_t> arrays;
  // The request id of the CreateArray call that made the arrays. That call then counts as never
  // made. If empty, no call counts as never made.
  std::string creation_request_id = {};
};
// The reply is a PendingArrays.
struct ReshardArray : Request {
  uint64_t session = 0;  // session that owns the result
  uint64_t array = 0;
  api::Placement placement;
};
// The reply lists the arrays in the file, once an executor has read its header.
struct DescribeFile : Request {
  std::string path;
};
// The reply is sent when the operation has ended, or at the timeout. If the timeout is zero, it is
// sent at once.
struct WaitOperation : Request {
  uint64_t operation = 0;
  absl::Duration timeout;
  // If set, the reply is sent as soon as the state differs from it.
  std::optional<api::OperationState> seen_state = {};
  // Whether the reply is WORKER_AWAY as soon as an executor that the operation needs is away or
  // does not answer.
  bool fail_fast = false;
};
struct CancelOperation : Request {
  uint64_t operation = 0;
};
struct ListOperations : Request {
  uint64_t session = 0;
  bool all_sessions = false;  // whether to list operations of every tenant that the caller may read
  bool live_only = false;
  PageRequest<uint64_t> page;
};
struct ExplainPending : Request {
  uint64_t operation = 0;
};
// The reply is a ClusterReading, for metrics and health (server/core/telemetry.h).
struct ReadTelemetry : Request {
  enum Part : uint8_t { kEverything, kWorkers, kNothing } part = kEverything;
  uint64_t first_array = 0;  // with kEverything, if not 0, only arrays are read, from this id on
};
// The outcome of a MakePlan.
struct Planned {
  uint64_t executable = 0;
  absl::StatusOr<core::Plan> plan;
};
struct WorkerRegistered {
  uint64_t registration_id = 0;
  api::Registration registration;
};
// The connection of a worker's daemon has ended.
struct WorkerGone {
  uint64_t registration_id = 0;
  absl::Status why;
};
// The connection of an executor has ended, while its worker's goes on.
struct ExecutorGone {
  uint64_t registration_id = 0;
  int32_t executor = 0;
  uint64_t incarnation = 0;
  uint64_t attachment = 0;  // number of such ends, which the commands from now on carry
  absl::Status why;
};
struct WorkerReported {
  uint64_t registration_id = 0;
  api::Report report;
};
// The rows that earlier lives have committed. There is at most one such event, before all others.
struct Restore {
  std::vector<RowChange> rows;
};
// Handles the timers that are due. The time of the last SetTimer has come, or waiting commands may
// leave.
struct Tick {};

using Event =
    std::variant<OpenSession, GetSession, ListSessions, CloseSession, HoldSession, DropHold,
                 ReshardArray, DescribeFile, ListDevices, ListWorkers, GetWorker, GetTopology,
                 Cordon, Drain, DeleteWorker, CreateMesh, GetMesh, ListMeshes, DeleteMesh,
                 UploadProgram, KeepProgram, GetProgram, ListPrograms, DeleteProgram, Compile,
                 Execute, CreateArray, DescribeUpload, WriteShard, ReadShard, DescribeArray,
                 ListArrays, WaitArray, SaveArrays, LoadArrays, DeleteArrays, WaitOperation,
                 CancelOperation, ListOperations, ExplainPending, ReadTelemetry, Planned,
                 WorkerRegistered, WorkerGone, ExecutorGone, WorkerReported, Restore, Tick>;

}  // namespace tessera::server::scheduler
