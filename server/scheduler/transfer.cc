// Reshards arrays. A reshard on the same mesh is a run of an identity program, which the planner
// turns into collectives. Any other reshard is a Transfer, in which executors read slices from each
// other.
#include <map>

#include "base/status_exception.h"
#include "ir/api/placement.h"
#include "ir/api/ticket.h"
#include "ir/ops.h"
#include "ir/program_hash.h"
#include "ir/type.h"
#include "server/scheduler/machine.h"
#include "server/scheduler/slices.h"

namespace tessera::server::scheduler {

// Plans an identity program whose argument and result differ in their shardings. The planner turns
// it into collectives. Axes along which an array is a pending sum are Explicit, because only along
// an Explicit axis can a type be unreduced.
absl::StatusOr<uint64_t> Machine::FindOrPlanReshard(const std::string& tenant,
                                                    const api::ArraySpec& has,
                                                    const api::ArraySpec& wanted) {
  ir::Mesh mesh = has.placement.mesh;
  const ir::AxisSet sum_axes = PendingSumAxes(has), wanted_sum_axes = PendingSumAxes(wanted);
  for (ir::MeshAxis& axis : mesh.axes)
    axis.type = sum_axes.contains(axis.name) || wanted_sum_axes.contains(axis.name)
                    ? ir::AxisType::kExplicit
                    : ir::AxisType::kAuto;
  api::CompileRequest request;
  request.name = "reshard";
  request.devices = has.placement.devices;
  TESSERA_RETURN_IF_ERROR(CatchStatus([&] {
    ir::Builder b({mesh, true}, "reshard");
    ir::Type type = ir::MakeType(has.dtype, has.shape);
    type.unreduced = sum_axes;
    const ir::Value v = b.Param(type);
    request.program.entry = b.Build({ir::Reshard(v, {}, wanted_sum_axes)});
  }));
  request.program.in_shardings = {has.placement.spec};
  request.program.out_shardings = {wanted.placement.spec};
  return FindOrPlan(request, ir::StructuralHash(request.program), tenant, /*cordoned=*/true);
}

absl::Status Machine::PlanReshard(Operation& op) {
  const ArrayRecord* const result = catalogue_.FindArray(op.results[0]);
  if (result == nullptr) return absl::NotFoundError("its result is unknown");
  TESSERA_ASSIGN_OR_RETURN(
      op.run()->executable,
      FindOrPlanReshard(op.tenant, *catalogue_.array(op.args[0]).spec, *result->spec));
  catalogue_.executable(op.run()->executable).operations.insert(op.id);
  MarkChanged(op);
  return absl::OkStatus();
}

// Decides how the copy is made: by a run if the mesh and the devices stay the same, otherwise by a
// Transfer. If the array is a pending sum whose shards would have to change, only a run can reshard
// it, because a Transfer copies bytes and adds nothing.
absl::StatusOr<uint64_t> Machine::StartReshard(uint64_t session, uint64_t source,
                                               const api::ArraySpec& wanted) {
  const SpecRef from = catalogue_.array(source).spec;
  const api::ArraySpec& has = *from;
  Operation op;
  op.name = "reshard";
  op.kind = api::OperationKind::kReshard;
  op.session = session;
  op.args = {source};
  op.work = Transfer{};
  if (has.placement.mesh.SameShape(wanted.placement.mesh) &&
      has.placement.devices == wanted.placement.devices && has.placement.mesh.num_devices() > 1 &&
      !BlocksMatch(has, wanted)) {
    TESSERA_ASSIGN_OR_RETURN(const uint64_t executable,
                             FindOrPlanReshard(ownership_.session(session).tenant, has, wanted));
    op.work = Run{.executable = executable};
  } else if (api::IsPendingSum(has.placement) || api::IsPendingSum(wanted.placement)) {
    if (!BlocksMatch(has, wanted))
      return Error(ErrorKind::kNotImplemented, "reshard: array ", source, " is ",
                   has.placement.spec.ToString(), " on mesh ", has.placement.mesh.ToString(),
                   ", and ", wanted.placement.spec.ToString(), " on mesh ",
                   wanted.placement.mesh.ToString(),
                   " is wanted; terms of a sum are not moved to another mesh or other devices. "
                   "First reshard the array on its own mesh to a spec without unreduced axes");
  }
  const uint64_t id = NewOperation(std::move(op), {std::make_shared<const api::ArraySpec>(wanted)});
  TryStart(id);
  return id;
}

absl::StatusOr<PendingArrays> Machine::On(const ReshardArray& e) {
  TESSERA_ASSIGN_OR_RETURN(const uint64_t session,
                           FindSession(e.caller, e.session, Access::kChange));
  TESSERA_ASSIGN_OR_RETURN(const ArrayRecord* source,
                           FindArray(e.caller, e.array, Access::kChange));
  TESSERA_RETURN_IF_ERROR(ErrorOf(e.array, *source));
  TESSERA_RETURN_IF_ERROR(
      Annotate(api::CheckPlacement(e.placement, source->spec->shape), "reshard"));
  TESSERA_RETURN_IF_ERROR(Annotate(cluster_.CheckDevicesExist(e.placement.devices), "reshard"));
  TESSERA_RETURN_IF_ERROR(CheckQueue("reshard"));
  TESSERA_RETURN_IF_ERROR(CheckRoomForArrays("reshard", 1));
  TESSERA_ASSIGN_OR_RETURN(
      const uint64_t operation,
      StartReshard(session, e.array, {source->spec->dtype, source->spec->shape, e.placement}));
  const Operation& op = order_.operation(operation);
  Log("operation ", op.id, " accepted: reshard ", e.array, " -> ", op.results[0]);
  Remember(e, op.id, op.results);
  return PendingArrays{Describe(op), {ArrayInfoOf(op.results[0])}};
}

std::vector<std::string> Machine::ExecutorsFor(const Transfer&, const Operation& op) const {
  // A transfer runs where its result will be.
  return cluster_.ExecutorsOf(catalogue_.array(op.results[0]).spec->placement.devices);
}

// Sends each executor the pieces from which it assembles its shards of the result. A piece on
// another executor carries a ticket, because the executor reads it from the other's DataService
// like a client. If a shard has several replicas, the executor reads the nearest one that a living
// process has. A replica whose executor is away is only read by a transfer that is sent again,
// because that executor may be about to come back, too.
void Machine::SendWork(const Transfer&, Operation& op, const std::vector<std::string>& executors,
                       const std::string& only) {
  const ArrayRecord& source = catalogue_.array(op.args[0]);
  const api::ArraySpec& wanted = *catalogue_.array(op.results[0]).spec;
  const ir::Dims local = api::LocalShape(wanted.placement, wanted.shape);
  const ir::Dims source_local = api::LocalShape(source.spec->placement, source.spec->shape);
  const std::vector<int64_t>& from = source.spec->placement.devices;
  // Terms of a sum have the same block, but are no replicas of each other. They stay where they are
  // (StartReshard), so that the ordinals of both placements mean the same device.
  std::vector<int> first_term;
  if (api::IsPendingSum(source.spec->placement))
    first_term = api::FirstReplicas(source.spec->placement, source.spec->shape);
  // All pieces that are read from one device, by whichever executor, share one ticket.
  std::map<int64_t, std::string> tickets;
  const auto ticket_of = [&](const Executor& x, int64_t device) {
    std::string& ticket = tickets[device];
    if (ticket.empty())
      ticket = api::SignTicket({.access = api::Ticket::Access::kRead,
                                .incarnation = x.info.incarnation,
                                .array = op.args[0],
                                .device = cluster_.device(device).local_index,
                                .dtype = source.spec->dtype,
                                .shape = source_local,
                                .expires = now_ + s_.steady_ahead + s_.config.ticket_lifetime},
                               api::TicketKeyFor(s_.config.ticket_key, x.name, x.info.incarnation));
    return ticket;
  };
  std::map<std::string, api::Transfer> transfers;
  for (size_t k = 0; k < wanted.placement.devices.size(); ++k) {
    const int64_t device = wanted.placement.devices[k];
    const std::string& here = cluster_.device(device).executor;
    api::Transfer::Shard shard;
    shard.device = cluster_.device(device).local_index;
    const auto prefer = [&](int64_t replica) {
      const Presence presence = PresenceOn(source, from[replica]);
      if (presence == Presence::kNone) return kUnreadable;
      if (!first_term.empty() && first_term[replica] != first_term[k]) return kUnreadable;
      if (presence == Presence::kAway) return 0;
      return from[replica] == device ? 3 : cluster_.device(from[replica]).executor == here ? 2 : 1;
    };
    for (ShardSlice& p : SlicesOf(*source.spec, wanted, static_cast<int64_t>(k), prefer)) {
      const Executor& x = cluster_.ExecutorOf(from[p.source]);
      api::Transfer::Piece piece;
      piece.local = x.name == here;
      piece.source = op.args[0];
      piece.source_device = cluster_.device(from[p.source]).local_index;
      if (!piece.local) {
        piece.executor = x.name;
        piece.endpoint = x.info.peer_data_endpoint;
        piece.ticket = ticket_of(x, from[p.source]);
      }
      piece.source_starts = std::move(p.source_starts);
      piece.dest_starts = std::move(p.dest_starts);
      piece.shape = std::move(p.shape);
      shard.pieces.push_back(std::move(piece));
    }
    transfers[here].shards.push_back(std::move(shard));
  }
  for (const std::string& name : executors) {
    if (!only.empty() && name != only) continue;
    api::Transfer& t = transfers.at(name);
    t.launch = op.id;
    t.sequence = op.known_sequence();
    t.result = op.results[0];
    t.dtype = wanted.dtype;
    t.local_shape = local;
    t.timeout =
        op.deadline < absl::InfiniteFuture() ? op.deadline - now_ : s_.config.ticket_lifetime;
    Send(cluster_.executor(name), std::move(t));
  }
}

}  // namespace tessera::server::scheduler
