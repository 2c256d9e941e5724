// Reductions over dims by the ops that have a ReduceKind, and argmax and argmin. Floats are
// accumulated in a wider type and rounded once; integers wrap.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/str_join.h"
#include "ir/ops/rules/dims.h"
#include "ir/ops/rules/scalar_eval.h"
#include "ir/strided.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

const DimList& ReducedDims(const Attrs& attrs) { return attrs.Ints("dimensions"); }

// ---- Types and shardings, shared by all reductions. ----

bool Accepts(ReduceKind kind, DType dtype) {
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kProd:
      return dtype != DType::kBool;
    case ReduceKind::kAnd:
    case ReduceKind::kOr:
      return dtype == DType::kBool || IsInteger(dtype);
    default:
      return !IsComplex(dtype);
  }
}

absl::Status CheckDtype(const InferContext& c) {
  if (Accepts(c.def.reduce, c.in[0].dtype)) return CheckComputable(c, c.in[0].dtype);
  const bool is_bitwise = c.def.reduce == ReduceKind::kAnd || c.def.reduce == ReduceKind::kOr;
  const bool is_arithmetic = c.def.reduce == ReduceKind::kSum || c.def.reduce == ReduceKind::kProd;
  return TypeError(c, "does not accept dtype ", ToAbsl(DTypeName(c.in[0].dtype)), "; expected ",
                   is_arithmetic ? "a number type"
                   : is_bitwise  ? "bool or an integer type"
                                 : "a real type");
}

Types InferReduce(const InferContext& c) {
  const Type& x = c.in[0];
  TESSERA_RETURN_IF_ERROR(CheckDtype(c));
  TESSERA_RETURN_IF_ERROR(CheckDistinctDims(c, "dimensions", ReducedDims(c.attrs), x.rank()));
  Type t = MakeType(x.dtype, {});
  for (int64_t d : DimsExcept(x.rank(), ReducedDims(c.attrs))) t.shape.push_back(x.shape[d]);
  t.weak = x.weak;
  return std::vector<Type>{t};
}

// Returns a signature with one factor for each dim of the operand. The factors of `reduced` dims
// are of `kind` and do not occur in the result.
Signature FactorsWithoutDims(const InferContext& c, const DimList& reduced, FactorKind kind) {
  Signature s;
  s.reduce = c.def.reduce;
  s.operands.resize(1);
  s.results.resize(1);
  for (int d = 0; d < c.in[0].rank(); ++d) {
    const bool is_reduced = Contains(reduced, d);
    s.factors.push_back({is_reduced ? kind : FactorKind::kPassThrough, c.in[0].shape[d]});
    s.operands[0].push_back({d});
    if (!is_reduced) s.results[0].push_back({d});
  }
  return s;
}

Signature ReduceFactors(const InferContext& c, absl::Span<const Type>) {
  // An `and` or `or` of integer bits cannot be completed by a max or min across devices.
  const bool is_bitwise = c.def.reduce == ReduceKind::kAnd || c.def.reduce == ReduceKind::kOr;
  const bool needs_replication = is_bitwise && c.in[0].dtype != DType::kBool;
  return FactorsWithoutDims(c, ReducedDims(c.attrs),
                            needs_replication ? FactorKind::kReplicated : FactorKind::kReduction);
}

// A sharded dim may be reduced. The result's type lacks the axes of that dim.
absl::Status DropShardingOfDims(const InferContext& c, const DimList& reduced, Type* out) {
  if (!c.in[0].is_sharded()) return absl::OkStatus();
  out->sharding.clear();
  for (int64_t d : DimsExcept(c.in[0].rank(), reduced))
    out->sharding.push_back(c.in[0].axes_of(static_cast<int>(d)));
  Normalize(out);
  return absl::OkStatus();
}

absl::Status ReduceSharding(const InferContext& c, std::vector<Type>* out) {
  return DropShardingOfDims(c, ReducedDims(c.attrs), &(*out)[0]);
}

Batched BatchReduce(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  Attrs attrs = c.attrs;
  attrs.Set("dimensions", PastBatch(ReducedDims(c.attrs), dims[0]));
  const DimList& reduced = ReducedDims(c.attrs);
  const auto before =
      std::count_if(reduced.begin(), reduced.end(), [&](int64_t d) { return d < dims[0]; });
  return {c.b.Emit(c.def, {c.in[0]}, attrs), {dims[0] - static_cast<int>(before)}};
}

