// The rules that scatter, scatter_add, scatter_mul, scatter_min, scatter_max and scatter_by share.
// The rows of the first five name these rules. The rules of scatter_by call them with one of its
// operands at a time.
#include "ir/ops/rules/scattering.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tessera::ir::ops {

WindowDims ScatterDimsOf(const Attrs& attrs) { return {attrs, kScatterNames}; }

Dims ScatterWindow(const Geometry& g, const Dims& updates) {
  Dims sizes;
  for (const int64_t at : g.operand_to_block) sizes.push_back(at < 0 ? 1 : updates[at]);
  return sizes;
}

// Checks the dtypes, the dimension numbers and the shapes against each other. The sizes of windows
// are not attributes; they follow from the shape of the updates.
absl::StatusOr<std::vector<Type>> InferScatter(const InferContext& c) {
  const Type &x = c.in[0], &indices = c.in[1], &updates = c.in[2];
  if (c.def.reduce != ReduceKind::kNone) {
    TESSERA_RETURN_IF_ERROR(CheckComputable(c, x.dtype));
    const bool is_arithmetic =
        c.def.reduce == ReduceKind::kSum || c.def.reduce == ReduceKind::kProd;
    if (is_arithmetic && x.dtype == DType::kBool)
      return TypeError(c, "does not accept dtype bool; expected a number type");
  }
  if (updates.dtype != x.dtype)
    return TypeError(c, "updates are ", updates.ToString(), ", the operand is ", x.ToString(),
                     "; expected equal dtypes");
  const WindowDims w = ScatterDimsOf(c.attrs);
  TESSERA_RETURN_IF_ERROR(CheckMode(c));
  TESSERA_RETURN_IF_ERROR(CheckDimensionNumbers(c, w, kScatterNames));
  const Geometry g(w, x.rank(), indices.rank());
  if (updates.rank() != g.block_rank)
    return ValueError(c, "updates are ", updates.ToString(), "; expected rank ", g.block_rank,
                      ": the dims of a window and the dims of the indices' positions");
  for (int d = 0; d < indices.rank(); ++d)
    if (const int64_t at = g.indices_to_block[d]; at >= 0 && updates.shape[at] != indices.shape[d])
      return ValueError(c, "dim ", at, " of the updates ", updates.ToString(), " is for dim ", d,
                        " of the indices ", indices.ToString(), "; expected equal sizes");
  const Dims window = ScatterWindow(g, updates.shape);
  // An operand without elements takes any updates, as in StableHLO and JAX: none of the updates has
  // a place.
  const bool writes = updates.num_elements() > 0 && x.num_elements() > 0;
  if (writes) TESSERA_RETURN_IF_ERROR(CheckWindow(c, w, window));
  for (int d = 0; d < x.rank(); ++d)
    if (g.operand_to_block[d] >= 0 && window[d] > x.shape[d])
      return ValueError(c, "the window along dim ", d, " of ", x.ToString(), " has ", window[d],
                        " elements; expected ", x.shape[d], " at most");
  Type t = MakeType(x.dtype, x.shape);
  t.weak = x.weak && updates.weak;
  return std::vector<Type>{t};
}

// Indexed dims pass through: every shard has all index vectors, and writes only the updates that
// lie in its own block. Positions may also be cut if updates are combined in any order. If updates
// replace elements, or are combined in a fixed order, the positions are gathered.
Signature FactorsOfScatter(const InferContext& c, absl::Span<const Type>) {
  const FactorKind positions =
      c.def.reduce == ReduceKind::kNone ? FactorKind::kReplicated : FactorKind::kReduction;
  const Geometry g(ScatterDimsOf(c.attrs), c.in[0].rank(), c.in[1].rank());
  WindowFactors f = FactorsOf(g, c.in[0], c.in[1], c.in[2], {positions, FactorKind::kPassThrough});
  f.s.reduce = c.def.reduce;
  f.s.operands = {f.operand, f.indices, f.block};
  f.s.results = {f.operand};
  return f.s;
}

// The result has the operand's sharding. A dim of the operand that is batched with a dim of the
// indices may be unsharded: it then takes the axes of that dim, or of the updates.
absl::Status ScatterSharding(const InferContext& c, std::vector<Type>* out) {
  const Type &x = c.in[0], &indices = c.in[1], &updates = c.in[2];
  Type& t = (*out)[0];
  TESSERA_ASSIGN_OR_RETURN(const bool has_out_sharding, ApplyOutSharding(c, &t));
  if (has_out_sharding) return absl::OkStatus();
  const std::string_view method = !c.def.regions.empty()              ? "apply"
                                  : c.def.reduce == ReduceKind::kNone ? "set"
                                  : c.def.reduce == ReduceKind::kSum  ? "add"
                                  : c.def.reduce == ReduceKind::kProd ? "mul"
                                  : c.def.reduce == ReduceKind::kMax  ? "max"
                                                                      : "min";
  const Geometry g(ScatterDimsOf(c.attrs), x.rank(), indices.rank());
  for (int d = 0; d < indices.rank(); ++d) {
    const int64_t at = g.indices_to_block[d];
    const bool sharded =
        !indices.axes_of(d).empty() || (at >= 0 && !updates.axes_of(static_cast<int>(at)).empty());
    if (sharded && !Contains(g.operand_to_indices, d)) return OutShardingNeededError(c, method);
  }
  t.sharding.assign(t.rank(), {});
  for (int d = 0; d < x.rank(); ++d) {
    const int64_t at = g.operand_to_block[d], batch = g.operand_to_indices[d];
    const AxisList& axes = x.axes_of(d);
    if (batch >= 0) {
      std::optional<AxisList> all = AgreedAxes(axes, indices.axes_of(static_cast<int>(batch)));
      if (all) all = AgreedAxes(*all, updates.axes_of(static_cast<int>(g.indices_to_block[batch])));
      if (!all) return OutShardingNeededError(c, method);
      t.sharding[d] = *all;
      continue;
    }
    const AxisList of_updates = at < 0 ? AxisList{} : updates.axes_of(static_cast<int>(at));
    const bool is_whole = at >= 0 && updates.shape[at] == x.shape[d];
    if (is_whole ? of_updates != axes : !axes.empty() || !of_updates.empty())
      return OutShardingNeededError(c, method);
    t.sharding[d] = axes;
  }
  if (NamesAxisTwice(t)) return OutShardingNeededError(c, method);
  Normalize(&t);
  return absl::OkStatus();
}

