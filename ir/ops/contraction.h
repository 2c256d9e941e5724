// What the contractions share: ops of two operands that sum products of their elements. Internal to
// ir/ops. Stateless; thread-safe.
#pragma once
#include <vector>

#include "ir/ops/dims.h"

namespace tessera::ir::ops {

// The dtype of the result: the operands', or the one that attribute `preferred_element_type` names.
absl::StatusOr<DType> ProductDType(const InferContext& c);
// Refuses an attribute `precision` of another name than "high" and "highest".
absl::Status CheckPrecision(const InferContext& c);
// The rule of products: (xy)' = x'y + xy'.
std::vector<Value> BilinearJvp(const RuleContext& c, Values tangents);

}  // namespace tessera::ir::ops
