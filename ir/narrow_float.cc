// Conversions between doubles and the float formats of 8 and 4 bits. Element<> (element.h) calls
// them for every load and store of such an element.
#include "ir/narrow_float.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tessera::ir {
namespace {

struct Format {
  int exponent_bits, mantissa_bits, bias;
  // The code (the bits) of NaN, or -1 if the format has none.
  int nan;
  // The code that infinity and all numbers that are too large for the format become.
  int too_large;
  bool has_sign = true;
  bool nan_is_negative_zero = false;  // there is one NaN, in the place of -0
};
constexpr Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF8E5M2:
      return {5, 2, 15, 0x7e, 0x7c};
    case DType::kF8E4M3:
      return {4, 3, 7, 0x7c, 0x78};
    case DType::kF8E3M4:
      return {3, 4, 3, 0x78, 0x70};
    // A code of only ones is NaN; the other codes with that exponent are finite.
    case DType::kF8E4M3FN:
      return {4, 3, 7, 0x7f, 0x7f};
    case DType::kF8E4M3B11FNUZ:
      return {4, 3, 11, 0x80, 0x80, true, true};
    case DType::kF8E4M3FNUZ:
      return {4, 3, 8, 0x80, 0x80, true, true};
    case DType::kF8E5M2FNUZ:
      return {5, 2, 16, 0x80, 0x80, true, true};
    case DType::kF8E8M0FNU:  // powers of two, no zero
      return {8, 0, 127, 0xff, 0xff, false};
    // The only format left is f4e2m1fn.
    default:
      return {2, 1, 1, -1, 0x7};
  }
}

double ValueOf(const Format& f, int code) {
  const int sign_bit = f.exponent_bits + f.mantissa_bits;
  if (code == f.nan) return std::numeric_limits<double>::quiet_NaN();
  const bool negative = f.has_sign && ((code >> sign_bit) & 1);
  const int magnitude = f.has_sign ? code & ((1 << sign_bit) - 1) : code;
  const int mantissa = magnitude & ((1 << f.mantissa_bits) - 1);
  const int exponent = magnitude >> f.mantissa_bits;
  double value;
  if (f.nan > f.too_large && magnitude >= f.too_large) {
    value = magnitude == f.too_large ? std::numeric_limits<double>::infinity()
                                     : std::numeric_limits<double>::quiet_NaN();
  } else if (magnitude == f.nan) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0 && f.has_sign) {
    value = std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - f.bias - f.mantissa_bits);
  }
  return negative ? -value : value;
}

using Table = std::array<float, 256>;
Table MakeTable(DType dtype) {
  const Format f = FormatOf(dtype);
  const int codes = 1 << BitWidth(dtype);
  Table table;
  for (int i = 0; i < 256; ++i) table[i] = static_cast<float>(ValueOf(f, i % codes));
  return table;
}

}  // namespace

float NarrowToFloat(DType dtype, uint8_t bits) {
  static const auto* const tables = [] {
    auto* all = new std::array<Table, kNumDTypes>;
    for (int d = 0; d < kNumDTypes; ++d) {
      const auto narrow = static_cast<DType>(d);
      if (IsFloat(narrow) && ByteWidth(narrow) == 1) (*all)[d] = MakeTable(narrow);
    }
    return all;
  }();
  return (*tables)[static_cast<int>(dtype)][bits];
}

// Rounds a double to a format by its description in FormatOf. The arithmetic is on integers and in
// units of the last place, so that one path serves normal and subnormal numbers of all formats and
// rounds exactly once. NaN, infinity and numbers that are too large become what JAX makes of them.
uint8_t DoubleToNarrow(DType dtype, double value) {
  const Format f = FormatOf(dtype);
  const int sign = f.has_sign && std::signbit(value) ? 1 << (f.exponent_bits + f.mantissa_bits) : 0;
  const auto with_sign = [&](int code) { return static_cast<uint8_t>(code | sign); };
  // f4e2m1fn has no NaN and uses -0 instead.
  if (std::isnan(value)) return f.nan < 0 ? 0x8 : with_sign(f.nan);
  // A format without zero has no value for a number that is at most 0 as a float, so it becomes
  // NaN. The number is tested as a float because JAX converts by way of f32.
  if (!f.has_sign && static_cast<float>(value) <= 0) return static_cast<uint8_t>(f.nan);
  if (std::isinf(value)) return with_sign(f.too_large);
  // Count in units of the last place: all values of one exponent are then integers, and so are the
  // subnormal ones. The units are rounded as integers.
  const auto bits = std::bit_cast<uint64_t>(std::fabs(value));
  const int exponent = static_cast<int>(bits >> 52) - 1023;
  const uint64_t mantissa = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  const int least_exponent = (f.has_sign ? 1 : 0) - f.bias;
  const int dropped = 52 - f.mantissa_bits + std::max(0, least_exponent - exponent);
  int units = 0;
  if (dropped <= 53) {
    const uint64_t half = uint64_t{1} << (dropped - 1), rest = mantissa & (2 * half - 1);
    units = static_cast<int>(mantissa >> dropped);
    if (rest > half || (rest == half && units % 2 != 0)) ++units;
  }
  const int raised = (std::max(exponent, least_exponent) + f.bias - (f.has_sign ? 1 : 0))
                     << f.mantissa_bits;
  const int code = f.has_sign ? raised + units : raised + std::max(units - 1, 0);
  if (code >= f.too_large && !(f.nan < 0 && code == f.too_large)) return with_sign(f.too_large);
  if (code == 0 && f.nan_is_negative_zero) return 0;
  return with_sign(code);
}

}  // namespace tessera::ir
