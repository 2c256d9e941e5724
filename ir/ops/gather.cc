// The op gather: reads windows of an operand that begin where index vectors say
// (ir/ops/rules/windows.h). The result holds one window for each index vector.
#include <algorithm>
#include <limits>
#include <optional>

#include "ir/ops/rules/derived.h"
#include "ir/ops/rules/movement.h"
#include "ir/ops/rules/refused.h"
#include "ir/ops/rules/windows.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;

WindowDims GatherDimsOf(const Attrs& attrs) { return {attrs, kGatherNames}; }

// The result has the window sizes in its dims of windows, and the sizes of the indices in its dims
// of positions. A window may have no element in a dim that the result lacks, but only if the result
// is empty: a result with elements would have nothing to read there.
Types InferGather(const InferContext& c) {
  const Type &x = c.in[0], &indices = c.in[1];
  const WindowDims w = GatherDimsOf(c.attrs);
  TESSERA_RETURN_IF_ERROR(CheckMode(c));
  TESSERA_RETURN_IF_ERROR(CheckDimensionNumbers(c, w, kGatherNames));
  const Dims& sizes = c.attrs.Ints("slice_sizes");
  if (sizes.size() != x.shape.size())
    return ValueError(c, "slice_sizes has ", sizes.size(), " entries; expected one per dim of ",
                      x.ToString());
  TESSERA_RETURN_IF_ERROR(CheckWindow(c, w, sizes));
  if (c.attrs.Has("fill_value")) {
    const Array& fill = c.attrs.Literal("fill_value");
    if (fill.dtype() != x.dtype || fill.rank() != 0)
      return TypeError(c, "fill_value is ", MakeType(fill.dtype(), fill.shape()).ToString(),
                       "; expected a scalar of the operand's type ", ToAbsl(DTypeName(x.dtype)));
  }
  const Geometry g(w, x.rank(), indices.rank());
  Type t = MakeType(x.dtype, Dims(g.block_rank));
  for (int d = 0; d < x.rank(); ++d)
    if (g.operand_to_block[d] >= 0) t.shape[g.operand_to_block[d]] = sizes[d];
  for (int d = 0; d < indices.rank(); ++d)
    if (g.indices_to_block[d] >= 0) t.shape[g.indices_to_block[d]] = indices.shape[d];
  TESSERA_ASSIGN_OR_RETURN(const int64_t elements, CountElements(c, t.shape));
  // Dims that the result lacks are read too, so their windows must have one element.
  for (const DimList& single : {w.collapsed, w.batching})
    for (const int64_t d : single)
      if (elements > 0 && sizes[d] != 1)
        return ValueError(c, "the window along dim ", d, " of ", x.ToString(), " has ", sizes[d],
                          " elements, but the result ", t.ToString(),
                          " has no dim for it; expected 1");
  t.weak = x.weak;
  return std::vector<Type>{t};
}

Signature GatherFactors(const InferContext& c, absl::Span<const Type> out) {
  const Geometry g(GatherDimsOf(c.attrs), c.in[0].rank(), c.in[1].rank());
  // If a dim in which windows have one element is cut, a sum over the shards completes the result.
  // This needs a dtype that has sums.
  const FactorKind indexed =
      IsComputable(c.in[0].dtype) ? FactorKind::kReduction : FactorKind::kReplicated;
  WindowFactors f = FactorsOf(g, c.in[0], c.in[1], out[0], {FactorKind::kPassThrough, indexed});
  f.s.reduce = ReduceKind::kSum;
  f.s.operands = {f.operand, f.indices};
  f.s.results = {f.block};
  return f.s;
}

