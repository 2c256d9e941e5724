// The op dot_general, the product of two arrays over named dims. The derivative rules keep
// `precision`, so that derivatives multiply as exactly as the user asked.
#include "ir/ops/rules/contraction.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "ir/ops/rules/refused.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;

// The dims of one operand by their role in the contraction. `batch` and `contract` are in the
// attributes' order, `free` is ascending.
struct OperandDims {
  DimList batch, contract, free;
};
OperandDims OperandDimsOf(const Attrs& attrs, bool is_lhs, int rank) {
  OperandDims s;
  s.batch = attrs.Ints(is_lhs ? "lhs_batching_dimensions" : "rhs_batching_dimensions");
  s.contract = attrs.Ints(is_lhs ? "lhs_contracting_dimensions" : "rhs_contracting_dimensions");
  s.free = DimsExcept(rank, s.batch, s.contract);
  return s;
}

template <class T>
std::vector<T> Joined(std::vector<T> a, const std::vector<T>& b, const std::vector<T>& c = {}) {
  a.insert(a.end(), b.begin(), b.end());
  a.insert(a.end(), c.begin(), c.end());
  return a;
}

// ---- Types. ----

// Checks that paired dims have equal sizes.
absl::Status CheckPairs(const InferContext& c, std::string_view kind, const DimList& l,
                        const DimList& r) {
  if (l.size() != r.size())
    return TypeError(c, ToAbsl(kind), " dims are [", absl::StrJoin(l, ","), "] of lhs and [",
                     absl::StrJoin(r, ","), "] of rhs; expected equal numbers of dims");
  for (size_t i = 0; i < l.size(); ++i)
    if (c.in[0].shape[l[i]] != c.in[1].shape[r[i]])
      return TypeError(c, ToAbsl(kind), " sizes differ: lhs dim ", l[i], " is ",
                       c.in[0].shape[l[i]], ", rhs dim ", r[i], " is ", c.in[1].shape[r[i]],
                       "; requires ", ToAbsl(kind), " dimensions to have equal shapes, got ",
                       c.in[0].ToString(), " and ", c.in[1].ToString());
  return absl::OkStatus();
}

Types InferDot(const InferContext& c) {
  const Type &x = c.in[0], &y = c.in[1];
  const Attrs& a = c.attrs;
  const DimList &xb = a.Ints("lhs_batching_dimensions"), &yb = a.Ints("rhs_batching_dimensions"),
                &xc = a.Ints("lhs_contracting_dimensions"),
                &yc = a.Ints("rhs_contracting_dimensions");
  TESSERA_RETURN_IF_ERROR(
      CheckDistinctDims(c, "lhs batching and contracting dims", Joined(xb, xc), x.rank()));
  TESSERA_RETURN_IF_ERROR(
      CheckDistinctDims(c, "rhs batching and contracting dims", Joined(yb, yc), y.rank()));
  TESSERA_RETURN_IF_ERROR(CheckPairs(c, "batching", xb, yb));
  TESSERA_RETURN_IF_ERROR(CheckPairs(c, "contracting", xc, yc));
  TESSERA_ASSIGN_OR_RETURN(const DType dtype, ProductDType(c));
  TESSERA_RETURN_IF_ERROR(CheckPrecision(c));
  const OperandDims l = OperandDimsOf(a, true, x.rank()), r = OperandDimsOf(a, false, y.rank());
  Type t = MakeType(dtype, {});
  for (int64_t d : Joined(l.batch, l.free)) t.shape.push_back(x.shape[d]);
  for (int64_t d : r.free) t.shape.push_back(y.shape[d]);
  t.weak = x.weak && y.weak;
  return std::vector<Type>{t};
}

