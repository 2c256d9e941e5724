// Exp, log, tanh and erf of f32 as LLVM IR. EmitPrim (math.cc) calls them on hosts and GPUs. They
// use the same steps for scalars and for vectors, without branches, so that an element has the same
// bits in every lane.
#include "worker/codegen/math_functions.h"

#include <limits>

namespace tessera::worker::codegen {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The polynomials minimise the largest relative error of the whole function. Remez' exchange
// algorithm found them.

// Adding this number, 1.5 * 2^23, leaves the nearest integer in the low bits.
constexpr double kToNearestInt = 12582912.0;

// The parts of e^x = 2^n p, for |x| < 2^22. p is in [0.7, 1.42]. For a NaN, p is NaN and n is
// unspecified.
struct ScaledExp {
  V p, n;
};
ScaledExp ExpParts(V x) {
  constexpr double kLog2E = 1.44269504088896340736;
  constexpr double kLn2Hi = 0x1.62e43p-1, kLn2Lo = -0x1.05c610ca86c39p-29;
  constexpr double kQ[] = {0.49999994f, 0.166665196f, 0.0416683927f, 0.00836878084f,
                           0.00138145068f};
  const V shifted = Fma(x, x.Of(kLog2E), x.Of(kToNearestInt));
  const V n = shifted.Bits() - x.Of(kToNearestInt).Bits();
  const V whole = shifted - kToNearestInt;
  V r = Fma(whole, x.Of(-kLn2Hi), x);
  r = Fma(whole, x.Of(-kLn2Lo), r);
  return {Fma(r * r, Polynomial(r, kQ), r) + 1.0, n};
}

// Returns 2^n for -127 < n < 128.
V Pow2F32(V n) { return ((n + n.OfInt(127)) << 23).AsF32(); }
// Returns 2^n from n + kToNearestInt, whose low bits are the bits of n. The result for a NaN is
// unspecified.
V Pow2OfShifted(V shifted) { return ((shifted.Bits() << 23) + shifted.Of(1).Bits()).AsF32(); }

// Returns the lesser of x and c, or NaN if x is NaN.
V AtMost(V x, double c) { return Select(x > c, x.Of(c), x); }

}  // namespace

V ExpF32(V x) {
  // Beyond these limits the result is inf or 0. The scale is applied in two steps, so that only the
  // last product rounds to a denormal.
  V near = AtMost(x, 89);
  near = Select(near < -104, x.Of(-104), near);
  const auto [p, n] = ExpParts(near);
  const V half = n >> 1;
  return p * Pow2F32(half) * Pow2F32(n - half);
}

V LogF32(V x) {
  constexpr double kLn2Hi = 0x1.62e43p-1, kLn2Lo = -0x1.05c610ca86c39p-29;
  constexpr double kQ[] = {0.333333135f,  -0.250000089f, 0.200021178f,  -0.166679934f, 0.142195582f,
                           -0.124056071f, 0.118881524f,  -0.116756171f, 0.0674663708f};
  // x = 2^e m with m in [sqrt(1/2), sqrt(2)).
  constexpr int kRootHalf = 0x3f3504f3, kMantissa = 0x7fffff, kScale = 25;
  const V tiny = x < std::numeric_limits<float>::min();
  const V bits = Select(tiny, x * (1 << kScale), x).Bits();
  const V from_root = bits - bits.OfInt(kRootHalf);
  const V e = ((from_root >> 23) + Select(tiny, bits.OfInt(-kScale), bits.OfInt(0))).ToF32();
  const V m = ((from_root & bits.OfInt(kMantissa)) + bits.OfInt(kRootHalf)).AsF32();
  const V f = m - 1.0, ff = f * f;
  V tail = Polynomial(f, kQ) * f * ff;
  tail = Fma(e, x.Of(kLn2Lo), tail);
  tail = Fma(ff, x.Of(-0.5), tail);
  const V log = Fma(e, x.Of(kLn2Hi), f + tail);
  const V zero_or_less = Select(Eq(x, x.Of(0)), x.Of(-kInf), x.Of(kNan));
  return Select(x > 0, Select(x < kInf, log, x), zero_or_less);
}

V TanhF32(V x) {
  // The result is x + x^3 P(x^2) while it is less than a half, and 1 - 2 / (e^2x + 1) above, with
  // e^2x = 2^n p(h) and h = x - n ln 2 / 2. n is small, so that one product is exact enough.
  constexpr double kP[] = {-0.333329469f, 0.133207306f, -0.0526719876f, 0.0164377149f};
  constexpr double kExp[] = {1.0,          2.0,          1.99999976f,  1.33332157f,
                             0.666694283f, 0.267800987f, 0.0884128436f};
  constexpr double kTwoLog2E = 2.88539008177792681472, kHalfLn2 = 0.34657359027997265471;
  const V a = Abs(x), aa = a * a;
  const V small = Fma(a * aa, Polynomial(aa, kP), a);
  // tanh is 1 in f32 from 10 on.
  const V t = AtMost(a, 10);
  const V shifted = Fma(t, x.Of(kTwoLog2E), x.Of(kToNearestInt));
  const V h = Fma(shifted - kToNearestInt, x.Of(-kHalfLn2), t);
  const V big = 1.0 - x.Of(2) / Fma(Polynomial(h, kExp), Pow2OfShifted(shifted), x.Of(1));
  // A NaN takes the polynomial and stays NaN.
  return CopySign(Select(a >= 0.55, big, small), x);
}

V ErfF32(V x) {
  // The result is x + x P(x^2) up to 1. Above, it is 1 - 2^Q(x), where the power is computed from
  // the whole and the fractional part of Q(x).
  constexpr double kP[] = {0.128379166f,   -0.37612626f,    0.112835884f,  -0.0268539209f,
                           0.00518850563f, -0.00080115936f, 7.8581048e-05f};
  constexpr double kQ[] = {-0.000492738793f, -1.62604582f,    -0.920648575f,  -0.148751408f,
                           0.0315055624f,    -0.00425254321f, 0.000268885196f};
  constexpr double kPow2[] = {1.0,           0.693146944f,   0.240222394f,
                              0.0555073917f, 0.00967173185f, 0.00132637308f};
  const V a = Abs(x), aa = a * a;
  const V small = Fma(a, Polynomial(aa, kP), a);
  // erf is 1 in f32 from 3.95 on.
  const V exponent = Polynomial(AtMost(a, 3.95), kQ);
  const V shifted = exponent + kToNearestInt;
  const V fraction = exponent - (shifted - kToNearestInt);
  const V big = Fma(-Polynomial(fraction, kPow2), Pow2OfShifted(shifted), x.Of(1));
  return CopySign(Select(a >= 1, big, small), x);
}

}  // namespace tessera::worker::codegen
