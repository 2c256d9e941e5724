// The ops constant, iota, broadcast_in_dim, reshape, transpose, slice and reverse, with one section
// for each. Attributes and semantics are StableHLO's. The labels C1, C2 ... name constraints in
// StableHLO's specification.
#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_join.h"
#include "ir/derive/factors.h"
#include "ir/ops/rules/movement.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;

// Batches an op without operands, which is the same for every member of the batch.
Batched BatchWithoutOperands(const RuleContext& c, absl::Span<const int>, int64_t) {
  return {c.b.Emit(c.def, {}, c.attrs), {-1}};
}

// Returns the index at which this device's shard of a dim begins: its index along `axes` times the
// shard's size.
Value BlockStart(Builder& b, const AxisList& axes, int64_t local_size) {
  Value index = AxisIndex(b, axes);
  return Mul(index, FullLike(index, static_cast<double>(local_size)));
}

// ---- constant: a literal. ----

Types InferConstant(const InferContext& c) {
  const Array& value = c.attrs.Literal("value");
  return std::vector<Type>{MakeType(value.dtype(), value.shape())};
}

// A literal usually has rank 0. From a literal of a higher rank, every device slices its own shard.
std::vector<Value> PartitionConstant(const RuleContext& c, const PartitionContext& p) {
  Value whole = c.b.Emit1(c.def, {}, c.attrs);
  const Dims& local = p.local_out[0].shape;
  if (local == whole.shape()) return {whole};
  std::vector<Value> starts;
  for (int d = 0; d < whole.rank(); ++d) {
    const AxisList& axes = p.factor_axes[p.signature.results[0][d][0]];
    starts.push_back(axes.empty() ? Constant(c.b, DType::kS32, 0)
                                  : BlockStart(c.b, axes, local[d]));
  }
  return {DynamicSlice(whole, starts, local)};
}

IndexMap ConstantMap(const InferContext& c, absl::Span<const Type> out) {
  return {{ContiguousPiece(IndexPiece::kLiteral, out[0].shape)}, c.attrs.Literal("value")};
}

constexpr AttrSpec kConstantAttrs[] = {{"value", AttrKind::kArray}};

}  // namespace

constexpr OpDef kConstant = Movement({.name = "constant",
                                      .lax_name = "constant",
                                      .num_operands = 0,
                                      .attrs = kConstantAttrs,
                                      .infer = InferConstant,
                                      .factors = PointwiseFactors,
                                      .varying = KeepInferredTypes,
                                      .transpose = Refused{"it has no operands"},
                                      .batch = BatchWithoutOperands,
                                      .partition = PartitionConstant,
                                      .index_map = ConstantMap});

// ---- iota: element i along one dim is i. ----
namespace {

Types InferIota(const InferContext& c) {
  const DType dtype = c.attrs.Dtype("dtype");
  const Dims& shape = c.attrs.Ints("shape");
  const int64_t dim = c.attrs.Int("iota_dimension");
  if (dtype == DType::kBool)
    return TypeError(c, "does not accept dtype bool; expected a number type");
  TESSERA_RETURN_IF_ERROR(CheckComputable(c, dtype));
  if (dim < 0 || dim >= static_cast<int64_t>(shape.size()))
    return ValueError(c, "dimension ", dim, " is not a dim of the shape [", DimsToString(shape),
                      "]; expected one in [0, ", shape.size(), ")");
  return std::vector<Type>{MakeType(dtype, shape)};
}

// Returns the indices of this device's shard. They are counted in integers and converted at the
// end, so that they are rounded in the same way whatever the sharding is.
std::vector<Value> PartitionIota(const RuleContext& c, const PartitionContext& p) {
  const int dim = static_cast<int>(c.attrs.Int("iota_dimension"));
  const DType dtype = c.attrs.Dtype("dtype");
  const Dims& local = p.local_out[0].shape;
  const AxisList& axes = p.factor_axes[p.signature.results[0][dim][0]];
  if (axes.empty()) return {Iota(c.b, dtype, local, dim)};
  const DType count_dtype =
      c.out_types[0].shape[dim] > std::numeric_limits<int32_t>::max() ? DType::kS64 : DType::kS32;
  Value index = Convert(AxisIndex(c.b, axes), count_dtype);
  Value start = Mul(index, FullLike(index, static_cast<double>(local[dim])));
  Value starts = BroadcastInDim(start, local, {});
  return {Convert(Add(Iota(c.b, count_dtype, local, dim), starts), dtype)};
}

IndexMap IotaMap(const InferContext& c, absl::Span<const Type> out) {
  IndexPiece piece = ContiguousPiece(IndexPiece::kIota, out[0].shape);
  piece.strides.assign(out[0].rank(), 0);
  piece.strides[c.attrs.Int("iota_dimension")] = 1;
  return {{piece}, {}};
}

constexpr AttrSpec kIotaAttrs[] = {
    {"dtype", AttrKind::kDType}, {"shape", AttrKind::kInts}, {"iota_dimension", AttrKind::kInt}};

}  // namespace

