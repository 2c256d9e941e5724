// More elementwise functions of floats, built from those of elementwise.cc: inverse and hyperbolic
// functions, erfc, and the gamma function and its derivative. The derivatives are JAX's.
#include <cmath>
#include <limits>
#include <numbers>

#include "ir/ops/rules/pointwise.h"

namespace tessera::ir::ops {
namespace {

using scalar::Like;
using scalar::TypeOf;
using enum scalar::Domain;

template <class X>
constexpr TypeOf<X> kInfinity = std::numeric_limits<TypeOf<X>>::infinity();
template <class X>
constexpr TypeOf<X> kNotANumber = std::numeric_limits<TypeOf<X>>::quiet_NaN();

}  // namespace

// ---- Powers. -----------------------------------------------------------------------------------
namespace {
Value Exp2Jvp(Value dx, Value, Value y) { return dx * (std::numbers::ln2 * y); }

// Raises x to a power by repeated squaring, with one reciprocal at the end if the exponent is
// negative.
struct IntegerPowerBody {
  int64_t exponent;
  template <class X>
  X operator()(X x) const {
    if (exponent == 0) return Like(x, 1);
    const bool reciprocal = exponent < 0;
    uint64_t n = reciprocal ? -static_cast<uint64_t>(exponent) : static_cast<uint64_t>(exponent);
    for (; n % 2 == 0; n /= 2) x = x * x;
    X power = x;
    while (n /= 2) {
      x = x * x;
      if (n % 2 != 0) power = power * x;
    }
    if (reciprocal) return Like(power, 1) / power;
    return power;
  }
};
constexpr auto kRunIntegerPower = [](const Attrs& attrs, DType operand, DType, auto run) {
  RunSame<kNumbers, 1>(operand, IntegerPowerBody{attrs.Int("y")}, run);
};
absl::StatusOr<std::vector<Type>> InferIntegerPower(const InferContext& c) {
  if (IsInteger(c.in[0].dtype) && c.attrs.Int("y") < 0)
    return TypeError(c, "Integers cannot be raised to negative powers, got integer_pow(",
                     c.in[0].ToString(), ", ", c.attrs.Int("y"), ")");
  return InferSame(c, kNumbers);
}
std::vector<Value> IntegerPowerJvp(const RuleContext& c, Values d) {
  const int64_t y = c.attrs.Int("y");
  if (!d[0] || y == 0) return {Value()};
  const Value power = IntegerPow(c.in[0], y - 1);
  return {d[0] * (static_cast<double>(y) * power)};
}
constexpr AttrSpec kIntegerPowerAttrs[] = {{"y", AttrKind::kInt}};
}  // namespace
constexpr OpDef kExp2 = Unary<kFloats, [](auto x) { return Exp(x * std::numbers::ln2); }>(
    "exp2", "exp2", {Chain<Exp2Jvp>});
constexpr OpDef kIntegerPow =
    Elementwise("integer_pow", "integer_pow", 1, InferIntegerPower, kScalarFrom<kRunIntegerPower>,
                {IntegerPowerJvp}, kIntegerPowerAttrs);

// ---- Inverse trigonometric functions. ----------------------------------------------------------
namespace {
Value AsinJvp(Value dx, Value x, Value) { return dx * Rsqrt(1.0 - Square(x)); }
Value AcosJvp(Value dx, Value x, Value) { return -(dx * Rsqrt(1.0 - Square(x))); }
Value AtanJvp(Value dx, Value x, Value) { return dx / (1.0 + Square(x)); }
}  // namespace
constexpr OpDef kAsin =
    Unary<kFloats, [](auto x) { return 2.0 * Atan2(x, 1.0 + Sqrt((1.0 - x) * (1.0 + x))); }>(
        "asin", "asin", {Chain<AsinJvp>});
constexpr OpDef kAcos = Unary<kFloats, [](auto x) {
  const auto angle = 2.0 * Atan2(Sqrt((1.0 - x) * (1.0 + x)), 1.0 + x);
  // At x = -1 both arguments of atan2 are 0.
  return Select(x == -1.0, Like(x, std::numbers::pi), angle);
}>("acos", "acos", {Chain<AcosJvp>});
constexpr OpDef kAtan =
    Unary<kFloats, [](auto x) { return Atan2(x, Like(x, 1)); }>("atan", "atan", {Chain<AtanJvp>});

// ---- Hyperbolic functions and their inverses. --------------------------------------------------
namespace {
Value SinhJvp(Value dx, Value x, Value) { return dx * Cosh(x); }
Value CoshJvp(Value dx, Value x, Value) { return dx * Sinh(x); }
Value AsinhJvp(Value dx, Value x, Value) { return dx * Rsqrt(1.0 + Square(x)); }
Value AcoshJvp(Value dx, Value x, Value) {
  const Value above = x - FullLike(x, 1);
  return dx * Rsqrt(above * (1.0 + x));
}
Value AtanhJvp(Value dx, Value x, Value) {
  const Value reciprocal = 1.0 / (1.0 + x);
  return reciprocal * (dx / (1.0 - x));
}

// Returns exp(a) / 2 for an a whose exp(a) may overflow.
template <class X>
X HalfExp(X a) {
  const X root = Exp(0.5 * a);
  return (0.5 * root) * root;
}
constexpr auto kSinhBody = []<class X>(X x) {
  const X m = Expm1(Abs(x));
  const X small = 0.5 * (m + m / (m + 1.0));
  const X large = HalfExp(Abs(x));
  const X of_magnitude = Select(Abs(x) < 20.0, small, large);
  return Select(x < 0.0, -of_magnitude, Select(x == 0.0, x, of_magnitude));
};
constexpr auto kCoshBody = []<class X>(X x) {
  const X e = Exp(Abs(x));
  return Select(Abs(x) < 20.0, 0.5 * (e + 1.0 / e), HalfExp(Abs(x)));
};
// Computes log(a + sqrt(a^2 + 1)) as log1p of the amount that is added to 1. Where a is so large
// that its square may overflow, it computes log(2 a) instead.
constexpr auto kAsinhBody = []<class X>(X x) {
  const X a = Abs(x);
  const X near = Log1p(a + a * a / (1.0 + Sqrt(a * a + 1.0)));
  const X far = Log(a) + std::numbers::ln2;
  const X of_magnitude = Select(a < 1e9, near, far);
  return Select(x < 0.0, -of_magnitude, Select(x == 0.0, x, of_magnitude));
};
constexpr auto kAcoshBody = []<class X>(X x) {
  const X above = x - 1.0;
  const X near = Log1p(above + Sqrt(above * (above + 2.0)));
  const X far = Log(x) + std::numbers::ln2;
  return Select(x < 1.0, Like(x, kNotANumber<X>), Select(x < 1e9, near, far));
};
}  // namespace
constexpr OpDef kSinh = Unary<kFloats, kSinhBody>("sinh", "sinh", {Chain<SinhJvp>});
constexpr OpDef kCosh = Unary<kFloats, kCoshBody>("cosh", "cosh", {Chain<CoshJvp>});
constexpr OpDef kAsinh = Unary<kFloats, kAsinhBody>("asinh", "asinh", {Chain<AsinhJvp>});
constexpr OpDef kAcosh = Unary<kFloats, kAcoshBody>("acosh", "acosh", {Chain<AcoshJvp>});
constexpr OpDef kAtanh = Unary<kFloats, [](auto x) { return 0.5 * (Log1p(x) - Log1p(-x)); }>(
    "atanh", "atanh", {Chain<AtanhJvp>});

// ---- erfc: 1 - erf, without cancellation. ------------------------------------------------------
namespace {
Value ErfcJvp(Value dx, Value x, Value) {
  return (-2.0 * std::numbers::inv_sqrtpi) * (dx * Exp(-Square(x)));
}

// Coefficients of polynomials p, highest power first, such that erfc(x) = exp(-x^2) (1/x) p(1/x^2).
// Near is for x from 1 to 2, Far for x above 2. Reference: Moshier, Cephes, ndtrf.c, which is also
// what XLA evaluates.
constexpr float kErfcNear32[] = {
    2.326819970068386e-2f,  -1.387039388740657e-1f, 3.687424674597105e-1f,
    -5.824733027278666e-1f, 6.210004621745983e-1f,  -4.944515323274145e-1f,
    3.404879937665872e-1f,  -2.741127028184656e-1f, 5.638259427386472e-1f};
constexpr float kErfcFar32[] = {
    -1.047766399936249e+1f, 1.297719955372516e+1f, -7.495518717768503e+0f, 2.921019019210786e+0f,
    -1.015265279202700e+0f, 4.218463358204948e-1f, -2.820767439740514e-1f, 5.641895067754075e-1f};
// Coefficients of polynomials of x whose quotient is exp(x^2) erfc(x): Near / NearBelow for x from
// 1 to 8, and Far / FarBelow for x above 8. Reference: Cephes, ndtr.c.
constexpr double kErfcNear64[] = {
    2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0,
    4.86371970985681366614e1,   1.96520832956077098242e2,  5.26445194995477358631e2,
    9.34528527171957607540e2,   1.02755188689515710272e3,  5.57535335369399327526e2};
constexpr double kErfcNearBelow64[] = {1.0,
                                       1.32281951154744992508e1,
                                       8.67072140885989742329e1,
                                       3.54937778887819891062e2,
                                       9.75708501743205489753e2,
                                       1.82390916687909736289e3,
                                       2.24633760818710981792e3,
                                       1.65666309194161350182e3,
                                       5.57535340817727675546e2};
constexpr double kErfcFar64[] = {5.64189583547755073984e-1, 1.27536670759978104416e0,
                                 5.01905042251180477414e0,  6.16021097993053585195e0,
                                 7.40974269950448939160e0,  2.97886665372100240670e0};
constexpr double kErfcFarBelow64[] = {1.0,
                                      2.26052863220117276590e0,
                                      9.39603524938001434673e0,
                                      1.20489539808096656605e1,
                                      1.70814450747565897222e1,
                                      9.60896809063285878198e0,
                                      3.36907645100081516050e0};

constexpr auto kErfcBody = []<class X>(X x) {
  const X a = Abs(x), scale = Exp(-(x * x));
  X tail = x;
  if constexpr (std::is_same_v<TypeOf<X>, float>) {
    const X q = 1.0 / a;
    const X y = q * q;
    tail = scale * q * Select(a < 2.0, Horner(kErfcNear32, y), Horner(kErfcFar32, y));
  } else {
    const X near = Horner(kErfcNear64, a) / Horner(kErfcNearBelow64, a);
    const X far = Horner(kErfcFar64, a) / Horner(kErfcFarBelow64, a);
    tail = scale * Select(a < 8.0, near, far);
  }
  // For large x the quotients are NaN, because their numerators and denominators overflow.
  tail = Select(scale == 0.0, Like(x, 0), tail);
  return Select(a < 1.0, 1.0 - Erf(x), Select(x < 0.0, 2.0 - tail, tail));
};
}  // namespace
constexpr OpDef kErfc = Unary<kFloats, kErfcBody>("erfc", "erfc", {Chain<ErfcJvp>});

// ---- lgamma and digamma. -----------------------------------------------------------------------
namespace {
Value LgammaJvp(Value dx, Value x, Value) { return dx * Digamma(x); }

// Returns the derivative of digamma for x from 1/2 on. Applies psi1(x) = psi1(x + 1) + 1 / x^2
// until the argument is so large that the asymptotic series is accurate. Reference: Abramowitz and
// Stegun (1964), 6.4.6 and 6.4.12.
Value TrigammaAboveHalf(Value x) {
  constexpr int kShift = 10;
  Value sum = FullLike(x, 0);
  for (int i = 0; i < kShift; ++i) {
    const Value at = FullLike(x, i) + x;
    sum = sum + 1.0 / Square(at);
  }
  const Value reciprocal = 1.0 / (static_cast<double>(kShift) + x);
  const Value square = Square(reciprocal);
  Value series = FullLike(x, 5.0 / 66);  // the coefficients are Bernoulli numbers
  for (const double b : {-1.0 / 30, 1.0 / 42, -1.0 / 30, 1.0 / 6}) {
    const Value next = series * square;
    series = b + next;
  }
  const Value cube = square * reciprocal;
  const Value tail = series * cube;
  const Value head = reciprocal + 0.5 * square;
  return sum + (head + tail);
}
// For x below 1/2 applies psi1(x) = pi^2 / sin^2(pi x) - psi1(1 - x).
Value DigammaJvp(Value dx, Value x, Value) {
  const Value reflects = Compare(x, FullLike(x, 0.5), "LT");
  const Value mirrored = 1.0 - x;
  const Value above = TrigammaAboveHalf(Select(reflects, mirrored, x));
  const Value sine = Sin(std::numbers::pi * x);
  const Value below = (std::numbers::pi * std::numbers::pi) / Square(sine) - above;
  return dx * Select(reflects, below, above);
}

// Lanczos' approximation, with g = 7 and eight terms. Reference: Godfrey, "A note on the
// computation of the convergent Lanczos complex gamma approximation" (2001), and XLA, for how it is
// evaluated.
constexpr double kLanczosG = 7;
constexpr double kLanczosBase = 0.99999999999980993227684700473478;
constexpr double kLanczos[] = {
    676.520368121885098567009190444019, -1259.13921672240287047156078755283,
    771.3234287776530788486528258894,   -176.61502916214059906584551354,
    12.507343278686904814458936853,     -0.13857109526572011689554707,
    9.984369578019570859563e-6,         1.50563273514931155834e-7};
// kLogOfShift is log(g + 1/2), from which LogShifted computes log(g + 1/2 + z).
constexpr double kLogOfShift = 2.0149030205422647;
template <class X>
X LogShifted(X z) {
  return kLogOfShift + Log1p(z / (kLanczosG + 0.5));
}

constexpr auto kLgammaBody = []<class X>(X x) {
  // For x below 1/2 applies gamma(x) gamma(1 - x) = pi / sin(pi x).
  const auto reflects = x < 0.5;
  const X z = Select(reflects, -x, x - 1.0);
  X series = Like(x, kLanczosBase);
  for (int i = 0; i < 8; ++i) series = series + kLanczos[i] / (z + (i + 1.0));
  const X t = z + (kLanczosG + 0.5), log_t = LogShifted(z);
  const X above =
      (std::log(2 * std::numbers::pi) / 2 + (z + 0.5 - t / log_t) * log_t) + Log(series);
  const X fraction = Abs(x) - Floor(Abs(x));
  const X angle = std::numbers::pi * Select(fraction > 0.5, 1.0 - fraction, fraction);
  const X log_sine = Log(Sin(angle));
  const X below = Select(Abs(log_sine) < kInfinity<X>,
                         (std::log(std::numbers::pi) - log_sine) - above, -log_sine);
  return Select(Abs(x) == kInfinity<X>, Like(x, kInfinity<X>), Select(reflects, below, above));
};
constexpr auto kDigammaBody = []<class X>(X x) {
  const auto reflects = x < 0.5;
  const X z = Select(reflects, -x, x - 1.0);
  // `above` and `below` are the numerator and the denominator of the series' logarithmic
  // derivative.
  X above = Like(x, 0), below = Like(x, kLanczosBase);
  for (int i = 0; i < 8; ++i) {
    const X term = z + (i + 1.0);
    above = above - kLanczos[i] / (term * term);
    below = below + kLanczos[i] / term;
  }
  const X t = z + (kLanczosG + 0.5);
  const X y = (LogShifted(z) + above / below) - kLanczosG / t;
  const X angle = std::numbers::pi * (x + Abs(Floor(x + 0.5)));
  const X reflected = y - std::numbers::pi * Cos(angle) / Sin(angle);
  const auto pole = (x <= 0.0) & (x == Floor(x));
  return Select(pole, Like(x, kNotANumber<X>), Select(reflects, reflected, y));
};
}  // namespace
constexpr OpDef kLgamma = Unary<kFloats, kLgammaBody>("lgamma", "lgamma", {Chain<LgammaJvp>});
constexpr OpDef kDigamma = Unary<kFloats, kDigammaBody>("digamma", "digamma", {Chain<DigammaJvp>});

// ---- nextafter: the neighbour of x towards y. --------------------------------------------------
namespace {
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;

// Adds or subtracts `step` in the bits of x to get to its neighbour. bf16 and f16 are computed in
// f32, which has more mantissa bits, so that their step in the bits of an f32 is larger than 1. f16
// also needs the other numbers: `least` is its smallest positive number, `normal` its smallest
// normal one and `largest` its largest finite one. Below `normal` the neighbours in f16 are `least`
// apart, while one step in the bits of an f32 is less than that.
struct NextAfterBody {
  int64_t step = 1;
  // These three are set for f16 only, and are 0 for other dtypes.
  double least = 0, normal = 0, largest = 0;

