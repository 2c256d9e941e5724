// The ops scatter, scatter_add, scatter_mul, scatter_min and scatter_max: they write updates into
// an operand, or combine them with its elements, in windows that begin where index vectors say
// (ir/ops/rules/windows.h). The op scatter_by combines the elements of several operands at once by
// any computation.
//
// Updates are written in the order of their positions, row-major. If several updates of a scatter
// write the same element, the last one stays.
#include <algorithm>
#include <optional>
#include <type_traits>
#include <unordered_map>

#include "ir/ops/regions/computation.h"
#include "ir/ops/regions/region.h"
#include "ir/ops/rules/derived.h"
#include "ir/ops/rules/refused.h"
#include "ir/ops/rules/scalar_eval.h"
#include "ir/ops/rules/windows.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

WindowDims ScatterDimsOf(const Attrs& attrs) { return {attrs, kScatterNames}; }
bool IsUnique(const Attrs& attrs) {
  return attrs.Has("unique_indices") && attrs.Bool("unique_indices");
}

// Returns the size of a window along each dim of the operand, derived from the shape of the
// updates.
Dims WindowOf(const Geometry& g, const Dims& updates) {
  Dims sizes;
  for (const int64_t at : g.operand_to_block) sizes.push_back(at < 0 ? 1 : updates[at]);
  return sizes;
}