std::vector<Value> NoTangent(const RuleContext&, Values) { return {Value()}; }

// ---- Reference semantics. ----

// The type in which the elements of a dtype are reduced.
template <DType kD, class C = ComputeType<kD>>
using Wide = std::conditional_t<std::is_floating_point_v<C>, double,
                                std::conditional_t<std::is_signed_v<C>, int64_t, uint64_t>>;

template <DType kD>
using Storage = StorageType<kD>;
template <DType kD>
Wide<kD> Load(Storage<kD> v) {
  return static_cast<Wide<kD>>(Element<kD>::Load(v));
}

template <class W>
bool IsNan(W v) {
  if constexpr (std::is_floating_point_v<W>) return std::isnan(v);
  return false;
}
// The type in which sums and products are computed. Integers wrap, so they are computed in an
// unsigned type, in which C++ defines overflow.
template <class W>
using Wrap = std::conditional_t<std::is_floating_point_v<W>, W, uint64_t>;

template <DType kD>
Wide<kD> Identity(ReduceKind kind) {
  using W = Wide<kD>;
  constexpr bool kFloat = std::is_floating_point_v<W>;
  using L = std::numeric_limits<std::conditional_t<kFloat, W, ComputeType<kD>>>;
  switch (kind) {
    case ReduceKind::kProd:
      return 1;
    case ReduceKind::kMax:
      return kFloat ? -std::numeric_limits<W>::infinity() : static_cast<W>(L::lowest());
    case ReduceKind::kMin:
      return kFloat ? std::numeric_limits<W>::infinity() : static_cast<W>(L::max());
    case ReduceKind::kAnd:
      return static_cast<W>(kD == DType::kBool ? 1 : -1);
    default:
      return 0;
  }
}

// Returns the reduction of `n` contiguous elements.
template <DType kD>
Wide<kD> ReduceRow(ReduceKind kind, const Storage<kD>* row, int64_t n) {
  using W = Wide<kD>;
  W acc = Identity<kD>(kind);
  auto fold = [&](auto f) {
    for (int64_t i = 0; i < n; ++i) acc = f(acc, Load<kD>(row[i]));
    return acc;
  };
  switch (kind) {
    case ReduceKind::kSum:
      return fold([](W a, W v) {
        return static_cast<W>(static_cast<Wrap<W>>(a) + static_cast<Wrap<W>>(v));
      });
    case ReduceKind::kProd:
      return fold([](W a, W v) {
        return static_cast<W>(static_cast<Wrap<W>>(a) * static_cast<Wrap<W>>(v));
      });
    case ReduceKind::kMax:
      return fold([](W a, W v) { return scalar::math::Max(a, v); });
    case ReduceKind::kMin:
      return fold([](W a, W v) { return scalar::math::Min(a, v); });
    default:
      break;
  }
  if constexpr (!std::is_floating_point_v<W>) {
    if (kind == ReduceKind::kAnd) return fold([](W a, W v) { return a & v; });
    return fold([](W a, W v) { return a | v; });
  }
  return acc;
}

// Returns the operand with the reduced dims last, so that each element of the result reads one
// contiguous row.
Array ReducedLast(const Array& x, const DimList& reduced) {
  DimList order = DimsExcept(x.rank(), reduced), sorted = reduced;
  std::sort(sorted.begin(), sorted.end());
  order.insert(order.end(), sorted.begin(), sorted.end());
  return Permuted(x, order);
}

Arrays EvalReduce(const EvalContext& c, absl::Span<const Array> in) {
  const Array x = ReducedLast(in[0], ReducedDims(c.attrs));
  Array out(c.out_types[0].dtype, c.out_types[0].shape);
  int64_t n = 1;
  for (int64_t d : ReducedDims(c.attrs)) n *= in[0].shape()[d];
  scalar::Dispatch<scalar::kAnything>(x.dtype(), [&]<DType kD>(DTypeTag<kD>) {
    const auto* row = reinterpret_cast<const Storage<kD>*>(x.data());
    auto* to = reinterpret_cast<Storage<kD>*>(out.MutableData());
    for (int64_t i = 0; i < out.num_elements(); ++i)
      to[i] = Element<kD>::Store(
          static_cast<ComputeType<kD>>(ReduceRow<kD>(c.def.reduce, row + i * n, n)));
  });
  return std::vector<Array>{out};
}