constexpr OpDef kIota = Movement({.name = "iota",
                                  .lax_name = "iota",
                                  .num_operands = 0,
                                  .attrs = kIotaAttrs,
                                  .infer = InferIota,
                                  .factors = PointwiseFactors,
                                  .varying = KeepInferredTypes,
                                  .transpose = Refused{"it has no operands"},
                                  .batch = BatchWithoutOperands,
                                  .partition = PartitionIota,
                                  .index_map = IotaMap});

// ---- broadcast_in_dim: operand dim i is result dim broadcast_dimensions[i]. ----
namespace {

Types InferBroadcast(const InferContext& c) {
  const Type& x = c.in[0];
  const Dims& shape = c.attrs.Ints("shape");
  const DimList& at = c.attrs.Ints("broadcast_dimensions");
  TESSERA_RETURN_IF_ERROR(CheckLength(c, "broadcast_dimensions", at.size(), x.rank()));  // C2
  TESSERA_RETURN_IF_ERROR(
      CheckDistinctDims(c, "broadcast_dimensions", at, static_cast<int>(shape.size())));  // C3, C4
  for (int d = 0; d < x.rank(); ++d)                                                      // C5
    if (x.shape[d] != 1 && x.shape[d] != shape[at[d]])
      return ValueError(c, "operand dim ", d, " is ", x.shape[d], ", result dim ", at[d], " is ",
                        shape[at[d]], "; expected equal sizes or an operand dim of 1");
  return std::vector<Type>{WithShape(x, shape)};
}

// Returns whether operand dim `d` has size 1 and the result dim is larger.
bool Expands(const Type& x, const Type& out, const DimList& at, int d) {
  return x.shape[d] != out.shape[at[d]];
}

Signature BroadcastFactors(const InferContext& c, absl::Span<const Type> out) {
  const DimList& at = c.attrs.Ints("broadcast_dimensions");
  Signature s = PointwiseFactors(c, out);
  s.operands = {TensorFactors{}};
  for (int d = 0; d < c.in[0].rank(); ++d) {
    int factor = static_cast<int>(at[d]);
    if (Expands(c.in[0], out[0], at, d)) {
      factor = static_cast<int>(s.factors.size());
      s.factors.push_back({FactorKind::kReplicated, 1});
    }
    s.operands[0].push_back({factor});
  }
  return s;
}

absl::Status BroadcastSharding(const InferContext& c, std::vector<Type>* out) {
  Type& t = (*out)[0];
  TESSERA_ASSIGN_OR_RETURN(const bool has_out_sharding,
                           ApplyOutSharding(c, &t, /*allow_unreduced=*/true));
  if (has_out_sharding) return absl::OkStatus();
  const DimList& at = c.attrs.Ints("broadcast_dimensions");
  t.sharding.resize(t.rank());
  for (int d = 0; d < c.in[0].rank(); ++d)
    if (!Expands(c.in[0], t, at, d)) t.sharding[at[d]] = c.in[0].axes_of(d);
  Normalize(&t);
  return absl::OkStatus();
}

// An out_sharding says along which Explicit axes the result is unreduced or reduced. In the plan
// the op then adds up an unreduced operand, or makes a whole value a pending sum: one summand is
// the value, and the others are zeros.
absl::Status BroadcastStates(const InferContext& c, std::vector<Type>* out) {
  TESSERA_RETURN_IF_ERROR(SameVmaAsFirst(c, out));
  if (!c.attrs.Has("out_sharding")) return absl::OkStatus();
  const PartitionSpec& spec = c.attrs.Spec("out_sharding");
  const auto set = [&](const AxisList& named, AxisSet* states) {
    std::erase_if(*states, [&](const std::string& a) { return !c.scope.mesh.IsManual(a); });
    states->insert(named.begin(), named.end());
  };
  set(spec.unreduced, &(*out)[0].unreduced);
  set(spec.reduced, &(*out)[0].reduced);
  return absl::OkStatus();
}

// Sums the cotangent over the broadcast dims.
std::vector<Value> TransposeBroadcast(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (!cts[0]) return {Value()};
  const Type& x = c.in_types[0];
  const DimList& at = c.attrs.Ints("broadcast_dimensions");
  DimList kept;  // dims of the result, in the operand's order
  for (int d = 0; d < x.rank(); ++d)
    if (!Expands(x, c.out_types[0], at, d)) kept.push_back(at[d]);
  Value sum = ReduceSum(cts[0], DimsExcept(c.out_types[0].rank(), kept));
  DimList sorted = kept, order;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t d : kept)
    order.push_back(std::lower_bound(sorted.begin(), sorted.end(), d) - sorted.begin());
  const Type want = CotangentType(x);
  const Value moved = ShardedLike(Reshape(Transpose(sum, order), x.shape), want);
  return {WithStates(moved, want.unreduced, want.reduced)};
}