// The factors of (batch m k)(batch k n) -> (batch m n).
Signature DotFactors(const InferContext& c, absl::Span<const Type>) {
  const OperandDims l = OperandDimsOf(c.attrs, true, c.in[0].rank()),
                    r = OperandDimsOf(c.attrs, false, c.in[1].rank());
  Signature s;
  s.reduce = ReduceKind::kSum;
  s.operands = {TensorFactors(c.in[0].rank()), TensorFactors(c.in[1].rank())};
  s.results.resize(1);
  auto add = [&](FactorKind kind, int64_t size) {
    const int factor = s.Add(kind, size);
    if (kind == FactorKind::kPassThrough) s.results[0].push_back({factor});
    return FactorList{factor};
  };
  for (size_t i = 0; i < l.batch.size(); ++i)
    s.operands[0][l.batch[i]] = s.operands[1][r.batch[i]] =
        add(FactorKind::kPassThrough, c.in[0].shape[l.batch[i]]);
  for (int64_t d : l.free) s.operands[0][d] = add(FactorKind::kPassThrough, c.in[0].shape[d]);
  for (int64_t d : r.free) s.operands[1][d] = add(FactorKind::kPassThrough, c.in[1].shape[d]);
  for (size_t i = 0; i < l.contract.size(); ++i)
    s.operands[0][l.contract[i]] = s.operands[1][r.contract[i]] =
        add(FactorKind::kReduction, c.in[0].shape[l.contract[i]]);
  return s;
}

// The batch dims of both operands must agree, contracting dims may be sharded on one side only, and
// no axis may be used twice in the result. An out_sharding decides the ambiguous cases. If it names
// unreduced axes, both operands must be cut by exactly these axes along their contracting dims:
// each shard then has one summand of the result. The errors are JAX's.
absl::Status DotSharding(const InferContext& c, std::vector<Type>* out) {
  Type& t = (*out)[0];
  TESSERA_ASSIGN_OR_RETURN(const bool has_out_sharding,
                           ApplyOutSharding(c, &t, /*allow_unreduced=*/true));
  const Type &x = c.in[0], &y = c.in[1];
  const OperandDims l = OperandDimsOf(c.attrs, true, x.rank()),
                    r = OperandDimsOf(c.attrs, false, y.rank());
  if (has_out_sharding && !c.attrs.Spec("out_sharding").unreduced.empty()) {
    const AxisList& named = c.attrs.Spec("out_sharding").unreduced;
    DimAxes of_x, of_y;
    for (int64_t d : l.contract) of_x.push_back(x.axes_of(d));
    for (int64_t d : r.contract) of_y.push_back(y.axes_of(d));
    PartitionSpec contracting;
    contracting.dims = of_x;
    if (of_x != of_y)
      return ShardingError(c,
                           "lhs and rhs contracting dims should be sharded identically when "
                           "out_sharding provided to dot_general mentions unreduced_axes. Got ",
                           x.ToString(), ", ", y.ToString());
    AxisSet summed;
    for (const AxisList& axes : of_x) summed.insert(axes.begin(), axes.end());
    if (summed != AxisSet(named.begin(), named.end()))
      return ShardingError(c,
                           "out_sharding's unreduced axes should be equal to the contracting "
                           "specs. Got unreduced axes={",
                           absl::StrJoin(named, ","),
                           "} and contracting spec=", contracting.ToString(), " of ", x.ToString(),
                           ", ", y.ToString());
  }
  if (has_out_sharding || !(x.is_sharded() || y.is_sharded())) return absl::OkStatus();
  const std::string inputs = absl::StrCat(x.ToString(), ", ", y.ToString());
  t.sharding.clear();
  for (size_t i = 0; i < l.batch.size(); ++i) {
    const AxisList &a = x.axes_of(l.batch[i]), &b = y.axes_of(r.batch[i]);
    if (!a.empty() && !b.empty() && a != b)
      return ShardingError(c,
                           "requires lhs batch dimensions and rhs batch dimensions to have the "
                           "consistent sharding, got inputs: ",
                           inputs, "; reshard one of them");
    t.sharding.push_back(a.empty() ? b : a);
  }
  for (size_t i = 0; i < l.contract.size(); ++i)
    if (!x.axes_of(l.contract[i]).empty() && !y.axes_of(r.contract[i]).empty())
      return ShardingError(c,
                           "Contracting dimensions are sharded and it is ambiguous how the output "
                           "should be sharded. Please specify the output sharding via the "
                           "`out_sharding` parameter. Got inputs: ",
                           inputs);
  for (int64_t d : l.free) t.sharding.push_back(x.axes_of(d));
  for (int64_t d : r.free) t.sharding.push_back(y.axes_of(d));
  AxisSet seen;
  for (const AxisList& axes : t.sharding)
    for (const std::string& axis : axes)
      if (!seen.insert(axis).second)
        return MakeError(ErrorKind::kShardingTypeError,
                         absl::StrCat(ToAbsl(c.def.lax_name), " operation with inputs: ", inputs,
                                      " produces an illegally sharded result: axis '", axis,
                                      "' would shard two dims; reshard one operand or give "
                                      "out_sharding"));
  Normalize(&t);
  return absl::OkStatus();
}

