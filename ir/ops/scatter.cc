// The ops scatter, scatter_add, scatter_mul, scatter_min and scatter_max: they write updates into
// an operand, or combine them with its elements, in windows that begin where index vectors say
// (ir/ops/rules/windows.h).
//
// Updates are written in the order of their positions, row-major. If several updates of a scatter
// write the same element, the last one stays.
#include <algorithm>
#include <type_traits>

#include "ir/ops/rules/derived.h"
#include "ir/ops/rules/refused.h"
#include "ir/ops/rules/scalar_eval.h"
#include "ir/ops/rules/scattering.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

bool IsUnique(const Attrs& attrs) {
  return attrs.Has("unique_indices") && attrs.Bool("unique_indices");
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
  const Dims window = ScatterWindow(g, updates.shape());
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
Attrs MatchingGatherAttrs(const Attrs& scatter, const Type& operand, const Type& indices,
                          const Type& updates) {
  const WindowDims w = ScatterDimsOf(scatter);
  Attrs attrs = WithOptionsOf(scatter);
  w.WriteTo(&attrs, kGatherNames);
  attrs.Set("slice_sizes",
            ScatterWindow(Geometry(w, operand.rank(), indices.rank()), updates.shape));
  if (scatter.Has("out_sharding")) attrs.Set("out_sharding", SpecOf(updates));
  return attrs;
}

Type WithDtype(Type t, DType dtype) {
  t.dtype = dtype;
  t.weak = false;
  return t;
}

// Returns the elements of `x` at the positions where a scatter writes its updates, and 0 for each
// update that is dropped. If `x` has no elements, every update is dropped: a gather would refuse
// such an operand.
Value GatherAtUpdates(const RuleContext& c, Value x, Value indices) {
  if (x.type().num_elements() == 0)
    return Zeros(c.b, CotangentType(WithDtype(c.in_types[2], x.dtype())));
  Attrs attrs = MatchingGatherAttrs(c.attrs, c.in_types[0], c.in_types[1], c.in_types[2]);
  if (ModeOf(attrs) == GatherScatterMode::kFillOrDrop)
    attrs.Set("fill_value", Array::Scalar(x.dtype(), 0));
  return EmitMatched(kGather, {x, indices}, std::move(attrs));
}
Value EmitScatter(const OpDef& def, const RuleContext& c, Value x, Value indices, Value updates) {
  return EmitMatched(def, {x, indices, updates}, c.attrs);
}

Value TangentOrZeros(const RuleContext& c, Value tangent, int operand) {
  return tangent ? tangent : Zeros(c.b, c.in[operand].type());
}

std::vector<Value> ScatterAddJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0] && !tangents[2]) return {Value()};
  const Value dx = TangentOrZeros(c, tangents[0], 0), du = TangentOrZeros(c, tangents[2], 2);
  return {EmitScatter(c.def, c, dx, c.in[1], du)};
}

std::vector<Value> TransposeScatterAdd(const RuleContext& c, Values cts,
                                       const std::vector<bool>& linear) {
  std::vector<Value> out(3);
  if (!cts[0]) return out;
  if (linear[0]) out[0] = cts[0];
  if (linear[2])
    out[2] = ShardedLike(GatherAtUpdates(c, cts[0], NonLinearOperand(c, 1)), c.in_types[2]);
  return out;
}

