// The functions of floats of wide_math.h. The emitters use them where EmitPrim (math.h) has no
// code: gpu_nodes.cc for f32 and f64, and emit_host.cc for f32 only. The coefficients of log, atan,
// cbrt, erf, sin and cos are fdlibm's (Sun Microsystems, 1993, freely granted), whose error
// analysis applies. Unlike fdlibm, this code fuses multiplications and additions, and keeps a
// reduced argument as the sum of two numbers.
#include "worker/codegen/wide_math.h"

#include <functional>
#include <limits>

#include "llvm/IR/Module.h"
#include "worker/codegen/lanes.h"
#include "worker/codegen/scalar_prim.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ScalarPrim;
using llvm::BasicBlock;
using llvm::Value;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 0x1.921fb54442d18p+1, kPiLow = 0x1.1a62633145c07p-53;
constexpr double kHalfPi = 0x1.921fb54442d18p+0, kHalfPiLow = 0x1.1a62633145c07p-54,
                 kHalfPiLowest = -0x1.f1976b7ed8fbcp-110;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
// The last bits of kLn2 are 0, so that its products with exponents are exact.
constexpr double kLn2 = 0x1.62e42fefa3000p-1, kLn2Low = 0x1.3de6af278ece6p-42;
constexpr double kLog2E = 1.44269504088896340736;
constexpr double kTwo54 = 0x1p54;
// Adding this number leaves the nearest integer in the low bits.
constexpr double kToNearestInt = 0x1.8p52;

// Limits x to [low, high]. A NaN stays NaN.
V Clamp(V x, double low, double high) {
  x = Select(x > high, x.Of(high), x);
  return Select(x < low, x.Of(low), x);
}
V IsInf(V x) { return Eq(Abs(x), x.Of(kInf)); }
V IsFinite(V x) { return Abs(x) < kInf; }

// ---- Numbers of twice the precision, as the sum of two floats. ---------------------------------

struct DoubleDouble {
  V high, low;
};
// FastTwoSum and TwoSum return x + y exactly. FastTwoSum requires |x| >= |y|, or x = 0.
DoubleDouble FastTwoSum(V x, V y) {
  const V s = x + y;
  return {s, y - (s - x)};
}
DoubleDouble TwoSum(V x, V y) {
  const V s = x + y, part = s - x;
  return {s, (x - (s - part)) + (y - part)};
}
// Returns x y exactly.
DoubleDouble TwoProduct(V x, V y) {
  const V p = x * y;
  return {p, Fma(x, y, -p)};
}
DoubleDouble Product(DoubleDouble x, DoubleDouble y) {
  const DoubleDouble p = TwoProduct(x.high, y.high);
  return FastTwoSum(p.high, p.low + Fma(x.high, y.low, x.low * y.high));
}

// ---- Exponentials. -----------------------------------------------------------------------------

// Returns 2^n for -1023 < n < 1024.
V PowerOfTwo(V n) { return ((n + n.OfInt(1023)) << 52).AsF64(); }

// Returns x 2^n for |n| < 2000, rounded once if the result is normal.
V Scale(V x, V n) {
  const V half = n >> 1;
  return x * PowerOfTwo(half) * PowerOfTwo(n - half);
}