// Without out_sharding, dims that windows take whole keep the operand's axes. Dims of positions are
// unsharded, unless the operand is batched with them.
absl::Status GatherSharding(const InferContext& c, std::vector<Type>* out) {
  const Type &x = c.in[0], &indices = c.in[1];
  Type& t = (*out)[0];
  TESSERA_ASSIGN_OR_RETURN(const bool has_out_sharding, ApplyOutSharding(c, &t));
  if (has_out_sharding || (!x.is_sharded() && !indices.is_sharded())) return absl::OkStatus();
  const Geometry g(GatherDimsOf(c.attrs), x.rank(), indices.rank());
  t.sharding.assign(t.rank(), {});
  for (int d = 0; d < indices.rank(); ++d)
    if (!indices.axes_of(d).empty() && !Contains(g.operand_to_indices, d))
      return OutShardingNeededError(c, "get");
  for (int d = 0; d < x.rank(); ++d) {
    const int64_t at = g.operand_to_block[d], batch = g.operand_to_indices[d];
    if (batch >= 0) {
      const std::optional<AxisList> axes =
          AgreedAxes(x.axes_of(d), indices.axes_of(static_cast<int>(batch)));
      if (!axes) return OutShardingNeededError(c, "get");
      t.sharding[g.indices_to_block[batch]] = *axes;
    } else if (!x.axes_of(d).empty()) {
      if (at < 0 || t.shape[at] != x.shape[d]) return OutShardingNeededError(c, "get");
      t.sharding[at] = x.axes_of(d);
    }
  }
  if (NamesAxisTwice(t)) return OutShardingNeededError(c, "get");
  Normalize(&t);
  return absl::OkStatus();
}

// Returns the value that is read where a window is out of bounds. Reference: lax.gather's
// fill_value.
Array FillValueOf(const Attrs& attrs, DType dtype) {
  if (attrs.Has("fill_value")) return attrs.Literal("fill_value");
  if (IsInexact(dtype)) return Array::Scalar(dtype, std::numeric_limits<double>::quiet_NaN());
  if (dtype == DType::kBool) return Array::Scalar(dtype, 1);
  const int bits = BitWidth(dtype);
  if (IsSignedInt(dtype))
    return Array::ScalarInt(dtype, std::numeric_limits<int64_t>::min() >> (64 - bits));
  return Array::ScalarInt(
      dtype, static_cast<int64_t>(std::numeric_limits<uint64_t>::max() >> (64 - bits)));
}

// The result is one piece whose offsets are read from the index vectors.
IndexMap GatherMap(const InferContext& c, absl::Span<const Type> out) {
  const Type &x = c.in[0], &indices = c.in[1];
  const WindowDims w = GatherDimsOf(c.attrs);
  const Geometry g(w, x.rank(), indices.rank());
  const Dims& sizes = c.attrs.Ints("slice_sizes");
  const Dims strides = StridesOf(x.shape), index_strides = StridesOf(indices.shape);
  const bool has_vector_dim = w.index_vector_dim < indices.rank();
  IndexMap map;
  IndexPiece piece = ContiguousPiece(0, out[0].shape);
  piece.fills = ModeOf(c.attrs) == GatherScatterMode::kFillOrDrop;
  if (piece.fills) map.literal = FillValueOf(c.attrs, x.dtype);
  Dims vector(out[0].rank(), 0);  // per dim of the result: the stride of the index vectors
  for (int d = 0; d < indices.rank(); ++d)
    if (const int64_t at = g.indices_to_block[d]; at >= 0 && indices.shape[d] > 1)
      vector[at] = index_strides[d];
  if (std::count(vector.begin(), vector.end(), 0) == out[0].rank()) vector.clear();
  piece.strides.assign(out[0].rank(), 0);
  for (int d = 0; d < x.rank(); ++d) {
    if (g.operand_to_block[d] >= 0) piece.strides[g.operand_to_block[d]] = strides[d];
    if (g.operand_to_indices[d] >= 0)
      piece.strides[g.indices_to_block[g.operand_to_indices[d]]] = strides[d];
    if (g.operand_to_entry[d] < 0) continue;
    const int64_t last = x.shape[d] - sizes[d];
    const int64_t entry =
        has_vector_dim ? g.operand_to_entry[d] * index_strides[w.index_vector_dim] : 0;
    if (last > 0 || piece.fills) piece.read.push_back({1, last, strides[d], entry, vector});
  }
  map.pieces = {std::move(piece)};
  return map;
}