Batched BatchBroadcast(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  Attrs attrs = WithBatchSharding(c.attrs, 0, BatchAxes(c, dims));
  attrs.Set("shape", WithInserted(c.attrs.Ints("shape"), 0, size));
  attrs.Set("broadcast_dimensions",
            WithInserted(PastBatch(c.attrs.Ints("broadcast_dimensions"), 0), 0, int64_t{0}));
  return {c.b.Emit(c.def, {MoveDim(c.in[0], dims[0], 0)}, attrs), {0}};
}

IndexMap BroadcastMap(const InferContext& c, absl::Span<const Type> out) {
  const DimList& at = c.attrs.Ints("broadcast_dimensions");
  const Dims from = StridesOf(c.in[0].shape);
  IndexPiece piece = ContiguousPiece(0, out[0].shape);
  piece.strides.assign(out[0].rank(), 0);
  for (int d = 0; d < c.in[0].rank(); ++d)
    if (!Expands(c.in[0], out[0], at, d)) piece.strides[at[d]] = from[d];
  return {{piece}, {}};
}

constexpr AttrSpec kBroadcastAttrs[] = {{"shape", AttrKind::kInts},
                                        {"broadcast_dimensions", AttrKind::kInts},
                                        {"out_sharding", AttrKind::kSpec, false}};

}  // namespace

constexpr OpDef kBroadcastInDim = Movement({.name = "broadcast_in_dim",
                                            .lax_name = "broadcast_in_dim",
                                            .num_operands = 1,
                                            .attrs = kBroadcastAttrs,
                                            .infer = InferBroadcast,
                                            .factors = BroadcastFactors,
                                            .sharding = BroadcastSharding,
                                            .varying = BroadcastStates,
                                            .transpose = TransposeBroadcast,
                                            .batch = BatchBroadcast,
                                            .localize = LocalShapeAttrs,
                                            .index_map = BroadcastMap});

// ---- reshape: the same elements, row-major, under another shape. ----
namespace {

Types InferReshape(const InferContext& c) {
  const Dims& shape = c.attrs.Ints("shape");
  TESSERA_ASSIGN_OR_RETURN(const int64_t n, CountElements(c, shape));
  if (n != c.in[0].num_elements())
    return TypeError(c, "total size of new array must be unchanged: operand ", c.in[0].ToString(),
                     " has ", c.in[0].num_elements(), " elements, new shape [", DimsToString(shape),
                     "] has ", n);
  return std::vector<Type>{WithShape(c.in[0], shape)};
}

// Splits both shapes, from the major end, into common factors. Where the remaining parts of two
// dims do not divide one another, their common divisor still passes through. The rest needs
// replication up to the next common boundary. Reference: Shardy's reshape rule.
class CommonFactors {
 public:
  CommonFactors(const Dims& from, const Dims& to) : from_(from), to_(to) {
    s_.operands = {TensorFactors(from.size())};
    s_.results = {TensorFactors(to.size())};
  }

  Signature Find() && {
    if (Contains(from_, 0)) {
      AddFactorsOfEmptyShapes();
      return std::move(s_);
    }
    while (true) {
      Advance(from_, &i_, &rest_from_, &s_.operands[0]);
      Advance(to_, &j_, &rest_to_, &s_.results[0]);
      if (i_ == from_.size() && j_ == to_.size()) return std::move(s_);
      const int64_t common = std::gcd(rest_from_, rest_to_);
      if (common > 1) {
        const int f = s_.Add(FactorKind::kPassThrough, common);
        s_.operands[0][i_].push_back(f);
        s_.results[0][j_].push_back(f);
      }
      rest_from_ /= common;
      rest_to_ /= common;
      if (rest_from_ > 1 && rest_to_ > 1) AddReplicatedGroup();
    }
  }