// InferScatterBy calls this too, with one operand at a time. Window sizes are not attributes here:
// they follow from the shape of the updates.
Types InferScatter(const InferContext& c) {
  const Type &x = c.in[0], &indices = c.in[1], &updates = c.in[2];
  if (c.def.reduce != ReduceKind::kNone) {
    TESSERA_RETURN_IF_ERROR(CheckComputable(c, x.dtype));
    const bool number = c.def.reduce == ReduceKind::kSum || c.def.reduce == ReduceKind::kProd;
    if (number && x.dtype == DType::kBool)
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
  const Dims window = WindowOf(g, updates.shape);
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
Signature ScatterFactors(const InferContext& c, absl::Span<const Type>) {
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
  TESSERA_ASSIGN_OR_RETURN(const bool given, ApplyOutSharding(c, &t));
  if (given) return absl::OkStatus();
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
    if (sharded && !Contains(g.operand_to_indices, d)) return AskForOutSharding(c, method);
  }
  t.sharding.assign(t.rank(), {});
  for (int d = 0; d < x.rank(); ++d) {
    const int64_t at = g.operand_to_block[d], batch = g.operand_to_indices[d];
    const AxisList& axes = x.axes_of(d);
    if (batch >= 0) {
      std::optional<AxisList> all = Resolved(axes, indices.axes_of(static_cast<int>(batch)));
      if (all) all = Resolved(*all, updates.axes_of(static_cast<int>(g.indices_to_block[batch])));
      if (!all) return AskForOutSharding(c, method);
      t.sharding[d] = *all;
      continue;
    }
    const AxisList of_updates = at < 0 ? AxisList{} : updates.axes_of(static_cast<int>(at));
    const bool whole = at >= 0 && updates.shape[at] == x.shape[d];
    if (whole ? of_updates != axes : !axes.empty() || !of_updates.empty())
      return AskForOutSharding(c, method);
    t.sharding[d] = axes;
  }
  if (NamesAxisTwice(t)) return AskForOutSharding(c, method);
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
      (g.vector_of[d] < 0 ? parallel : windows)
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
  const Dims window = WindowOf(g, updates.shape);
  const bool has_vector_dim = w.index_vector_dim < indices.rank();
  for (int d = 0; d < x.rank(); ++d) {
    if (g.vector_of[d] < 0) continue;
    const int64_t last = x.shape[d] - window[d];
    const int64_t entry = has_vector_dim ? g.vector_of[d] * index_strides[w.index_vector_dim] : 0;
    if (last > 0 || map.drops) map.shifts.push_back({1, last, strides[d], entry, vector});
  }
  return map;
}

// Combines a run of `n` updates with the elements that are there.
template <DType kD>
void CombineRun(ReduceKind kind, std::byte* to_bytes, const std::byte* from_bytes, int64_t n) {
  using Traits = Element<kD>;
  using C = ComputeType<kD>;
  auto* to = reinterpret_cast<typename Traits::Storage*>(to_bytes);
  const auto* from = reinterpret_cast<const typename Traits::Storage*>(from_bytes);
  const auto combine = [&](auto f) {
    for (int64_t i = 0; i < n; ++i)
      to[i] = Traits::Store(static_cast<C>(f(Traits::Load(to[i]), Traits::Load(from[i]))));
  };
  if (kind == ReduceKind::kMax) return combine([](C a, C b) { return scalar::math::Max(a, b); });
  if (kind == ReduceKind::kMin) return combine([](C a, C b) { return scalar::math::Min(a, b); });
  if constexpr (!std::is_same_v<C, bool>) {
    if (kind == ReduceKind::kSum) return combine([](C a, C b) { return scalar::math::Add(a, b); });
    return combine([](C a, C b) { return scalar::math::Mul(a, b); });
  }
}

// Copies the operand and applies the updates in the order of their positions, one contiguous run at
// a time. The dtype is dispatched outside of the loop over runs, because runs may be short.
Arrays EvalScatter(const EvalContext& c, absl::Span<const Array> in) {
  const WindowDims w = ScatterDimsOf(c.attrs);
  const Array &indices = in[1], &updates = in[2];
  Array out = in[0];
  if (updates.num_elements() == 0 || out.num_elements() == 0) return std::vector<Array>{out};
  const Geometry g(w, out.rank(), indices.rank());
  const Dims window = WindowOf(g, updates.shape());
  const int64_t width = ByteWidth(out.dtype());
  const WindowRuns runs(g, out.shape(), window, updates.shape());
  std::byte* const to = out.MutableData();
  const auto for_each_run = [&](auto write) {
    ForEachWindow(w, g, ModeOf(c.attrs), out.shape(), window, indices, updates.shape(),
                  [&](int64_t operand, int64_t block) {
                    if (operand < 0) return;
                    for (size_t r = 0; r < runs.operand.size(); ++r)
                      write(to + (operand + runs.operand[r]) * width,
                            updates.data() + (block + runs.block[r]) * width);
                  });
  };
  if (c.def.reduce == ReduceKind::kNone) {
    for_each_run(
        [&](std::byte* at, const std::byte* from) { std::copy_n(from, runs.length * width, at); });
  } else {
    scalar::Dispatch<scalar::kAnything>(out.dtype(), [&]<DType kD>(DTypeTag<kD>) {
      for_each_run([&](std::byte* at, const std::byte* from) {
        CombineRun<kD>(c.def.reduce, at, from, runs.length);
      });
    });
  }
  return std::vector<Array>{out};
}

// ---- Derivatives. ----

// Returns the attributes of the gather that reads from `operand` the windows which a scatter
// writes.
Attrs GatherAttrsOf(const Attrs& scatter, const Type& operand, const Type& indices,
                    const Type& updates) {
  const WindowDims w = ScatterDimsOf(scatter);
  Attrs attrs = WithOptionsOf(scatter);
  w.WriteTo(&attrs, kGatherNames);
  attrs.Set("slice_sizes", WindowOf(Geometry(w, operand.rank(), indices.rank()), updates.shape));
  if (scatter.Has("out_sharding")) attrs.Set("out_sharding", SpecOf(updates));
  return attrs;
}

Type WithDtype(Type t, DType dtype) {
  t.dtype = dtype;
  t.weak = false;
  return t;
}

// Returns the elements of `x` at the places where a scatter writes its updates, and 0 for each
// update that is dropped. If `x` has no elements, every update is dropped: a gather would refuse
// such an operand.
Value AtUpdates(const RuleContext& c, Value x, Value indices) {
  if (x.type().num_elements() == 0)
    return Zeros(c.b, CotangentType(WithDtype(c.in_types[2], x.dtype())));
  Attrs attrs = GatherAttrsOf(c.attrs, c.in_types[0], c.in_types[1], c.in_types[2]);
  if (ModeOf(attrs) == GatherScatterMode::kFillOrDrop)
    attrs.Set("fill_value", Array::Scalar(x.dtype(), 0));
  return EmitMatched(kGather, {x, indices}, std::move(attrs));
}
Value EmitScatter(const OpDef& def, const RuleContext& c, Value x, Value indices, Value updates) {
  return EmitMatched(def, {x, indices, updates}, c.attrs);
}

Value OrZeros(const RuleContext& c, Value tangent, int operand) {
  return tangent ? tangent : Zeros(c.b, c.in[operand].type());
}

std::vector<Value> ScatterAddJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0] && !tangents[2]) return {Value()};
  const Value dx = OrZeros(c, tangents[0], 0), du = OrZeros(c, tangents[2], 2);
  return {EmitScatter(c.def, c, dx, c.in[1], du)};
}

