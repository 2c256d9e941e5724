// The rows that write shardings, shard_maps and collectives: shardings as Shardy's ops, and
// collectives along axes as StableHLO's with groups of devices.
#include <algorithm>

#include "ir/ops.h"
#include "ir/stablehlo/exporter.h"

namespace tessera::ir::stablehlo {
namespace {

const Mesh& MeshOf(const SourceOp& op) { return op.f.scope.mesh; }
AxisList AxesOf(const SourceOp& op) { return op.attrs().Strings("axes"); }

// ---- Shardings. ---------------------------------------------------------------------------------
// In code that is manual along all axes, a constraint has no meaning.
ValueIds WriteConstraint(Exporter& out, const SourceOp& op) {
  const PartitionSpec& spec = op.attrs().Spec("sharding");
  if (MeshOf(op).AxesOfType(AxisType::kAuto).empty()) return op.in;
  return out.EmitShardy("sharding_constraint", op.in, op.in_types(), op.out_types(),
                        {{"sharding", out.Sharding(spec, op.in_type(0).rank())}});
}

// Returns the shardings at a boundary. Unless all axes are manual, dims stay open for the planner.
uint32_t BoundaryShardings(Exporter& out, std::vector<PartitionSpec> specs,
                           const std::vector<Type>& types, bool all_manual) {
  ValueIds each;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!all_manual) specs[i].open.assign(types[i].rank(), true);
    each.push_back(out.Sharding(specs[i], types[i].rank()));
  }
  return out.module().Shardings(each);
}
ValueIds WriteManualComputation(Exporter& out, const SourceOp& op) {
  const Function& f = *op.op.regions[0];
  AxisList manual;
  for (const std::string& axis : MeshOf(op).AxesOfType(AxisType::kAuto))
    if (f.scope.mesh.IsManual(axis)) manual.push_back(axis);
  const bool all_manual = f.scope.mesh.AxesOfType(AxisType::kAuto).empty();
  const uint32_t in =
      BoundaryShardings(out, op.attrs().Specs("in_specs"), op.in_types(), all_manual);
  const uint32_t results =
      BoundaryShardings(out, op.attrs().Specs("out_specs"), op.out_types(), all_manual);
  const auto body = [&](const ValueIds& args) { return out.Inline(f, args); };
  const Exporter::ShardyRegion region{{f.param_types(), body}, f.result_types()};
  return out.EmitShardy("manual_computation", op.in, op.in_types(), op.out_types(),
                        {{"in_shardings", in},
                         {"manual_axes", out.module().ManualAxes(manual)},
                         {"out_shardings", results}},
                        &region);
}

// ---- Collectives. -------------------------------------------------------------------------------
// Returns the groups of devices that exchange. Channel 1 means the devices of the whole mesh.
uint32_t GroupsOf(Exporter& out, const SourceOp& op) { return out.Groups(MeshOf(op), AxesOf(op)); }
Module::NamedAttrs GroupAttrs(Exporter& out, const SourceOp& op) {
  return {{"channel_id", out.module().Int(1)},
          {"replica_groups", GroupsOf(out, op)},
          {"use_global_device_ids", out.module().Bool(true)}};
}
Type WithShape(const Type& type, Dims shape) { return MakeType(type.dtype, std::move(shape)); }
// Returns the value with another shape, or itself if it already has that shape.
uint32_t Reshaped(Exporter& out, uint32_t value, const Type& from, const Dims& shape) {
  return from.shape == shape ? value : out.Emit1("reshape", {value}, WithShape(from, shape));
}
bool IsTiled(const SourceOp& op) { return op.attrs().Bool("tiled"); }

// Writes the op `name` with a computation of two scalars.
uint32_t EmitReducing(Exporter& out, const SourceOp& op, std::string_view name, const Type& type,
                      const Module::NamedAttrs& attrs) {
  const Type scalar = WithShape(type, {});
  const std::string_view combine = op.op.def->reduce == ReduceKind::kSum   ? "add"
                                   : op.op.def->reduce == ReduceKind::kMax ? "maximum"
                                                                           : "minimum";
  const auto body = [&](const ValueIds& args) -> ValueIds {
    return {out.Emit1(combine, args, scalar)};
  };
  return out.Emit(name, op.in, {type}, attrs, {{{scalar, scalar}, body}})[0];
}
ValueIds WriteAllReduce(Exporter& out, const SourceOp& op) {
  return {EmitReducing(out, op, "all_reduce", op.out_type(), GroupAttrs(out, op))};
}

