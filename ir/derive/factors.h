// Conversions between the axes that shard a dim and the factors the dim is made of.
#pragma once
#include <optional>
#include <vector>

#include "ir/op_def.h"

namespace tessera::ir {

// The axes of one dim (major to minor) dealt out to its factors (major to minor); nullopt when an
// axis would straddle two factors or a minor factor would be sharded before its major one in full.
std::optional<std::vector<AxisList>> SplitAxes(const AxisList& axes, const FactorList& dim,
                                               const Signature& signature, const Mesh& mesh);
// The reverse for a whole tensor: dims from factor axes, and the local type that leaves.
DimAxes JoinAxes(const TensorFactors& dims, const std::vector<AxisList>& factor_axes);
Type LocalType(const Type& global, const DimAxes& sharding, const Mesh& mesh);
// The signature of an op of a function.
Signature SignatureOf(const Function& f, const Op& op);
// The data flow of an op of a function, whose regions are planned.
DataFlow DataFlowOf(const Function& f, const Op& op);
// What an op of a function costs by its rule, regions included; nothing if it has none.
Cost CostOf(const Function& f, const Op& op);
// Whether the dtypes of an elementwise function have kernels: all of them, but for those whose
// elements are only selected and fit a register.
bool HasKernels(const ScalarGraph& graph);
// Whether the function is linear in all its inputs at once, but for how it rounds: sums and
// differences of them. Sufficient, not necessary.
bool IsLinear(const ScalarGraph& graph);

namespace derive {
// What the derived partition rule emits before sums over shards: `pending` are the axes along which
// the shards of each result are still to be added up. Other reductions are completed.
struct LocalResults {
  std::vector<Value> values;
  AxisList pending;
};
LocalResults PartitionButSums(const RuleContext& c, const PartitionContext& p);
// The axes along which PartitionButSums leaves sums pending.
AxisList SummedAxes(const Signature& signature, const std::vector<AxisList>& factor_axes);
}  // namespace derive

}  // namespace tessera::ir
