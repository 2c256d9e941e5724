#include "ir/narrow_float.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::ir {
namespace {

struct Format {
  int exponent_bits, mantissa_bits;
  bool has_infinity;  // else only all ones are NaN, and the rest of that exponent are finite

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int exponent_max() const { return (1 << exponent_bits) - 1; }
  int sign_bit() const { return exponent_bits + mantissa_bits; }
};
Format FormatOf(DType dtype) {
  if (dtype == DType::kF16) return {5, 10, true};
  if (dtype == DType::kF8E5M2) return {5, 2, true};
  return {4, 3, false};
}

}  // namespace

double NarrowToDouble(DType dtype, uint16_t bits) {
  const Format f = FormatOf(dtype);
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const int exponent = (bits >> f.mantissa_bits) & f.exponent_max();
  const bool negative = (bits >> f.sign_bit()) & 1;
  const bool special = exponent == f.exponent_max();
  double magnitude;
  if (special && f.has_infinity) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (special && mantissa == (1 << f.mantissa_bits) - 1) {
    magnitude = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, 1 - f.bias() - f.mantissa_bits);
  } else {
    magnitude =
        std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - f.bias() - f.mantissa_bits);
  }
  return negative ? -magnitude : magnitude;
}

uint16_t DoubleToNarrow(DType dtype, double value) {
  const Format f = FormatOf(dtype);
  const int one = 1 << f.mantissa_bits;
  const auto with_sign = [&](int magnitude) {
    return static_cast<uint16_t>(magnitude | (std::signbit(value) ? 1 << f.sign_bit() : 0));
  };
  const int infinity = f.exponent_max() << f.mantissa_bits;
  const int nan = f.has_infinity ? infinity | (one >> 1) : infinity | (one - 1);
  if (std::isnan(value)) return with_sign(nan);
  const int too_large = f.has_infinity ? infinity : nan;
  if (std::isinf(value)) return with_sign(too_large);
  if (value == 0) return with_sign(0);
  // In units of the last place, in which all values of an exponent are integers, subnormal ones
  // too.
  int exponent = std::max(std::ilogb(value), 1 - f.bias());
  auto units =
      static_cast<int>(std::nearbyint(std::ldexp(std::fabs(value), f.mantissa_bits - exponent)));
  if (units == 2 * one) {
    units = one;
    ++exponent;
  }
  if (exponent > f.bias() + 1) return with_sign(too_large);
  const int bits = units < one ? units : ((exponent + f.bias()) << f.mantissa_bits) + units - one;
  return with_sign(bits >= (f.has_infinity ? infinity : nan) ? too_large : bits);
}

}  // namespace tessera::ir
