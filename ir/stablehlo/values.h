// Reads attributes and types of an artifact as our types, arrays and numbers.
//
// All functions throw StatusException: MALFORMED_PROGRAM for an attribute of another kind than
// expected, NOT_IMPLEMENTED for a type that Tessera lacks, LIMIT_EXCEEDED for one that is too
// large. `what` names the value in errors: "slice: strides". Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/site.h"
#include "ir/array.h"
#include "ir/stablehlo/artifact.h"
#include "ir/type.h"

namespace tessera::ir::stablehlo {

// Throw MALFORMED_PROGRAM and NOT_IMPLEMENTED: "StableHLO: <what> <problem>".
[[noreturn]] void Malformed(std::string_view what, std::string_view problem);
[[noreturn]] void NotSupported(std::string_view what, std::string_view problem);

// Returns a tensor's dtype and shape. All its dims must be known, and there are at most 32 of them.
Type TensorType(const Artifact& artifact, uint32_t type, std::string_view what);
// Returns the dtype of the integers that store a quantized type, or nullopt for other types.
std::optional<DType> StorageOf(const Artifact& artifact, const DecodedType& element);
// Returns whether a value of this type is one array: neither a tuple nor a token.
bool IsArray(const Artifact& artifact, uint32_t type);
// Returns the arrays that a value of this type consists of, in order. A tuple has the arrays of its
// elements, and a token has none.
std::vector<Type> ArrayTypesOf(const Artifact& artifact, uint32_t type, std::string_view what);

// Returns the attribute, which must be of this kind.
const Attr& AttrOf(const Artifact& artifact, uint32_t attr, AttrKind kind, std::string_view what);
int64_t IntOf(const Artifact& artifact, uint32_t attr, std::string_view what);
bool BoolOf(const Artifact& artifact, uint32_t attr, std::string_view what);
std::string_view TextOf(const Artifact& artifact, uint32_t attr, std::string_view what);
// Returns the value of an enumeration of this kind.
int64_t EnumOf(const Artifact& artifact, uint32_t attr, AttrKind kind, std::string_view what);
// Returns the elements of a tensor of integers or booleans, at most 4,096 of them.
std::vector<int64_t> IntsOf(const Artifact& artifact, uint32_t attr, std::string_view what);

// The elements of a tensor, at most 16 MiB. A tensor whose elements are all equal may be written as
// a single element; `literal` is then a scalar.
struct Tensor {
  Type type;
  Array literal;
  bool is_splat = false;
};
Tensor TensorOf(const Artifact& artifact, uint32_t attr, std::string_view what);

// Returns the file and line of a location, or an invalid site if there is none or the file's name
// is not printable.
Site SiteOf(const Artifact& artifact, uint32_t location);

}  // namespace tessera::ir::stablehlo
