// The derived rules that emit ops. The transforms call them for every rule that an op's row leaves
// as Derived{}, and the planner calls PartitionWithPendingSums.
#include "ir/ops/rules/derived.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "base/status_exception.h"
#include "ir/derive/factors.h"
#include "ir/ops.h"
#include "ir/ops/rules/batch_dim.h"

namespace tessera::ir::derive {

std::vector<Value> LinearJvp(const RuleContext& c, Values tangents) {
  if (std::none_of(tangents.begin(), tangents.end(), [](const Value& t) { return t.valid(); }))
    return std::vector<Value>(c.out_types.size());
  std::vector<Value> in;
  for (size_t i = 0; i < tangents.size(); ++i)
    in.push_back(tangents[i] ? tangents[i] : Zeros(c.b, c.in[i].type()));
  return c.b.Emit(c.def, in, c.attrs, {c.regions.begin(), c.regions.end()});
}

// Gives every operand the batch dim at one position: that of the first batched operand of the
// result's rank. An operand of rank 0 of an op on arrays is broadcast if it is batched, and is left
// as it is otherwise.
Batched ElementwiseBatch(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  const int rank = c.out_types[0].rank();
  int at = 0;
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] >= 0 && c.in_types[i].rank() == rank) {
      at = dims[i];
      break;
    }
  Dims shape = c.out_types[0].shape;
  shape.insert(shape.begin() + at, size);
  MappedAxis axis = c.batch;
  axis.size = size;
  std::vector<Value> in;
  for (size_t i = 0; i < dims.size(); ++i) {
    const bool has_full_rank = c.in_types[i].rank() == rank;
    if (has_full_rank && dims[i] >= 0) {
      in.push_back(MoveDim(c.in[i], dims[i], at));
    } else if (has_full_rank) {
      in.push_back(walk::WithBatchDim(axis, c.in[i], at));
      // The remaining case is an operand of rank 0 of an op on arrays.
    } else {
      in.push_back(dims[i] < 0 ? c.in[i] : BroadcastInDim(c.in[i], shape, {at}));
    }
  }
  std::vector<Value> out = c.b.Emit(c.def, MatchVarying(in), c.attrs);
  return {out, std::vector<int>(out.size(), at)};
}

namespace {

// Returns the product of the shards' values. If a dim divides, it is exchanged, so that each shard
// multiplies one block, and the blocks are gathered. Otherwise every shard gathers all values.
Value CombineProducts(Value local, const AxisList& axes) {
  const int64_t n = local.builder().mesh().SizeOf(axes);
  int dim = 0;
  while (dim < local.rank() && (local.dim(dim) == 0 || local.dim(dim) % n != 0)) ++dim;
  if (dim == local.rank()) return ReduceProd(AllGather(local, axes, 0, /*tiled=*/false), {0});
  const Value blocks = AllToAll(local, axes, dim, dim, /*tiled=*/true);
  Dims cut = local.shape();
  cut[dim] /= n;
  cut.insert(cut.begin() + dim, n);
  return AllGather(ReduceProd(Reshape(blocks, cut), {dim}), axes, dim, /*tiled=*/true);
}

}  // namespace

Value CombineShards(Value local, ReduceKind kind, const AxisList& axes) {
  switch (kind) {
    case ReduceKind::kSum:
      return Psum(local, axes);
    case ReduceKind::kProd:
      return CombineProducts(local, axes);
    case ReduceKind::kMax:
      return Pmax(local, axes);
    case ReduceKind::kMin:
      return Pmin(local, axes);
    case ReduceKind::kAnd:
      return Convert(Pmin(Convert(local, DType::kS32), axes), local.dtype());
    case ReduceKind::kOr:
      return Convert(Pmax(Convert(local, DType::kS32), axes), local.dtype());
    default:
      break;
  }
  Throw(MakeError(ErrorKind::kInternal, "partition: a reduce factor without a reduction"));
}

LocalResults PartitionWithPendingSums(const RuleContext& c, const PartitionContext& p) {
  const Attrs attrs = c.def.localize ? c.def.localize(c, p) : c.attrs;
  LocalResults out;
  const std::vector<Value> in = c.def.exchange ? c.def.exchange(c, p) : c.in;
  out.values = c.b.Emit(c.def, in, attrs, {c.regions.begin(), c.regions.end()});
  AxisList reduced;
  int64_t terms = 1;  // number of terms that each shard adds up
  for (size_t f = 0; f < p.factor_axes.size(); ++f) {
    if (p.signature.factors[f].kind != FactorKind::kReduction) continue;
    reduced.insert(reduced.end(), p.factor_axes[f].begin(), p.factor_axes[f].end());
    terms *= p.signature.factors[f].size / c.b.mesh().SizeOf(p.factor_axes[f]);
  }
  if (reduced.empty()) return out;
  if (p.signature.reduce == ReduceKind::kSum) {
    // A sum of several terms starts from 0, so a sum of -0s is 0. A shard with one term has not
    // added the 0.
    for (Value& v : out.values)
      if (terms == 1 && IsFloat(v.dtype())) v = v + FullLike(v, 0);
    out.pending = SummedAxes(p.signature, p.factor_axes);
    return out;
  }
  for (Value& v : out.values) v = CombineShards(v, p.signature.reduce, reduced);
  return out;
}

std::vector<Value> PartitionByFactors(const RuleContext& c, const PartitionContext& p) {
  auto [out, pending] = PartitionWithPendingSums(c, p);
  if (!pending.empty())
    for (Value& v : out) v = Psum(v, pending);
  return out;
}

}  // namespace tessera::ir::derive
