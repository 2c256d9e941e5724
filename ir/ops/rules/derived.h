// The derived rules that emit ops: how an op is differentiated, batched and run on shards if its
// row says Derived{}. (The derived type rules and the derived cost, which emit nothing, are
// declared in op_def.h.) Internal to ir/, except for the planner. Functions throw StatusException.
// Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ir/op_def.h"

namespace tessera::ir::derive {

// Differentiates an op that is linear in all operands at once: applies it to the tangents.
std::vector<Value> LinearJvp(const RuleContext&, Values tangents);
// Batches an elementwise op.
Batched ElementwiseBatch(const RuleContext&, absl::Span<const int> dims, int64_t size);

// Runs the op on local shards, then completes reductions over shards.
std::vector<Value> PartitionByFactors(const RuleContext&, const PartitionContext&);
// The output of PartitionByFactors before it adds up sums over shards. `pending` are the axes along
// which the shards of each result still have to be added up (SummedAxes). Reductions other than
// sums are already completed.
struct LocalResults {
  std::vector<Value> values;
  AxisList pending;
};
LocalResults PartitionWithPendingSums(const RuleContext& c, const PartitionContext& p);
// Returns the combination of the values that the shards along `axes` hold. Requires: `kind` is a
// reduction, but not an index (kArgMax, kArgMin).
Value CombineShards(Value local, ReduceKind kind, const AxisList& axes);

}  // namespace tessera::ir::derive