// Returns the attributes of the scatter that writes the windows which a gather with attributes
// `gather` reads.
Attrs MatchingScatterAttrs(const Attrs& gather, const Type& operand) {
  Attrs attrs = WithOptionsOf(gather);
  GatherDimsOf(gather).WriteTo(&attrs, kScatterNames);
  if (gather.Has("out_sharding")) attrs.Set("out_sharding", SpecOf(operand));
  return attrs;
}

// Gathers the tangent at the same indices. Where the result is the fill value, its tangent is zero.
std::vector<Value> GatherJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0]) return {Value()};
  Attrs attrs = c.attrs;
  if (ModeOf(attrs) == GatherScatterMode::kFillOrDrop)
    attrs.Set("fill_value", Array::Scalar(tangents[0].dtype(), 0));
  return {EmitMatched(c.def, {tangents[0], c.in[1]}, std::move(attrs))};
}

std::vector<Value> TransposeGather(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (!cts[0]) return {Value(), Value()};
  const Type x = CotangentType(c.in_types[0]);
  const Value at = NonLinearOperand(c, 1);
  const auto scatter_add = [&](Value ct) {
    Type like = x;
    like.dtype = ct.dtype();
    return EmitMatched(kScatterAdd, {Zeros(c.b, like), at, ct},
                       MatchingScatterAttrs(c.attrs, like));
  };
  if (!IsComplex(x.dtype)) return {scatter_add(cts[0]), Value()};
  const Value re = scatter_add(Real(cts[0]));
  return {Complex(re, scatter_add(Imag(cts[0]))), Value()};
}

Batched BatchGather(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  const bool is_operand_batched = dims[0] >= 0, are_indices_batched = dims[1] >= 0;
  Attrs attrs = WithBatchSharding(c.attrs, 0, BatchAxes(c, dims));
  BatchedDims(GatherDimsOf(c.attrs), is_operand_batched, are_indices_batched)
      .WriteTo(&attrs, kGatherNames);
  if (is_operand_batched)
    attrs.Set("slice_sizes", WithInserted(c.attrs.Ints("slice_sizes"), 0,
                                          are_indices_batched ? std::min<int64_t>(size, 1) : size));
  const Value x = is_operand_batched ? MoveDim(c.in[0], dims[0], 0) : c.in[0];
  const Value at = are_indices_batched ? MoveDim(c.in[1], dims[1], 0) : c.in[1];
  return {{EmitMatched(c.def, {x, at}, std::move(attrs))}, {0}};
}

// Where a window takes a dim whole, it takes the whole of the shard's block.
Attrs LocalizeGather(const RuleContext& c, const PartitionContext&) {
  Attrs attrs = c.attrs;
  attrs.Erase("out_sharding");
  Dims sizes = c.attrs.Ints("slice_sizes");
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] == c.in_types[0].shape[d]) sizes[d] = c.in[0].dim(static_cast<int>(d));
  attrs.Set("slice_sizes", std::move(sizes));
  return attrs;
}

