// The rows of the import's table for collectives. A collective of StableHLO lists the devices of
// each group. The import finds the axes of the mesh along which the groups lie.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/ops.h"
#include "ir/ops/regions/computation.h"
#include "ir/stablehlo/importer.h"
#include "ir/verify.h"

namespace tessera::ir::stablehlo {
namespace {

using Results = std::vector<Value>;
using MeshPositions = std::vector<int64_t>;  // positions in the mesh, counted row-major

// The largest group that is reduced by a computation other than a sum, a maximum or a minimum.
constexpr int64_t kFoldMax = 64;
// The largest number of entries in a matrix of device ids that is a splat: the artifact holds one
// id, and all entries are equal to it.
constexpr int64_t kSplatMax = 4096;

// Whether the order of the devices in a group matters to an op, or only which devices they are.
enum class Order : uint8_t { kMatters, kAny };
// The ways in which an attribute is read. Ops that share an attribute may read it in different
// ways.
enum Reading : int { kOrderedGroups, kGroups, kRoots, kPairs };

AxisList AllAxes(const Mesh& mesh) {
  AxisList axes;
  for (const MeshAxis& axis : mesh.axes) axes.push_back(axis.name);
  return axes;
}

// Throws if the op is in a computation of scalars, which has no mesh even if the program has one.
void RefuseInScalarComputation(const OpReader& op) {
  if (op.b().mesh().empty() && !op.shardings().mesh().empty())
    op.NotSupported("is in a computation of scalars");
}

// Returns the rows of the matrix `attr`, which holds ids of devices, as positions in the mesh.
std::vector<MeshPositions> RowsOf(const OpReader& op, std::string_view attr) {
  const Tensor matrix = op.Constant(attr);
  const Type& type = matrix.type;
  if (type.rank() != 2) op.Malformed("has groups that are not a matrix");
  if (!IsInteger(type.dtype)) op.Malformed("has groups that are not of integers");
  // The bytes of the artifact do not bound the number of entries, because the matrix may be a
  // splat.
  const int64_t count = type.num_elements();
  if (count > (matrix.is_splat ? kSplatMax : 2 * Limits().mesh_devices))
    op.NotSupported(absl::StrCat("has groups of ", count, " devices"));
  std::vector<int64_t> ids(count);
  for (int64_t i = 0; i < count; ++i) ids[i] = matrix.literal.IntAt(matrix.is_splat ? 0 : i);
  const int64_t size = type.shape[1];
  if (size == 0 && type.shape[0] > 0) op.Malformed("has groups of no devices");
  // The number of rows is at most the number of ids.
  std::vector<MeshPositions> rows(type.shape[0]);
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t position = op.b().mesh().empty() ? ids[i] : op.shardings().PositionOf(ids[i]);
    if (position < 0 || (op.b().mesh().empty() && position != 0))
      op.Malformed(absl::StrCat("has the device ", ids[i], ", which the mesh ",
                                op.b().mesh().ToString(), " lacks"));
    rows[i / size].push_back(position);
  }
  return rows;
}

// Returns the axes along which the first group lies, major to minor. An axis whose coordinate
// changes later in the group is more major.
AxisList AxesOfGroup(const Mesh& mesh, const MeshPositions& group) {
  const std::vector<int64_t> origin = mesh.Coordinates(group[0]);
  std::vector<std::pair<size_t, std::string>> changes;
  std::vector<bool> changed(mesh.axes.size());
  for (size_t i = 1; i < group.size(); ++i) {
    const std::vector<int64_t> at = mesh.Coordinates(group[i]);
    for (size_t a = 0; a < at.size(); ++a) {
      if (changed[a] || at[a] == origin[a]) continue;
      changed[a] = true;
      changes.emplace_back(i, mesh.axes[a].name);
    }
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  AxisList axes;
  for (auto& [index, axis] : changes) axes.push_back(std::move(axis));
  return axes;
}

[[noreturn]] void ThrowNoAxes(const OpReader& op) {
  op.NotSupported(absl::StrCat("has replica groups that do not follow axes of the mesh ",
                               op.b().mesh().ToString(),
                               "; a group must hold the devices along some axes, in their order"));
}

AxisList AxesOfGroups(const OpReader& op, std::vector<MeshPositions> groups, Order order) {
  const Mesh& mesh = op.b().mesh();
  if (groups.empty() || groups[0].empty()) op.Malformed("has no replica groups");
  if (order == Order::kAny)
    for (MeshPositions& group : groups) std::sort(group.begin(), group.end());
  size_t devices = 0;
  for (const MeshPositions& group : groups) devices += group.size();
  if (static_cast<int64_t>(devices) != mesh.num_devices())
    op.Malformed(
        absl::StrCat("has ", devices, " devices in its replica groups, of ", mesh.num_devices()));
  const AxisList axes = AxesOfGroup(mesh, groups[0]);
  std::vector<bool> seen(devices);
  for (const MeshPositions& group : groups) {
    if (group != mesh.GroupOf(group[0], axes)) ThrowNoAxes(op);
    for (const int64_t position : group) {
      if (seen[position]) op.Malformed("has a device in two of its replica groups");
      seen[position] = true;
    }
  }
  return axes;
}

// Returns the axes along which the op exchanges; empty if each device is alone.
//
// Without a channel the groups are of replicas, and there is one replica. With a channel they are
// of partitions. Most ops also have the attribute `use_global_device_ids`: their groups are of
// partitions only if it is set. `may_use_global_ids` is false for an op without it.
AxisList AxesOf(const OpReader& op, Order order, bool may_use_global_ids = true) {
  RefuseInScalarComputation(op);
  constexpr std::string_view kAttr = "replica_groups";
  const bool has_channel = op.Has("channel_id") && op.Int("channel_id") > 0;
  const bool uses_global_ids = op.Bool("use_global_device_ids");
  if (op.Has(kAttr) && op.KindOf(kAttr) == AttrKind::kReplicaGroupMeshAxes)
    return op.shardings().GroupAxes(op.Find(kAttr), op.Where(kAttr));
  if (!has_channel && !uses_global_ids) return {};
  if (may_use_global_ids && !uses_global_ids) return AllAxes(op.b().mesh());
  return op
      .CachedExchange(kAttr, order == Order::kMatters ? kOrderedGroups : kGroups,
                      [&] {
                        return Exchange{AxesOfGroups(op, RowsOf(op, kAttr), order), {}, 0};
                      })
      .axes;
}

template <typename F>
Results ForEachOperand(const OpReader& op, F import) {
  Results out;
  for (const Value v : op.in) out.push_back(import(v));
  return out;
}
void NeedDim(const OpReader& op, int dim) {
  for (const Value v : op.in)
    if (dim < 0 || dim >= v.rank()) op.Malformed("is along a dim that does not exist");
}

// Returns one of the shards that were gathered along a new leading dim.
Value ShardAt(Value all, int64_t position) {
  std::vector<int64_t> start(all.rank(), 0), strides(all.rank(), 1);
  std::vector<int64_t> limit(all.shape().begin(), all.shape().end());
  start[0] = position;
  limit[0] = position + 1;
  return Reshape(Slice(all, start, limit, strides),
                 Dims(all.shape().begin() + 1, all.shape().end()));
}

// Gathers the shards along the axes and combines them, in their order, by a computation of scalars.
Value FoldShards(const OpReader& op, Value v, const AxisList& axes, const FunctionRef& f) {
  const int64_t n = op.b().mesh().SizeOf(axes);
  if (n > kFoldMax)
    op.NotSupported(
        absl::StrCat("reduces more than ", kFoldMax,
                     " shards by a computation of its own; gather them and reduce them"));
  const Value all = AllGather(v, axes, /*dimension=*/0, /*tiled=*/false);
  Value folded = ShardAt(all, 0);
  for (int64_t i = 1; i < n; ++i) {
    const Value shard = ShardAt(all, i);
    folded = MapComputation(f, {folded, shard})[0];
  }
  return folded;
}

// Returns our collective for a computation that is a single op, or null.
using Reducer = Value (*)(Value, AxisList);
Reducer ReducerOf(const Function& f, DType dtype) {
  const OpDef* const def = ops::SoleOp(f);
  if (def == nullptr || f.num_params != 2 || f.type(0) != MakeType(dtype, {})) return nullptr;
  if (def == &ops::kAdd) return Psum;
  // The maximum of booleans is their "or", and the minimum their "and".
  const bool is_bool = dtype == DType::kBool;
  if (is_bool && def == &ops::kOr) return Pmax;
  if (is_bool && def == &ops::kAnd) return Pmin;
  if (def == &ops::kMax) return Pmax;
  if (def == &ops::kMin) return Pmin;
  return nullptr;
}

// Returns whether the op sums complex numbers. The computation of such an op is not imported: it
// would add the parts of the numbers, and so be no single op by which ReducerOf finds the
// collective.
bool SumsComplex(const OpReader& op) {
  return std::all_of(op.in.begin(), op.in.end(), [](Value v) { return IsComplex(v.dtype()); }) &&
         op.SoleOpName(0) == "add";
}

Results ImportAllReduce(const OpReader& op) {
  const AxisList axes = AxesOf(op, Order::kAny);
  if (SumsComplex(op))
    return axes.empty() ? op.in : ForEachOperand(op, [&](Value v) { return Psum(v, axes); });
  const FunctionRef f = op.Inlined(0);
  if (axes.empty()) return op.in;
  const int64_t folds = std::count_if(op.in.begin(), op.in.end(), [&](const Value& v) {
    return ReducerOf(*f, v.dtype()) == nullptr;
  });
  op.ChargeRepeatedOps(f, folds * std::min(op.b().mesh().SizeOf(axes), kFoldMax));
  return ForEachOperand(op, [&](Value v) {
    const Reducer reduce = ReducerOf(*f, v.dtype());
    return reduce != nullptr ? reduce(v, axes) : FoldShards(op, v, axes, f);
  });
}
// Reduces booleans over the shards, by "or" if `is_or` is true and by "and" otherwise, and returns
// this device's block of the result. An element of "or" is true if the number of shards with true
// is not 0. An element of "and" is true if the number of shards with false is 0.
Value ScatterBooleans(Value v, const AxisList& axes, int dim, bool is_or) {
  const Value count = PsumScatter(is_or ? v : Not(v), axes, dim, /*tiled=*/true);
  return Compare(count, FullLike(count, 0), is_or ? "NE" : "EQ");
}
Results ImportReduceScatter(const OpReader& op) {
  const AxisList axes = AxesOf(op, Order::kMatters);
  const int dim = op.SmallInt("scatter_dimension");
  NeedDim(op, dim);
  if (SumsComplex(op))
    return axes.empty()
               ? op.in
               : ForEachOperand(op, [&](Value v) { return PsumScatter(v, axes, dim, true); });
  const FunctionRef f = op.Inlined(0);
  if (axes.empty()) return op.in;
  return ForEachOperand(op, [&](Value v) {
    const Reducer reduce = ReducerOf(*f, v.dtype());
    if (v.dtype() == DType::kBool && (reduce == &Pmax || reduce == &Pmin))
      return ScatterBooleans(v, axes, dim, /*is_or=*/reduce == &Pmax);
    if (reduce != &Psum)
      op.NotSupported("does not reduce to a sum; reduce on all devices and take a slice");
    return PsumScatter(v, axes, dim, /*tiled=*/true);
  });
}
Results ImportAllGather(const OpReader& op) {
  const AxisList axes = AxesOf(op, Order::kMatters);
  const int dim = op.SmallInt("all_gather_dim");
  NeedDim(op, dim);
  if (axes.empty()) return op.in;
  return ForEachOperand(op, [&](Value v) { return AllGather(v, axes, dim, /*tiled=*/true); });
}
Results ImportAllToAll(const OpReader& op) {
  const AxisList axes = AxesOf(op, Order::kMatters, /*may_use_global_ids=*/false);
  const int split = op.SmallInt("split_dimension"), concat = op.SmallInt("concat_dimension");
  NeedDim(op, split);
  NeedDim(op, concat);
  if (op.Int("split_count") != op.b().mesh().SizeOf(axes))
    op.Malformed("does not split into as many parts as a group has devices");
  if (axes.empty()) return op.in;
  return ForEachOperand(op,
                        [&](Value v) { return AllToAll(v, axes, split, concat, /*tiled=*/true); });
}

// Returns the position in the mesh whose coordinates are those of `position`, but 0 along `axes`.
int64_t FirstAlong(const Mesh& mesh, int64_t position, const AxisList& axes) {
  std::vector<int64_t> at = mesh.Coordinates(position);
  for (const std::string& axis : axes) at[mesh.IndexOf(axis)] = 0;
  return mesh.DeviceAt(at);
}

// Returns the axes along which the pairs exchange. An axis is one of them if a pair's two devices
// differ along it, or if a pair is not repeated at every position along the axis.
AxisList AxesOfPairs(const Mesh& mesh, const std::vector<MeshPositions>& pairs) {
  AxisList axes;
  for (const MeshAxis& axis : mesh.axes) {
    bool moves_data = false;
    // The number of pairs that are equal except for their positions along the axis. The key is such
    // a pair at position 0.
    std::map<MeshPositions, int64_t> num_alike;
    for (const MeshPositions& pair : pairs) {
      moves_data |= mesh.IndexAlong(pair[0], {axis.name}) != mesh.IndexAlong(pair[1], {axis.name});
      ++num_alike[{FirstAlong(mesh, pair[0], {axis.name}), FirstAlong(mesh, pair[1], {axis.name})}];
    }
    if (moves_data || std::any_of(num_alike.begin(), num_alike.end(),
                                  [&](const auto& entry) { return entry.second != axis.size; }))
      axes.push_back(axis.name);
  }
  return axes;
}

// Returns the exchange of a collective_permute.
Exchange PermuteExchange(const OpReader& op) {
  const Mesh& mesh = op.b().mesh();
  const std::vector<MeshPositions> pairs = RowsOf(op, "source_target_pairs");
  if (!pairs.empty() && pairs[0].size() != 2) op.Malformed("has pairs that are not of two devices");
  Exchange out;
  out.axes = AxesOfPairs(mesh, pairs);
  // Without pairs no device receives anything. An exchange along no axes would mean that each
  // device sends to itself, so the axes are all axes.
  if (pairs.empty()) out.axes = AllAxes(mesh);
  // The pairs of each group, by the first position of the group.
  std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> pairs_by_group;
  for (const MeshPositions& pair : pairs)
    pairs_by_group[FirstAlong(mesh, pair[0], out.axes)].emplace_back(
        mesh.IndexAlong(pair[0], out.axes), mesh.IndexAlong(pair[1], out.axes));
  for (auto& [first, group] : pairs_by_group) {
    std::sort(group.begin(), group.end());
    if (group != pairs_by_group.begin()->second) ThrowNoAxes(op);
  }
  if (!pairs_by_group.empty()) out.perm = pairs_by_group.begin()->second;
  return out;
}

Results ImportCollectivePermute(const OpReader& op) {
  RefuseInScalarComputation(op);
  const bool has_channel = op.Has("channel_id") && op.Int("channel_id") > 0;
  if (op.b().mesh().empty() || !has_channel) {
    if (RowsOf(op, "source_target_pairs").size() != 1)
      op.NotSupported("runs on one device, which receives from no device");
    return op.in;
  }
  const Exchange& exchange =
      op.CachedExchange("source_target_pairs", kPairs, [&] { return PermuteExchange(op); });
  if (exchange.axes.empty()) return op.in;  // all devices send to themselves
  return ForEachOperand(op, [&](Value v) { return Ppermute(v, exchange.axes, exchange.perm); });
}

// Returns the exchange of a collective_broadcast.
Exchange BroadcastExchange(const OpReader& op) {
  const Mesh& mesh = op.b().mesh();
  const std::vector<MeshPositions> groups = RowsOf(op, "replica_groups");
  Exchange out;
  out.axes = AxesOfGroups(op, groups, Order::kAny);
  out.root = mesh.IndexAlong(groups[0][0], out.axes);
  for (const MeshPositions& group : groups)
    if (mesh.IndexAlong(group[0], out.axes) != out.root)
      op.NotSupported(
          "has roots at different positions along the axes of its groups; permute instead");
  return out;
}

// The first device of each group sends to the others.
Results ImportCollectiveBroadcast(const OpReader& op) {
  if (op.Bool("has_dynamic_root"))
    op.NotSupported("has a root that is known only when it runs; gather and take a slice");
  RefuseInScalarComputation(op);
  if (!op.Has("channel_id") || op.Int("channel_id") <= 0) return op.in;
  const Exchange& exchange =
      op.CachedExchange("replica_groups", kRoots, [&] { return BroadcastExchange(op); });
  if (exchange.axes.empty()) return op.in;
  return ForEachOperand(op, [&](Value v) {
    return ShardAt(AllGather(v, exchange.axes, /*dimension=*/0, /*tiled=*/false), exchange.root);
  });
}

Results ImportPartitionId(const OpReader& op) {
  RefuseInScalarComputation(op);
  const Mesh& mesh = op.b().mesh();
  if (mesh.empty()) return {Constant(op.b(), DType::kU32, 0)};
  const AxisList axes = AllAxes(mesh);
  const bool is_manual = mesh.AxesOfType(AxisType::kManual) == axes;
  // In a program for one device, JAX writes the body of a shard_map without manual axes.
  if (!is_manual && mesh.num_devices() == 1) return {Constant(op.b(), DType::kU32, 0)};
  if (!is_manual) op.NotSupported("is used where not all axes are manual; use axis_index");
  const Value position = AxisIndex(op.b(), axes);
  const std::vector<int64_t>& ids = op.shardings().device_ids();
  if (ids.empty()) return {Convert(position, DType::kU32)};
  Array table(DType::kU32, {static_cast<int64_t>(ids.size())});
  for (size_t i = 0; i < ids.size(); ++i) table.Set(i, static_cast<double>(ids[i]));
  return {Reshape(DynamicSlice(Constant(op.b(), std::move(table)), {position}, {1}), {})};
}
// The sum is over replicas, and there is one replica.
Results ImportCrossReplicaSum(const OpReader& op) { return op.in; }
// There is one replica, so its id is 0.
Results ImportReplicaId(const OpReader& op) { return {Constant(op.b(), DType::kU32, 0)}; }

constexpr ImportRow kRows[] = {
    {"all_gather", ImportAllGather},
    {"all_reduce", ImportAllReduce},
    {"all_to_all", ImportAllToAll},
    {"collective_broadcast", ImportCollectiveBroadcast},
    {"collective_permute", ImportCollectivePermute},
    {"cross-replica-sum", ImportCrossReplicaSum},
    {"partition_id", ImportPartitionId},
    {"reduce_scatter", ImportReduceScatter},
    {"replica_id", ImportReplicaId},
};

// Returns the value of an operand that is a constant u32, or nullopt.
std::optional<int64_t> ConstantOperand(const OpReader& op, size_t operand) {
  const std::optional<OpReader> from = op.Defining(operand);
  if (!from || from->Name() != "constant") return std::nullopt;
  const Tensor tensor = from->Constant("value");
  if (tensor.type != MakeType(DType::kU32, {})) return std::nullopt;
  return tensor.literal.IntAt(0);
}

}  // namespace

const ImportRow* FindCollective(std::string_view name) {
  const auto* const row = std::find_if(std::begin(kRows), std::end(kRows),
                                       [&](const ImportRow& r) { return r.name == name; });
  return row != std::end(kRows) ? row : nullptr;
}

// Recognizes (partition_id / stride) % size.
std::optional<Value> PositionAlongAxis(const OpReader& remainder) {
  const Mesh& mesh = remainder.b().mesh();
  if (mesh.empty() || !remainder.shardings().device_ids().empty() || remainder.num_operands() != 2)
    return std::nullopt;
  const std::optional<OpReader> divide = remainder.Defining(0);
  if (!divide || divide->Name() != "divide" || divide->num_operands() != 2) return std::nullopt;
  const std::optional<OpReader> id = divide->Defining(0);
  if (!id || id->Name() != "partition_id") return std::nullopt;
  const std::optional<int64_t> stride = ConstantOperand(*divide, 1);
  const std::optional<int64_t> size = ConstantOperand(remainder, 1);
  if (!stride || !size || *stride < 1 || *size < 1) return std::nullopt;
  const std::optional<AxisList> axes = remainder.shardings().AxesAt({*stride, *size});
  if (!axes || axes->empty() || !std::all_of(axes->begin(), axes->end(), [&](const auto& axis) {
        return mesh.IsManual(axis);
      }))
    return std::nullopt;
  return Convert(AxisIndex(remainder.b(), *axes), DType::kU32);
}

}  // namespace tessera::ir::stablehlo
