// Element types of arrays.  Names are those printed in types: `f32`, `s32`, `bool`.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera::ir {

enum class DType : uint8_t {
  kBool,
  kS8,
  kS16,
  kS32,
  kS64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,
  kC128,
  kF8E4M3FN,
  kF8E5M2,
};
inline constexpr int kNumDTypes = 17;

// Bytes one element occupies; a bool takes one byte, 0 or 1.
int64_t ByteWidth(DType dtype);
std::string_view DTypeName(DType dtype);
std::optional<DType> ParseDType(std::string_view name);

bool IsFloat(DType dtype);  // f8, f16, bf16, f32, f64
bool IsComplex(DType dtype);
bool IsInexact(DType dtype);  // float or complex: has tangents of its own dtype
bool IsSignedInt(DType dtype);
bool IsUnsignedInt(DType dtype);
bool IsInteger(DType dtype);  // signed or unsigned, not bool
// Whether kernels exist for it: bool, s32, u32, s64, bf16, f32, f64.
bool IsComputable(DType dtype);

}  // namespace tessera::ir
