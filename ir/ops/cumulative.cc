// The ops cumsum, cumprod, cummax, cummin and cumlogsumexp: each element is combined with those
// before it along a dim, or with those after it (`reverse`). Floats are combined in a wider type,
// and each result is rounded once. Reference: jax.lax.cumsum and its kin.
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ir/ops/rules/dims.h"
#include "ir/ops/rules/scalar_eval.h"
#include "ir/strided.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

// Returns the kind by which elements are combined. kNone stands for log(exp(a) + exp(b)).
ReduceKind KindOf(const OpDef& def) { return def.reduce; }
int DimOf(const Attrs& attrs) { return static_cast<int>(attrs.Int("dimension")); }

Types InferCumulative(const InferContext& c) {
  const Type& x = c.in[0];
  TESSERA_RETURN_IF_ERROR(CheckComputable(c, x.dtype));
  if (x.dtype == DType::kBool || (KindOf(c.def) == ReduceKind::kNone && !IsFloat(x.dtype)))
    return TypeError(c, "does not accept dtype ", ToAbsl(DTypeName(x.dtype)), "; expected a ",
                     KindOf(c.def) == ReduceKind::kNone ? "float" : "number", " type");
  TESSERA_RETURN_IF_ERROR(CheckDimension(c));
  Type t = MakeType(x.dtype, x.shape);
  t.weak = x.weak;
  return std::vector<Type>{t};
}

Signature CumulativeFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s = PointwiseFactors(c, out);
  s.factors[DimOf(c.attrs)].kind = FactorKind::kPermutation;
  return s;
}

// JAX's own rule: the dim must not be sharded.
absl::Status CumulativeSharding(const InferContext& c, std::vector<Type>* out) {
  const int dim = DimOf(c.attrs);
  if (!c.in[0].axes_of(dim).empty())
    return ShardingError(c, "Input should be unsharded over the axis being reduced, but dim ", dim,
                         " of ", c.in[0].ToString(),
                         " is sharded; reshard the operand to leave it whole");
  return SameShardingAsFirst(c, out);
}

Batched BatchCumulative(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  Attrs attrs = c.attrs;
  attrs.Set("dimension", PastBatch(c.attrs.Int("dimension"), dims[0]));
  return {c.b.Emit(c.def, {c.in[0]}, attrs), {dims[0]}};
}

// ---- Reference semantics. ----

template <DType kD, class C = ComputeType<kD>>
using Wide = std::conditional_t<std::is_floating_point_v<C>, double, C>;

template <class W>
W CombineScalars(ReduceKind kind, W a, W b) {
  if (kind == ReduceKind::kSum) return scalar::math::Add(a, b);
  if (kind == ReduceKind::kProd) return scalar::math::Mul(a, b);
  if (kind == ReduceKind::kMax) return scalar::math::Max(a, b);
  if (kind == ReduceKind::kMin) return scalar::math::Min(a, b);
  if constexpr (std::is_floating_point_v<W>) {
    const W most = scalar::math::Max(a, b);
    if (!std::isfinite(most)) return most;
    return most + std::log1p(std::exp(-std::abs(a - b)));
  }
  return a;
}

Arrays EvalCumulative(const EvalContext& c, absl::Span<const Array> in) {
  const int dim = DimOf(c.attrs);
  const bool reverse = c.attrs.Bool("reverse");
  Array out = in[0];
  const Dims& shape = out.shape();
  const int64_t n = shape[dim], stride = StridesOf(shape)[dim];
  if (out.num_elements() == 0) return std::vector<Array>{out};
  scalar::Dispatch<scalar::kNumbers>(out.dtype(), [&]<DType kD>(DTypeTag<kD>) {
    using Traits = Element<kD>;
    using W = Wide<kD>;
    auto* const data = reinterpret_cast<typename Traits::Storage*>(out.MutableData());
    for (int64_t row = 0; row < out.num_elements() / n; ++row) {
      auto* at = data + row / stride * stride * n + row % stride + (reverse ? (n - 1) * stride : 0);
      W acc = static_cast<W>(Traits::Load(*at));
      for (int64_t i = 1; i < n; ++i) {
        at += reverse ? -stride : stride;
        acc = CombineScalars<W>(KindOf(c.def), acc, static_cast<W>(Traits::Load(*at)));
        *at = Traits::Store(static_cast<ComputeType<kD>>(acc));
      }
    }
  });
  return std::vector<Array>{out};
}

// ---- The combination as emitted ops. ----

