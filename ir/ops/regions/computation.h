// Shared by the ops whose region is a computation (RegionRole::kComputation): a closed function of
// scalars that combines or compares elements. Internal to ir/; stateless; thread-safe.
//
// The scope of a computation has no mesh, whatever the scope of its op is. The computation is the
// same on every shard, so a transform that moves an op to another scope leaves the computation as
// it is.
#pragma once
#include <map>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/op_def.h"

namespace tessera::ir::ops {

inline constexpr RegionRole kOneComputation[] = {RegionRole::kComputation};

// Checks that the op's region is a computation from scalars of dtypes `params` to scalars of dtypes
// `results`, and that all its values are scalars and none of its ops is a collective.
absl::Status CheckComputation(const InferContext& c, absl::Span<const DType> params,
                              absl::Span<const DType> results);

std::vector<DType> DTypesOf(absl::Span<const Type> types);

// If the computation has two params and consists of a single op on them, in either order, returns
// that op. Otherwise returns null.
const OpDef* SoleOp(const Function& computation);
// Returns the op that reduces by this computation, for example reduce_sum for `add`, or null if
// there is none.
const OpDef* ReductionBy(const Function& computation);

// Returns the flops of this number of applications of the op's computation.
double FlopsOf(const InferContext& c, int64_t applications);

// Evaluates a computation on many tuples of scalars at once. Used by the evaluators of ops with
// computations.
class TupleEvaluator {
 public:
  // `c` must outlive this object.
  explicit TupleEvaluator(const EvalContext& c) : c_(c) {}
  // Runs the computation on n tuples. args[param] has n elements, in any shape: element i belongs
  // to tuple i. Each result has shape {n}.
  absl::StatusOr<std::vector<Array>> Run(const std::vector<Array>& args);

 private:
  const EvalContext& c_;
  // the computation, batched for several tuples; the key is the number of tuples
  std::map<int64_t, FunctionRef> batched_;
};

}  // namespace tessera::ir::ops