// An unreduced operand is refused: a product of sums is not the sum of the products of their
// summands.
absl::Status DotStates(const InferContext& c, std::vector<Type>* out) {
  TESSERA_RETURN_IF_ERROR(derive::CheckVaryingEqual(c));
  for (const Type& t : c.in)
    if (!t.unreduced.empty())
      return ShardingError(c, "lhs or rhs passed to dot_general cannot be unreduced. Got ",
                           TypesToString(c.in), "; add up the operand first");
  Type& t = (*out)[0];
  t.varying = c.in[0].varying;
  if (c.attrs.Has("out_sharding")) {
    const PartitionSpec& spec = c.attrs.Spec("out_sharding");
    if (!spec.reduced.empty())
      return ValueError(c, "out_sharding ", spec.ToString(),
                        " of a product cannot be reduced; reshard the product");
    t.unreduced = AxisSet(spec.unreduced.begin(), spec.unreduced.end());
  }
  return absl::OkStatus();
}

// ---- Derivatives. ----

// Returns the cotangent of one operand. It is the result's cotangent, contracted with the other
// operand over the other's free dims, then transposed. The product is given the operand's sharding,
// so that no sharding is ambiguous. Reference: JAX's _dot_general_transpose_lhs.
Value DotCotangent(const RuleContext& c, Value ct, bool is_lhs) {
  const Type& x = c.in_types[is_lhs ? 0 : 1];
  Value y = NonLinearOperand(c, is_lhs ? 1 : 0);
  const OperandDims mine = OperandDimsOf(c.attrs, is_lhs, x.rank()),
                    other = OperandDimsOf(c.attrs, !is_lhs, y.rank());
  const auto nb = static_cast<int64_t>(mine.batch.size());
  const auto first_other = nb + (is_lhs ? static_cast<int64_t>(mine.free.size()) : 0);
  DimList ct_batch, ct_other;
  for (int64_t d = 0; d < nb; ++d) ct_batch.push_back(d);
  for (size_t d = 0; d < other.free.size(); ++d) ct_other.push_back(first_other + d);
  // The product has these dims: batch, this operand's free dims, then its contracting dims in the
  // order of the other operand's dims.
  std::vector<size_t> by_other(mine.contract.size());
  for (size_t i = 0; i < by_other.size(); ++i) by_other[i] = i;
  std::sort(by_other.begin(), by_other.end(),
            [&](size_t a, size_t b) { return other.contract[a] < other.contract[b]; });
  DimList product_dims = Joined(mine.batch, mine.free);
  for (size_t i : by_other) product_dims.push_back(mine.contract[i]);
  PartitionSpec spec;
  for (int64_t d : product_dims) spec.dims.push_back(x.axes_of(d));
  for (const std::string& a : x.reduced)
    if (!c.b.mesh().IsManual(a)) spec.unreduced.push_back(a);
  const bool sharded = x.is_sharded() || y.type().is_sharded() || ct.type().is_sharded();
  // Multiply in the wider of the two dtypes, which differ where preferred_element_type was given.
  const DType wide = ByteWidth(ct.dtype()) < ByteWidth(y.dtype()) ? y.dtype() : ct.dtype();
  const Value wide_ct = Convert(ct, wide), wide_y = Convert(y, wide);
  Value product = DotGeneral(wide_ct, wide_y, {ct_batch, other.batch, ct_other, other.free},
                             sharded ? &spec : nullptr, {}, PrecisionOf(c.attrs));
  return Convert(Transpose(product, InversePermutation(product_dims)), x.dtype);
}