 private:
  // Moves past dims that are used up. Dims of size 1 get factors of their own.
  void Advance(const Dims& shape, size_t* at, int64_t* rest, TensorFactors* factors) {
    while (*at < shape.size() && *rest == 1) {
      if (started_.insert({factors, *at}).second) {
        *rest = shape[*at];
        if (*rest == 1) (*factors)[*at] = {s_.Add(FactorKind::kReplicated, 1)};
      }
      if (*rest == 1) ++*at;
    }
  }
  // Gives replicated factors to the remaining parts of the current dims, and to further dims on
  // both sides, until both sides cover the same number of elements.
  void AddReplicatedGroup() {
    int64_t a = rest_from_, b = rest_to_;
    s_.operands[0][i_].push_back(s_.Add(FactorKind::kReplicated, a));
    s_.results[0][j_].push_back(s_.Add(FactorKind::kReplicated, b));
    while (a != b) {
      const bool from_is_smaller = a < b;
      const Dims& shape = from_is_smaller ? from_ : to_;
      size_t& at = from_is_smaller ? i_ : j_;
      TensorFactors& factors = from_is_smaller ? s_.operands[0] : s_.results[0];
      ++at;
      started_.insert({&factors, at});
      factors[at].push_back(s_.Add(FactorKind::kReplicated, shape[at]));
      (from_is_smaller ? a : b) *= shape[at];
    }
    rest_from_ = rest_to_ = 1;
  }
  // For shapes without elements: the leading dims that are equal pass through, and all others need
  // replication.
  void AddFactorsOfEmptyShapes() {
    bool is_common_prefix = true;
    for (size_t d = 0; d < from_.size() || d < to_.size(); ++d) {
      is_common_prefix =
          is_common_prefix && d < from_.size() && d < to_.size() && from_[d] == to_[d];
      if (is_common_prefix) {
        s_.operands[0][d] = s_.results[0][d] = {s_.Add(FactorKind::kPassThrough, from_[d])};
        continue;
      }
      if (d < from_.size()) s_.operands[0][d] = {s_.Add(FactorKind::kReplicated, from_[d])};
      if (d < to_.size()) s_.results[0][d] = {s_.Add(FactorKind::kReplicated, to_[d])};
    }
  }

  const Dims &from_, &to_;
  Signature s_;
  size_t i_ = 0, j_ = 0;                 // the current dims of `from_` and `to_`
  int64_t rest_from_ = 1, rest_to_ = 1;  // the parts of them that have no factor yet
  // the dims that are current or used up, each as the list of its side and its index
  std::set<std::pair<const TensorFactors*, size_t>> started_;
};

Signature ReshapeFactors(const InferContext& c, absl::Span<const Type> out) {
  return CommonFactors(c.in[0].shape, out[0].shape).Find();
}

// Without out_sharding, follows the operand's sharding through the common factors of both shapes.
// Refuses, in JAX's words, an axis that would cut a factor that needs replication, and a sharding
// of factors that the axes of the result's dims cannot express.
absl::Status ReshapeSharding(const InferContext& c, std::vector<Type>* out) {
  Type& t = (*out)[0];
  TESSERA_ASSIGN_OR_RETURN(const bool has_out_sharding,
                           ApplyOutSharding(c, &t, /*allow_unreduced=*/true));
  const Type& x = c.in[0];
  if (has_out_sharding) {
    const PartitionSpec &spec = c.attrs.Spec("out_sharding"), operand_spec = SpecOf(x);
    const auto differ = [&](const AxisList& a, const AxisList& b) {
      return AxisSet(a.begin(), a.end()) != AxisSet(b.begin(), b.end());
    };
    if (differ(spec.unreduced, operand_spec.unreduced) ||
        differ(spec.reduced, operand_spec.reduced))
      return ValueError(c,
                        "out_sharding passed to reshape must be unreduced and reduced over the "
                        "same mesh axes as operand. Got out_sharding: ",
                        spec.ToString(), " and operand type: ", x.ToString());
  }
  if (has_out_sharding || !x.is_sharded()) return absl::OkStatus();
  const Mesh& mesh = c.scope.mesh;
  const absl::Status refused = ShardingError(
      c,
      "This reshape is not supported. Please specify the sharding of the output via the "
      "`out_sharding` argument of reshape. Got operand ",
      x.ToString(), " and new shape [", DimsToString(t.shape), "]");
  const Signature s = ReshapeFactors(c, *out);
  std::vector<AxisList> axes(s.factors.size());
  for (int d = 0; d < x.rank(); ++d) {
    const FactorList& factors = s.operands[0][d];
    auto split = SplitAxes(x.axes_of(d), factors, s, mesh);
    if (!split) return refused;
    for (size_t k = 0; k < factors.size(); ++k) {
      if (s.factors[factors[k]].kind == FactorKind::kReplicated && mesh.SizeOf((*split)[k]) > 1)
        return refused;
      axes[factors[k]] = (*split)[k];
    }
  }
  DimAxes joined = JoinAxes(s.results[0], axes);
  // A minor factor may not be sharded while a major one is whole.
  for (int d = 0; d < t.rank(); ++d) {
    std::vector<AxisList> want;
    for (int f : s.results[0][d]) want.push_back(axes[f]);
    if (SplitAxes(joined[d], s.results[0][d], s, mesh) != want) return refused;
  }
  t.sharding = std::move(joined);
  Normalize(&t);
  return absl::OkStatus();
}

std::vector<Value> TransposeReshape(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (!cts[0]) return {Value()};
  Attrs attrs{{"shape", c.in_types[0].shape}};
  SetOutSharding(&attrs, c.in_types[0], cts[0]);
  return c.b.Emit(kReshape, {cts[0]}, attrs);
}

Batched BatchReshape(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  Attrs attrs = WithBatchSharding(c.attrs, 0, BatchAxes(c, dims));
  attrs.Set("shape", WithInserted(c.attrs.Ints("shape"), 0, size));
  return {c.b.Emit(c.def, {MoveDim(c.in[0], dims[0], 0)}, attrs), {0}};
}

IndexMap ReshapeMap(const InferContext&, absl::Span<const Type> out) {
  return {{ContiguousPiece(0, out[0].shape)}, {}};
}

constexpr AttrSpec kReshapeAttrs[] = {{"shape", AttrKind::kInts},
                                      {"out_sharding", AttrKind::kSpec, false}};

}  // namespace