// The parallel dims come first: dims of windows that no index moves, and dims of positions with
// which the operand is batched. They are sorted so that neighbours along the last of them are
// closest in the operand. Then come the other positions, in their order, and the remaining dims of
// the windows.
ScatterMap MapScatter(const InferContext& c) {
  const Type &x = c.in[0], &indices = c.in[1], &updates = c.in[2];
  const WindowDims w = ScatterDimsOf(c.attrs);
  const Geometry g(w, x.rank(), indices.rank());
  const Dims strides = StridesOf(x.shape), index_strides = StridesOf(indices.shape);
  struct Dim {
    // The size of the dim, and its strides in the updates (`read`), in the result (`write`) and
    // from one index vector to the next (`vector`).
    int64_t size, read, write = 0, vector = 0;
  };
  std::vector<Dim> parallel, positions, windows;
  const Dims update_strides = StridesOf(updates.shape);
  for (int i = 0; i < indices.rank(); ++i) {
    const int64_t at = g.indices_to_block[i];
    if (at < 0) continue;
    Dim dim{updates.shape[at], update_strides[at], 0, index_strides[i]};
    const auto batch = std::find(g.operand_to_indices.begin(), g.operand_to_indices.end(), i);
    if (batch == g.operand_to_indices.end()) {
      positions.push_back(dim);
    } else {
      dim.write = strides[batch - g.operand_to_indices.begin()];
      parallel.push_back(dim);
    }
  }
  for (int d = 0; d < x.rank(); ++d)
    if (const int64_t at = g.operand_to_block[d]; at >= 0)
      (g.operand_to_entry[d] < 0 ? parallel : windows)
          .push_back({updates.shape[at], update_strides[at], strides[d], 0});
  std::stable_sort(parallel.begin(), parallel.end(),
                   [](const Dim& a, const Dim& b) { return a.write > b.write; });

  ScatterMap map;
  map.num_parallel = static_cast<int>(parallel.size());
  map.drops = ModeOf(c.attrs) == GatherScatterMode::kFillOrDrop;
  Dims vector;
  for (const std::vector<Dim>* dims : {&parallel, &positions, &windows})
    for (const Dim& dim : *dims) {
      map.shape.push_back(dim.size);
      map.read.push_back(dim.read);
      map.write.push_back(dim.write);
      vector.push_back(dim.vector);
    }
  const Dims window = ScatterWindow(g, updates.shape);
  const bool has_vector_dim = w.index_vector_dim < indices.rank();
  for (int d = 0; d < x.rank(); ++d) {
    if (g.operand_to_entry[d] < 0) continue;
    const int64_t last = x.shape[d] - window[d];
    const int64_t entry =
        has_vector_dim ? g.operand_to_entry[d] * index_strides[w.index_vector_dim] : 0;
    if (last > 0 || map.drops) map.shifts.push_back({1, last, strides[d], entry, vector});
  }
  return map;
}

Cost ScatterCost(const InferContext& c, absl::Span<const Type> out) {
  const double moved = static_cast<double>(3 * c.in[2].num_bytes() + c.in[1].num_bytes());
  return {c.def.reduce == ReduceKind::kNone ? 0 : static_cast<double>(c.in[2].num_elements()),
          moved + static_cast<double>(2 * out[0].num_bytes())};
}

Attrs LocalScatterAttrs(const RuleContext& c, const LocalIndices& local) {
  Attrs attrs = c.attrs;
  attrs.Erase("out_sharding");
  if (!local.axes.empty()) {
    attrs.Erase("indices_are_sorted");
    attrs.Set("mode", NameOf(GatherScatterMode::kFillOrDrop));
  }
  return attrs;
}

Attrs ScatterAttrs(Value indices, const ScatterDimensionNumbers& dims,
                   const GatherScatterOptions& options) {
  Attrs attrs = {{"update_window_dims", dims.update_window_dims},
                 {"inserted_window_dims", dims.inserted_window_dims},
                 {"input_batching_dims", dims.operand_batching_dims},
                 {"scatter_indices_batching_dims", dims.scatter_indices_batching_dims},
                 {"scatter_dims_to_operand_dims", dims.scatter_dims_to_operand_dims},
                 {"index_vector_dim", int64_t{indices.rank() - 1}}};
  SetOptions(options, &attrs);
  return attrs;
}

}  // namespace tessera::ir::ops
