// The ops dynamic_slice and dynamic_update_slice: slices at run-time offsets. Start indices are
// clamped so that the slice is within bounds.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "ir/ops/rules/movement.h"
#include "ir/ops/rules/refused.h"
#include "ir/ops/rules/states.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;

consteval OpDef Indexing(OpDef d) {
  d.family = Family::kIndexing;
  d.num_operands = kAnyNumber;
  d.lowering = Lowering::kDynamicIndex;
  d.partition = Derived{};
  d.cost = Derived{};
  return Checked(d);
}

// Checks that the operands from `first` on are rank-0 integers of one dtype, one for each dim of
// operand 0.
absl::Status CheckStarts(const InferContext& c, size_t first) {
  const Type& x = c.in[0];
  if (c.in.size() - first != static_cast<size_t>(x.rank()))
    return TypeError(c, "got ", c.in.size() - first, " start indices; expected one per dim of ",
                     x.ToString());
  for (size_t i = first; i < c.in.size(); ++i)
    if (c.in[i].rank() != 0 || !IsInteger(c.in[i].dtype) || c.in[i].dtype != c.in[first].dtype)
      return TypeError(c, "start index ", i - first, " is ", c.in[i].ToString(),
                       "; expected integer scalars of one dtype");
  return first < c.in.size() ? CheckComputable(c, c.in[first].dtype) : absl::OkStatus();
}

// Returns the offsets of a slice of shape `block` in operand 0. The start along each dim is one
// operand, from `first` on, clamped to bounds.
std::vector<DynamicOffset> StartOffsets(const Type& x, const Dims& block, int first) {
  const Dims strides = StridesOf(x.shape);
  std::vector<DynamicOffset> offsets;
  for (int d = 0; d < x.rank(); ++d)
    if (block[d] < x.shape[d]) offsets.push_back({first + d, x.shape[d] - block[d], strides[d]});
  return offsets;
}

std::vector<Value> OperandsFrom(const std::vector<Value>& values, size_t first) {
  return {values.begin() + first, values.end()};
}

// ---- Batched starts: a gather or a scatter with one window for each member of the batch. ----

bool AnyBatched(absl::Span<const int> dims) {
  return std::any_of(dims.begin(), dims.end(), [](int d) { return d >= 0; });
}

// Returns a start index of 0 in the dtype of the other start indices, the first of which is operand
// `first`.
Value ZeroStart(const RuleContext& c, size_t first) {
  return Constant(c.b, first < c.in.size() ? c.in[first].dtype() : DType::kS32, 0);
}

// The starts of windows in operand 0, as index vectors of shape [size, dims]. `dims` are the dims
// along which a window can move.
struct StartVectors {
  Value vectors;
  DimList dims;
};
// Builds the vectors from the start operands, from `first` on. `window` is the shape of a window,
// and `size` the number of members in the batch.
StartVectors StartVectorsOf(const RuleContext& c, absl::Span<const int> dims, size_t first,
                            const Dims& window, int64_t size) {
  StartVectors out;
  std::vector<Value> columns;
  for (size_t d = 0; d < window.size(); ++d) {
    // If no dim can move, all dims are taken, so that there is an index vector at all.
    if (window[d] == c.in_types[0].shape[d] && window != c.in_types[0].shape) continue;
    out.dims.push_back(static_cast<int64_t>(d));
    columns.push_back(ExpandDims(BatchInFront(c, dims, first + d, size), {1}));
  }
  out.vectors = Concatenate(MatchVarying(columns), 1);
  return out;
}

// ---- dynamic_slice: a slice of `slice_sizes` at run-time starts. ----

Types InferDynamicSlice(const InferContext& c) {
  if (c.in.empty()) return TypeError(c, "takes an operand and its start indices, got nothing");
  TESSERA_RETURN_IF_ERROR(CheckStarts(c, 1));
  const Type& x = c.in[0];
  const Dims& sizes = c.attrs.Ints("slice_sizes");
  if (sizes.size() != x.shape.size())
    return ValueError(c, "slice_sizes has ", sizes.size(), " entries; expected one per dim of ",
                      x.ToString());
  for (int d = 0; d < x.rank(); ++d)
    if (sizes[d] < 0 || sizes[d] > x.shape[d])
      return ValueError(c, "slice size of dim ", d, " of ", x.ToString(), " is ", sizes[d],
                        "; expected one in [0, ", x.shape[d], "]");
  Type t = MakeType(x.dtype, sizes);
  t.weak = x.weak;
  return std::vector<Type>{t};
}

