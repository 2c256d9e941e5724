// Converts between the axes that shard a dim and the factors that the dim consists of. Stateless;
// thread-safe.
#pragma once
#include <optional>
#include <vector>

#include "ir/op_def.h"

namespace tessera::ir {

// Distributes the axes of one dim (major to minor) over its factors (major to minor). Returns
// nullopt if an axis would straddle two factors, or if a factor would be sharded although the
// factor before it is not sharded in full.
std::optional<std::vector<AxisList>> SplitAxes(const AxisList& axes, const FactorList& dim,
                                               const Signature& signature, const Mesh& mesh);
// JoinAxes is the reverse for a whole tensor: it returns the dims' axes from the factors' axes.
// LocalType returns the type of a shard under such a sharding.
DimAxes JoinAxes(const TensorFactors& dims, const std::vector<AxisList>& factor_axes);
Type LocalType(const Type& global, const DimAxes& sharding, const Mesh& mesh);
// Returns the signature of an op of a function.
Signature SignatureOf(const Function& f, const Op& op);
// Returns the data flow of an op of a function. Requires: the op's regions are planned.
DataFlow DataFlowOf(const Function& f, const Op& op);
// Returns the cost of an op of a function by its rule, including its regions, or zero if it has no
// rule.
Cost CostOf(const Function& f, const Op& op);
// Returns the sum of the costs of the ops of a function, including those of nested regions.
Cost TotalCost(const Function& f);
// Returns whether kernels can compute the elementwise function: kernels exist for all its dtypes. A
// dtype without kernels is allowed too if the function only reads and selects its elements and they
// are not complex.
bool HasKernels(const ScalarGraph& graph);
// Returns whether the function, apart from rounding, is linear in all its inputs at once: it
// consists of sums and differences of the inputs. The test is sufficient, not necessary.
bool IsLinear(const ScalarGraph& graph);

namespace derive {
// Returns the axes along which the shards of an op's results still have to be added up, given the
// axes of each factor.
AxisList SummedAxes(const Signature& signature, const std::vector<AxisList>& factor_axes);
}  // namespace derive

}  // namespace tessera::ir