std::vector<Value> TransposeScatterAdd(const RuleContext& c, Values cts,
                                       const std::vector<bool>& linear) {
  std::vector<Value> out(3);
  if (!cts[0]) return out;
  if (linear[0]) out[0] = cts[0];
  if (linear[2]) out[2] = ShardedLike(AtUpdates(c, cts[0], NonLinearOperand(c, 1)), c.in_types[2]);
  return out;
}

// Scatters the numbers of the updates, from 1 on, to find out which update each element of the
// result holds at the end. Only the tangents of these updates count. Reference: JAX's _scatter_jvp.
std::vector<Value> ScatterJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0] && !tangents[2]) return {Value()};
  const Value dx = OrZeros(c, tangents[0], 0), du = OrZeros(c, tangents[2], 2);
  if (!tangents[2] || IsUnique(c.attrs)) return {EmitScatter(c.def, c, dx, c.in[1], du)};
  const Type ids_type = WithDtype(c.in[2].type(), DType::kS64);
  const Value zero = Zeros(c.b, ids_type);
  const Value count = Reshape(Iota(c.b, DType::kS64, {ids_type.num_elements()}, 0), ids_type.shape);
  const std::vector<Value> matched = MatchVarying({ShardedLike(count, ids_type), zero});
  const Value ids = Add(matched[0], FullLike(matched[1], 1));
  const Value written =
      EmitScatter(c.def, c, Zeros(c.b, WithDtype(c.in[0].type(), DType::kS64)), c.in[1], ids);
  const Value won = Compare(AtUpdates(c, written, c.in[1]), ids, "EQ");
  const Value kept = Compare(written, FullLike(written, 0), "EQ");
  const Value of_updates = Select(won, du, FullLike(du, 0));
  const Value of_operand = Select(kept, dx, FullLike(dx, 0));
  return {EmitScatter(kScatterAdd, c, of_operand, c.in[1], of_updates)};
}

// The op is linear in the operand alone, or in operand and updates if no element is written twice.
std::vector<Value> TransposeScatter(const RuleContext& c, Values cts,
                                    const std::vector<bool>& linear) {
  std::vector<Value> out(3);
  if (!cts[0]) return out;
  if (linear[2] && !IsUnique(c.attrs))
    Throw(MakeError(ErrorKind::kNotImplemented,
                    "scatter transpose is only implemented where unique_indices=True"));
  const Value at = NonLinearOperand(c, 1);
  if (linear[0])
    out[0] = EmitScatter(c.def, c, cts[0], at, Zeros(c.b, CotangentType(c.in_types[2])));
  if (linear[2]) out[2] = ShardedLike(AtUpdates(c, cts[0], at), c.in_types[2]);
  return out;
}