// Dims that are taken whole pass through. Others need replication.
Signature DynamicSliceFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s;
  s.operands.resize(c.in.size());
  s.results.resize(1);
  for (int d = 0; d < c.in[0].rank(); ++d) {
    const int64_t from = c.in[0].shape[d], to = out[0].shape[d];
    const int factor = s.Add(from == to ? FactorKind::kPassThrough : FactorKind::kReplicated, from);
    s.operands[0].push_back({factor});
    s.results[0].push_back({from == to ? factor : s.Add(FactorKind::kReplicated, to)});
  }
  return s;
}

absl::Status DynamicSliceStates(const InferContext& c, std::vector<Type>* out) {
  return SameStatesAs(c, 0, 1, "", out);
}

absl::Status DynamicSliceSharding(const InferContext& c, std::vector<Type>* out) {
  return KeepShardingIfDivisible(c, "dynamic_slice", &(*out)[0]);
}

std::vector<Value> DynamicSliceJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0]) return {Value()};
  return {DynamicSlice(tangents[0], OperandsFrom(c.in, 1), c.attrs.Ints("slice_sizes"))};
}

// Returns the operands from `first` on, for a transpose rule. They are start indices, in which the
// op is not linear.
std::vector<Value> NonLinearOperandsFrom(const RuleContext& c, int first) {
  std::vector<Value> out;
  for (int i = first; i < static_cast<int>(c.in.size()); ++i) out.push_back(NonLinearOperand(c, i));
  return out;
}

std::vector<Value> TransposeDynamicSlice(const RuleContext& c, Values cts,
                                         const std::vector<bool>& linear) {
  std::vector<Value> out(c.in_types.size());
  if (!cts[0] || !linear[0]) return out;
  const Type x = CotangentType(c.in_types[0]);
  // An update has the sharding of its target.
  Type whole = x;
  whole.sharding = cts[0].type().sharding;
  out[0] =
      ShardedLike(DynamicUpdateSlice(Zeros(c.b, whole), cts[0], NonLinearOperandsFrom(c, 1)), x);
  return out;
}

Batched BatchDynamicSlice(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  DimList sizes = c.attrs.Ints("slice_sizes");
  if (!AnyBatched(dims.subspan(1))) {
    std::vector<Value> starts = WithInserted(OperandsFrom(c.in, 1), dims[0], ZeroStart(c, 1));
    return {{DynamicSlice(c.in[0], starts, WithInserted(sizes, dims[0], size))}, {dims[0]}};
  }
  const bool batched = dims[0] >= 0;
  const StartVectors starts = StartVectorsOf(c, dims, 1, sizes, size);
  GatherDimensionNumbers numbers;
  numbers.offset_dims = DimsExcept(static_cast<int>(sizes.size()) + 1, {0});
  numbers.start_index_map = batched ? PastBatch(starts.dims, 0) : starts.dims;
  if (batched) {
    numbers.operand_batching_dims = numbers.start_indices_batching_dims = {0};
    sizes.insert(sizes.begin(), std::min<int64_t>(size, 1));
  }
  const Value x = batched ? MoveDim(c.in[0], dims[0], 0) : c.in[0];
  return {{Gather(x, starts.vectors, numbers, sizes, {.mode = GatherScatterMode::kClip})}, {0}};
}

Attrs LocalizeDynamicSlice(const RuleContext& c, const PartitionContext& p) {
  Attrs attrs = c.attrs;
  attrs.Set("slice_sizes", p.local_out[0].shape);
  return attrs;
}

IndexMap DynamicSliceMap(const InferContext& c, absl::Span<const Type> out) {
  IndexPiece piece = ContiguousPiece(0, out[0].shape);
  piece.strides = StridesOf(c.in[0].shape);
  piece.read = StartOffsets(c.in[0], out[0].shape, 1);
  return {{piece}, {}};
}

