// The messages between the coordinator and its jailed processes. jailed_reader.cc calls these
// conversions on both sides. The function that reads a plan checks it, so that a jailed process
// that a client has taken over cannot pass a harmful plan to the coordinator.
#include "server/jail/wire.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/serial/fields.h"
#include "ir/serial/program.h"

namespace tessera::ir::serial {

namespace wire = ::tessera::jail::v1;
using server::core::ClusterSnapshot;
using server::core::CollectiveSummary;
using server::core::LinkFigures;

TESSERA_FIELDS(Limits, wire::Limits, ops, region_depth, values_per_op, rank, mesh_devices,
               attr_bytes)
TESSERA_FIELDS(LinkFigures, wire::LinkFigures, bytes_per_s, latency_s)
TESSERA_FIELDS(ClusterSnapshot::Device, wire::PlanDevice, id, kind, host, executor, memory_bytes,
               flops_per_s, bytes_per_s, in_executor, between_executors)
TESSERA_FIELDS(CollectiveSummary, wire::CollectiveSummary, op, axes, count, bytes_per_device)

}  // namespace tessera::ir::serial

namespace tessera::server::jail {
namespace {

absl::Status InvalidPlanError(const core::PlanRequest& request, absl::string_view why) {
  return MakeError(
      ErrorKind::kInternal,
      absl::StrCat("plan ", request.name, ": the planner's process sent an invalid plan: ", why));
}

void AddValues(const std::vector<core::PlanValue>& values,
               google::protobuf::RepeatedPtrField<wire::PlanValue>* out) {
  for (const core::PlanValue& value : values) {
    wire::PlanValue& to = *out->Add();
    to.set_dtype(std::string(ir::DTypeName(value.dtype)));
    to.mutable_shape()->Assign(value.shape.begin(), value.shape.end());
    *to.mutable_spec() = ir::serial::ToProto(value.spec);
  }
}

// Returns the shape of each shard. Returns INVALID_ARGUMENT unless the spec cuts the shape evenly
// and is valid for the mesh: every axis that it names (for a dim, as unreduced or as reduced)
// exists in the mesh and is named only once.
absl::StatusOr<ir::Dims> ShardShape(ir::Dims shape, const ir::PartitionSpec& spec,
                                    const ir::Mesh& mesh) {
  std::set<std::string> used;
  if (spec.dims.size() > shape.size() || !spec.open.empty())
    return absl::InvalidArgumentError("a sharding does not fit its array or the mesh");
  for (size_t d = 0; d < spec.dims.size(); ++d) {
    for (const std::string& axis : spec.dims[d]) {
      const int64_t size = mesh.Has(axis) ? mesh.SizeOf(axis) : 0;
      if (size < 1 || shape[d] % size != 0 || !used.insert(axis).second)
        return absl::InvalidArgumentError("a sharding does not fit its array or the mesh");
      shape[d] /= size;
    }
  }
  for (const ir::AxisList* axes : {&spec.unreduced, &spec.reduced})
    for (const std::string& axis : *axes)
      if (!mesh.Has(axis) || !used.insert(axis).second)
        return absl::InvalidArgumentError("a sharding does not fit its array or the mesh");
  return shape;
}

bool HasSameAxes(const ir::AxisList& axes, const ir::AxisSet& states) {
  return ir::AxisSet(axes.begin(), axes.end()) == states;
}

// Reads the plan's arguments or results. Value k must have the type types[k], as in the program,
// and its shards must have the type shards[k], as in the device program.
absl::StatusOr<std::vector<core::PlanValue>> ReadValues(
    const google::protobuf::RepeatedPtrField<wire::PlanValue>& values,
    const std::vector<ir::Type>& types, const std::vector<ir::Type>& shards, const ir::Mesh& mesh,
    const ir::Limits& limits) {
  if (static_cast<size_t>(values.size()) != types.size() || types.size() != shards.size())
    return absl::InvalidArgumentError(
        "the number of arguments or results differs from the program's");
  std::vector<core::PlanValue> out;
  for (int i = 0; i < values.size(); ++i) {
    const wire::PlanValue& value = values[i];
    core::PlanValue& to = out.emplace_back();
    TESSERA_ASSIGN_OR_RETURN(to.dtype, ir::serial::DTypeFromName(value.dtype()));
    to.shape.assign(value.shape().begin(), value.shape().end());
    TESSERA_ASSIGN_OR_RETURN(to.spec, ir::serial::FromProto(value.spec(), limits));
    TESSERA_ASSIGN_OR_RETURN(const ir::Dims shard, ShardShape(to.shape, to.spec, mesh));
    if (to.dtype != types[i].dtype || to.shape != types[i].shape || to.dtype != shards[i].dtype ||
        shard != shards[i].shape || !HasSameAxes(to.spec.unreduced, types[i].unreduced) ||
        !HasSameAxes(to.spec.reduced, types[i].reduced))
      return absl::InvalidArgumentError(
          absl::StrCat("value ", i, " does not have its type in the program"));
  }
  return out;
}

}  // namespace

wire::Limits ToProto(const ir::Limits& limits) { return ir::serial::Written(limits); }

ir::Limits FromProto(const wire::Limits& proto) {
  return ir::serial::ReadAs<ir::Limits>(proto, {}).value_or(ir::Limits());
}

wire::PlanRequest ToProto(const core::PlanRequest& request) {
  wire::PlanRequest out;
  *out.mutable_program() = ir::serial::ToProto(request.program);
  out.set_name(request.name);
  for (const core::ClusterSnapshot::Device& device : request.cluster.devices)
    ir::serial::WriteFields(device, out.add_devices());
  out.set_hypothetical_memory_bytes(request.cluster.absent_device_memory_bytes);
  out.set_explain(request.options.explain);
  out.set_stages(request.on_stage != nullptr);
  return out;
}

absl::StatusOr<core::PlanRequest> FromProto(const wire::PlanRequest& proto,
                                            const ir::Limits& limits) {
  core::PlanRequest out;
  TESSERA_ASSIGN_OR_RETURN(out.program, ir::serial::FromProto(proto.program(), limits));
  out.name = proto.name();
  for (const wire::PlanDevice& device : proto.devices())
    TESSERA_RETURN_IF_ERROR(
        ir::serial::ReadFields(device, {}, &out.cluster.devices.emplace_back()));
  out.cluster.absent_device_memory_bytes = proto.hypothetical_memory_bytes();
  out.options.explain = proto.explain();
  return out;
}

wire::Plan ToProto(const core::Plan& plan) {
  wire::Plan out;
  ir::Program device;
  device.entry = plan.device_program;
  *out.mutable_device_program() = ir::serial::ToProto(device);
  *out.mutable_mesh() = ir::serial::ToProto(plan.mesh);
  AddValues(plan.in, out.mutable_in());
  AddValues(plan.out, out.mutable_out());
  for (const core::CollectiveSummary& summary : plan.collectives)
    ir::serial::WriteFields(summary, out.add_collectives());
  out.set_memory_bound_bytes(plan.memory_bound_bytes);
  out.set_predicted_seconds(plan.predicted_seconds);
  out.set_explain_text(plan.explain_text);
  out.set_explain_json(plan.explain_json);
  return out;
}

// Reads a plan that a jailed process sent, and trusts nothing that could harm others: the device
// program is verified, and its mesh, parameters and results must be those of the request's program.
// The memory bound and the texts are not checked (except that the bound is not negative), because
// wrong ones harm only the tenant whose process has sent them (docs/decisions/0019). The source
// lines are taken from the device program.
absl::StatusOr<core::Plan> FromProto(const wire::Plan& proto, const core::PlanRequest& request,
                                     const ir::Limits& limits) {
  const ir::Function& program = *request.program.entry;
  core::Plan out;
  const absl::Status read = [&]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(ir::Program device,
                             ir::serial::FromProto(proto.device_program(), limits));
    TESSERA_RETURN_IF_ERROR(ir::Verify(device, limits));
    out.device_program = std::move(device.entry);
    TESSERA_ASSIGN_OR_RETURN(out.mesh, ir::serial::FromProto(proto.mesh(), limits));
    if (!out.mesh.SameShape(request.program.mesh()) ||
        !out.device_program->scope.mesh.SameShape(out.mesh))
      return absl::InvalidArgumentError("the plan is for another mesh");
    TESSERA_ASSIGN_OR_RETURN(
        out.in, ReadValues(proto.in(), program.param_types(), out.device_program->param_types(),
                           out.mesh, limits));
    TESSERA_ASSIGN_OR_RETURN(
        out.out, ReadValues(proto.out(), program.result_types(), out.device_program->result_types(),
                            out.mesh, limits));
    if (proto.memory_bound_bytes() < 0)
      return absl::InvalidArgumentError("the memory bound is negative");
    return absl::OkStatus();
  }();
  if (!read.ok()) return InvalidPlanError(request, read.message());
  for (const wire::CollectiveSummary& summary : proto.collectives())
    TESSERA_RETURN_IF_ERROR(ir::serial::ReadFields(summary, {}, &out.collectives.emplace_back()));
  out.memory_bound_bytes = proto.memory_bound_bytes();
  out.predicted_seconds = proto.predicted_seconds();
  out.explain_text = proto.explain_text();
  out.explain_json = proto.explain_json();
  out.source_lines = out.device_program->sites;
  return out;
}

}  // namespace tessera::server::jail