std::vector<Value> ScatterMulJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0] && !tangents[2]) return {Value()};
  Value of_operand, of_updates;
  if (tangents[0]) of_operand = EmitScatter(c.def, c, tangents[0], c.in[1], c.in[2]);
  if (!tangents[2]) return {of_operand};
  if (!IsUnique(c.attrs))
    Throw(MakeError(ErrorKind::kNotImplemented,
                    "scatter_mul gradients are only implemented if `unique_indices=True`"));
  const Value changes =
      EmitScatter(kScatterAdd, c, Zeros(c.b, c.in[0].type()), c.in[1], tangents[2]);
  of_updates = Mul(c.in[0], changes);
  return {of_operand ? Add(of_operand, of_updates) : of_updates};
}

std::vector<Value> TransposeScatterMul(const RuleContext& c, Values cts,
                                       const std::vector<bool>& linear) {
  std::vector<Value> out(3);
  if (!cts[0]) return out;
  const Value at = NonLinearOperand(c, 1);
  if (linear[0]) out[0] = EmitScatter(c.def, c, cts[0], at, NonLinearOperand(c, 2));
  return out;
}

// Returns the mean of the tangents of all candidates that equal the result. Reference: JAX's
// _scatter_extremal_jvp.
std::vector<Value> ScatterExtremumJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0] && !tangents[2]) return {Value()};
  const Value dx = OrZeros(c, tangents[0], 0), du = OrZeros(c, tangents[2], 2);
  const Value best = AtUpdates(c, c.out[0], c.in[1]);
  const Value reached = Convert(Compare(c.in[2], best, "EQ"), du.dtype());
  const Value kept = Convert(Compare(c.in[0], c.out[0], "EQ"), dx.dtype());
  const Value count = EmitScatter(kScatterAdd, c, kept, c.in[1], reached);
  const Value of_operand = Mul(dx, kept);
  const Value sum = EmitScatter(kScatterAdd, c, of_operand, c.in[1], Mul(du, reached));
  return {Div(sum, count)};
}

// ---- Batching and shards. ----

Batched BatchScatter(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  const bool indices = dims[1] >= 0;
  Attrs attrs = WithBatchSharding(c.attrs, 0, BatchAxes(c, dims));
  BatchedDims(ScatterDimsOf(c.attrs), /*operand=*/true, indices).WriteTo(&attrs, kScatterNames);
  const Value x = BatchInFront(c, dims, 0, size), updates = BatchInFront(c, dims, 2, size);
  const Value at = indices ? MoveDim(c.in[1], dims[1], 0) : c.in[1];
  return {{EmitMatched(c.def, {x, at, updates}, std::move(attrs))}, {0}};
}

Attrs LocalAttrs(const RuleContext& c) {
  Attrs attrs = c.attrs;
  attrs.Erase("out_sharding");
  return attrs;
}

// If positions are cut, each shard combines its updates with elements that change nothing. Then the
// shards' results are combined with each other and with the operand. For min and max, the operand's
// own elements serve as those that change nothing, because combining them twice has no effect.
std::vector<Value> PartitionScatter(const RuleContext& c, const PartitionContext& p) {
  const WindowDims w = ScatterDimsOf(c.attrs);
  const Geometry g(w, c.in[0].rank(), c.in[1].rank());
  const LocalIndices local = LocalIndicesOf(c, p, w, WindowOf(g, c.in_types[2].shape));
  AxisList cut;  // the axes that cut the positions
  for (size_t f = 0; f < p.factor_axes.size(); ++f)
    if (p.signature.factors[f].kind == FactorKind::kReduction)
      cut.insert(cut.end(), p.factor_axes[f].begin(), p.factor_axes[f].end());
  Attrs attrs = LocalAttrs(c);
  if (!local.axes.empty()) {
    attrs.Erase("indices_are_sorted");
    attrs.Set("mode", NameOf(GatherScatterMode::kFillOrDrop));
  }
  const bool sum = c.def.reduce == ReduceKind::kSum, prod = c.def.reduce == ReduceKind::kProd;
  Value to = c.in[0];
  if (!cut.empty() && sum) to = AddedZeros(to);
  if (!cut.empty() && prod) to = FullLike(to, 1);
  const Value mine = EmitMatched(c.def, {to, local.indices, c.in[2]}, std::move(attrs));
  if (cut.empty()) return {mine};
  const Value all = derive::CombineShards(mine, c.def.reduce, cut);
  return {sum ? Add(c.in[0], all) : prod ? Mul(c.in[0], all) : all};
}