constexpr OpDef kReshape = Movement({.name = "reshape",
                                     .lax_name = "reshape",
                                     .num_operands = 1,
                                     .attrs = kReshapeAttrs,
                                     .infer = InferReshape,
                                     .factors = ReshapeFactors,
                                     .sharding = ReshapeSharding,
                                     .transpose = TransposeReshape,
                                     .batch = BatchReshape,
                                     .localize = LocalShapeAttrs,
                                     .index_map = ReshapeMap});

// ---- transpose: result dim i is operand dim permutation[i]. ----
namespace {

Types InferTranspose(const InferContext& c) {
  const DimList& perm = c.attrs.Ints("permutation");
  TESSERA_RETURN_IF_ERROR(CheckLength(c, "permutation", perm.size(), c.in[0].rank()));
  TESSERA_RETURN_IF_ERROR(CheckDistinctDims(c, "permutation", perm, c.in[0].rank()));
  Dims shape;
  for (int64_t d : perm) shape.push_back(c.in[0].shape[d]);
  return std::vector<Type>{WithShape(c.in[0], shape)};
}

Signature TransposeFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s = PointwiseFactors(c, out);
  for (size_t i = 0; i < s.results[0].size(); ++i)
    s.operands[0][c.attrs.Ints("permutation")[i]] = s.results[0][i];
  return s;
}

std::vector<Value> TransposeTranspose(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (!cts[0]) return {Value()};
  return {Transpose(cts[0], InversePermutation(c.attrs.Ints("permutation")))};
}

Batched BatchTranspose(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  DimList perm = PastBatch(c.attrs.Ints("permutation"), dims[0]);
  return {{Transpose(c.in[0], WithInserted(perm, 0, int64_t{dims[0]}))}, {0}};
}

IndexMap TransposeMap(const InferContext& c, absl::Span<const Type> out) {
  const Dims from = StridesOf(c.in[0].shape);
  IndexPiece piece = ContiguousPiece(0, out[0].shape);
  for (int d = 0; d < out[0].rank(); ++d) piece.strides[d] = from[c.attrs.Ints("permutation")[d]];
  return {{piece}, {}};
}

constexpr AttrSpec kTransposeAttrs[] = {{"permutation", AttrKind::kInts}};

}  // namespace

constexpr OpDef kTranspose = Movement({.name = "transpose",
                                       .lax_name = "transpose",
                                       .num_operands = 1,
                                       .attrs = kTransposeAttrs,
                                       .infer = InferTranspose,
                                       .factors = TransposeFactors,
                                       .transpose = TransposeTranspose,
                                       .batch = BatchTranspose,
                                       .index_map = TransposeMap});

