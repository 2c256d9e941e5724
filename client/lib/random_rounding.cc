// Rounds f32 formulas like XLA's CPU code, with f64 arithmetic. The samplers in random_rejection.cc
// build their acceptance tests from these formulas.
#include "client/lib/random_rounding.h"

#include <cmath>
#include <limits>

namespace tessera::random::internal {
namespace {

using ir::DType;
using F = ir::Formula;

F As(DType dtype, const F& x) {
  return F([=] { return ir::Convert(*x, dtype); });
}
F Bitcast(DType dtype, const F& x) {
  return F([=] { return ir::BitcastConvert(*x, dtype); });
}
F Narrow(const F& x) { return As(DType::kF32, x); }
F Wide(const F& x) { return As(DType::kF64, x); }

// ---- Functions of f64 numbers that hold f32 numbers, whose products are exact. ----
//
// A sum of such numbers is rounded twice: to f64, then to f32. The result is that of a single
// rounding except for a few in 2^29 sums; no set of samples that was tried had such a sum.

F Rounded(const F& wide) { return Wide(Narrow(wide)); }
F Fused(const F& x, const F& y, const F& z) { return Rounded(x * y + z); }

// Returns the logarithm of positive normal numbers. This is the polynomial of logf in the Cephes
// library (S. Moshier), in three parts of degree 2, as Eigen and XLA evaluate it. All constants are
// floats.
F LogOfPositive(const F& x) {
  constexpr float kHalfRoot = 0.707106781186547524F;
  constexpr float kLog2High = 0.693359375F, kLog2Low = -2.12194440e-4F;
  constexpr float kC[] = {7.0376836292e-2F,  -1.1514610310e-1F, 1.1676998740e-1F,
                          -1.2420140846e-1F, 1.4249322787e-1F,  -1.6668057665e-1F,
                          2.0000714765e-1F,  -2.4999993993e-1F, 3.3333331174e-1F};
  // x = mantissa * 2^exponent, where the mantissa is at least the root of 1/2.
  const F bits = Bitcast(DType::kU32, x);
  const F half_to_1 = Wide(Bitcast(DType::kF32, (bits & 0x7fffff) | 0x3f000000));
  const F exponent_of_half = Wide(bits >> 23) - 126;
  const F below = half_to_1 < kHalfRoot;
  const F exponent = ir::Where(below, exponent_of_half - 1, exponent_of_half);
  const F m = ir::Where(below, half_to_1 + half_to_1, half_to_1) - 1;
  const F square = Rounded(m * m), cube = Rounded(square * m);
  const auto part = [&](int i) { return Fused(Fused(F(kC[i]), m, kC[i + 1]), m, kC[i + 2]); };
  const F polynomial = Fused(Fused(part(0), cube, part(3)), cube, part(6));
  const F tail = Fused(polynomial, cube, Rounded(exponent * kLog2Low));
  const F head = Fused(F(-0.5), square, m);
  return Narrow(exponent * kLog2High + Rounded(head + tail));
}

}  // namespace

F MulAdd(const F& x, const F& y, const F& z) { return Narrow(Wide(x) * Wide(y) + Wide(z)); }

F LogAsXla(const F& x) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  // Infinity and NaN are their own logarithms.
  return ir::Where(x == 0, -kInf, ir::Where(x < kInf, LogOfPositive(x), x));
}

// The approximation of C. Lanczos (1964), with the coefficients of Boost for g = 7 and n = 9, in
// the form of XLA's lgamma of k + 1.
F LogFactorialAsXla(const F& k) {
  constexpr float kC[] = {676.520368121885098567009190444019F, -1259.13921672240287047156078755283F,
                          771.3234287776530788486528258894F,   -176.61502916214059906584551354F,
                          12.507343278686904814458936853F,     -.13857109526572011689554707F,
                          9.984369578019570859563e-6F,         1.50563273514931155834e-7F};
  constexpr double kG = 7.5;  // g + 1/2
  const float log_g = static_cast<float>(std::log(kG));
  const float log_root_2_pi = static_cast<float>(0.5 * std::log(2 * M_PI));
  F sum = ir::Like(k, 1);
  for (int i = 0; i < 8; ++i) sum = sum + F(kC[i]) / (k + (i + 1.0));
  const F log_t = LogAsXla(k * static_cast<float>(1 / kG) + 1) + log_g;
  const F powers = k + 0.5 - (k + kG) / log_t;
  return MulAdd(powers, log_t, ir::Like(k, log_root_2_pi)) + LogAsXla(sum);
}

}  // namespace tessera::random::internal
