// What attributes and types of an artifact say, as our types, arrays and numbers.
//
// All throw StatusException: MALFORMED_PROGRAM for one of another kind than is asked for,
// NOT_IMPLEMENTED for a type that Tessera lacks, LIMIT_EXCEEDED for one that is too large.  `what`
// names it in errors: "slice: strides".
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

// MALFORMED_PROGRAM and NOT_IMPLEMENTED: "StableHLO: <what> <problem>".
[[noreturn]] void Malformed(std::string_view what, std::string_view problem);
[[noreturn]] void NotSupported(std::string_view what, std::string_view problem);

// A tensor's dtype and shape; all its dims are known and it has at most 32 of them.
Type TensorType(const Artifact& artifact, uint32_t type, std::string_view what);
// The integers that the elements of a quantized type are; nullopt for another.
std::optional<DType> StorageOf(const Artifact& artifact, const TypeOf& element);
// Whether a value of this type is one array: not a tuple, and no token.
bool IsArray(const Artifact& artifact, uint32_t type);
// The arrays that a value of this type is made of, in order: of a tuple those of its elements; of a
// token none.
std::vector<Type> ArraysOf(const Artifact& artifact, uint32_t type, std::string_view what);

// One of this kind.
const Attr& AttrOf(const Artifact& artifact, uint32_t attr, AttrKind kind, std::string_view what);
int64_t IntOf(const Artifact& artifact, uint32_t attr, std::string_view what);
bool BoolOf(const Artifact& artifact, uint32_t attr, std::string_view what);
std::string_view TextOf(const Artifact& artifact, uint32_t attr, std::string_view what);
// The value of an enumeration of this kind.
int64_t EnumOf(const Artifact& artifact, uint32_t attr, AttrKind kind, std::string_view what);
// Of a tensor of integers or truth values; at most 4,096 of them.
std::vector<int64_t> IntsOf(const Artifact& artifact, uint32_t attr, std::string_view what);

// A tensor's elements, of at most 16 MiB.  One that has the same element everywhere may be written
// as that alone: then `literal` is a scalar.
struct Tensor {
  Type type;
  Array literal;
  bool is_splat = false;
};
Tensor TensorOf(const Artifact& artifact, uint32_t attr, std::string_view what);

// The file and line of a location; an invalid site if it has none, or a file without a printable
// name.
Site SiteOf(const Artifact& artifact, uint32_t location);

}  // namespace tessera::ir::stablehlo
