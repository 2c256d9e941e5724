// Float formats that no C++ type holds: bf16, f16 (IEEE binary16), and the formats of 8 and 4 bits.
// An element is stored in the low bits of an unsigned integer. Conversions to these formats round
// to nearest, ties to even. NaN, infinity and numbers that are too large for a format are treated
// as in JAX 0.10.2. Stateless; thread-safe, in the default rounding mode. References: Micikevicius
// et al., "FP8 Formats for Deep Learning" (2022); the OCP microscaling formats (2023).
#pragma once
#include <bit>
#include <cstdint>

#include "ir/dtype.h"

namespace tessera::ir {

inline float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
// Rounds to bf16. A NaN keeps its upper bits and becomes quiet.
inline uint16_t FloatToBf16(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>(value != value ? (u >> 16) | 0x40u : rounded);
}

inline float F16ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  // `special` gets the largest exponent of a float, for infinity and NaN. All other numbers are
  // rescaled to the bias of a float, which is exact and makes subnormals normal.
  const uint32_t special = sign | 0x7f800000u | (magnitude << 13);
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t finite = std::bit_cast<uint32_t>(scaled) | sign;
  return std::bit_cast<float>(magnitude >= 0x7c00u ? special : finite);
}
// Rounds to f16. A NaN keeps its upper bits and becomes quiet.
inline uint16_t FloatToF16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t rounded = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  // Adding 0.5 rounds the number to a multiple of the smallest f16.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) - 0x3f000000u;
  const uint32_t number = magnitude < 0x38800000u ? subnormal : rounded;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x1ffu);
  const uint32_t finite = magnitude >= 0x477ff000u ? 0x7c00u : number;
  return static_cast<uint16_t>(sign | (magnitude > 0x7f800000u ? nan : finite));
}
// Rounds only once. The double first becomes a float whose last bit is set if this conversion was
// inexact, so that the rounding of the float to f16 gives the f16 nearest to the double.
inline uint16_t DoubleToF16(double value) {
  const auto nearest = static_cast<float>(value);
  auto bits = std::bit_cast<uint32_t>(nearest);
  const double back = nearest;
  if (back != value && value == value) {
    if ((back < 0 ? -back : back) > (value < 0 ? -value : value)) --bits;
    bits |= 1;
  }
  return FloatToF16(std::bit_cast<float>(bits));
}

// Conversions from and to the formats of 8 and 4 bits. Requires: `dtype` is one of these formats.
float NarrowToFloat(DType dtype, uint8_t bits);  // exact
uint8_t DoubleToNarrow(DType dtype, double value);

}  // namespace tessera::ir