// ---- slice: elements start, start + stride, ... below limit, per dim. ----
namespace {

Types InferSlice(const InferContext& c) {
  const Type& x = c.in[0];
  const DimList &start = c.attrs.Ints("start_indices"), &limit = c.attrs.Ints("limit_indices"),
                &stride = c.attrs.Ints("strides");
  TESSERA_RETURN_IF_ERROR(CheckLength(c, "start_indices", start.size(), x.rank()));
  TESSERA_RETURN_IF_ERROR(CheckLength(c, "limit_indices", limit.size(), x.rank()));
  TESSERA_RETURN_IF_ERROR(CheckLength(c, "strides", stride.size(), x.rank()));
  Dims shape;
  for (int d = 0; d < x.rank(); ++d) {
    if (start[d] < 0 || start[d] > limit[d] || limit[d] > x.shape[d])  // C3
      return ValueError(c, "dim ", d, " of ", x.ToString(), " is sliced from ", start[d], " to ",
                        limit[d], "; expected 0 <= start <= limit <= ", x.shape[d]);
    if (stride[d] <= 0)  // C4
      return ValueError(c, "dim ", d, " has stride ", stride[d], "; expected a positive one");
    const int64_t n = limit[d] - start[d];
    shape.push_back(n / stride[d] + (n % stride[d] != 0));
  }
  return std::vector<Type>{WithShape(x, shape)};
}

// Returns whether dim `d` of the operand, of `size` elements, consists of blocks of `stride`
// elements and the result takes one element from each. `kept` is the size of the dim in the result.
bool TakesOnePerBlock(const Attrs& attrs, int d, int64_t size, int64_t kept) {
  const int64_t start = attrs.Ints("start_indices")[d], stride = attrs.Ints("strides")[d];
  return kept > 0 && start < stride && static_cast<__int128>(kept) * stride == size;
}
// A dim of unchanged size passes through. A dim whose blocks give one element each passes through
// in blocks.
Signature SliceFactors(const InferContext& c, absl::Span<const Type> out) {
  return PassThroughInBlocks(c, out, [&](int d) -> int64_t {
    const int64_t size = c.in[0].shape[d], kept = out[0].shape[d];
    return size == kept || TakesOnePerBlock(c.attrs, d, size, kept) ? kept : 0;
  });
}

absl::Status SliceSharding(const InferContext& c, std::vector<Type>* out) {
  return KeepShardingIfDivisible(c, "slicing", &(*out)[0]);
}

// Pads the cotangent with zeros to the operand's shape.
std::vector<Value> TransposeSlice(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (!cts[0]) return {Value()};
  const Type& x = c.in_types[0];
  const DimList &start = c.attrs.Ints("start_indices"), &stride = c.attrs.Ints("strides");
  DimList high, interior;
  for (int d = 0; d < x.rank(); ++d) {
    const int64_t n = c.out_types[0].shape[d];
    high.push_back(x.shape[d] - start[d] - (n == 0 ? 0 : (n - 1) * stride[d] + 1));
    interior.push_back(n <= 1 ? 0 : stride[d] - 1);
  }
  Value zero = Constant(c.b, x.dtype, 0);
  return {ShardedLike(Pad(cts[0], zero, start, high, interior), x)};
}

Batched BatchSlice(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  const int at = dims[0];
  return {{Slice(c.in[0], WithInserted(c.attrs.Ints("start_indices"), at, int64_t{0}),
                 WithInserted(c.attrs.Ints("limit_indices"), at, size),
                 WithInserted(c.attrs.Ints("strides"), at, int64_t{1}))},
          {at}};
}

Attrs LocalizeSlice(const RuleContext& c, const PartitionContext&) {
  Attrs attrs = c.attrs;
  DimList limit = c.attrs.Ints("limit_indices");
  for (int d = 0; d < c.in_types[0].rank(); ++d)
    if (c.in_types[0].shape[d] == c.out_types[0].shape[d] ||
        TakesOnePerBlock(c.attrs, d, c.in_types[0].shape[d], c.out_types[0].shape[d]))
      limit[d] = c.in[0].dim(d);
  attrs.Set("limit_indices", limit);
  return attrs;
}

IndexMap SliceMap(const InferContext& c, absl::Span<const Type> out) {
  const DimList &start = c.attrs.Ints("start_indices"), &stride = c.attrs.Ints("strides");
  const Dims from = StridesOf(c.in[0].shape);
  IndexPiece piece = ContiguousPiece(0, out[0].shape);
  if (out[0].num_elements() == 0) return {{piece}, {}};
  for (int d = 0; d < out[0].rank(); ++d) {
    piece.offset += start[d] * from[d];
    piece.strides[d] = out[0].shape[d] <= 1 ? from[d] : from[d] * stride[d];
  }
  return {{piece}, {}};
}

constexpr AttrSpec kSliceAttrs[] = {{"start_indices", AttrKind::kInts},
                                    {"limit_indices", AttrKind::kInts},
                                    {"strides", AttrKind::kInts}};

}  // namespace

