// Shared by the contractions, which are ops of two operands that sum products of their elements:
// dot_general and convolution. Internal to ir/ops. Stateless; thread-safe.
#pragma once
#include <vector>

#include "ir/ops/rules/dims.h"

namespace tessera::ir::ops {

// Returns the dtype of the result: the attribute `preferred_element_type` if the op has it, else
// the operands' dtype. Checks that products can be computed for both dtypes.
absl::StatusOr<DType> ProductDType(const InferContext& c);
// Refuses an attribute `precision` other than "high" and "highest".
absl::Status CheckPrecision(const InferContext& c);
// The derivative rule of products: (xy)' = x'y + xy'.
std::vector<Value> BilinearJvp(const RuleContext& c, Values tangents);

}  // namespace tessera::ir::ops