// A gather that is not tiled has a dim of its own, with one element in each part.
ValueIds WriteAllGather(Exporter& out, const SourceOp& op) {
  const int64_t dim = op.attrs().Int("all_gather_dimension");
  Dims part = op.in_type(0).shape;
  if (!IsTiled(op)) part.insert(part.begin() + dim, 1);
  const uint32_t in = Reshaped(out, op.in[0], op.in_type(0), part);
  Module::NamedAttrs attrs = GroupAttrs(out, op);
  attrs.emplace_back("all_gather_dim", out.module().Int(dim));
  return {out.Emit1("all_gather", {in}, op.out_type(), attrs)};
}
ValueIds WriteReduceScatter(Exporter& out, const SourceOp& op) {
  const int64_t dim = op.attrs().Int("scatter_dimension");
  Type part = op.out_type();
  if (!IsTiled(op)) part.shape.insert(part.shape.begin() + dim, 1);
  Module::NamedAttrs attrs = GroupAttrs(out, op);
  attrs.emplace_back("scatter_dimension", out.module().Int(dim));
  const uint32_t exchanged_part = EmitReducing(out, op, "reduce_scatter", part, attrs);
  return {Reshaped(out, exchanged_part, part, op.out_type().shape)};
}
ValueIds WriteAllToAll(Exporter& out, const SourceOp& op) {
  int64_t split = op.attrs().Int("split_dimension"), concat = op.attrs().Int("concat_dimension");
  const int64_t parts = MeshOf(op).SizeOf(AxesOf(op));
  Dims whole = op.in_type(0).shape, exchanged = op.out_type().shape;
  if (!IsTiled(op)) {
    // Insert the new dim. `concat` counts dims without the dim that is split.
    const bool is_before_split = concat <= split;
    concat += is_before_split ? 0 : 1;
    split += is_before_split ? 1 : 0;
    whole.insert(whole.begin() + concat, 1);
    exchanged.insert(exchanged.begin() + split, 1);
  }
  const uint32_t in = Reshaped(out, op.in[0], op.in_type(0), whole);
  Module& m = out.module();
  const Type type = WithShape(op.out_type(), exchanged);
  const uint32_t exchanged_part = out.Emit1("all_to_all", {in}, type,
                                            {{"channel_id", m.Int(1)},
                                             {"concat_dimension", m.Int(concat)},
                                             {"replica_groups", GroupsOf(out, op)},
                                             {"split_count", m.Int(parts)},
                                             {"split_dimension", m.Int(split)}});
  return {Reshaped(out, exchanged_part, type, op.out_type().shape)};
}
ValueIds WritePermute(Exporter& out, const SourceOp& op) {
  const Mesh& mesh = MeshOf(op);
  const AxisList axes = AxesOf(op);
  const std::vector<int64_t>& perm = op.attrs().Ints("perm");
  std::vector<int64_t> pairs;
  for (int64_t device = 0; device < mesh.num_devices(); ++device) {
    if (mesh.IndexAlong(device, axes) != 0) continue;
    const std::vector<int64_t> group = mesh.GroupOf(device, axes);
    for (const int64_t position : perm) pairs.push_back(group[position]);
  }
  const auto rows = static_cast<int64_t>(pairs.size() / 2);
  Module& m = out.module();
  return {out.Emit1("collective_permute", op.in, op.out_type(),
                    {{"channel_id", m.Int(1)}, {"source_target_pairs", m.Ints(pairs, {rows, 2})}})};
}

// Computes (partition_id / stride) % size for each axis, as JAX does.
uint32_t IndexAlongAxes(Exporter& out, const SourceOp& op) {
  const Mesh& mesh = MeshOf(op);
  const Type word = MakeType(DType::kU32, {}), type = op.out_type();
  uint32_t position = kNone;
  for (const std::string& axis : AxesOf(op)) {
    int64_t stride = 1;
    for (size_t a = mesh.IndexOf(axis) + 1; a < mesh.axes.size(); ++a) stride *= mesh.axes[a].size;
    const int64_t size = mesh.SizeOf(axis);
    const uint32_t id = out.Emit1("partition_id", {}, word);
    const uint32_t step = out.Constant(Array::ScalarInt(DType::kU32, stride));
    const uint32_t steps = out.Emit1("divide", {id, step}, word);
    const uint32_t count = out.Constant(Array::ScalarInt(DType::kU32, size));
    const uint32_t along = out.Emit1("remainder", {steps, count}, word);
    const uint32_t here = out.Emit1("convert", {along}, type);
    if (position == kNone) {
      position = here;
      continue;
    }
    const uint32_t inner = out.Constant(Array::ScalarInt(type.dtype, size));
    const uint32_t major = out.Emit1("multiply", {position, inner}, type);
    position = out.Emit1("add", {major, here}, type);
  }
  return position == kNone ? out.Constant(Array::ScalarInt(type.dtype, 0)) : position;
}
// XLA has no partition_id in code that it partitions itself. There it is computed inside a manual
// computation over all axes, as JAX does.
ValueIds WriteAxisIndex(Exporter& out, const SourceOp& op) {
  const AxisList auto_axes = MeshOf(op).AxesOfType(AxisType::kAuto);
  if (auto_axes.empty()) return {IndexAlongAxes(out, op)};
  Module& m = out.module();
  const auto body = [&](const ValueIds&) -> ValueIds { return {IndexAlongAxes(out, op)}; };
  const Exporter::ShardyRegion region{{{}, body}, op.out_types()};
  return out.EmitShardy("manual_computation", {}, {}, op.out_types(),
                        {{"in_shardings", m.Shardings({})},
                         {"manual_axes", m.ManualAxes(auto_axes)},
                         {"out_shardings", m.Shardings({m.Sharding({}, 0)})}},
                        &region);
}

constexpr ExportRow kRows[] = {
    {&ops::kShardingConstraint, WriteConstraint},
    {&ops::kManualComputation, WriteManualComputation},
    {&ops::kPsum, WriteAllReduce},
    {&ops::kPmax, WriteAllReduce},
    {&ops::kPmin, WriteAllReduce},
    {&ops::kAllGather, WriteAllGather},
    {&ops::kPsumScatter, WriteReduceScatter},
    {&ops::kAllToAll, WriteAllToAll},
    {&ops::kPpermute, WritePermute},
    {&ops::kAxisIndex, WriteAxisIndex},
};

}  // namespace

absl::Span<const ExportRow> ShardedRows() { return kRows; }

}  // namespace tessera::ir::stablehlo