// Scatters the numbers of the updates, from 1 on, to find out which update each element of the
// result holds at the end. Only the tangents of these updates count. Reference: JAX's _scatter_jvp.
std::vector<Value> ScatterJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0] && !tangents[2]) return {Value()};
  const Value dx = TangentOrZeros(c, tangents[0], 0), du = TangentOrZeros(c, tangents[2], 2);
  if (!tangents[2] || IsUnique(c.attrs)) return {EmitScatter(c.def, c, dx, c.in[1], du)};
  const Type ids_type = WithDtype(c.in[2].type(), DType::kS64);
  const Value zero = Zeros(c.b, ids_type);
  const Value numbers =
      Reshape(Iota(c.b, DType::kS64, {ids_type.num_elements()}, 0), ids_type.shape);
  const std::vector<Value> matched = MatchVarying({ShardedLike(numbers, ids_type), zero});
  const Value ids = Add(matched[0], FullLike(matched[1], 1));
  const Value written =
      EmitScatter(c.def, c, Zeros(c.b, WithDtype(c.in[0].type(), DType::kS64)), c.in[1], ids);
  const Value won = Compare(GatherAtUpdates(c, written, c.in[1]), ids, "EQ");
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
  if (linear[2]) out[2] = ShardedLike(GatherAtUpdates(c, cts[0], at), c.in_types[2]);
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
  const Value dx = TangentOrZeros(c, tangents[0], 0), du = TangentOrZeros(c, tangents[2], 2);
  const Value best = GatherAtUpdates(c, c.out[0], c.in[1]);
  const Value reached = Convert(Compare(c.in[2], best, "EQ"), du.dtype());
  const Value kept = Convert(Compare(c.in[0], c.out[0], "EQ"), dx.dtype());
  const Value count = EmitScatter(kScatterAdd, c, kept, c.in[1], reached);
  const Value of_operand = Mul(dx, kept);
  const Value sum = EmitScatter(kScatterAdd, c, of_operand, c.in[1], Mul(du, reached));
  return {Div(sum, count)};
}

// ---- Batching and shards. ----

Batched BatchScatter(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  const bool are_indices_batched = dims[1] >= 0;
  Attrs attrs = WithBatchSharding(c.attrs, 0, BatchAxes(c, dims));
  BatchedDims(ScatterDimsOf(c.attrs), /*is_operand_batched=*/true, are_indices_batched)
      .WriteTo(&attrs, kScatterNames);
  const Value x = BatchInFront(c, dims, 0, size), updates = BatchInFront(c, dims, 2, size);
  const Value at = are_indices_batched ? MoveDim(c.in[1], dims[1], 0) : c.in[1];
  return {{EmitMatched(c.def, {x, at, updates}, std::move(attrs))}, {0}};
}

// If positions are cut, each shard combines its updates with elements that change nothing. Then the
// shards' results are combined with each other and with the operand. For min and max, the operand's
// own elements serve as those that change nothing, because combining them twice has no effect.
std::vector<Value> PartitionScatter(const RuleContext& c, const PartitionContext& p) {
  const WindowDims w = ScatterDimsOf(c.attrs);
  const Geometry g(w, c.in[0].rank(), c.in[1].rank());
  const LocalIndices local = LocalIndicesOf(c, p, w, ScatterWindow(g, c.in_types[2].shape));
  AxisList cut;  // the axes that cut the positions
  for (size_t f = 0; f < p.factor_axes.size(); ++f)
    if (p.signature.factors[f].kind == FactorKind::kReduction)
      cut.insert(cut.end(), p.factor_axes[f].begin(), p.factor_axes[f].end());
  Attrs attrs = LocalScatterAttrs(c, local);
  const bool is_sum = c.def.reduce == ReduceKind::kSum, is_prod = c.def.reduce == ReduceKind::kProd;
  Value to = c.in[0];
  if (!cut.empty() && is_sum) to = AdditiveIdentity(to);
  if (!cut.empty() && is_prod) to = FullLike(to, 1);
  const Value mine = EmitMatched(c.def, {to, local.indices, c.in[2]}, std::move(attrs));
  if (cut.empty()) return {mine};
  const Value all = derive::CombineShards(mine, c.def.reduce, cut);
  return {is_sum ? Add(c.in[0], all) : is_prod ? Mul(c.in[0], all) : all};
}

consteval OpDef ScatterLike(OpDef d) {
  d.family = Family::kIndexing;
  d.num_operands = 3;
  d.attrs = kScatteringAttrs;
  d.lowering = Lowering::kScatter;
  d.infer = InferScatter;
  d.factors = FactorsOfScatter;
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

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {
namespace {

Value ScatterOne(const OpDef& def, Value x, Value indices, Value updates,
                 const ScatterDimensionNumbers& dims, const GatherScatterOptions& options) {
  return ops::EmitMatched(def, {x, indices, ops::ConvertIfWeak(updates, x)},
                          ops::ScatterAttrs(indices, dims, options));
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

}  // namespace tessera::ir
