// The wire forms of the client's interface. Both ends use it: client/remote and server/rpc. Most
// fields are converted by their lists; the functions convert the few whose types differ.
#include "ir/serial/service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/serial/fields.h"
#include "ir/serial/gpu_reading.h"
#include "ir/serial/program.h"
#include "ir/serial/status.h"

namespace tessera::ir::serial {

TESSERA_FIELDS(api::Device, v1::Device, id, kind, worker, host, executor, healthy, reason,
               memory_bytes, cordoned, unresponsive, away, gpu)
TESSERA_FIELDS(api::Placement, v1::Placement, mesh, spec, devices)
TESSERA_FIELDS(api::ArraySpec, v1::ArraySpec, dtype, shape, placement)
TESSERA_FIELDS(api::PendingReason, v1::PendingReason, code, message, resources)
// The fields state, kind and the times are converted by hand.
TESSERA_FIELDS(api::Operation, v1::Operation, id, name, error, pending_reason, session, tenant,
               outputs)
// The fields program and plan_only are converted by hand.
TESSERA_FIELDS(api::CompileRequest, v1::CompileProgramRequest, devices, name, explain, mesh,
               device_memory_bytes)
TESSERA_FIELDS(api::CompileReply, v1::CompileProgramResponse, executable, in, out, explain_text,
               explain_json, memory_bound_bytes)
// The fields time_limit, inline_bytes_max and check_only are converted by hand.
TESSERA_FIELDS(api::ExecuteRequest, v1::ExecuteProgramRequest, executable, args, donate, release,
               session)
TESSERA_FIELDS(api::ExecuteReply, v1::ExecuteProgramResponse, operation, outputs)

static absl::Status CheckDevices(const char* what, size_t devices, const Limits& limits) {
  if (devices <= static_cast<size_t>(limits.mesh_devices)) return absl::OkStatus();
  return MakeError(ErrorKind::kLimitExceeded,
                   absl::StrCat(what, ": ", devices, " devices, at most ", limits.mesh_devices,
                                " are accepted"));
}
static absl::Status Check(const api::Placement& placement, const ReadLimits& limits) {
  return CheckDevices("placement", placement.devices.size(), limits.limits);
}
static absl::Status Check(const api::ArraySpec& spec, const ReadLimits& limits) {
  return CheckDims(spec.shape, spec.dtype, limits.limits);
}
static absl::Status Check(const api::CompileRequest& request, const ReadLimits& limits) {
  return CheckDevices("compile", request.devices.size(), limits.limits);
}

namespace {

// Reads a message whose fields cannot fail to be read.
template <class T, class P>
T ReadPlain(const P& proto) {
  T out;
  TESSERA_CHECK_OK(ReadFields(proto, {}, &out));
  return out;
}

}  // namespace

v1::Device ToProto(const api::Device& device) { return Written(device); }
api::Device FromProto(const v1::Device& proto) { return ReadPlain<api::Device>(proto); }

v1::Placement ToProto(const api::Placement& placement) { return Written(placement); }
absl::StatusOr<api::Placement> FromProto(const v1::Placement& proto, const Limits& limits) {
  return ReadAs<api::Placement>(proto, {limits});
}

v1::ArraySpec ToProto(const api::ArraySpec& spec) { return Written(spec); }
absl::StatusOr<api::ArraySpec> FromProto(const v1::ArraySpec& proto, const Limits& limits) {
  return ReadAs<api::ArraySpec>(proto, {limits});
}

v1::Operation ToProto(const api::Operation& operation) {
  v1::Operation out = Written(operation);
  // On the wire, 0 means "unspecified".
  out.set_state(static_cast<v1::OperationState>(static_cast<int>(operation.state) + 1));
  out.set_kind(std::string(api::OperationKindName(operation.kind)));
  *out.mutable_create_time() = ToProto(operation.created);
  if (operation.started < absl::InfiniteFuture())
    *out.mutable_start_time() = ToProto(operation.started);
  if (operation.ended < absl::InfiniteFuture()) *out.mutable_end_time() = ToProto(operation.ended);
  return out;
}

api::Operation FromProto(const v1::Operation& proto) {
  auto out = ReadPlain<api::Operation>(proto);
  const bool known = proto.state() >= v1::OPERATION_STATE_PENDING &&
                     proto.state() <= v1::OPERATION_STATE_CANCELLED;
  out.state =
      known ? static_cast<api::OperationState>(proto.state() - 1) : api::OperationState::kPending;
  for (const auto kind : {api::OperationKind::kExecute, api::OperationKind::kReshard,
                          api::OperationKind::kSave, api::OperationKind::kLoad})
    if (proto.kind() == api::OperationKindName(kind)) out.kind = kind;
  out.created = FromProto(proto.create_time());
  if (proto.has_start_time()) out.started = FromProto(proto.start_time());
  if (proto.has_end_time()) out.ended = FromProto(proto.end_time());
  return out;
}

v1::PendingReason ToProto(const api::PendingReason& reason) { return Written(reason); }

v1::CompileProgramRequest ToProto(const api::CompileRequest& request) {
  v1::CompileProgramRequest out = Written(request);
  *out.mutable_program() = ToProto(request.program);
  out.set_validate_only(request.plan_only);
  return out;
}

absl::StatusOr<api::CompileRequest> FromProto(const v1::CompileProgramRequest& proto,
                                              const Limits& limits) {
  TESSERA_ASSIGN_OR_RETURN(Program program, FromProto(proto.program(), limits));
  return CompileRequestOf(proto, std::move(program), limits);
}

absl::StatusOr<api::CompileRequest> CompileRequestOf(const v1::CompileProgramRequest& proto,
                                                     Program program, const Limits& limits) {
  TESSERA_ASSIGN_OR_RETURN(auto out, ReadAs<api::CompileRequest>(proto, {limits}));
  out.program = std::move(program);
  out.name.resize(std::min<size_t>(out.name.size(), 256));
  out.plan_only = proto.validate_only();
  return out;
}

v1::CompileProgramResponse ToProto(const api::CompileReply& reply) { return Written(reply); }
absl::StatusOr<api::CompileReply> FromProto(const v1::CompileProgramResponse& proto,
                                            const Limits& limits) {
  return ReadAs<api::CompileReply>(proto, {limits});
}

v1::ExecuteProgramRequest ToProto(const api::ExecuteRequest& request) {
  v1::ExecuteProgramRequest out = Written(request);
  // An infinite limit is written, too: it differs from an absent one.
  if (request.time_limit) *out.mutable_deadline() = ToProto(*request.time_limit);
  out.set_inline_results_bytes_max(request.inline_bytes_max);
  out.set_validate_only(request.check_only);
  return out;
}

api::ExecuteRequest FromProto(const v1::ExecuteProgramRequest& proto) {
  auto out = ReadPlain<api::ExecuteRequest>(proto);
  if (proto.has_deadline()) out.time_limit = FromProto(proto.deadline());
  out.inline_bytes_max = proto.inline_results_bytes_max();
  out.check_only = proto.validate_only();
  return out;
}

v1::ExecuteProgramResponse ToProto(const api::ExecuteReply& reply) { return Written(reply); }
api::ExecuteReply FromProto(const v1::ExecuteProgramResponse& proto) {
  return ReadPlain<api::ExecuteReply>(proto);
}

v1::ExecutionEnd ToProto(const api::Completion& completion) {
  v1::ExecutionEnd out;
  *out.mutable_operation() = ToProto(completion.operation);
  for (const auto& [array, value] : completion.results) {
    v1::InlineResult* result = out.add_results();
    result->set_array(array);
    *result->mutable_value() = ToProto(value);
  }
  return out;
}

absl::StatusOr<api::Completion> FromProto(const v1::ExecutionEnd& proto) {
  api::Completion out;
  out.operation = FromProto(proto.operation());
  for (const v1::InlineResult& r : proto.results()) {
    TESSERA_ASSIGN_OR_RETURN(Array value, FromProto(r.value(), api::kInlineBytesMax));
    out.results.emplace_back(r.array(), std::move(value));
  }
  return out;
}

}  // namespace tessera::ir::serial