Cost ScatterCost(const InferContext& c, absl::Span<const Type> out) {
  const double moved = static_cast<double>(3 * c.in[2].num_bytes() + c.in[1].num_bytes());
  return {c.def.reduce == ReduceKind::kNone ? 0 : static_cast<double>(c.in[2].num_elements()),
          moved + static_cast<double>(2 * out[0].num_bytes())};
}

constexpr AttrSpec kScatterAttrs[] = {{"update_window_dims", AttrKind::kInts},
                                      {"inserted_window_dims", AttrKind::kInts},
                                      {"input_batching_dims", AttrKind::kInts},
                                      {"scatter_indices_batching_dims", AttrKind::kInts},
                                      {"scatter_dims_to_operand_dims", AttrKind::kInts},
                                      {"index_vector_dim", AttrKind::kInt},
                                      {"mode", AttrKind::kString},
                                      {"indices_are_sorted", AttrKind::kBool, /*required=*/false},
                                      {"unique_indices", AttrKind::kBool, /*required=*/false},
                                      kOutSharding};

consteval OpDef ScatterLike(OpDef d) {
  d.family = Family::kIndexing;
  d.num_operands = 3;
  d.attrs = kScatterAttrs;
  d.lowering = Lowering::kScatter;
  d.infer = InferScatter;
  d.factors = ScatterFactors;
  d.sharding = ScatterSharding;
  d.varying = Derived{};
  d.batch = BatchScatter;
  d.partition = PartitionScatter;
  d.cost = ScatterCost;
  d.scatter_map = MapScatter;
  d.eval = EvalScatter;
  return Checked(d);
}

}  // namespace

constexpr OpDef kScatter = ScatterLike(
    {.name = "scatter", .lax_name = "scatter", .jvp = ScatterJvp, .transpose = TransposeScatter});
constexpr OpDef kScatterAdd = ScatterLike({.name = "scatter_add",
                                           .lax_name = "scatter_add",
                                           .jvp = ScatterAddJvp,
                                           .transpose = TransposeScatterAdd,
                                           .reduce = ReduceKind::kSum});
constexpr OpDef kScatterMul = ScatterLike({.name = "scatter_mul",
                                           .lax_name = "scatter_mul",
                                           .jvp = ScatterMulJvp,
                                           .transpose = TransposeScatterMul,
                                           .reduce = ReduceKind::kProd});
constexpr OpDef kScatterMin = ScatterLike({.name = "scatter_min",
                                           .lax_name = "scatter_min",
                                           .jvp = ScatterExtremumJvp,
                                           .transpose = Refused{"it is not linear"},
                                           .reduce = ReduceKind::kMin});
constexpr OpDef kScatterMax = ScatterLike({.name = "scatter_max",
                                           .lax_name = "scatter_max",
                                           .jvp = ScatterExtremumJvp,
                                           .transpose = Refused{"it is not linear"},
                                           .reduce = ReduceKind::kMax});

