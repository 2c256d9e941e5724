// The element types of arrays. DTypeName gives the names that types are printed with: `f32`, `s32`,
// `bool`. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera::ir {

enum class DType : uint8_t {
#define TESSERA_COMPUTED(symbol, ...) k##symbol,
#define TESSERA_STORED(symbol, ...) k##symbol,
#include "ir/dtypes.def"
#undef TESSERA_COMPUTED
#undef TESSERA_STORED
};
inline constexpr int kNumDTypes = 28;

// Returns the bytes that one element occupies. A bool takes one byte, 0 or 1. Integers and floats
// of fewer than 8 bits take one byte too.
int64_t ByteWidth(DType dtype);
// Returns the number of bits that hold the value: 4 for s4.
int BitWidth(DType dtype);
std::string_view DTypeName(DType dtype);
std::optional<DType> ParseDType(std::string_view name);

bool IsFloat(DType dtype);  // f4, f8, f16, bf16, f32, f64
bool IsComplex(DType dtype);
// Returns the dtype of the real and the imaginary part. Requires: IsComplex(dtype).
DType PartDType(DType dtype);
bool IsInexact(DType dtype);  // float or complex: its tangents have the same dtype
bool IsSignedInt(DType dtype);
bool IsUnsignedInt(DType dtype);
bool IsInteger(DType dtype);  // signed or unsigned, not bool
// Returns whether kernels exist for the dtype: bool, integers of 8 to 64 bits, f16, bf16, f32, f64.
bool IsComputable(DType dtype);
// Returns the dtype in which elements are computed: f32 for floats that are narrower than f32, and
// `dtype` itself for all others.
DType ComputeDType(DType dtype);

}  // namespace tessera::ir