constexpr AttrSpec kReduceAttrs[] = {{"dimensions", AttrKind::kInts}};

// Fills in the fields that the reductions over `dimensions` share.
consteval OpDef Reduction(OpDef d) {
  d.family = Family::kReduction;
  d.num_operands = 1;
  d.attrs = kReduceAttrs;
  d.lowering = Lowering::kReduce;
  d.infer = InferReduce;
  d.factors = ReduceFactors;
  d.sharding = ReduceSharding;
  d.varying = Derived{};  // accepts unreduced operands only if the op is linear
  if (d.transpose.kind == Rule<TransposeFn>::kUnset) d.transpose = Refused{"it is not linear"};
  d.batch = BatchReduce;
  d.partition = Derived{};
  d.cost = Derived{};
  d.eval = EvalReduce;
  return Checked(d);
}

// ---- reduce_sum. ----

// Gives every summed element the cotangent of the sum.
std::vector<Value> TransposeSum(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (!cts[0]) return {Value()};
  const Type& x = c.in_types[0];
  return {BroadcastLike(cts[0], x, DimsExcept(x.rank(), ReducedDims(c.attrs)))};
}

}  // namespace

constexpr OpDef kReduceSum = Reduction({.name = "reduce_sum",
                                        .lax_name = "reduce_sum",
                                        .jvp = Derived{},
                                        .transpose = TransposeSum,
                                        .reduce = ReduceKind::kSum});

// ---- reduce_prod. ----
namespace {

// Computes a product p and its tangent t by halving one dim at a time, with (pq)' = p'q + pq'.
// Without division, zeros need no special case, and every step is differentiable again.
std::vector<Value> ProdJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0]) return {Value()};
  Value p = c.in[0], t = tangents[0];
  for (int64_t d : ReducedDims(c.attrs)) {
    const int dim = static_cast<int>(d);
    if (p.dim(dim) == 0) return {Zeros(c.b, c.out[0].type())};
    // Unshard the dim: its axes need not divide the halves.
    if (!p.type().axes_of(dim).empty()) {
      Type whole = p.type();
      whole.set_axes_of(dim, {});
      p = ShardedLike(p, whole);
      t = ShardedLike(t, whole);
    }
    while (p.dim(dim) > 1) {
      const int64_t n = p.dim(dim), half = n / 2;
      auto part = [&](Value v, int64_t from, int64_t to) { return SliceInDim(v, dim, from, to); };
      Value pa = part(p, 0, half), pb = part(p, half, 2 * half);
      Value ta = part(t, 0, half), tb = part(t, half, 2 * half);
      Value pab = Mul(pa, pb), left = Mul(ta, pb), tab = Add(left, Mul(pa, tb));
      p = n % 2 ? Concatenate({pab, part(p, n - 1, n)}, dim) : pab;
      t = n % 2 ? Concatenate({tab, part(t, n - 1, n)}, dim) : tab;
    }
  }
  return {ShardedLike(Squeeze(t, ReducedDims(c.attrs)), c.out[0].type())};
}

}  // namespace

constexpr OpDef kReduceProd = Reduction({.name = "reduce_prod",
                                         .lax_name = "reduce_prod",
                                         .jvp = ProdJvp,
                                         .reduce = ReduceKind::kProd});

// ---- reduce_max, reduce_min. ----
namespace {

// Returns the mean of the tangents of the elements that equal the result. Reference: JAX's
// _reduce_chooser_jvp_rule.
std::vector<Value> ChooserJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0]) return {Value()};
  const Value x = c.in[0];
  const DimList& dims = ReducedDims(c.attrs);
  Value best = BroadcastLike(c.out[0], x.type(), DimsExcept(x.rank(), dims));
  Value chosen = Convert(Compare(x, best, "EQ"), tangents[0].dtype());
  const Value sum = ReduceSum(Mul(tangents[0], chosen), dims);
  return {Div(sum, ReduceSum(chosen, dims))};
}

}  // namespace

