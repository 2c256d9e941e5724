// More elementwise functions of jax.numpy. Dtypes are promoted and shapes broadcast as in numpy.h,
// which has the most common functions.
//
// Each function records the call site. All throw tessera::Error: TYPE_ERROR for a dtype that a
// function does not take, such as complex numbers if the function needs an order.
#pragma once
#include <optional>
#include <utility>

#include "client/numpy.h"

namespace tessera {

// ---- Functions of one array. Integers compute as floats: 64-bit ones as f64, others as f32. ----
Array log2(const Arg& x);
Array log10(const Arg& x);
Array deg2rad(const Arg& x);
Array rad2deg(const Arg& x);
Array radians(const Arg& x);     // deg2rad
Array degrees(const Arg& x);     // rad2deg
Array reciprocal(const Arg& x);  // 1 / x
Array sinc(const Arg& x);        // sin(pi x) / (pi x), 1 at 0
Array fabs(const Arg& x);        // real numbers only
Array rint(const Arg& x);        // rounds halves to even
// Returns the angle of complex numbers in (-pi, pi]; for real numbers 0 or pi. In degrees if `deg`.
Array angle(const Arg& z, bool deg = false);

// ---- Integers stay integers. ----
Array positive(const Arg& x);  // x
Array trunc(const Arg& x);     // rounds towards 0
Array isnan(const Arg& x);
Array isinf(const Arg& x);
Array isposinf(const Arg& x);
Array isneginf(const Arg& x);
Array isfinite(const Arg& x);
Array signbit(const Arg& x);  // true for negative numbers and -0.0
Array bitwise_not(const Arg& x);
Array invert(const Arg& x);  // bitwise_not
// Replacements of NaNs and infinities. By default infinities become the largest and the least
// number.
struct NanToNum {
  double nan = 0;
  std::optional<double> posinf = std::nullopt, neginf = std::nullopt;
};
Array nan_to_num(const Arg& x, const NanToNum& by = {});

// ---- Functions of two arrays. ----
Array add(const Arg& x, const Arg& y);
Array subtract(const Arg& x, const Arg& y);
Array multiply(const Arg& x, const Arg& y);
Array divide(const Arg& x, const Arg& y);
Array true_divide(const Arg& x, const Arg& y);
Array negative(const Arg& x);
Array greater(const Arg& x, const Arg& y);
Array greater_equal(const Arg& x, const Arg& y);
Array less(const Arg& x, const Arg& y);
Array less_equal(const Arg& x, const Arg& y);
// floor_divide returns the quotient, rounded down. divmod also returns the remainder.
Array floor_divide(const Arg& x, const Arg& y);
std::pair<Array, Array> divmod(const Arg& x, const Arg& y);
Array mod(const Arg& x, const Arg& y);   // remainder; the result has the sign of y
Array fmod(const Arg& x, const Arg& y);  // the result has the sign of x
Array fmax(const Arg& x, const Arg& y);  // if one operand is NaN, the other one
Array fmin(const Arg& x, const Arg& y);
Array logical_xor(const Arg& x, const Arg& y);
Array bitwise_and(const Arg& x, const Arg& y);
Array bitwise_or(const Arg& x, const Arg& y);
Array bitwise_xor(const Arg& x, const Arg& y);
Array left_shift(const Arg& x, const Arg& y);
Array right_shift(const Arg& x, const Arg& y);  // keeps the sign of signed integers
// Computes in floats.
Array float_power(const Arg& x, const Arg& y);
Array logaddexp(const Arg& x, const Arg& y);   // log(exp(x) + exp(y)); real numbers only
Array logaddexp2(const Arg& x, const Arg& y);  // log2(2^x + 2^y)
Array hypot(const Arg& x, const Arg& y);       // sqrt(x^2 + y^2) without overflow
Array heaviside(const Arg& x, const Arg& y);   // 0 if x is negative, y if it is 0, else 1
Array copysign(const Arg& x, const Arg& y);    // |x| with the sign of y
// Whether |x - y| <= atol + rtol |y|, or x and y are equal. Two NaNs are close if `equal_nan`.
struct CloseOptions {
  double rtol = 1e-5, atol = 1e-8;
  bool equal_nan = false;
};
Array isclose(const Arg& x, const Arg& y, const CloseOptions& options = {});
// Returns whether all elements are close.
Array allclose(const Arg& x, const Arg& y, const CloseOptions& options = {});
// Returns whether all elements are equal; false if the shapes differ.
Array array_equal(const Arg& x, const Arg& y, bool equal_nan = false);

}  // namespace tessera