  template <class X>
  X operator()(X x, X y) const {
    using T = TypeOf<X>;
    constexpr int64_t kSign = std::numeric_limits<BitsOf<T>>::min();
    const auto bits = scalar::Bitcast<BitsOf<T>>(x), towards = scalar::Bitcast<BitsOf<T>>(y);
    const auto away = ((x < y) & (x > 0.0)) | ((x > y) & (x < 0.0));
    const auto is_nan = (x != x) | (y != y);
    if (least == 0) {
      const auto from_zero = (towards & kSign) | step;
      const auto moved = Select(x == 0.0, from_zero, Select(away, bits + step, bits - step));
      return Select(is_nan, x + y, Select(x == y, y, scalar::Bitcast<T>(moved)));
    }
    const auto size = Abs(x);
    const auto sign = (Select(x == 0.0, towards, bits)) & kSign;
    const auto signed_as = [&](auto v) {
      return scalar::Bitcast<T>(scalar::Bitcast<BitsOf<T>>(v) | sign);
    };
    const auto subnormal = Select(away | (x == 0.0), size + least, size - least);
    const auto next = scalar::Bitcast<T>(Select(away, bits + step, bits - step));
    // Between `normal` and 0 the neighbours are `least` apart.
    const auto small = (size < normal) | ((size == normal) & ~away);
    const auto finite = Select(small, signed_as(subnormal), next);
    const auto moved = Select(size > largest, signed_as(Like(x, largest)), finite);
    return Select(is_nan, x + y, Select(x == y, y, moved));
  }
};
NextAfterBody NextAfterOf(DType dtype) {
  if (dtype == DType::kBF16) return {1 << 16};
  if (dtype == DType::kF16) return {1 << 13, 0x1p-24, 0x1p-14, 65504};
  return {};
}
constexpr auto kRunNextAfter = [](const Attrs&, DType operand, DType, auto run) {
  RunSame<kFloats, 2>(operand, NextAfterOf(operand), run);
};
}  // namespace
constexpr OpDef kNextafter = Elementwise("nextafter", "nextafter", 2, InferPointwise<kFloats>,
                                         kScalarFrom<kRunNextAfter>, {ZeroTangents});

}  // namespace tessera::ir::ops

namespace tessera::ir {

Value IntegerPow(Value x, int64_t y) {
  return x.builder().Emit1(ops::kIntegerPow, {x}, {{"y", y}});
}

}  // namespace tessera::ir
