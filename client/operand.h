// Operands of the public ops made values: literals take the dtype of what they meet, dtypes
// promote, shapes broadcast.  Not for users.
#pragma once
#include <string_view>
#include <vector>

#include "client/trace.h"
#include "ir/ops.h"

namespace tessera::internal {

// The dtype that two promote to, by JAX's lattice with 64-bit types on.
DType Promote(DType a, DType b);
// What arithmetic on operands computes in, and whether its result gives way to other dtypes again.
struct CommonType {
  DType dtype;
  bool weak;
};
// Weakly typed arrays count as numbers do.  Weak where such an array, or a number beside one,
// decides.
CommonType CommonTypeOf(const std::vector<Arg>& args);
DType CommonDType(const std::vector<Arg>& args);
ir::Value ConvertTo(ir::Value x, const CommonType& type);
// The site of the first operand that has one.
Site SiteOf(const std::vector<Arg>& args);
// Result shape of numpy's broadcasting; throws naming `op`.
Dims BroadcastShapes(std::string_view op, const std::vector<Dims>& shapes, const Site& site);
ir::Value BroadcastTo(ir::Value x, const Dims& shape);
// A constant of the C++ number.
ir::Value Literal(ir::Builder& b, const Arg& a, DType dtype);

// An op of several operands.  kStrict: arrays as they are, as in lax; kPromote: dtypes and shapes
// made equal, as in numpy.  `dtype`: computes in it instead of the common one.
enum class Operands : uint8_t { kStrict, kPromote };
Array ApplyArgs(std::string_view name, const std::vector<Arg>& args, Operands how, Emit1Fn emit,
                std::optional<DType> dtype = std::nullopt);

}  // namespace tessera::internal
