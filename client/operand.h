// Converts operands of the public ops to values: literals take the dtype of the other operands,
// dtypes promote, shapes broadcast. Used by the SDK only.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "client/precision.h"
#include "client/trace.h"
#include "ir/ops.h"

namespace tessera::internal {

// The common dtype of two, by JAX's promotion lattice with 64-bit types enabled; nullopt if there
// is none: floats of 8 bits and fewer are promoted to no other float, integers of 2 and 4 bits to
// nothing.
std::optional<DType> Promote(DType a, DType b);
// The dtype in which arithmetic on the operands computes, and whether its result is weakly typed.
struct CommonType {
  DType dtype;
  bool weak;
};
// Weakly typed arrays count as numbers. The result is weak if such an array or a number determines
// the dtype. Throws TYPE_ERROR, which tells to convert one, if there is no common dtype.
CommonType CommonTypeOf(const std::vector<Arg>& args);
DType CommonDType(const std::vector<Arg>& args);
// Throws JAX's TYPE_ERROR for a preferred_element_type with fewer bits than integers have.
void CheckPreferred(std::string_view op, DType operands, std::optional<DType> preferred);
ir::Value ConvertTo(ir::Value x, const CommonType& type);
// The product of two of one dtype by a precision or an algorithm.
ir::Value DotBy(ir::Value lhs, ir::Value rhs, const ir::DotDims& dims,
                const PartitionSpec* out_sharding, std::optional<DType> preferred,
                const lax::PrecisionLike& how, const Site& site);
// The site of the first operand that has one.
Site SiteOf(const std::vector<Arg>& args);
// Result shape of numpy's broadcasting; throws naming `op`.
Dims BroadcastShapes(std::string_view op, const std::vector<Dims>& shapes, const Site& site);
ir::Value BroadcastTo(ir::Value x, const Dims& shape);
// Negative indices count from the end of `size` elements, once.
ir::Value FromStart(ir::Value indices, int64_t size);
// A constant of the C++ number.
ir::Value Literal(ir::Builder& b, const Arg& a, DType dtype);

// Throws VALUE_ERROR unless the mesh in context has the spec's axes and all are Explicit.
void CheckExplicit(std::string_view op, const PartitionSpec& spec, const Site& site);
// The spec with one entry per dim; throws VALUE_ERROR as CheckExplicit does, or if it has more.
PartitionSpec FittedTo(std::string_view op, const PartitionSpec& spec, int rank, const Site& site);
// `x`, resharded if `to` says so and its sharding is another.
ir::Value Resharded(std::string_view op, ir::Value x, const OutSharding& to, const Site& site);

// An operand as an array: a number becomes a constant of `dtype`, of rank 0.
Array AsArray(const Arg& a, DType dtype);

// Applies an op to operands. kStrict: arrays unchanged, as in lax; kPromote: to common dtype and
// shape, as in numpy. `dtype` overrides the common dtype.
enum class Operands : uint8_t { kStrict, kPromote };
Array ApplyArgs(std::string_view name, const std::vector<Arg>& args, Operands how, Emit1Fn emit,
                std::optional<DType> dtype = std::nullopt);

}  // namespace tessera::internal