// ---- scatter_by: operands of one shape, the indices, and updates for each operand. ----
namespace {

// Returns the number of operands that have updates.
size_t NumScattered(size_t operands) { return (operands - 1) / 2; }
// Returns operand k, the indices and the updates of operand k, which are the operands of the other
// scatters.
template <class T>
std::vector<T> Scattered(absl::Span<const T> operands, size_t k) {
  const size_t n = NumScattered(operands.size());
  return {operands[k], operands[n], operands[n + 1 + k]};
}
InferContext WithOperands(const InferContext& c, absl::Span<const Type> in) {
  return {c.def, c.scope, in, c.attrs, c.regions};
}

Types InferScatterBy(const InferContext& c) {
  if (c.in.size() < 3 || c.in.size() % 2 == 0)
    return TypeError(c, "takes operands, the indices and as many updates as operands, got ",
                     c.in.size(), " operands in all");
  const size_t n = NumScattered(c.in.size());
  std::vector<Type> out;
  std::vector<DType> dtypes;
  for (size_t k = 0; k < n; ++k) {
    const std::vector<Type> in = Scattered(c.in, k), first = Scattered(c.in, 0);
    if (in[0].shape != first[0].shape || in[2].shape != first[2].shape)
      return TypeError(c, "operand ", k, " is ", in[0].ToString(), " with updates ",
                       in[2].ToString(), ", operand 0 is ", first[0].ToString(), " with updates ",
                       first[2].ToString(), "; expected equal shapes");
    TESSERA_ASSIGN_OR_RETURN(const std::vector<Type> one, InferScatter(WithOperands(c, in)));
    out.push_back(one[0]);
    dtypes.push_back(in[0].dtype);
  }
  const std::vector<DType> results = dtypes;
  dtypes.insert(dtypes.end(), results.begin(), results.end());
  TESSERA_RETURN_IF_ERROR(CheckComputation(c, dtypes, results));
  return out;
}

Signature ScatterByFactors(const InferContext& c, absl::Span<const Type> out) {
  const std::vector<Type> in = Scattered(c.in, 0);
  Signature s = ScatterFactors(WithOperands(c, in), out);
  const std::vector<TensorFactors> one = s.operands;
  s.operands.assign(out.size(), one[0]);
  s.operands.push_back(one[1]);
  s.operands.insert(s.operands.end(), out.size(), one[2]);
  s.results.assign(out.size(), one[0]);
  return s;
}

absl::Status ScatterBySharding(const InferContext& c, std::vector<Type>* out) {
  for (size_t k = 0; k < out->size(); ++k) {
    const std::vector<Type> in = Scattered(c.in, k);
    std::vector<Type> one = {(*out)[k]};
    TESSERA_RETURN_IF_ERROR(ScatterSharding(WithOperands(c, in), &one));
    (*out)[k] = one[0];
  }
  return absl::OkStatus();
}

Batched BatchScatterBy(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  const size_t n = c.out_types.size();
  const bool indices = dims[n] >= 0;
  Attrs attrs = WithBatchSharding(c.attrs, 0, BatchAxes(c, dims));
  BatchedDims(ScatterDimsOf(c.attrs), /*operand=*/true, indices).WriteTo(&attrs, kScatterNames);
  std::vector<Value> in;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const bool whole = i == n && !indices;
    in.push_back(whole ? c.in[i] : BatchInFront(c, dims, i, size));
  }
  return {c.b.Emit(c.def, MatchVarying(std::move(in)), std::move(attrs), RegionsOf(c)),
          std::vector<int>(n, 0)};
}

std::vector<Value> PartitionScatterBy(const RuleContext& c, const PartitionContext& p) {
  const WindowDims w = ScatterDimsOf(c.attrs);
  RuleContext one = c;
  one.in = Scattered<Value>(c.in, 0);
  one.in_types = Scattered<Type>(c.in_types, 0);
  const Geometry g(w, one.in[0].rank(), one.in[1].rank());
  const LocalIndices local = LocalIndicesOf(one, p, w, WindowOf(g, one.in_types[2].shape));
  Attrs attrs = LocalAttrs(c);
  if (!local.axes.empty()) {
    attrs.Erase("indices_are_sorted");
    attrs.Set("mode", NameOf(GatherScatterMode::kFillOrDrop));
  }
  std::vector<Value> in = c.in;
  in[c.out_types.size()] = local.indices;
  return c.b.Emit(c.def, in, std::move(attrs), RegionsOf(c));
}

Cost ScatterByCost(const InferContext& c, absl::Span<const Type> out) {
  Cost sum;
  for (size_t k = 0; k < out.size(); ++k) {
    const std::vector<Type> in = Scattered(c.in, k);
    sum.bytes += ScatterCost(WithOperands(c, in), out.subspan(k, 1)).bytes;
  }
  sum.flops = FlopsOf(c, c.in.back().num_elements());
  return sum;
}

