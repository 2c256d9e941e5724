// More elementwise functions of jax.numpy: dtypes promote and shapes broadcast as in numpy.h, which
// has the most common ones.
//
// Each records the call site. All throw tessera::Error: TYPE_ERROR for a dtype that a function does
// not take, such as complex numbers that have no order.
#pragma once
#include <optional>
#include <utility>

#include "client/numpy.h"

namespace tessera {

// ---- Of one array. Integers compute as floats: s64 as f64, others as f32. ----
Array log2(const Arg& x);
Array log10(const Arg& x);
Array deg2rad(const Arg& x);
Array rad2deg(const Arg& x);
Array radians(const Arg& x);     // deg2rad
Array degrees(const Arg& x);     // rad2deg
Array reciprocal(const Arg& x);  // 1 / x
Array sinc(const Arg& x);        // sin(pi x) / (pi x), 1 at 0
Array fabs(const Arg& x);        // of real numbers
Array rint(const Arg& x);        // halves to even
// The angle of complex numbers, and of real ones 0 or pi; in degrees if `deg`.
Array angle(const Arg& z, bool deg = false);

// ---- Integers stay integers. ----
Array positive(const Arg& x);  // x
Array trunc(const Arg& x);     // towards 0
Array isnan(const Arg& x);
Array isinf(const Arg& x);
Array isposinf(const Arg& x);
Array isneginf(const Arg& x);
Array isfinite(const Arg& x);
Array signbit(const Arg& x);  // whether it is negative, as -0.0 is
Array bitwise_not(const Arg& x);
Array invert(const Arg& x);  // bitwise_not
// NaNs as `nan`, and infinities as these numbers: by default the largest and the least.
struct NanToNum {
  double nan = 0;
  std::optional<double> posinf = std::nullopt, neginf = std::nullopt;
};
Array nan_to_num(const Arg& x, const NanToNum& by = {});

// ---- Of two arrays. ----
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
// The quotient, rounded down; with remainder's rest.
Array floor_divide(const Arg& x, const Arg& y);
std::pair<Array, Array> divmod(const Arg& x, const Arg& y);
Array mod(const Arg& x, const Arg& y);   // remainder: has the sign of y
Array fmod(const Arg& x, const Arg& y);  // has the sign of x
Array fmax(const Arg& x, const Arg& y);  // the other one of a NaN
Array fmin(const Arg& x, const Arg& y);
Array logical_xor(const Arg& x, const Arg& y);
Array bitwise_and(const Arg& x, const Arg& y);
Array bitwise_or(const Arg& x, const Arg& y);
Array bitwise_xor(const Arg& x, const Arg& y);
Array left_shift(const Arg& x, const Arg& y);
Array right_shift(const Arg& x, const Arg& y);  // of signed integers with the sign
// As floats.
Array float_power(const Arg& x, const Arg& y);
Array logaddexp(const Arg& x, const Arg& y);   // log(exp(x) + exp(y)), of real numbers
Array logaddexp2(const Arg& x, const Arg& y);  // log2(2^x + 2^y)
Array hypot(const Arg& x, const Arg& y);       // sqrt(x^2 + y^2) without overflow
Array heaviside(const Arg& x, const Arg& y);   // 0 below 0, y at 0, 1 above
Array copysign(const Arg& x, const Arg& y);    // |x| with the sign of y
// Whether |x - y| <= atol + rtol |y|, or they are equal; two NaNs if `equal_nan`.
struct CloseOptions {
  double rtol = 1e-5, atol = 1e-8;
  bool equal_nan = false;
};
Array isclose(const Arg& x, const Arg& y, const CloseOptions& options = {});
Array allclose(const Arg& x, const Arg& y, const CloseOptions& options = {});  // all of them
// Whether all elements are equal; false of shapes that differ.
Array array_equal(const Arg& x, const Arg& y, bool equal_nan = false);

}  // namespace tessera
