#include "ir/serial/service.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/serial/program.h"
#include "ir/serial/status.h"

namespace tessera::ir::serial {

v1::Device ToProto(const api::Device& device) {
  v1::Device out;
  out.set_id(device.id);
  out.set_kind(device.kind);
  out.set_worker(device.worker);
  out.set_host(device.host);
  out.set_executor(device.executor);
  out.set_healthy(device.healthy);
  out.set_reason(device.reason);
  out.set_memory_bytes(device.memory_bytes);
  out.set_cordoned(device.cordoned);
  out.set_unresponsive(device.unresponsive);
  return out;
}

api::Device FromProto(const v1::Device& proto) {
  return {.id = proto.id(),
          .kind = proto.kind(),
          .worker = proto.worker(),
          .host = proto.host(),
          .executor = proto.executor(),
          .healthy = proto.healthy(),
          .reason = proto.reason(),
          .memory_bytes = proto.memory_bytes(),
          .cordoned = proto.cordoned(),
          .unresponsive = proto.unresponsive()};
}

v1::Placement ToProto(const api::Placement& placement) {
  v1::Placement out;
  *out.mutable_mesh() = ToProto(placement.mesh);
  *out.mutable_spec() = ToProto(placement.spec);
  out.mutable_devices()->Assign(placement.devices.begin(), placement.devices.end());
  return out;
}

absl::StatusOr<api::Placement> FromProto(const v1::Placement& proto, const Limits& limits) {
  api::Placement out;
  TESSERA_ASSIGN_OR_RETURN(out.mesh, FromProto(proto.mesh(), limits));
  TESSERA_ASSIGN_OR_RETURN(out.spec, FromProto(proto.spec(), limits));
  if (proto.devices_size() > limits.mesh_devices)
    return MakeError(ErrorKind::kLimitExceeded,
                     absl::StrCat("placement: ", proto.devices_size(), " devices, at most ",
                                  limits.mesh_devices, " are accepted"));
  out.devices.assign(proto.devices().begin(), proto.devices().end());
  return out;
}

v1::ArraySpec ToProto(const api::ArraySpec& spec) {
  v1::ArraySpec out;
  out.set_dtype(std::string(DTypeName(spec.dtype)));
  out.mutable_shape()->Assign(spec.shape.begin(), spec.shape.end());
  *out.mutable_placement() = ToProto(spec.placement);
  return out;
}

absl::StatusOr<api::ArraySpec> FromProto(const v1::ArraySpec& proto, const Limits& limits) {
  api::ArraySpec out;
  TESSERA_ASSIGN_OR_RETURN(out.dtype, DTypeFromName(proto.dtype()));
  TESSERA_ASSIGN_OR_RETURN(out.shape, DimsFrom(proto.shape(), out.dtype, limits));
  TESSERA_ASSIGN_OR_RETURN(out.placement, FromProto(proto.placement(), limits));
  return out;
}

v1::Operation ToProto(const api::Operation& operation) {
  v1::Operation out;
  out.set_id(operation.id);
  out.set_name(operation.name);
  // The wire keeps 0 for "unspecified".
  out.set_state(static_cast<v1::OperationState>(static_cast<int>(operation.state) + 1));
  if (!operation.error.ok()) *out.mutable_error() = ToProto(operation.error);
  out.set_pending_reason(operation.pending_reason);
  out.set_session(operation.session);
  out.set_tenant(operation.tenant);
  out.set_kind(std::string(api::OperationKindName(operation.kind)));
  *out.mutable_create_time() = ToProto(operation.created);
  if (operation.started < absl::InfiniteFuture())
    *out.mutable_start_time() = ToProto(operation.started);
  if (operation.ended < absl::InfiniteFuture()) *out.mutable_end_time() = ToProto(operation.ended);
  out.mutable_outputs()->Assign(operation.outputs.begin(), operation.outputs.end());
  return out;
}

api::Operation FromProto(const v1::Operation& proto) {
  api::Operation out;
  out.id = proto.id();
  out.name = proto.name();
  const bool known = proto.state() >= v1::OPERATION_STATE_PENDING &&
                     proto.state() <= v1::OPERATION_STATE_CANCELLED;
  out.state =
      known ? static_cast<api::OperationState>(proto.state() - 1) : api::OperationState::kPending;
  out.error = FromProto(proto.error());
  out.pending_reason = proto.pending_reason();
  out.session = proto.session();
  out.tenant = proto.tenant();
  for (const auto kind : {api::OperationKind::kExecute, api::OperationKind::kReshard,
                          api::OperationKind::kSave, api::OperationKind::kLoad})
    if (proto.kind() == api::OperationKindName(kind)) out.kind = kind;
  out.created = FromProto(proto.create_time());
  if (proto.has_start_time()) out.started = FromProto(proto.start_time());
  if (proto.has_end_time()) out.ended = FromProto(proto.end_time());
  out.outputs.assign(proto.outputs().begin(), proto.outputs().end());
  return out;
}

v1::PendingReason ToProto(const api::PendingReason& reason) {
  v1::PendingReason out;
  out.set_code(reason.code);
  out.set_message(reason.message);
  out.mutable_resources()->Assign(reason.resources.begin(), reason.resources.end());
  return out;
}

v1::CompileProgramRequest ToProto(const api::CompileRequest& request) {
  v1::CompileProgramRequest out;
  *out.mutable_program() = ToProto(request.program);
  out.mutable_devices()->Assign(request.devices.begin(), request.devices.end());
  out.set_name(request.name);
  out.set_explain(request.explain);
  out.set_mesh(request.mesh);
  out.set_validate_only(request.plan_only);
  out.set_device_memory_bytes(request.device_memory_bytes);
  return out;
}

absl::StatusOr<api::CompileRequest> FromProto(const v1::CompileProgramRequest& proto,
                                              const Limits& limits) {
  TESSERA_ASSIGN_OR_RETURN(Program program, FromProto(proto.program(), limits));
  return CompileRequestOf(proto, std::move(program), limits);
}

absl::StatusOr<api::CompileRequest> CompileRequestOf(const v1::CompileProgramRequest& proto,
                                                     Program program, const Limits& limits) {
  api::CompileRequest out;
  out.program = std::move(program);
  if (proto.devices_size() > limits.mesh_devices)
    return MakeError(ErrorKind::kLimitExceeded,
                     absl::StrCat("compile: ", proto.devices_size(), " devices, at most ",
                                  limits.mesh_devices, " are accepted"));
  out.devices.assign(proto.devices().begin(), proto.devices().end());
  out.name = proto.name().substr(0, 256);
  out.explain = proto.explain();
  out.mesh = proto.mesh();
  out.plan_only = proto.validate_only();
  out.device_memory_bytes = proto.device_memory_bytes();
  return out;
}

v1::CompileProgramResponse ToProto(const api::CompileReply& reply) {
  v1::CompileProgramResponse out;
  out.set_executable(reply.executable);
  for (const api::ArraySpec& s : reply.in) *out.add_in() = ToProto(s);
  for (const api::ArraySpec& s : reply.out) *out.add_out() = ToProto(s);
  out.set_explain_text(reply.explain_text);
  out.set_explain_json(reply.explain_json);
  out.set_memory_bound_bytes(reply.memory_bound_bytes);
  return out;
}

absl::StatusOr<api::CompileReply> FromProto(const v1::CompileProgramResponse& proto,
                                            const Limits& limits) {
  api::CompileReply out;
  out.executable = proto.executable();
  for (const v1::ArraySpec& s : proto.in()) {
    TESSERA_ASSIGN_OR_RETURN(api::ArraySpec spec, FromProto(s, limits));
    out.in.push_back(std::move(spec));
  }
  for (const v1::ArraySpec& s : proto.out()) {
    TESSERA_ASSIGN_OR_RETURN(api::ArraySpec spec, FromProto(s, limits));
    out.out.push_back(std::move(spec));
  }
  out.explain_text = proto.explain_text();
  out.explain_json = proto.explain_json();
  out.memory_bound_bytes = proto.memory_bound_bytes();
  return out;
}

v1::ExecuteProgramRequest ToProto(const api::ExecuteRequest& request) {
  v1::ExecuteProgramRequest out;
  out.set_executable(request.executable);
  out.mutable_args()->Assign(request.args.begin(), request.args.end());
  for (bool d : request.donate) out.add_donate(d);
  if (request.deadline) *out.mutable_deadline() = ToProto(*request.deadline);
  out.mutable_release()->Assign(request.release.begin(), request.release.end());
  out.set_inline_results_bytes_max(request.inline_bytes_max);
  out.set_session(request.session);
  out.set_validate_only(request.check_only);
  return out;
}

api::ExecuteRequest FromProto(const v1::ExecuteProgramRequest& proto) {
  api::ExecuteRequest out;
  out.executable = proto.executable();
  out.args.assign(proto.args().begin(), proto.args().end());
  out.donate.assign(proto.donate().begin(), proto.donate().end());
  if (proto.has_deadline()) out.deadline = FromProto(proto.deadline());
  out.release.assign(proto.release().begin(), proto.release().end());
  out.inline_bytes_max = proto.inline_results_bytes_max();
  out.session = proto.session();
  out.check_only = proto.validate_only();
  return out;
}

v1::ExecuteProgramResponse ToProto(const api::ExecuteReply& reply) {
  v1::ExecuteProgramResponse out;
  out.set_operation(reply.operation);
  out.mutable_outputs()->Assign(reply.outputs.begin(), reply.outputs.end());
  return out;
}

api::ExecuteReply FromProto(const v1::ExecuteProgramResponse& proto) {
  return {.operation = proto.operation(),
          .outputs = {proto.outputs().begin(), proto.outputs().end()}};
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