ScatterMap MapScatterBy(const InferContext& c) {
  const std::vector<Type> in = Scattered(c.in, 0);
  ScatterMap map = MapScatter(WithOperands(c, in));
  for (DynamicOffset& shift : map.shifts)
    shift.operand = static_cast<int>(NumScattered(c.in.size()));
  return map;
}

// A set of different elements of an operand and, for each of them, the update to combine it with. A
// wave is computed at once.
struct Wave {
  std::vector<int64_t> elements, updates;
};
// Distributes the updates over waves. An element that is updated several times is in as many waves,
// in the order of its updates.
std::vector<Wave> WavesOf(const EvalContext& c, const Array& x, const Array& indices,
                          const Array& updates) {
  std::vector<Wave> waves;
  if (updates.num_elements() == 0 || x.num_elements() == 0) return waves;
  const WindowDims w = ScatterDimsOf(c.attrs);
  const Geometry g(w, x.rank(), indices.rank());
  const Dims window = WindowOf(g, updates.shape());
  const WindowRuns runs(g, x.shape(), window, updates.shape());
  std::unordered_map<int64_t, size_t> times;  // the number of updates of each element so far
  ForEachWindow(w, g, ModeOf(c.attrs), x.shape(), window, indices, updates.shape(),
                [&](int64_t operand, int64_t block) {
                  if (operand < 0) return;
                  for (size_t r = 0; r < runs.operand.size(); ++r)
                    for (int64_t i = 0; i < runs.length; ++i) {
                      const int64_t element = operand + runs.operand[r] + i;
                      const size_t wave = times[element]++;
                      if (wave == waves.size()) waves.emplace_back();
                      waves[wave].elements.push_back(element);
                      waves[wave].updates.push_back(block + runs.block[r] + i);
                    }
                });
  return waves;
}

Array ElementsAt(const Array& x, const std::vector<int64_t>& places) {
  const int64_t width = ByteWidth(x.dtype());
  Array out(x.dtype(), {static_cast<int64_t>(places.size())});
  std::byte* to = out.MutableData();
  for (const int64_t at : places) to = std::copy_n(x.data() + at * width, width, to);
  return out;
}

Arrays EvalScatterBy(const EvalContext& c, absl::Span<const Array> in) {
  const size_t n = NumScattered(in.size());
  std::vector<Array> out(in.begin(), in.begin() + n);
  TupleEvaluator evaluator(c);
  for (const Wave& wave : WavesOf(c, in[0], in[n], in[n + 1])) {
    std::vector<Array> args;
    for (const Array& x : out) args.push_back(ElementsAt(x, wave.elements));
    for (size_t k = 0; k < n; ++k) args.push_back(ElementsAt(in[n + 1 + k], wave.updates));
    TESSERA_ASSIGN_OR_RETURN(const std::vector<Array> got, evaluator.Run(args));
    for (size_t k = 0; k < n; ++k) {
      const int64_t width = ByteWidth(out[k].dtype());
      const std::byte* from = got[k].data();
      std::byte* const to = out[k].MutableData();
      for (const int64_t at : wave.elements) {
        std::copy_n(from, width, to + at * width);
        from += width;
      }
    }
  }
  return out;
}

}  // namespace