constexpr AttrSpec kDynamicSliceAttrs[] = {{"slice_sizes", AttrKind::kInts}};

}  // namespace

constexpr OpDef kDynamicSlice = Indexing({.name = "dynamic_slice",
                                          .lax_name = "dynamic_slice",
                                          .attrs = kDynamicSliceAttrs,
                                          .infer = InferDynamicSlice,
                                          .factors = DynamicSliceFactors,
                                          .sharding = DynamicSliceSharding,
                                          .varying = DynamicSliceStates,
                                          .jvp = DynamicSliceJvp,
                                          .transpose = TransposeDynamicSlice,
                                          .batch = BatchDynamicSlice,
                                          .localize = LocalizeDynamicSlice,
                                          .index_map = DynamicSliceMap});

// ---- dynamic_update_slice: operand 0 with `update` written at run-time starts. ----
namespace {

Types InferDynamicUpdateSlice(const InferContext& c) {
  if (c.in.size() < 2) return TypeError(c, "takes an operand, an update and start indices");
  TESSERA_RETURN_IF_ERROR(CheckStarts(c, 2));
  const Type &x = c.in[0], &update = c.in[1];
  if (update.dtype != x.dtype || update.rank() != x.rank())
    return TypeError(c, "update is ", update.ToString(), ", operand is ", x.ToString(),
                     "; expected equal dtypes and ranks");
  for (int d = 0; d < x.rank(); ++d)
    if (update.shape[d] > x.shape[d])
      return TypeError(c, "update dim ", d, " is ", update.shape[d], ", operand dim is ",
                       x.shape[d], "; expected an update no larger than the operand");
  Type t = MakeType(x.dtype, x.shape);
  t.weak = x.weak && update.weak;
  return std::vector<Type>{t};
}

Signature DynamicUpdateSliceFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s = PointwiseFactors(c, out);
  for (int d = 0; d < c.in[0].rank(); ++d) {
    if (c.in[1].shape[d] == c.in[0].shape[d]) continue;
    s.factors[d].kind = FactorKind::kReplicated;
    s.operands[1][d] = {s.Add(FactorKind::kReplicated, c.in[1].shape[d])};
  }
  return s;
}

absl::Status DynamicUpdateSliceSharding(const InferContext& c, std::vector<Type>* out) {
  if (c.in[0].sharding != c.in[1].sharding)
    return ShardingError(c, "update sharding must be equal to operand sharding, got update ",
                         c.in[1].ToString(), " and operand ", c.in[0].ToString(),
                         "; reshard the update");
  return SameShardingAsFirst(c, out);
}

absl::Status DynamicUpdateSliceStates(const InferContext& c, std::vector<Type>* out) {
  return SameStatesAs(
      c, 0, 2, "operand and update must be unreduced, and reduced, along the same axes", out);
}

std::vector<Value> DynamicUpdateSliceJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0] && !tangents[1]) return {Value()};
  Value x = tangents[0] ? tangents[0] : Zeros(c.b, c.in[0].type());
  Value update = tangents[1] ? tangents[1] : Zeros(c.b, c.in[1].type());
  return {DynamicUpdateSlice(x, update, OperandsFrom(c.in, 2))};
}

// The overwritten part of x gets a zero cotangent. The update gets the slice of the cotangent.
std::vector<Value> TransposeDynamicUpdateSlice(const RuleContext& c, Values cts,
                                               const std::vector<bool>& linear) {
  std::vector<Value> out(c.in_types.size());
  if (!cts[0]) return out;
  const std::vector<Value> starts = NonLinearOperandsFrom(c, 2);
  if (linear[0])
    out[0] = DynamicUpdateSlice(cts[0], Zeros(c.b, CotangentType(c.in_types[1])), starts);
  if (linear[1])
    out[1] = ShardedLike(DynamicSlice(cts[0], starts, c.in_types[1].shape), c.in_types[1]);
  return out;
}