constexpr OpDef kSlice = Movement({.name = "slice",
                                   .lax_name = "slice",
                                   .num_operands = 1,
                                   .attrs = kSliceAttrs,
                                   .infer = InferSlice,
                                   .factors = SliceFactors,
                                   .sharding = SliceSharding,
                                   .transpose = TransposeSlice,
                                   .batch = BatchSlice,
                                   .localize = LocalizeSlice,
                                   .index_map = SliceMap});

// ---- reverse: the last element first, along each of `dimensions`. ----
namespace {

Types InferReverse(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(
      CheckDistinctDims(c, "dimensions", c.attrs.Ints("dimensions"), c.in[0].rank()));
  return std::vector<Type>{WithShape(c.in[0], c.in[0].shape)};
}

Signature ReverseFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s = PointwiseFactors(c, out);
  for (int64_t d : c.attrs.Ints("dimensions")) s.factors[d].kind = FactorKind::kPermutation;
  return s;
}
// Exchanges blocks between shards, so that the first block becomes the last.
std::vector<Value> ExchangeReversed(const RuleContext& c, const PartitionContext& p) {
  Value x = c.in[0];
  for (const int64_t d : c.attrs.Ints("dimensions")) {
    const AxisList& axes = p.factor_axes[p.signature.operands[0][d][0]];
    if (axes.empty()) continue;
    const int64_t shards = c.b.mesh().SizeOf(axes);
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (int64_t i = 0; i < shards; ++i) pairs.emplace_back(i, shards - 1 - i);
    x = Ppermute(x, axes, std::move(pairs));
  }
  return {x};
}

std::vector<Value> TransposeReverse(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (!cts[0]) return {Value()};
  return {Reverse(cts[0], c.attrs.Ints("dimensions"))};
}

Batched BatchReverse(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  return {{Reverse(c.in[0], PastBatch(c.attrs.Ints("dimensions"), dims[0]))}, {dims[0]}};
}

IndexMap ReverseMap(const InferContext& c, absl::Span<const Type> out) {
  IndexPiece piece = ContiguousPiece(0, out[0].shape);
  if (out[0].num_elements() == 0) return {{piece}, {}};
  for (int64_t d : c.attrs.Ints("dimensions")) {
    piece.offset += (out[0].shape[d] - 1) * piece.strides[d];
    piece.strides[d] = -piece.strides[d];
  }
  return {{piece}, {}};
}

constexpr AttrSpec kReverseAttrs[] = {{"dimensions", AttrKind::kInts}};

}  // namespace

