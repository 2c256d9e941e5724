// What the ops share whose region is a computation (RegionRole::kComputation): a closed function of
// scalars that combines or compares elements. Internal to ir/; stateless; thread-safe.
//
// A computation stands in no mesh, wherever its op does: it means the same on every shard, so that
// what moves an op from one scope to another leaves it as it is.
#pragma once
#include <map>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/op_def.h"

namespace tessera::ir::ops {

inline constexpr RegionRole kOneComputation[] = {RegionRole::kComputation};

// Checks that the op's region is a computation from scalars of `params` to scalars of `results`,
// and that it has no other values than scalars and no collective.
absl::Status CheckComputation(const InferContext& c, absl::Span<const DType> params,
                              absl::Span<const DType> results);

std::vector<DType> DTypesOf(absl::Span<const Type> types);

// The op that a computation of two params is, whichever comes first; null if it is none.
const OpDef* SoleOp(const Function& computation);
// The op that reduces by this computation alone, reduce_sum of `add`; null if there is none.
const OpDef* ReductionBy(const Function& computation);

// The op's regions, to emit it again.
inline std::vector<FunctionRef> RegionsOf(const RuleContext& c) {
  return {c.regions.begin(), c.regions.end()};
}

// The flops of applying the op's computation `times` times.
double FlopsOf(const InferContext& c, int64_t times);

// Evaluates a computation on many tuples of scalars at once.
class Lanes {
 public:
  // `c` must outlive it.
  explicit Lanes(const EvalContext& c) : c_(c) {}
  // args[param] has an element for each tuple, in any shape; so has each result, in shape {n}.
  absl::StatusOr<std::vector<Array>> Run(const std::vector<Array>& args);

 private:
  const EvalContext& c_;
  std::map<int64_t, FunctionRef> batched_;  // by the number of tuples it takes
};

}  // namespace tessera::ir::ops