Value FiniteOrZero(Value x) {
  const Value zero = FullLike(x, 0);
  return Select(IsFinite(x), x, zero);
}
Value LogSumExp(Value a, Value b) {
  const Value most = Max(a, b);
  const Value shift = FiniteOrZero(most);
  const Value of_a = Exp(Sub(a, shift));
  return Add(Log(Add(of_a, Exp(Sub(b, shift)))), shift);
}
Value Combine(ReduceKind kind, Value a, Value b) {
  switch (kind) {
    case ReduceKind::kSum:
      return Add(a, b);
    case ReduceKind::kProd:
      return Mul(a, b);
    case ReduceKind::kMax:
      return Max(a, b);
    case ReduceKind::kMin:
      return Min(a, b);
    default:
      return LogSumExp(a, b);
  }
}

// Returns the element that changes nothing when it is combined with another.
Array Identity(ReduceKind kind, DType dtype) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto bits = static_cast<int>(8 * ByteWidth(dtype));
  switch (kind) {
    case ReduceKind::kSum:
      return Array::Scalar(dtype, IsFloat(dtype) ? -0.0 : 0.0);
    case ReduceKind::kProd:
      return Array::Scalar(dtype, 1);
    case ReduceKind::kMin:
      if (IsFloat(dtype)) return Array::Scalar(dtype, infinity);
      return Array::ScalarInt(dtype,
                              static_cast<int64_t>(std::numeric_limits<uint64_t>::max() >>
                                                   (64 - bits + (IsSignedInt(dtype) ? 1 : 0))));
    default:
      if (IsFloat(dtype)) return Array::Scalar(dtype, -infinity);
      return Array::ScalarInt(
          dtype, IsSignedInt(dtype) ? std::numeric_limits<int64_t>::min() >> (64 - bits) : 0);
  }
}
Value IdentityLike(ReduceKind kind, Value x) {
  const Value identity = Constant(x.builder(), Identity(kind, x.dtype()));
  return MatchVarying({BroadcastLike(identity, x.type(), {}), x})[0];
}

// ---- Derivatives. ----

// Returns the combination of a and b, and its tangent.
std::pair<Value, Value> CombineTangents(ReduceKind kind, Value a, Value da, Value b, Value db) {
  const Value combined = Combine(kind, a, b);
  if (kind == ReduceKind::kProd) {
    const Value left = Mul(da, b);
    return {combined, Add(left, Mul(a, db))};
  }
  if (kind == ReduceKind::kNone) {
    const Value shift = FiniteOrZero(combined);
    const Value of_a = Mul(Exp(Sub(a, shift)), da);
    return {combined, Add(of_a, Mul(Exp(Sub(b, shift)), db))};
  }
  // The tangent is that of the chosen element, or the mean if both are equal.
  const Value sum = Add(da, db);
  const Value mean = Mul(sum, FullLike(sum, 0.5));
  const Value not_a = Select(Compare(b, combined, "EQ"), db, da);
  return {combined, Select(Compare(a, b, "EQ"), mean, not_a)};
}

// Returns `x` moved by `step` along `dim`, away from the end where the combination begins. The
// first `step` elements of `fill` along `dim` take the positions that become free at that end.
Value Shifted(Value x, int dim, int64_t step, bool reverse, Value fill) {
  const int64_t n = x.dim(dim);
  const Value kept = SliceInDim(x, dim, reverse ? step : 0, reverse ? n : n - step);
  const Value rest = SliceInDim(fill, dim, 0, step);
  return reverse ? Concatenate({kept, rest}, dim) : Concatenate({rest, kept}, dim);
}

// Takes log2(n) steps. Each step combines every element, and its tangent, with the element 1, 2, 4
// ... positions before it. Without division, zeros need no special case, and every step is
// differentiable again.
std::vector<Value> CumulativeJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0]) return {Value()};
  const ReduceKind kind = KindOf(c.def);
  const int dim = DimOf(c.attrs);
  const bool reverse = c.attrs.Bool("reverse");
  Type whole = c.in[0].type();
  whole.set_axes_of(dim, {});
  Value v = ShardedLike(c.in[0], whole), t = ShardedLike(tangents[0], whole);
  for (int64_t step = 1; step < v.dim(dim); step *= 2) {
    const Value before = Shifted(v, dim, step, reverse, IdentityLike(kind, v));
    const Value of_before = Shifted(t, dim, step, reverse, FullLike(t, 0));
    std::tie(v, t) = CombineTangents(kind, before, of_before, v, t);
  }
  return {ShardedLike(t, c.out[0].type())};
}

