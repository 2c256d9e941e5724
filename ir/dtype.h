// Element types of arrays.  Names are those printed in types: `f32`, `s32`, `bool`.
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

// Bytes one element occupies; a bool takes one byte, 0 or 1, and so do integers and floats of fewer
// than 8 bits.
int64_t ByteWidth(DType dtype);
// Bits that tell one value from another: 4 of an s4.
int BitWidth(DType dtype);
std::string_view DTypeName(DType dtype);
std::optional<DType> ParseDType(std::string_view name);

bool IsFloat(DType dtype);  // f4, f8, f16, bf16, f32, f64
bool IsComplex(DType dtype);
// The dtype of the real and the imaginary part. Requires: IsComplex(dtype).
DType PartDType(DType dtype);
bool IsInexact(DType dtype);  // float or complex: has tangents of its own dtype
bool IsSignedInt(DType dtype);
bool IsUnsignedInt(DType dtype);
bool IsInteger(DType dtype);  // signed or unsigned, not bool
// Whether kernels exist for it: bool, integers of 8 to 64 bits, f16, bf16, f32, f64.
bool IsComputable(DType dtype);
// The dtype in which its elements are computed with: f32 for narrower floats, else itself.
DType ComputeDType(DType dtype);

}  // namespace tessera::ir