constexpr OpDef kReverse = Movement({.name = "reverse",
                                     .lax_name = "rev",
                                     .num_operands = 1,
                                     .attrs = kReverseAttrs,
                                     .infer = InferReverse,
                                     .factors = ReverseFactors,
                                     .transpose = TransposeReverse,
                                     .batch = BatchReverse,
                                     .exchange = ExchangeReversed,
                                     .index_map = ReverseMap});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {

Value Constant(Builder& b, Array literal) {
  return b.Emit1(ops::kConstant, {}, {{"value", std::move(literal)}});
}
Value Constant(Builder& b, DType dtype, double value) {
  return Constant(b, Array::Scalar(dtype, value));
}
Value Full(Builder& b, DType dtype, Dims shape, double value) {
  return BroadcastInDim(Constant(b, dtype, value), std::move(shape), {});
}

Value Full(Builder& b, const Type& like, double value) {
  Value x = Pvary(Constant(b, like.dtype, value), like.varying);
  // Along Explicit axes, the value is the summand of one shard, and the summands of the others are
  // zeros. Along Manual axes, all shards have equal summands, so the sum is right only if the value
  // is zero.
  AxisSet manual_axes;
  for (const std::string& a : like.unreduced)
    if (b.mesh().IsManual(a)) manual_axes.insert(a);
  if (!manual_axes.empty() && value != 0)
    Throw(MakeError(ErrorKind::kNotImplemented,
                    absl::StrCat("full: a constant of type ", like.ToString(),
                                 " is not implemented; add up the value it is modelled on first")));
  x = VaryUnreducedCast(Pvary(x, manual_axes), manual_axes);
  x = ReducedAlong(x, like.reduced);
  if (manual_axes.size() < like.unreduced.size())
    x = ops::WithStates(x, like.unreduced, x.type().reduced);
  return like.shape.empty() ? x : ops::BroadcastLike(x, like, {});
}
Value FullLike(Value x, double value) { return Full(x.builder(), x.type(), value); }
Value Zeros(Builder& b, const Type& like) { return Full(b, like, 0); }

Value Iota(Builder& b, DType dtype, Dims shape, int dimension) {
  return b.Emit1(
      ops::kIota, {},
      {{"dtype", dtype}, {"shape", std::move(shape)}, {"iota_dimension", int64_t{dimension}}});
}

Value BroadcastInDim(Value x, Dims shape, std::vector<int64_t> broadcast_dimensions) {
  if (shape == x.shape() && broadcast_dimensions == ops::DimsExcept(x.rank(), {})) return x;
  return x.builder().Emit1(
      ops::kBroadcastInDim, {x},
      {{"shape", std::move(shape)}, {"broadcast_dimensions", std::move(broadcast_dimensions)}});
}

Value Reshape(Value x, Dims shape) {
  if (shape == x.shape()) return x;
  return x.builder().Emit1(ops::kReshape, {x}, {{"shape", std::move(shape)}});
}

Value Transpose(Value x, std::vector<int64_t> permutation) {
  if (permutation == ops::DimsExcept(x.rank(), {})) return x;
  return x.builder().Emit1(ops::kTranspose, {x}, {{"permutation", std::move(permutation)}});
}

Value Slice(Value x, Dims start_indices, Dims limit_indices, Dims strides) {
  if (strides.empty()) strides.assign(x.rank(), 1);
  const Dims zeros(x.rank(), 0), ones(x.rank(), 1);
  if (start_indices == zeros && limit_indices == x.shape() && strides == ones) return x;
  return x.builder().Emit1(ops::kSlice, {x},
                           {{"start_indices", std::move(start_indices)},
                            {"limit_indices", std::move(limit_indices)},
                            {"strides", std::move(strides)}});
}

Value SliceInDim(Value x, int dim, int64_t start, int64_t limit) {
  Dims starts(x.rank(), 0), limits = x.shape();
  starts[dim] = start;
  limits[dim] = limit;
  return Slice(x, std::move(starts), std::move(limits));
}

Value Reverse(Value x, std::vector<int64_t> dimensions) {
  if (dimensions.empty()) return x;
  return x.builder().Emit1(ops::kReverse, {x}, {{"dimensions", std::move(dimensions)}});
}

Value BroadcastNewDim(Value x, int dim, int64_t size) {
  return BroadcastInDim(x, ops::WithInserted(x.shape(), dim, size),
                        ops::DimsExcept(x.rank() + 1, {int64_t{dim}}));
}

Value MoveDim(Value x, int from, int to) {
  ops::DimList order = ops::DimsExcept(x.rank(), {int64_t{from}});
  return Transpose(x, ops::WithInserted(std::move(order), to, int64_t{from}));
}

Value Squeeze(Value x, std::vector<int64_t> dims) {
  Dims shape;
  for (int64_t d : ops::DimsExcept(x.rank(), dims)) shape.push_back(x.dim(static_cast<int>(d)));
  for (int64_t d : dims)
    if (d < 0 || d >= x.rank() || x.dim(static_cast<int>(d)) != 1)
      Throw(ErrorKind::kValueError,
            absl::StrCat("squeeze: dim ", d, " of ", x.type().ToString(),
                         " does not exist or does not have size 1; expected dims of size 1"));
  return Reshape(x, shape);
}

Value ExpandDims(Value x, std::vector<int64_t> dims) {
  std::sort(dims.begin(), dims.end());
  Dims shape = x.shape();
  for (int64_t d : dims) {
    if (d < 0 || d > static_cast<int64_t>(shape.size()))
      Throw(ErrorKind::kValueError,
            absl::StrCat("expand_dims: dim ", d, " is not a dim of the result of ",
                         x.type().ToString(), "; expected one in [0, ", shape.size(), "]"));
    shape.insert(shape.begin() + d, 1);
  }
  return Reshape(x, shape);
}

}  // namespace tessera::ir