constexpr OpDef kScatterBy = Checked({.name = "scatter_by",
                                      .lax_name = "scatter_apply",
                                      .family = Family::kIndexing,
                                      .num_operands = kAnyNumber,
                                      .regions = kOneComputation,
                                      .attrs = kScatterAttrs,
                                      .lowering = Lowering::kScatter,
                                      .infer = InferScatterBy,
                                      .factors = ScatterByFactors,
                                      .sharding = ScatterBySharding,
                                      .varying = Derived{},
                                      .jvp = Refused{"an update may be applied more than once"},
                                      .transpose = Refused{"it is not linear"},
                                      .batch = BatchScatterBy,
                                      .partition = PartitionScatterBy,
                                      .cost = ScatterByCost,
                                      .scatter_map = MapScatterBy,
                                      .eval = EvalScatterBy});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {
namespace {

Attrs ScatterAttrs(Value indices, const ScatterDimensionNumbers& dims,
                   const GatherScatterOptions& options) {
  Attrs attrs = {{"update_window_dims", dims.update_window_dims},
                 {"inserted_window_dims", dims.inserted_window_dims},
                 {"input_batching_dims", dims.operand_batching_dims},
                 {"scatter_indices_batching_dims", dims.scatter_indices_batching_dims},
                 {"scatter_dims_to_operand_dims", dims.scatter_dims_to_operand_dims},
                 {"index_vector_dim", int64_t{indices.rank() - 1}}};
  ops::SetOptions(options, &attrs);
  return attrs;
}

Value ScatterOne(const OpDef& def, Value x, Value indices, Value updates,
                 const ScatterDimensionNumbers& dims, const GatherScatterOptions& options) {
  return ops::EmitMatched(def, {x, indices, ops::ConvertIfWeak(updates, x)},
                          ScatterAttrs(indices, dims, options));
}

// Returns the scatter of one operand that does what scatter_by does with this computation, or null
// if there is none.
const OpDef* KnownScatter(const Function& computation) {
  const bool replaces = computation.num_params == 2 && computation.results == std::vector{1};
  if (replaces) return &ops::kScatter;
  const OpDef* const op = ops::SoleOp(computation);
  return op == &ops::kAdd   ? &ops::kScatterAdd
         : op == &ops::kMul ? &ops::kScatterMul
         : op == &ops::kMin ? &ops::kScatterMin
         : op == &ops::kMax ? &ops::kScatterMax
                            : nullptr;
}

}  // namespace

Value Scatter(Value x, Value indices, Value updates, const ScatterDimensionNumbers& dims,
              const GatherScatterOptions& options) {
  return ScatterOne(ops::kScatter, x, indices, updates, dims, options);
}
Value ScatterAdd(Value x, Value indices, Value updates, const ScatterDimensionNumbers& dims,
                 const GatherScatterOptions& options) {
  return ScatterOne(ops::kScatterAdd, x, indices, updates, dims, options);
}
Value ScatterMul(Value x, Value indices, Value updates, const ScatterDimensionNumbers& dims,
                 const GatherScatterOptions& options) {
  return ScatterOne(ops::kScatterMul, x, indices, updates, dims, options);
}
Value ScatterMin(Value x, Value indices, Value updates, const ScatterDimensionNumbers& dims,
                 const GatherScatterOptions& options) {
  return ScatterOne(ops::kScatterMin, x, indices, updates, dims, options);
}
Value ScatterMax(Value x, Value indices, Value updates, const ScatterDimensionNumbers& dims,
                 const GatherScatterOptions& options) {
  return ScatterOne(ops::kScatterMax, x, indices, updates, dims, options);
}

std::vector<Value> ScatterBy(std::vector<Value> xs, Value indices, std::vector<Value> updates,
                             FunctionRef computation, const ScatterDimensionNumbers& dims,
                             const GatherScatterOptions& options) {
  std::vector<Value> in = xs;
  in.push_back(indices);
  in.insert(in.end(), updates.begin(), updates.end());
  in = MatchVarying(std::move(in));
  Attrs attrs = ScatterAttrs(indices, dims, options);
  Builder& b = indices.builder();
  const OpDef* const known = KnownScatter(*computation);
  if (known == nullptr)
    return b.Emit(ops::kScatterBy, in, std::move(attrs), {std::move(computation)});
  // Refuse what scatter_by refuses, with its errors, although another op is emitted.
  ThrowIfError(
      InferTypes(ops::kScatterBy, b.scope(), TypesOf(in), attrs, {&computation, 1}).status());
  return b.Emit(*known, in, std::move(attrs));
}

}  // namespace tessera::ir