constexpr OpDef kReduceMax = Reduction({.name = "reduce_max",
                                        .lax_name = "reduce_max",
                                        .jvp = ChooserJvp,
                                        .reduce = ReduceKind::kMax});
constexpr OpDef kReduceMin = Reduction({.name = "reduce_min",
                                        .lax_name = "reduce_min",
                                        .jvp = ChooserJvp,
                                        .reduce = ReduceKind::kMin});

// ---- reduce_and, reduce_or: of bools, or of the bits of integers. ----

constexpr OpDef kReduceAnd = Reduction(
    {.name = "reduce_and", .lax_name = "reduce_and", .jvp = NoTangent, .reduce = ReduceKind::kAnd});
constexpr OpDef kReduceOr = Reduction(
    {.name = "reduce_or", .lax_name = "reduce_or", .jvp = NoTangent, .reduce = ReduceKind::kOr});

// ---- argmax, argmin: the lowest index of the best element. A NaN counts as the best. ----
namespace {

Types InferArg(const InferContext& c) {
  const Type& x = c.in[0];
  const int64_t dim = c.attrs.Int("dimension");
  const DType index = c.attrs.Dtype("index_dtype");
  TESSERA_RETURN_IF_ERROR(CheckDtype(c));
  TESSERA_RETURN_IF_ERROR(CheckDimension(c));
  if (x.shape[dim] < 1)
    return ValueError(c, "dim ", dim, " of ", x.ToString(),
                      " is empty: attempt to get the index of the best of an empty sequence");
  if (!IsInteger(index))
    return TypeError(c, "index_dtype is ", ToAbsl(DTypeName(index)), "; expected an integer type");
  TESSERA_RETURN_IF_ERROR(CheckComputable(c, index));
  Type t = MakeType(index, x.shape);
  t.shape.erase(t.shape.begin() + dim);
  return std::vector<Type>{t};
}

Signature ArgFactors(const InferContext& c, absl::Span<const Type>) {
  return FactorsWithoutDims(c, {c.attrs.Int("dimension")}, FactorKind::kReduction);
}

absl::Status ArgSharding(const InferContext& c, std::vector<Type>* out) {
  return DropShardingOfDims(c, {c.attrs.Int("dimension")}, &(*out)[0]);
}

Batched BatchArg(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  const int64_t dim = c.attrs.Int("dimension");
  Attrs attrs = c.attrs;
  attrs.Set("dimension", PastBatch(dim, dims[0]));
  return {c.b.Emit(c.def, {c.in[0]}, attrs), {dims[0] - (dim < dims[0])}};
}

// If the dim is cut, finds the best of all blocks' best elements, and the lowest index in the
// blocks that have this element. If there is a NaN, the blocks that contain one count as having the
// best element.
std::vector<Value> PartitionArg(const RuleContext& c, const PartitionContext& p) {
  const auto dim = static_cast<int>(c.attrs.Int("dimension"));
  const AxisList& axes = p.factor_axes[p.signature.operands[0][dim][0]];
  if (axes.empty()) return c.b.Emit(c.def, c.in, c.attrs);
  const int64_t n = c.in_types[0].shape[dim];
  const DType index = IndexDTypeFor(n);
  Attrs block_attrs = c.attrs;
  block_attrs.Set("index_dtype", index);
  const Value local = c.b.Emit1(c.def, c.in, std::move(block_attrs));
  const bool is_max = c.def.reduce == ReduceKind::kArgMax;
  const Value mine = is_max ? ReduceMax(c.in[0], {dim}) : ReduceMin(c.in[0], {dim});
  const Value best = is_max ? Pmax(mine, axes) : Pmin(mine, axes);
  Value has_best = Compare(mine, best, "EQ");
  if (IsFloat(mine.dtype())) has_best = Or(has_best, Compare(mine, mine, "NE"));
  const Value begin = BlockBegin(c.b, axes, c.in[0].dim(dim), index);
  const Value at = Add(local, BroadcastInDim(begin, local.shape(), {}));
  const Value beyond = FullLike(at, static_cast<double>(n));
  return {Convert(Pmin(Select(has_best, at, beyond), axes), c.attrs.Dtype("index_dtype"))};
}

template <DType kD>
int64_t BestOf(ReduceKind kind, const Storage<kD>* row, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    const Wide<kD> current = Load<kD>(row[best]), v = Load<kD>(row[i]);
    const bool is_better = kind == ReduceKind::kArgMax ? v > current : v < current;
    if (!IsNan(current) && (IsNan(v) || is_better)) best = i;
  }
  return best;
}

