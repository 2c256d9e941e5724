// Converts operands of the public ops to values: literals take the dtype of the other operands,
// dtypes are promoted, shapes are broadcast. Used by the SDK only.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "client/apply/apply.h"
#include "client/array.h"
#include "client/mesh.h"
#include "ir/ops.h"

namespace tessera::internal {

// Returns the common dtype of two dtypes, by JAX's promotion lattice with 64-bit types enabled.
// Returns nullopt if there is none: floats of 8 bits and fewer are not promoted to another float,
// and integers of 2 and 4 bits are not promoted at all.
std::optional<DType> Promote(DType a, DType b);
// The dtype in which arithmetic on the operands computes, and whether its result is weakly typed.
struct CommonType {
  DType dtype;
  bool weak;
};
// Weakly typed arrays count as numbers. The result is weak if such an array or a number determines
// the dtype. Throws TYPE_ERROR, which tells the user to convert an operand, if no common dtype
// exists.
CommonType CommonTypeOf(const std::vector<Arg>& args);
DType CommonDType(const std::vector<Arg>& args);
// Throws JAX's TYPE_ERROR for an integer preferred_element_type with fewer bits than the integer
// operands have.
void CheckPreferredElementType(std::string_view op, DType operands, std::optional<DType> preferred);
ir::Value ConvertTo(ir::Value x, const CommonType& type);
// Returns the site of the first operand that has one.
Site SiteOf(const std::vector<Arg>& args);
// Returns the result shape of numpy's broadcasting. Throws TYPE_ERROR, which names `op`.
Dims BroadcastShapes(std::string_view op, const std::vector<Dims>& shapes, const Site& site);
ir::Value BroadcastTo(ir::Value x, const Dims& shape);
// Adds `size` once to negative indices, which count from the end of `size` elements.
ir::Value WrapNegativeIndices(ir::Value indices, int64_t size);
// Returns a constant of the C++ number.
ir::Value Literal(ir::Builder& b, const Arg& a, DType dtype);

// Returns an operand as an array: a number becomes a constant of `dtype`, of rank 0.
Array AsArray(const Arg& a, DType dtype);

// Applies an op to operands. kStrict passes arrays unchanged, as in lax; kPromote converts them to
// a common dtype and shape, as in numpy. `dtype` overrides the common dtype.
enum class Operands : uint8_t { kStrict, kPromote };
Array ApplyArgs(std::string_view name, const std::vector<Arg>& args, Operands how, Emit1Fn emit,
                std::optional<DType> dtype = std::nullopt);

}  // namespace tessera::internal
