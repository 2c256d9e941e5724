// The rules that sort and sort_by share. Sorting puts them into the rows of both ops. top_k takes
// elements along its indices with TakeAlong, as the derivative of a sort does.
#include "ir/ops/rules/sorting.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "ir/ops/rules/dims.h"

namespace tessera::ir::ops {

Value TakeAlong(Value x, Value indices, int dim) {
  GatherDimensionNumbers dims;
  dims.collapsed_slice_dims = {dim};
  dims.start_index_map = {dim};
  for (int64_t d : DimsExcept(x.rank(), {dim})) {
    dims.operand_batching_dims.push_back(d);
    dims.start_indices_batching_dims.push_back(d);
  }
  Dims single;
  for (int d = 0; d < x.rank(); ++d) single.push_back(std::min<int64_t>(x.dim(d), 1));
  return Gather(x, ExpandDims(indices, {indices.rank()}), dims, std::move(single),
                {.mode = GatherScatterMode::kPromiseInBounds});
}

absl::StatusOr<std::vector<Type>> InferSortedRows(const InferContext& c) {
  if (c.in.empty()) return TypeError(c, "takes at least one operand, got nothing");
  TESSERA_RETURN_IF_ERROR(CheckDimension(c));
  std::vector<Type> out;
  for (size_t i = 0; i < c.in.size(); ++i) {
    if (c.in[i].shape != c.in[0].shape)
      return TypeError(c, "operand ", i, " is ", c.in[i].ToString(), ", operand 0 is ",
                       c.in[0].ToString(), "; expected equal shapes");
    Type t = MakeType(c.in[i].dtype, c.in[i].shape);
    t.weak = c.in[i].weak;
    out.push_back(std::move(t));
  }
  return out;
}

Signature SortFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s = PointwiseFactors(c, out);
  s.factors[SortedDim(c.attrs)].kind = FactorKind::kPermutation;
  return s;
}

// JAX's own rule: the operands agree, and the sorted dim is not sharded.
absl::Status SortSharding(const InferContext& c, std::vector<Type>* out) {
  for (const Type& t : c.in) {
    if (t.sharding != c.in[0].sharding)
      return ShardingError(c, "got operands of different shardings: ", TypesToString(c.in),
                           "; reshard them alike");
    if (!t.axes_of(SortedDim(c.attrs)).empty())
      return ShardingError(c,
                           "operands must be unsharded over the sorting dimension: the sorted dim ",
                           SortedDim(c.attrs), " of ", t.ToString(),
                           " is sharded; reshard the operand to leave it whole");
  }
  return SameShardingAsFirst(c, out);
}

namespace {

// Returns the comparator with params for one more operand, which it ignores.
FunctionRef WithOneMoreOperand(const Function& comparator, DType dtype) {
  Builder b(comparator.scope, comparator.name);
  std::vector<Value> params;
  for (const Type& t : comparator.param_types()) params.push_back(b.Param(t));
  for (int side = 0; side < 2; ++side) b.Param(MakeType(dtype, {}));
  return b.Build(Inline(b, comparator, params));
}

}  // namespace

// Tangents follow their primals. An iota that is sorted along with them tells where each element
// came from.
std::vector<Value> SortJvp(const RuleContext& c, Values tangents) {
  if (std::none_of(tangents.begin(), tangents.end(), [](const Value& t) { return t.valid(); }))
    return std::vector<Value>(c.out_types.size());
  const int dim = SortedDim(c.attrs);
  Type at = c.in[0].type();
  at.dtype = IndexDTypeFor(at.shape[dim]);
  at.weak = false;
  std::vector<Value> in = c.in;
  in.push_back(ShardedLike(Iota(c.b, at.dtype, at.shape, dim), at));
  in = MatchVarying(std::move(in));
  std::vector<FunctionRef> regions = RegionsOf(c);
  for (FunctionRef& comparator : regions) comparator = WithOneMoreOperand(*comparator, at.dtype);
  const Value source_indices = c.b.Emit(c.def, in, c.attrs, std::move(regions)).back();
  std::vector<Value> out;
  for (const Value& t : tangents) out.push_back(t ? TakeAlong(t, source_indices, dim) : Value());
  return out;
}

Batched BatchSort(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  std::vector<Value> in;
  for (size_t i = 0; i < c.in.size(); ++i) in.push_back(BatchInFront(c, dims, i, size));
  Attrs attrs = c.attrs;
  attrs.Set("dimension", c.attrs.Int("dimension") + 1);
  std::vector<Value> out =
      c.b.Emit(c.def, MatchVarying(std::move(in)), std::move(attrs), RegionsOf(c));
  return {out, std::vector<int>(out.size(), 0)};
}

// If the sorted dim is cut, an all-to-all makes it whole and cuts another dim instead, if there is
// one whose size is a multiple of the number of shards. Another all-to-all undoes this after
// sorting. Otherwise the dim is gathered, and each shard keeps its own block of the sorted result.
std::vector<Value> PartitionSort(const RuleContext& c, const PartitionContext& p) {
  const int dim = SortedDim(c.attrs);
  const AxisList& axes = p.factor_axes[p.signature.operands[0][dim][0]];
  const auto sorted = [&](const std::vector<Value>& in) {
    return c.b.Emit(c.def, in, c.attrs, RegionsOf(c));
  };
  if (axes.empty()) return sorted(c.in);
  const int64_t shards = c.b.mesh().SizeOf(axes);
  int other = -1;
  for (int d = 0; d < c.in[0].rank(); ++d)
    if (d != dim && c.in[0].dim(d) > 0 && c.in[0].dim(d) % shards == 0) other = d;
  std::vector<Value> in, out;
  if (other >= 0) {
    for (const Value& x : c.in) in.push_back(AllToAll(x, axes, other, dim, /*tiled=*/true));
    for (const Value& x : sorted(in)) out.push_back(AllToAll(x, axes, dim, other, /*tiled=*/true));
    return out;
  }
  for (const Value& x : c.in) in.push_back(AllGather(x, axes, dim, /*tiled=*/true));
  const int64_t block = c.in[0].dim(dim);
  const Value begin = BlockBegin(c.b, axes, block);
  for (const Value& x : sorted(in)) {
    std::vector<Value> starts(x.rank(), Constant(c.b, DType::kS32, 0));
    starts[dim] = begin;
    out.push_back(DynamicSlice(x, std::move(starts), c.in[0].shape()));
  }
  return out;
}

// Counts one comparison for each element and each level of a merge sort.
Cost SortCost(const InferContext& c, absl::Span<const Type> out) {
  Cost cost;
  const int64_t n = c.in[0].shape[SortedDim(c.attrs)];
  cost.flops = static_cast<double>(c.in[0].num_elements()) *
               static_cast<double>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
  for (const Type& t : c.in) cost.bytes += static_cast<double>(t.num_bytes());
  for (const Type& t : out) cost.bytes += static_cast<double>(t.num_bytes());
  return cost;
}

}  // namespace tessera::ir::ops
