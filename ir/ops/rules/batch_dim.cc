// Adds the batch dim of a vmap to values, and sums over it. The transform Batch and the batching
// rules of ops call these functions, so that a batch that is sharded, or that the Manual axes of a
// shard_map cut, is handled in one place.
#include "ir/ops/rules/batch_dim.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "ir/ops.h"
#include "ir/ops/rules/dims.h"
#include "ir/walk.h"

namespace tessera::ir::walk {

AxisSet MissingSpmdAxes(const MappedAxis& axis, Value v) {
  AxisSet out;
  for (const std::string& a : axis.spmd)
    if (v.builder().mesh().IsManual(a) && !v.type().varying.contains(a)) out.insert(a);
  return out;
}

Value WithBatchDim(const MappedAxis& axis, Value v, int dim) {
  v = Pvary(v, MissingSpmdAxes(axis, v));
  if (axis.sharding.empty()) return BroadcastNewDim(v, dim, axis.size);
  Type like = InsertDim(v.type(), dim, axis.size);
  like.set_axes_of(dim, axis.sharding);
  std::vector<int64_t> dims;
  for (int d = 0; d <= v.rank(); ++d)
    if (d != dim) dims.push_back(d);
  return ops::BroadcastLike(v, like, std::move(dims));
}

Value SumOfBatch(const MappedAxis& axis, Value v, int dim) {
  AxisList cut;
  for (const std::string& a : axis.spmd)
    if (v.builder().mesh().IsManual(a)) cut.push_back(a);
  return Psum(ReduceSum(v, {dim}), cut);
}

}  // namespace tessera::ir::walk