Arrays EvalArg(const EvalContext& c, absl::Span<const Array> in) {
  const int64_t dim = c.attrs.Int("dimension"), n = in[0].shape()[dim];
  const Array x = ReducedLast(in[0], {dim});
  Array out(c.out_types[0].dtype, c.out_types[0].shape);
  scalar::Dispatch<scalar::kAnything>(x.dtype(), [&]<DType kD>(DTypeTag<kD>) {
    const auto* row = reinterpret_cast<const Storage<kD>*>(x.data());
    for (int64_t i = 0; i < out.num_elements(); ++i)
      out.Set(i, static_cast<double>(BestOf<kD>(c.def.reduce, row + i * n, n)));
  });
  return std::vector<Array>{out};
}

constexpr AttrSpec kArgAttrs[] = {{"dimension", AttrKind::kInt}, {"index_dtype", AttrKind::kDType}};

consteval OpDef ArgReduction(std::string_view name, ReduceKind kind) {
  return Checked({.name = name,
                  .lax_name = name,
                  .family = Family::kReduction,
                  .num_operands = 1,
                  .attrs = kArgAttrs,
                  .lowering = Lowering::kReduce,
                  .infer = InferArg,
                  .factors = ArgFactors,
                  .sharding = ArgSharding,
                  .varying = Derived{},
                  .jvp = NoTangent,
                  .transpose = Refused{"an index has no tangent"},
                  .batch = BatchArg,
                  .partition = PartitionArg,
                  .cost = Derived{},
                  .eval = EvalArg,
                  .reduce = kind});
}

}  // namespace

constexpr OpDef kArgMax = ArgReduction("argmax", ReduceKind::kArgMax);
constexpr OpDef kArgMin = ArgReduction("argmin", ReduceKind::kArgMin);

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {
namespace {

Value EmitReduce(const OpDef& def, Value x, std::vector<int64_t> dimensions) {
  std::sort(dimensions.begin(), dimensions.end());
  if (dimensions.empty()) return x;
  return x.builder().Emit1(def, {x}, {{"dimensions", std::move(dimensions)}});
}

Value EmitArg(const OpDef& def, Value x, int dimension, DType index_dtype) {
  return x.builder().Emit1(def, {x},
                           {{"dimension", int64_t{dimension}}, {"index_dtype", index_dtype}});
}

}  // namespace

Value ReduceSum(Value x, std::vector<int64_t> dimensions) {
  if (IsComplex(x.dtype())) {
    const Value re = ReduceSum(Real(x), dimensions);
    return Complex(re, ReduceSum(Imag(x), std::move(dimensions)));
  }
  return EmitReduce(ops::kReduceSum, x, std::move(dimensions));
}
Value ReduceProd(Value x, std::vector<int64_t> dimensions) {
  return EmitReduce(ops::kReduceProd, x, std::move(dimensions));
}
Value ReduceMax(Value x, std::vector<int64_t> dimensions) {
  return EmitReduce(ops::kReduceMax, x, std::move(dimensions));
}
Value ReduceMin(Value x, std::vector<int64_t> dimensions) {
  return EmitReduce(ops::kReduceMin, x, std::move(dimensions));
}
Value ReduceAnd(Value x, std::vector<int64_t> dimensions) {
  return EmitReduce(ops::kReduceAnd, x, std::move(dimensions));
}
Value ReduceOr(Value x, std::vector<int64_t> dimensions) {
  return EmitReduce(ops::kReduceOr, x, std::move(dimensions));
}
Value ArgMax(Value x, int dimension, DType index_dtype) {
  return EmitArg(ops::kArgMax, x, dimension, index_dtype);
}
Value ArgMin(Value x, int dimension, DType index_dtype) {
  return EmitArg(ops::kArgMin, x, dimension, index_dtype);
}

}  // namespace tessera::ir