std::vector<Value> TransposeDot(const RuleContext& c, Values cts, const std::vector<bool>& linear) {
  std::vector<Value> out(2);
  if (!cts[0]) return out;
  if (linear[0]) out[0] = DotCotangent(c, cts[0], /*is_lhs=*/true);
  if (linear[1]) out[1] = DotCotangent(c, cts[0], /*is_lhs=*/false);
  return out;
}

// ---- Batching: the mapped dim becomes a batch dim if both operands have it, else a free dim of
// the operand that has it. ----

// The mapped dim stands first in the result if both operands have it. If only one has it, it stands
// among that operand's free dims, and no broadcast of the other is needed.
Batched BatchDot(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  const OperandDims l = OperandDimsOf(c.attrs, true, c.in_types[0].rank());
  const OperandDims r = OperandDimsOf(c.attrs, false, c.in_types[1].rank());
  auto shifted = [](const DimList& list, int at) { return at < 0 ? list : PastBatch(list, at); };
  auto free_before = [](const OperandDims& s, int at) {
    return static_cast<int>(
        std::count_if(s.free.begin(), s.free.end(), [&](int64_t d) { return d < at; }));
  };
  DimList lb = shifted(l.batch, dims[0]), rb = shifted(r.batch, dims[1]);
  int at = static_cast<int>(l.batch.size());
  if (dims[0] >= 0 && dims[1] >= 0) {
    lb = WithInserted(lb, 0, int64_t{dims[0]});
    rb = WithInserted(rb, 0, int64_t{dims[1]});
    at = 0;
  } else if (dims[0] >= 0) {
    at += free_before(l, dims[0]);
  } else {
    at += static_cast<int>(l.free.size()) + free_before(r, dims[1]);
  }
  Attrs attrs = WithBatchSharding(c.attrs, at, BatchAxes(c, dims));
  attrs.Set("lhs_batching_dimensions", lb);
  attrs.Set("rhs_batching_dimensions", rb);
  attrs.Set("lhs_contracting_dimensions", shifted(l.contract, dims[0]));
  attrs.Set("rhs_contracting_dimensions", shifted(r.contract, dims[1]));
  return {c.b.Emit(c.def, MatchVarying(c.in), attrs), {at}};
}

Attrs LocalizeDot(const RuleContext& c, const PartitionContext&) {
  Attrs attrs = c.attrs;
  attrs.Erase("out_sharding");
  return attrs;
}

// ---- Reference semantics. ----

ContractionMap DotMap(const InferContext& c, absl::Span<const Type> out) {
  const Dims &x = c.in[0].shape, &y = c.in[1].shape;
  const OperandDims l = OperandDimsOf(c.attrs, true, c.in[0].rank()),
                    r = OperandDimsOf(c.attrs, false, c.in[1].rank());
  const auto pick = [](const Dims& from, const DimList& dims) {
    Dims picked;
    for (int64_t d : dims) picked.push_back(from[d]);
    return picked;
  };
  const Dims xs = StridesOf(x), ys = StridesOf(y);
  ContractionMap map;
  map.batch = pick(x, l.batch);
  map.m = pick(x, l.free);
  map.n = pick(y, r.free);
  map.k = pick(x, l.contract);
  map.a_strides = pick(xs, Joined(l.batch, l.free, l.contract));
  map.b_strides = pick(ys, Joined(r.batch, r.contract, r.free));
  map.c_strides = StridesOf(out[0].shape);
  return map;
}

constexpr AttrSpec kDotAttrs[] = {{"lhs_batching_dimensions", AttrKind::kInts},
                                  {"rhs_batching_dimensions", AttrKind::kInts},
                                  {"lhs_contracting_dimensions", AttrKind::kInts},
                                  {"rhs_contracting_dimensions", AttrKind::kInts},
                                  {"out_sharding", AttrKind::kSpec, false},
                                  {"preferred_element_type", AttrKind::kDType, false},
                                  {"precision", AttrKind::kString, false}};

}  // namespace