Batched BatchDynamicUpdateSlice(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  std::vector<Value> in = {BatchInFront(c, dims, 0, size), BatchInFront(c, dims, 1, size)};
  const absl::Span<const int> start_dims = dims.subspan(2);
  if (!AnyBatched(start_dims))
    return {
        {DynamicUpdateSlice(in[0], in[1], WithInserted(OperandsFrom(c.in, 2), 0, ZeroStart(c, 2)))},
        {0}};
  const StartVectors starts = StartVectorsOf(c, dims, 2, c.in_types[1].shape, size);
  ScatterDimensionNumbers numbers;
  numbers.update_window_dims = DimsExcept(in[1].rank(), {0});
  numbers.scatter_dims_to_operand_dims = PastBatch(starts.dims, 0);
  numbers.operand_batching_dims = numbers.scatter_indices_batching_dims = {0};
  std::vector<Value> v = MatchVarying({in[0], starts.vectors, in[1]});
  return {{Scatter(v[0], v[1], v[2], numbers,
                   {.mode = GatherScatterMode::kClip, .unique_indices = true})},
          {0}};
}

IndexMap DynamicUpdateSliceMap(const InferContext& c, absl::Span<const Type> out) {
  IndexPiece update = ContiguousPiece(1, c.in[1].shape);
  update.write = StartOffsets(c.in[0], c.in[1].shape, 2);
  return {{ContiguousPiece(0, out[0].shape), update}, {}};
}

}  // namespace

constexpr OpDef kDynamicUpdateSlice = Indexing({.name = "dynamic_update_slice",
                                                .lax_name = "dynamic_update_slice",
                                                .infer = InferDynamicUpdateSlice,
                                                .factors = DynamicUpdateSliceFactors,
                                                .sharding = DynamicUpdateSliceSharding,
                                                .varying = DynamicUpdateSliceStates,
                                                .jvp = DynamicUpdateSliceJvp,
                                                .transpose = TransposeDynamicUpdateSlice,
                                                .batch = BatchDynamicUpdateSlice,
                                                .index_map = DynamicUpdateSliceMap});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {
namespace {

// Returns `head` followed by the starts, which are converted to one dtype.
std::vector<Value> WithStarts(std::vector<Value> head, std::vector<Value> starts) {
  auto strong = std::find_if(starts.begin(), starts.end(), [](Value v) { return !v.type().weak; });
  for (Value& v : starts) v = Convert(v, (strong == starts.end() ? starts[0] : *strong).dtype());
  head.insert(head.end(), starts.begin(), starts.end());
  return MatchVarying(std::move(head));
}

std::vector<Value> StartsAt(Value x, Value i, int dim) {
  if (dim < 0 || dim >= x.rank())
    Throw(ErrorKind::kValueError,
          absl::StrCat("dynamic_index_in_dim: dim ", dim, " is not a dim of ", x.type().ToString(),
                       "; expected one in [0, ", x.rank(), ")"));
  std::vector<Value> starts(x.rank(), Constant(x.builder(), i.dtype(), 0));
  starts[dim] = i;
  return starts;
}

}  // namespace

Value DynamicSlice(Value x, std::vector<Value> starts, Dims slice_sizes) {
  return x.builder().Emit1(ops::kDynamicSlice, WithStarts({x}, std::move(starts)),
                           {{"slice_sizes", std::move(slice_sizes)}});
}

Value DynamicUpdateSlice(Value x, Value update, std::vector<Value> starts) {
  return x.builder().Emit1(ops::kDynamicUpdateSlice,
                           WithStarts({x, ops::ConvertIfWeak(update, x)}, std::move(starts)));
}

Value DynamicIndexInDim(Value x, Value i, int dim) {
  std::vector<Value> starts = StartsAt(x, i, dim);
  Dims sizes = x.shape();
  sizes[dim] = 1;
  return Squeeze(DynamicSlice(x, std::move(starts), sizes), {dim});
}

Value DynamicUpdateIndexInDim(Value x, Value row, Value i, int dim) {
  std::vector<Value> starts = StartsAt(x, i, dim);
  return DynamicUpdateSlice(x, ExpandDims(row, {dim}), std::move(starts));
}

}  // namespace tessera::ir
