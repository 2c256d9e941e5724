// Products of values, computed as their options say (client/precision.h). Used by the SDK only.
#pragma once
#include <optional>

#include "base/site.h"
#include "client/array.h"
#include "client/mesh.h"
#include "client/precision.h"
#include "ir/ops.h"

namespace tessera::internal {

// Returns the product of two values of one dtype. `precision` is a precision or an algorithm.
ir::Value DotWithPrecision(ir::Value lhs, ir::Value rhs, const ir::DotDims& dims,
                           const PartitionSpec* out_sharding, std::optional<DType> preferred,
                           const lax::PrecisionLike& precision, const Site& site);

}  // namespace tessera::internal