constexpr OpDef kDotGeneral = Checked({.name = "dot_general",
                                       .lax_name = "dot_general",
                                       .family = Family::kContraction,
                                       .num_operands = 2,
                                       .attrs = kDotAttrs,
                                       .lowering = Lowering::kContract,
                                       .infer = InferDot,
                                       .factors = DotFactors,
                                       .sharding = DotSharding,
                                       .varying = DotStates,
                                       .jvp = BilinearJvp,
                                       .transpose = TransposeDot,
                                       .batch = BatchDot,
                                       .partition = Derived{},
                                       .localize = LocalizeDot,
                                       .cost = Derived{},
                                       .contraction_map = DotMap,
                                       .reduce = ReduceKind::kSum});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {

// Reduces products of complex numbers, and of numbers without kernels, to products that have
// kernels: four real products, or one of wider numbers. The op is emitted only for computable
// dtypes, so that no backend has to know the others.
Value DotGeneral(Value lhs, Value rhs, const DotDims& dims, const PartitionSpec* out_sharding,
                 std::optional<DType> preferred_element_type, Precision precision) {
  const bool is_complex = IsComplex(lhs.dtype()) && lhs.dtype() == rhs.dtype();
  if (is_complex && preferred_element_type && IsComplex(*preferred_element_type))
    return Convert(DotGeneral(lhs, rhs, dims, out_sharding, {}, precision),
                   *preferred_element_type);
  const auto is_moved_only = [](DType d) { return !IsComputable(d) && !IsComplex(d); };
  // Numbers without kernels are multiplied as wider ones, and the result is rounded once.
  const bool lack_kernels = lhs.dtype() == rhs.dtype() && is_moved_only(lhs.dtype());
  if (lack_kernels || (preferred_element_type && is_moved_only(*preferred_element_type))) {
    const DType wide = IsFloat(lhs.dtype()) ? DType::kF32 : DType::kS32;
    const DType result = preferred_element_type.value_or(lhs.dtype());
    const Value x = lack_kernels ? Convert(lhs, wide) : lhs,
                y = lack_kernels ? Convert(rhs, wide) : rhs;
    const std::optional<DType> sum_dtype =
        is_moved_only(result) ? std::nullopt : std::optional(result);
    return Convert(DotGeneral(x, y, dims, out_sharding, sum_dtype, precision), result);
  }
  if (is_complex && !preferred_element_type) {
    const Value a = Real(lhs), b = Imag(lhs), c = Real(rhs), d = Imag(rhs);
    const auto dot = [&](Value x, Value y) {
      return DotGeneral(x, y, dims, out_sharding, {}, precision);
    };
    const Value ac = dot(a, c), bd = dot(b, d), ad = dot(a, d), bc = dot(b, c);
    const Value re = ac - bd;
    return Complex(re, ad + bc);
  }
  const Value like = lhs.type().weak ? rhs : lhs;
  Attrs attrs{{"lhs_batching_dimensions", dims.lhs_batch},
              {"rhs_batching_dimensions", dims.rhs_batch},
              {"lhs_contracting_dimensions", dims.lhs_contract},
              {"rhs_contracting_dimensions", dims.rhs_contract}};
  if (out_sharding != nullptr) attrs.Set("out_sharding", *out_sharding);
  if (preferred_element_type) attrs.Set("preferred_element_type", *preferred_element_type);
  SetPrecision(precision, &attrs);
  return lhs.builder().Emit1(
      ops::kDotGeneral,
      MatchVarying({ops::ConvertIfWeak(lhs, like), ops::ConvertIfWeak(rhs, like)}),
      std::move(attrs));
}

Value Matmul2D(Value lhs, Value rhs) { return DotGeneral(lhs, rhs, {{}, {}, {1}, {0}}); }

}  // namespace tessera::ir