std::vector<Value> TransposeCumsum(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (!cts[0]) return {Value()};
  Attrs attrs = c.attrs;
  attrs.Set("reverse", !c.attrs.Bool("reverse"));
  return {c.b.Emit1(c.def, {cts[0]}, std::move(attrs))};
}

// ---- Shards. ----

// If the dim is cut, combines each element of a block with the combination of all blocks before it,
// or after it with `reverse`.
std::vector<Value> PartitionCumulative(const RuleContext& c, const PartitionContext& p) {
  const ReduceKind kind = KindOf(c.def);
  const int dim = DimOf(c.attrs);
  const bool reverse = c.attrs.Bool("reverse");
  const Value local = c.b.Emit1(c.def, {c.in[0]}, c.attrs);
  const AxisList& axes = p.factor_axes[p.signature.operands[0][dim][0]];
  const int64_t n = local.dim(dim);
  if (axes.empty() || n == 0) return {local};
  const Value end = SliceInDim(local, dim, reverse ? 0 : n - 1, reverse ? 1 : n);
  const Value ends = AllGather(end, axes, dim, /*tiled=*/true);
  const Value block = Iota(c.b, DType::kS32, ends.shape(), dim);
  const Value here = BroadcastInDim(AxisIndex(c.b, axes), ends.shape(), {});
  const Value is_before = Compare(block, here, reverse ? "GT" : "LT");
  const Value kept = Select(is_before, ends, IdentityLike(kind, ends));
  Value before = SliceInDim(kept, dim, 0, 1);
  for (int64_t i = 1; i < ends.dim(dim); ++i)
    before = Combine(kind, before, SliceInDim(kept, dim, i, i + 1));
  DimList dims = DimsExcept(local.rank(), {dim});
  const Value spread = BroadcastInDim(Squeeze(before, {dim}), local.shape(), dims);
  return {Combine(kind, spread, local)};
}

constexpr AttrSpec kCumulativeAttrs[] = {{"dimension", AttrKind::kInt},
                                         {"reverse", AttrKind::kBool}};

consteval OpDef Cumulative(OpDef d) {
  d.family = Family::kReduction;
  d.num_operands = 1;
  d.attrs = kCumulativeAttrs;
  d.lowering = d.reduce == ReduceKind::kNone ? Lowering::kHost : Lowering::kScan;
  d.infer = InferCumulative;
  d.factors = CumulativeFactors;
  d.sharding = CumulativeSharding;
  d.varying = Derived{};
  if (d.jvp.kind == Rule<JvpFn>::kUnset) d.jvp = CumulativeJvp;
  if (d.transpose.kind == Rule<TransposeFn>::kUnset) d.transpose = Refused{"it is not linear"};
  d.batch = BatchCumulative;
  d.partition = PartitionCumulative;
  d.cost = Derived{};
  d.eval = EvalCumulative;
  return Checked(d);
}

}  // namespace

constexpr OpDef kCumsum = Cumulative({.name = "cumsum",
                                      .lax_name = "cumsum",
                                      .jvp = Derived{},
                                      .transpose = TransposeCumsum,
                                      .reduce = ReduceKind::kSum});
constexpr OpDef kCumprod =
    Cumulative({.name = "cumprod", .lax_name = "cumprod", .reduce = ReduceKind::kProd});
constexpr OpDef kCummax =
    Cumulative({.name = "cummax", .lax_name = "cummax", .reduce = ReduceKind::kMax});
constexpr OpDef kCummin =
    Cumulative({.name = "cummin", .lax_name = "cummin", .reduce = ReduceKind::kMin});
constexpr OpDef kCumlogsumexp = Cumulative({.name = "cumlogsumexp", .lax_name = "cumlogsumexp"});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {
namespace {

Value EmitCumulative(const OpDef& def, Value x, int dimension, bool reverse) {
  return x.builder().Emit1(def, {x}, {{"dimension", int64_t{dimension}}, {"reverse", reverse}});
}

}  // namespace

Value Cumsum(Value x, int dimension, bool reverse) {
  return EmitCumulative(ops::kCumsum, x, dimension, reverse);
}
Value Cumprod(Value x, int dimension, bool reverse) {
  return EmitCumulative(ops::kCumprod, x, dimension, reverse);
}
Value Cummax(Value x, int dimension, bool reverse) {
  return EmitCumulative(ops::kCummax, x, dimension, reverse);
}
Value Cummin(Value x, int dimension, bool reverse) {
  return EmitCumulative(ops::kCummin, x, dimension, reverse);
}
Value Cumlogsumexp(Value x, int dimension, bool reverse) {
  return EmitCumulative(ops::kCumlogsumexp, x, dimension, reverse);
}

}  // namespace tessera::ir