// If an indexed dim is cut, each shard reads the windows in its own block, and reads zeros for the
// others. The sum over the shards then has all windows.
std::vector<Value> PartitionGather(const RuleContext& c, const PartitionContext& p) {
  const WindowDims w = GatherDimsOf(c.attrs);
  const LocalIndices local = LocalIndicesOf(c, p, w, c.attrs.Ints("slice_sizes"));
  if (local.axes.empty()) return derive::PartitionByFactors(c, p);
  const DType dtype = c.in[0].dtype();
  const DType sum_dtype = dtype == DType::kBool ? DType::kS32 : dtype;
  Attrs attrs = LocalizeGather(c, p);
  for (const char* promise : {"indices_are_sorted", "unique_indices"}) attrs.Erase(promise);
  attrs.Set("mode", NameOf(GatherScatterMode::kFillOrDrop));
  // Fill with zeros that change nothing when the shards are summed.
  attrs.Set("fill_value", Array::Scalar(dtype, IsFloat(dtype) ? -0.0 : 0.0));
  const Value mine = EmitMatched(kGather, {c.in[0], local.indices}, std::move(attrs));
  Value all = Convert(Psum(Convert(mine, sum_dtype), local.axes), dtype);
  if (!local.in_bounds) return {all};
  const Geometry g(w, c.in[0].rank(), c.in[1].rank());
  Value in_bounds = local.in_bounds;
  if (w.index_vector_dim < c.in[1].rank()) in_bounds = ReduceAnd(in_bounds, {w.index_vector_dim});
  DimList positions;
  for (const int64_t at : g.indices_to_block)
    if (at >= 0) positions.push_back(at);
  const Value fill = BroadcastInDim(Constant(c.b, FillValueOf(c.attrs, dtype)), all.shape(), {});
  return {Select(BroadcastInDim(in_bounds, all.shape(), positions), all, fill)};
}

// The op reads as many bytes as it returns, and the indices.
Cost GatherCost(const InferContext& c, absl::Span<const Type> out) {
  return {0, static_cast<double>(2 * out[0].num_bytes() + c.in[1].num_bytes())};
}

constexpr AttrSpec kGatherAttrs[] = {{"offset_dims", AttrKind::kInts},
                                     {"collapsed_slice_dims", AttrKind::kInts},
                                     {"operand_batching_dims", AttrKind::kInts},
                                     {"start_indices_batching_dims", AttrKind::kInts},
                                     {"start_index_map", AttrKind::kInts},
                                     {"index_vector_dim", AttrKind::kInt},
                                     {"slice_sizes", AttrKind::kInts},
                                     {"mode", AttrKind::kString},
                                     {"fill_value", AttrKind::kArray, /*required=*/false},
                                     {"indices_are_sorted", AttrKind::kBool, /*required=*/false},
                                     {"unique_indices", AttrKind::kBool, /*required=*/false},
                                     kOutSharding};

}  // namespace

constexpr OpDef kGather = Checked({.name = "gather",
                                   .lax_name = "gather",
                                   .family = Family::kIndexing,
                                   .num_operands = 2,
                                   .attrs = kGatherAttrs,
                                   .lowering = Lowering::kDynamicIndex,
                                   .infer = InferGather,
                                   .factors = GatherFactors,
                                   .sharding = GatherSharding,
                                   .varying = Derived{},
                                   .jvp = GatherJvp,
                                   .transpose = TransposeGather,
                                   .batch = BatchGather,
                                   .partition = PartitionGather,
                                   .localize = LocalizeGather,
                                   .cost = GatherCost,
                                   .index_map = GatherMap});

}  // namespace tessera::ir::ops

// ---- The function of ops.h. ---------------------------------------------------------------------
namespace tessera::ir {

Value Gather(Value x, Value start_indices, const GatherDimensionNumbers& dims, Dims slice_sizes,
             const GatherScatterOptions& options, std::optional<Array> fill_value) {
  Attrs attrs = {{"offset_dims", dims.offset_dims},
                 {"collapsed_slice_dims", dims.collapsed_slice_dims},
                 {"operand_batching_dims", dims.operand_batching_dims},
                 {"start_indices_batching_dims", dims.start_indices_batching_dims},
                 {"start_index_map", dims.start_index_map},
                 {"index_vector_dim", int64_t{start_indices.rank() - 1}},
                 {"slice_sizes", std::move(slice_sizes)}};
  ops::SetOptions(options, &attrs);
  if (fill_value) attrs.Set("fill_value", *std::move(fill_value));
  return ops::EmitMatched(ops::kGather, {x, start_indices}, std::move(attrs));
}

}  // namespace tessera::ir