// The parts of an exponential: x + low = n ln 2 + r, and e^(x + low) - 1 = 2^n (rest + 1) - 1.
// Requires |x| <= 800.
struct ReducedExp {
  V rest, n;
};
ReducedExp ReduceExp(V x, V low) {
  // The coefficients are 1/2!, 1/3!, ...
  constexpr double kFactorials[] = {
      1.0 / 2,     1.0 / 6,      1.0 / 24,      1.0 / 120,      1.0 / 720,       1.0 / 5040,
      1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  const V shifted = Fma(x, x.Of(kLog2E), x.Of(kToNearestInt));
  const V n = shifted.Bits() - x.Of(kToNearestInt).Bits();
  const V whole = shifted - kToNearestInt;
  const V near = Fma(whole, x.Of(-kLn2), x);
  const V off = whole * kLn2Low;
  const V r = near - off;
  const DoubleDouble reduced = FastTwoSum(r, ((near - r) - off) + low);
  return {reduced.high +
              Fma(reduced.high * reduced.high, Polynomial(reduced.high, kFactorials), reduced.low),
          n};
}

// Returns e^(x + low) for any x. `low` is ignored where the result is 0 or inf.
V Exp(V x, V low) {
  const V near = Clamp(x, -800, 800);
  const auto [rest, n] = ReduceExp(near, Select(Abs(x) < 800, low, x.Of(0)));
  return Scale(rest + 1.0, n);
}
V Exp(V x) { return Exp(x, x.Of(0)); }

V Expm1(V x) {
  const V near = Clamp(x, -50, 710);
  const auto [rest, n] = ReduceExp(near, x.Of(0));
  const V half = ((n + n.OfInt(1022)) << 52).AsF64();
  const V y = Fma(rest, half, half - 0.5);
  return CopySign(y + y, x);
}

V Tanh(V x) {
  const V a = Abs(x), small = a < 1;
  // tanh is 1 when 2 a is 60 or more.
  const V twice = Clamp(a + a, 0, 60);
  const V t = Expm1(Select(small, -twice, twice));
  const V y = Select(small, -t, x.Of(2)) / (t + 2.0);
  return CopySign(Select(small, y, 1.0 - y), x);
}

// ---- Logarithms. -------------------------------------------------------------------------------

// The parts of a positive finite number: x = 2^e m, with m in [sqrt(1/2), sqrt(2)).
struct ExponentAndMantissa {
  V e, m;  // e is a float
};
ExponentAndMantissa SplitExponent(V x) {
  constexpr int64_t kRootHalf = 0x3fe6a09e667f3bcd, kMantissa = 0xfffffffffffff;
  const V tiny = x < std::numeric_limits<double>::min();
  const V bits = Select(tiny, x * kTwo54, x).Bits();
  const V from_root = bits - bits.OfInt(kRootHalf);
  const V e = (from_root >> 52) + Select(tiny, bits.OfInt(-54), bits.OfInt(0));
  return {e.ToF64(), ((from_root & bits.OfInt(kMantissa)) + bits.OfInt(kRootHalf)).AsF64()};
}

// The parts of log(1 + f) = f - f^2/2 + rest(f), for 1 + f in [sqrt(1/2), sqrt(2)).
struct NearLog {
  V half_square, rest;
};
NearLog LogNear(V f) {
  constexpr double kLg[] = {6.666666666666735130e-01, 3.999999999940941908e-01,
                            2.857142874366239149e-01, 2.222219843214978396e-01,
                            1.818357216161805012e-01, 1.531383769920937332e-01,
                            1.479819860511658591e-01};
  const V s = f / (f + 2.0), z = s * s, half_square = f * f * 0.5;
  return {half_square, s * (half_square + z * Polynomial(z, kLg))};
}

// Returns `log`, or the special value if x is not a positive finite number.
V LogSpecial(V x, V log) {
  const V zero_or_less = Select(Eq(x, x.Of(0)), x.Of(-kInf), x.Of(kNan));
  return Select(x > 0, Select(x < kInf, log, x), Select(IsNan(x), x, zero_or_less));
}

V Log(V x) {
  const auto [e, m] = SplitExponent(x);
  const V f = m - 1.0;
  const auto [half_square, rest] = LogNear(f);
  const V log = e * kLn2 - ((half_square - Fma(e, x.Of(kLn2Low), rest)) - f);
  return LogSpecial(x, log);
}

V Log1p(V x) {
  const V u = x + 1.0;
  // Near 0 the argument itself is the difference from 1. Elsewhere a correction makes up for what
  // the sum x + 1 lost to rounding.
  const V near = (x > -0.2928932188134524) & (x < 0.41421356237309503);
  const auto [e, m] = SplitExponent(u);
  const V lost = Select(u > 2, 1.0 - (u - x), x - (u - 1.0)) / u;
  const V f = Select(near, x, m - 1.0), k = Select(near, x.Of(0), e);
  const auto [half_square, rest] = LogNear(f);
  const V correction = Fma(k, x.Of(kLn2Low), Select(near, x.Of(0), lost));
  const V log = k * kLn2 - ((half_square - (rest + correction)) - f);
  return CopySign(LogSpecial(u, log), x);
}

// Returns the logarithm of a positive finite number x = 2^e m, with an error of about 2^-65 times
// log(m).
DoubleDouble PreciseLog(V x) {
  constexpr double kOdd[] = {1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13, 1.0 / 15,
                             1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25, 1.0 / 27};
  constexpr double kThird = 0x1.5555555555555p-2, kThirdLow = 0x1.5555555555555p-56;
  const auto [e, m] = SplitExponent(x);
  // log(m) = 2 s (1 + s^2/3 + s^4/5 + ...) with s = (m - 1) / (m + 1).
  const V f = m - 1.0;
  const DoubleDouble below = TwoSum(m, x.Of(1));
  const V s = f / below.high;
  const V s_low = (Fma(-s, below.high, f) - s * below.low) / below.high;
  const DoubleDouble square = TwoProduct(s, s);
  const V z = square.high, z_low = square.low + s * s_low * 2.0;
  const DoubleDouble third = TwoProduct(z, x.Of(kThird));
  const V third_low = third.low + Fma(z, x.Of(kThirdLow), z_low * kThird);
  const DoubleDouble one = FastTwoSum(x.Of(1), third.high);
  const DoubleDouble series =
      FastTwoSum(one.high, Fma(z * z, Polynomial(z, kOdd), one.low + third_low));
  const DoubleDouble log_m = Product(DoubleDouble{s + s, s_low + s_low}, series);
  const DoubleDouble log = TwoSum(e * kLn2, log_m.high);
  return FastTwoSum(log.high, Fma(e, x.Of(kLn2Low), log.low + log_m.low));
}

V Trunc(V x) { return x.Unary(llvm::Intrinsic::trunc); }

V Pow(V x, V y) {
  const V a = Abs(x);
  const DoubleDouble log = PreciseLog(Select(IsFinite(a), a, x.Of(1)));
  const V high = Select(Eq(a, x.Of(0)), x.Of(-kInf), Select(IsFinite(a), log.high, a));
  const DoubleDouble product = TwoProduct(high, y);
  const V magnitude = Exp(product.high, Fma(log.low, y, product.low));
  // A negative base takes whole exponents only, and the odd ones give a negative result.
  const V half = y * 0.5;
  const V whole = Eq(Trunc(y), y);
  const V odd = whole & ~Eq(Trunc(half), half);
  const V negative = x.Bits() < x.Bits().OfInt(0);
  V result = Select(negative & odd, -magnitude, magnitude);
  result = Select((x < 0) & ~whole & IsFinite(a), x.Of(kNan), result);
  // The power is 1 for 1 to any power, for anything to the power 0, and for -1 to an infinite
  // power.
  const V one = Eq(x, x.Of(1)) | Eq(y, x.Of(0)) | (Eq(a, x.Of(1)) & IsInf(y));
  return Select(one, x.Of(1), result);
}

V Cbrt(V x) {
  constexpr double kP[] = {1.87595182427177009643, -1.88497979543377169875, 1.621429720105354466140,
                           -0.758397934778766047437, 0.145996192886612446982};
  constexpr int64_t kThirdOfBias = 715094163, kLowBits = 0xffffffff;
  const V a = Abs(x);
  const V tiny = a < std::numeric_limits<double>::min();
  const V scaled = Select(tiny, a * kTwo54, a);
  const V upper = scaled.Bits().ShiftRight(32);
  const V third = upper.With(x.b().CreateUDiv(upper.get(), upper.OfInt(3).get()));
  const V guess = ((third + third.OfInt(kThirdOfBias)) << 32).AsF64();
  const V r = guess * guess * (guess / scaled);
  V t = guess * Polynomial(r, kP);
  // Keeps few bits of the root, so that its square is exact, and takes one more Newton step.
  t = ((t.Bits() + t.Bits().OfInt(0x80000000)) & ~t.Bits().OfInt(kLowBits >> 2)).AsF64();
  const V s = t * t, q = scaled / s;
  t = Fma(t, (q - t) / (t + t + q), t);
  const V root = Select(tiny, t * 0x1p-18, t);
  const V special = Eq(a, x.Of(0)) | ~IsFinite(x);
  return Select(special, x, CopySign(root, x));
}

// ---- Trigonometry. -----------------------------------------------------------------------------

// An angle after reduction: |x| = (quarter + 4 i) pi/2 + r for some integer i, with |r| <= pi/4.
struct ReducedAngle {
  V quarter;  // an i64, of which only the two low bits count
  DoubleDouble r;
};

ReducedAngle ReduceSmall(V a) {
  const V shifted = Fma(a, a.Of(kTwoOverPi), a.Of(kToNearestInt));
  const V n = shifted - kToNearestInt;
  // This is exact: the result is a multiple of 2^-53, below 2.
  const V near = Fma(n, a.Of(-kHalfPi), a);
  const DoubleDouble off = TwoProduct(n, a.Of(kHalfPiLow));
  const V r = near - off.high;
  const V r_low = ((near - r) - off.high) - off.low - n * kHalfPiLowest;
  return {shifted.Bits(), FastTwoSum(r, r_low)};
}

// Returns the module's table of the bits of 2/pi, after 64 zeros.
llvm::GlobalVariable* TwoOverPi(llvm::Module* module) {
  constexpr uint64_t kWords[] = {
      0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
      0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e,
      0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
      0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
      0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab};
  constexpr char kName[] = "tessera_two_over_pi";
  if (llvm::GlobalVariable* known = module->getGlobalVariable(kName, /*AllowInternal=*/true))
    return known;
  llvm::Constant* const words = llvm::ConstantDataArray::get(module->getContext(), kWords);
  // Address space 1 is the global memory of NVPTX, and has no meaning on a host.
  return new llvm::GlobalVariable(*module, words->getType(), /*isConstant=*/true,
                                  llvm::GlobalValue::InternalLinkage, words, kName, nullptr,
                                  llvm::GlobalValue::NotThreadLocal, /*AddressSpace=*/1);
}

// Reduces an angle a >= 2^50 by the method of Payne and Hanek: with a = m 2^e, only the bits with a
// weight of at most 2 matter in the product with 2/pi. Integers of 128 bits hold them exactly. Only
// scalar code comes here, because every argument reads other words of the table.
ReducedAngle ReduceLarge(V a) {
  llvm::IRBuilderBase& b = a.b();
  const V bits = a.Bits();
  const V mantissa = (bits & bits.OfInt(0xfffffffffffff)) | bits.OfInt(int64_t{1} << 52);
  const V e = bits.ShiftRight(52) - bits.OfInt(1075);
  // The first bit that matters is the one that has the weight 2 after the multiplication.
  const V first = e + bits.OfInt(62);
  const V index = first.ShiftRight(6), shift = first & bits.OfInt(63);
  llvm::GlobalVariable* const table = TwoOverPi(b.GetInsertBlock()->getModule());
  const auto word = [&](int i) {
    return b.CreateLoad(b.getInt64Ty(),
                        b.CreateGEP(b.getInt64Ty(), table, (index + index.OfInt(i)).get()));
  };
  Value* words[4] = {word(0), word(1), word(2), word(3)};
  const auto wide = [&](Value* v) { return b.CreateZExt(v, b.getInt128Ty()); };
  const auto window = [&](int i) {
    return b.CreateIntrinsic(llvm::Intrinsic::fshl, {b.getInt64Ty()},
                             {words[i], words[i + 1], shift.get()});
  };
  // Computes the upper 128 bits of a product of 192 bits.
  Value* const m = wide(mantissa.get());
  Value* product = b.CreateShl(b.CreateMul(m, wide(window(0))), 64);
  product = b.CreateAdd(product, b.CreateMul(m, wide(window(1))));
  product = b.CreateAdd(product, b.CreateLShr(b.CreateMul(m, wide(window(2))), 64));
  // The product has two bits of the quarter, then a fraction, which is brought into [-1/2, 1/2).
  Value* const fraction = b.CreateShl(product, 2);
  const auto piece = [&](Value* v) { return a.With(b.CreateTrunc(v, b.getInt64Ty())); };
  const V rounds_up = piece(b.CreateLShr(fraction, 127));
  const V quarter = piece(b.CreateLShr(product, 126)) + rounds_up;
  const V top = piece(b.CreateAShr(fraction, 80));
  const V middle = piece(b.CreateLShr(fraction, 32)) & bits.OfInt(0xffffffffffff);
  const V bottom = piece(fraction) & bits.OfInt(0xffffffff);
  const V x = top.ToF64() * 0x1p-48, y = middle.ToF64() * 0x1p-96;
  const DoubleDouble turned = FastTwoSum(x, y);
  const V turned_low = Fma(bottom.ToF64(), a.Of(0x1p-128), turned.low);
  return {quarter, Product(DoubleDouble{turned.high, turned_low},
                           DoubleDouble{a.Of(kHalfPi), a.Of(kHalfPiLow)})};
}

// Reduces an angle. Scalar code branches, so that small arguments, which are nearly all, do not pay
// for large ones.
ReducedAngle ReduceAngle(V a) {
  if (a.type()->isVectorTy()) return ReduceSmall(a);
  llvm::IRBuilderBase& b = a.b();
  llvm::Function* const function = b.GetInsertBlock()->getParent();
  BasicBlock* const small = BasicBlock::Create(b.getContext(), "small", function);
  BasicBlock* const large = BasicBlock::Create(b.getContext(), "large", function);
  BasicBlock* const after = BasicBlock::Create(b.getContext(), "reduced", function);
  b.CreateCondBr((a < kLargeAngle).get(), small, large);
  b.SetInsertPoint(small);
  const ReducedAngle x = ReduceSmall(a);
  b.CreateBr(after);
  b.SetInsertPoint(large);
  const ReducedAngle y = ReduceLarge(a);
  b.CreateBr(after);
  b.SetInsertPoint(after);
  const auto either = [&](V p, V q) {
    llvm::PHINode* const phi = b.CreatePHI(p.type(), 2);
    phi->addIncoming(p.get(), small);
    phi->addIncoming(q.get(), large);
    return a.With(phi);
  };
  const V quarter = either(x.quarter, y.quarter);
  const V high = either(x.r.high, y.r.high);
  return {quarter, {high, either(x.r.low, y.r.low)}};
}

V SinNear(DoubleDouble r) {
  constexpr double kS[] = {8.33333333332248946124e-03, -1.98412698298579493134e-04,
                           2.75573137070700676789e-06, -2.50507602534068634195e-08,
                           1.58969099521155010221e-10};
  constexpr double kFirst = -1.66666666666666324348e-01;
  const V x = r.high, z = x * x, v = z * x;
  return x - (Fma(z, r.low * 0.5 - v * Polynomial(z, kS), -r.low) - v * kFirst);
}
V CosNear(DoubleDouble r) {
  constexpr double kC[] = {4.16666666666666019037e-02, -1.38888888888741095749e-03,
                           2.48015872894767294178e-05, -2.75573143513906633035e-07,
                           2.08757232129817482790e-09, -1.13596475577881948265e-11};
  const V x = r.high, z = x * x, half = z * 0.5, w = 1.0 - half;
  return w + (((1.0 - w) - half) + (z * (z * Polynomial(z, kC)) - x * r.low));
}

struct SinCos {
  V sin, cos;  // the sine and cosine of |x|
};
SinCos SinCosOf(V x) {
  const auto [quarter, r] = ReduceAngle(Abs(x));
  const V s = SinNear(r), c = CosNear(r);
  const auto has = [&, &quarter = quarter](V q, int64_t bit) {
    return Ne(q & quarter.OfInt(bit), quarter.OfInt(0));
  };
  const V swaps = has(quarter, 1), next = quarter + quarter.OfInt(1);
  const V sin = Select(swaps, c, s), cos = Select(swaps, s, c);
  return {Select(has(quarter, 2), -sin, sin), Select(has(next, 2), -cos, cos)};
}
// Returns y if x is finite, and NaN otherwise.
V NanUnlessFinite(V x, V y) { return Select(IsFinite(x), y, x.Of(kNan)); }

V Sin(V x) {
  const V sin = SinCosOf(x).sin;
  return NanUnlessFinite(x, Select(x.Bits() < x.Bits().OfInt(0), -sin, sin));
}
V Cos(V x) { return NanUnlessFinite(x, SinCosOf(x).cos); }
V Tan(V x) {
  const auto [sin, cos] = SinCosOf(x);
  const V tan = sin / cos;
  return NanUnlessFinite(x, Select(x.Bits() < x.Bits().OfInt(0), -tan, tan));
}

// Returns the angle of the point (x, y). The arctangent is taken of the quotient of the absolute
// values, and the quadrant is restored at the end from the signs. Comparisons select the constants
// instead of branches, because lanes may need different rows.
V Atan2(V y, V x) {
  constexpr double kA[] = {
      3.33333333333329318027e-01,  -1.99999999998764832476e-01, 1.42857142725034663711e-01,
      -1.11111104054623557880e-01, 9.09088713343650656196e-02,  -7.69187620504482999495e-02,
      6.66107313738753120669e-02,  -5.83357013379057348645e-02, 4.97687799461593236017e-02,
      -3.65315727442169155270e-02, 1.62858201153657823623e-02};
  // Uses atan(t) = atan(c) + atan((t - c) / (1 + t c)), with the c nearest to t.
  struct Row {
    double below, c, high, low;
  };
  constexpr Row kRows[] = {{2.4375, 1.5, 9.82793723247329054082e-01, 1.39033110312309984516e-17},
                           {1.1875, 1.0, 7.85398163397448278999e-01, 3.06161699786838301793e-17},
                           {0.6875, 0.5, 4.63647609000806093515e-01, 2.26987774529616870924e-17},
                           {0.4375, 0.0, 0.0, 0.0}};
  const V top = Abs(y), right = Abs(x);
  V t = top / right;
  t = Select(Eq(top, y.Of(0)), y.Of(0), t);
  t = Select(IsInf(x) & IsInf(y), y.Of(1), t);
  V over = y.Of(-1), under = t, high = y.Of(kHalfPi), low = y.Of(kHalfPiLow);
  for (const Row& row : kRows) {
    const V in = t < row.below;
    over = Select(in, t - row.c, over);
    under = Select(in, row.c == 0 ? y.Of(1) : Fma(t, y.Of(row.c), y.Of(1)), under);
    high = Select(in, y.Of(row.high), high);
    low = Select(in, y.Of(row.low), low);
  }
  const V u = over / under, z = u * u;
  const V angle = high - ((u * (z * Polynomial(z, kA)) - low) - u);
  const V left = x.Bits() < x.Bits().OfInt(0);
  const V turned = Select(left, kPi - (angle - kPiLow), angle);
  const V unordered = IsNan(x) | IsNan(y);
  return Select(unordered, y.Of(kNan), CopySign(turned, y));
}

// ---- The error function. -----------------------------------------------------------------------

// Returns 1 - erf(a) = e^(-a^2 - 0.5625 + R/S) / a, for a from 1.25 to 6. The square is computed in
// two parts, of which the first is exact. The coefficients R and S depend on whether a is below
// 1/0.35. All lanes evaluate both quotients and select one.
V Erfc(V a) {
  constexpr double kRa[] = {-9.86494403484714822705e-03, -6.93858572707181764372e-01,
                            -1.05586262253232909814e+01, -6.23753324503260060396e+01,
                            -1.62396669462573470355e+02, -1.84605092906711035994e+02,
                            -8.12874355063065934246e+01, -9.81432934416914548592e+00};
  constexpr double kSa[] = {1.0,
                            1.96512716674392571292e+01,
                            1.37657754143519042600e+02,
                            4.34565877475229228821e+02,
                            6.45387271733267880336e+02,
                            4.29008140027567833386e+02,
                            1.08635005541779435134e+02,
                            6.57024977031928170135e+00,
                            -6.04244152148580987438e-02};
  constexpr double kRb[] = {-9.86494292470009928597e-03, -7.99283237680523006574e-01,
                            -1.77579549177547519889e+01, -1.60636384855821916062e+02,
                            -6.37566443368389627722e+02, -1.02509513161107724954e+03,
                            -4.83519191608651397019e+02};
  constexpr double kSb[] = {1.0,
                            3.03380607434824582924e+01,
                            3.25792512996573918826e+02,
                            1.53672958608443695994e+03,
                            3.19985821950859553908e+03,
                            2.55305040643316442583e+03,
                            4.74528541206955367215e+02,
                            -2.24409524465858183362e+01};
  constexpr int64_t kUpper = ~int64_t{0xffffffff};
  const V far = Clamp(a, 1.25, 6);
  const V w = 1.0 / (far * far);
  const V nearer = far < 1 / 0.35;
  const V ratio = Select(nearer, Polynomial(w, kRa), Polynomial(w, kRb)) /
                  Select(nearer, Polynomial(w, kSa), Polynomial(w, kSb));
  const V cut = (far.Bits() & far.Bits().OfInt(kUpper)).AsF64();
  const V decay = Exp(-(cut * cut) - 0.5625) * Exp(Fma(cut - far, cut + far, ratio));
  return decay / far;
}

// Returns the error function in the three ranges of fdlibm: a quotient of polynomials near 0,
// another one near 1, and 1 - Erfc beyond. Every range is computed for every lane, and selections
// choose among them, because vector code cannot branch.
V Erf(V x) {
  constexpr double kPp[] = {1.28379167095512558561e-01, -3.25042107247001499370e-01,
                            -2.84817495755985104766e-02, -5.77027029648944159157e-03,
                            -2.37630166566501626084e-05};
  constexpr double kQq[] = {1.0,
                            3.97917223959155352819e-01,
                            6.50222499887672944485e-02,
                            5.08130628187576562776e-03,
                            1.32494738004321644526e-04,
                            -3.96022827877536812320e-06};
  constexpr double kPa[] = {-2.36211856075265944077e-03, 4.14856118683748331666e-01,
                            -3.72207876035701323847e-01, 3.18346619901161753674e-01,
                            -1.10894694282396677476e-01, 3.54783043256182359371e-02,
                            -2.16637559486879084300e-03};
  constexpr double kQa[] = {1.0,
                            1.06420880400844228286e-01,
                            5.40397917702171048937e-01,
                            7.18286544141962662868e-02,
                            1.26171219808761642112e-01,
                            1.36370839120290507362e-02,
                            1.19844998467991074170e-02};
  constexpr double kOne = 8.45062911510467529297e-01;  // erf(1), rounded to few bits
  const V a = Abs(x), z = x * x;
  const V small = Fma(a, Polynomial(z, kPp) / Polynomial(z, kQq), a);
  const V s = a - 1.0;
  const V middle = Polynomial(s, kPa) / Polynomial(s, kQa) + kOne;
  const V large = 1.0 - Erfc(a);
  const V y = Select(a < 0.84375, small, Select(a < 1.25, middle, large));
  return Select(IsNan(x), x, CopySign(Select(a >= 6, x.Of(1), y), x));
}

// ---- Remainders. -------------------------------------------------------------------------------

// Returns the unbiased exponent of a positive finite number.
V Exponent(V x) {
  const V tiny = x < std::numeric_limits<double>::min();
  const V bits = Select(tiny, x * kTwo54, x).Bits();
  return bits.ShiftRight(52) - Select(tiny, bits.OfInt(1023 + 54), bits.OfInt(1023));
}

// Returns the exact remainder. Each iteration subtracts a multiple of y 2^k, which reduces the
// quotient by about 50 bits. The number of iterations depends on the exponents, which is why
// vectors have no code for it.
V Rem(V x, V y) {
  llvm::IRBuilderBase& b = x.b();
  llvm::Function* const function = b.GetInsertBlock()->getParent();
  const V divisor = Abs(y);
  // This is false if an argument is NaN.
  const V defined = IsFinite(x) & (divisor > 0);
  BasicBlock* const before = b.GetInsertBlock();
  BasicBlock* const head = BasicBlock::Create(b.getContext(), "rem", function);
  BasicBlock* const body = BasicBlock::Create(b.getContext(), "turn", function);
  BasicBlock* const after = BasicBlock::Create(b.getContext(), "rest", function);
  const V start = Select(defined, Abs(x), x.Of(0));
  b.CreateBr(head);
  b.SetInsertPoint(head);
  llvm::PHINode* const phi = b.CreatePHI(x.type(), 2);
  phi->addIncoming(start.get(), before);
  const V left = x.With(phi);
  b.CreateCondBr(((left >= divisor) & (divisor > 0)).get(), body, after);
  b.SetInsertPoint(body);
  V k = Exponent(left) - Exponent(divisor) - left.Bits().OfInt(50);
  k = Select(k > k.OfInt(0), k, k.OfInt(0));
  const V third = (k * k.OfInt(341)) >> 10;
  const V step = divisor * PowerOfTwo(third) * PowerOfTwo(third) * PowerOfTwo(k - third - third);
  const V rest = Fma(-Trunc(left / step), step, left);
  // The quotient may have been rounded up, and then the remainder is negative.
  const V next = Select(rest < 0, rest + step, rest);
  phi->addIncoming(next.get(), b.GetInsertBlock());
  b.CreateBr(head);
  b.SetInsertPoint(after);
  return Select(defined, CopySign(left, x), x.Of(kNan));
}

// Emits the function for arguments of f64. Every primitive that is a function
// (ScalarPrimInfo::is_function) has a case, and EmitWidePrim calls this for no other, so that the
// default is never reached.
V EmitInF64(ScalarPrim prim, V x, V y) {
  switch (prim) {
    case ScalarPrim::kExp:
      return Exp(x);
    case ScalarPrim::kExpm1:
      return Expm1(x);
    case ScalarPrim::kLog:
      return Log(x);
    case ScalarPrim::kLog1p:
      return Log1p(x);
    case ScalarPrim::kSin:
      return Sin(x);
    case ScalarPrim::kCos:
      return Cos(x);
    case ScalarPrim::kTan:
      return Tan(x);
    case ScalarPrim::kTanh:
      return Tanh(x);
    case ScalarPrim::kAtan2:
      return Atan2(x, y);
    case ScalarPrim::kPow:
      return Pow(x, y);
    case ScalarPrim::kCbrt:
      return Cbrt(x);
    case ScalarPrim::kErf:
      return Erf(x);
    case ScalarPrim::kRem:
      return Rem(x, y);
    default:
      return x.With(nullptr);
  }
}

}  // namespace

Value* EmitWidePrim(llvm::IRBuilderBase& b, ScalarPrim prim, DType dtype,
                    llvm::ArrayRef<Value*> args) {
  if (!InfoOf(prim).is_function()) return nullptr;
  if (dtype != DType::kF32 && dtype != DType::kF64) return nullptr;
  if (prim == ScalarPrim::kRem && args[0]->getType()->isVectorTy()) return nullptr;
  const auto widened = [&](Value* v) {
    return V(b, b.CreateFPExt(v, V(b, v).TypeOf(b.getDoubleTy())));
  };
  const V x = widened(args.front()), y = widened(args.back());
  Value* const result = EmitInF64(prim, x, y).get();
  return dtype == DType::kF32 ? b.CreateFPTrunc(result, x.TypeOf(b.getFloatTy())) : result;
}

}  // namespace tessera::worker::codegen
