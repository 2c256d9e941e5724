// Arithmetic on complex numbers and functions of them, which are arithmetic on their parts.
// ir::Elementwise calls ElementwiseOnParts for complex operands, so that no backend has to know
// complex arithmetic. Reference: docs/decisions/0021. Formulas: W. Kahan, "Branch cuts for complex
// elementary functions" (1987).
#include "ir/ops/rules/complex.h"

#include <limits>
#include <utility>

#include "ir/ops/rules/pointwise.h"

namespace tessera::ir::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Value IsZero(Value x) { return Compare(x, FullLike(x, 0), "EQ"); }
Value IsInf(Value x) {
  const Value size = Abs(x);
  return Compare(size, FullLike(x, kInfinity), "EQ");
}
// Returns x, or `other` where `pred` holds.
Value Unless(Value pred, Value x, double other) { return Select(pred, FullLike(x, other), x); }

// Returns f(sqrt(re^2 + im^2)), without computing the squares or their root, which may overflow or
// underflow. Requires that f(a b) = f(a) f(b), and that f(infinity) is infinity.
template <class F>
Value ApplyToMagnitude(const Parts& x, const F& f) {
  const Value a = Abs(x.re), b = Abs(x.im);
  const Value more = Max(a, b), less = Min(a, b);
  const Value ratio = less / Unless(IsZero(more), more, 1);
  const Value of_more = f(more);
  const Value root = of_more * f(Sqrt(1.0 + ratio * ratio));
  const Value infinite = IsInf(a);
  // A number with an infinite part has infinite magnitude, even if its other part is NaN.
  return Unless(Or(infinite, IsInf(b)), root, kInfinity);
}
Value Magnitude(const Parts& x) {
  return ApplyToMagnitude(x, [](Value size) { return size; });
}

Parts Product(const Parts& x, const Parts& y) {
  const Value ac = x.re * y.re, ad = x.re * y.im;
  const Value re = ac - x.im * y.im;
  return {re, ad + x.im * y.re};
}

// Multiplies with the conjugate of the divisor, after the divisor was scaled by the larger of its
// parts.
Parts Quotient(const Parts& x, const Parts& y) {
  const Value a = Abs(y.re);
  const Value larger = Max(a, Abs(y.im));
  const Value is_zero = IsZero(larger);
  const Value by = Unless(Or(is_zero, IsInf(larger)), larger, 1);
  const Value c = y.re / by, d = y.im / by;
  const Value cc = c * c;
  const Value norm = (cc + d * d) * by;
  const Parts product = Product(x, {c, -d});
  const Value re = product.re / norm;
  return {re, product.im / norm};
}
Parts Reciprocal(const Parts& x) {
  const Value one = FullLike(x.re, 1);
  return Quotient({one, FullLike(x.re, 0)}, x);
}

// Converts f32 to f64, in which products of two f32 are exact and a sum of them keeps its digits if
// it cancels.
Value Wide(Value x) { return x.dtype() == DType::kF32 ? Convert(x, DType::kF64) : x; }

// Returns exp(x). A real x gives a real result.
Parts ExpOf(const Parts& x) {
  const Value e = Exp(x.re), is_real = IsZero(x.im);
  const Value re = e * Cos(x.im), im = e * Sin(x.im);
  return {re, Select(is_real, x.im, im)};
}
// Close to 1, computes the logarithm of the magnitude by log1p of the amount by which its square
// differs from 1.
Parts LogOf(const Parts& x) {
  const Value size_re = Abs(x.re), size_im = Abs(x.im);
  const Value a = Max(size_re, size_im), b = Min(size_re, size_im);
  const Value wide = Wide(a), wide_b = Wide(b);
  const Value above = wide - FullLike(wide, 1);
  const Value squares = above * (1.0 + wide);
  const Value near = 0.5 * Log1p(Convert(squares + wide_b * wide_b, a.dtype()));
  const Value not_small = Compare(a, FullLike(a, 0.5), "GT");
  const Value is_near = And(not_small, Compare(a, FullLike(a, 3), "LT"));
  const Value far = Log(Magnitude(x));
  const Value re = Select(is_near, near, far);
  return {re, Atan2(x.im, x.re)};
}
// For small x, uses |1 + x|^2 - 1 = re (2 + re) + im^2.
Parts Log1pOf(const Parts& x) {
  const Value wide = Wide(x.re), wide_im = Wide(x.im);
  const Value squares = wide * (2.0 + wide);
  const Value small = 0.5 * Log1p(Convert(squares + wide_im * wide_im, x.re.dtype()));
  const Value size = Magnitude(x);
  const Value is_small = Compare(size, FullLike(size, 0.5), "LT");
  const Parts large = LogOf({1.0 + x.re, x.im});
  return {Select(is_small, small, large.re), large.im};
}
// Uses exp(re) cos(im) - 1 = (exp(re) - 1) cos(im) - 2 sin(im / 2)^2.
Parts Expm1Of(const Parts& x) {
  const Value half = Sin(0.5 * x.im), m = Expm1(x.re), e = Exp(x.re);
  const Value scaled = m * Cos(x.im);
  const Value re = scaled - 2.0 * half * half;
  return {re, e * Sin(x.im)};
}

// With t = sqrt((|x| + |re|) / 2), the parts of the root are t and im / (2 t) if re is not
// negative. Otherwise they are |im| / (2 t), and t with the sign of im.
Parts SqrtOf(const Parts& x) {
  const Value size = 0.5 * Magnitude(x);
  const Value t = Sqrt(size + 0.5 * Abs(x.re));
  const Value half = 0.5 * Abs(x.im);
  const Value other = half / Unless(IsZero(t), t, 1);
  const Value is_right = Compare(x.re, FullLike(x.re, 0), "GE");
  // The root's imaginary part takes the sign of im, also the sign of a zero. Only in the total
  // order is -0 below 0.
  const Value is_negative = CompareTotalOrder(x.im, FullLike(x.im, 0), "LT");
  const Value im = Select(is_right, other, t), minus = -im;
  const Value re = Select(is_right, t, other);
  return {re, Select(is_negative, minus, im)};
}

// Returns the principal root, whose angle is a third of the number's. Reference: StableHLO's
// interpreter. XLA and JAX have cube roots of real numbers only.
Parts CbrtOf(const Parts& x) {
  const Value root = ApplyToMagnitude(x, Cbrt);
  const Value whole = Atan2(x.im, x.re);
  const Value angle = whole / FullLike(whole, 3), is_real = IsZero(angle);
  const Value re = root * Cos(angle), im = root * Sin(angle);
  // The root of a real number is real, even if the number is infinite.
  return {re, Select(is_real, angle, im)};
}

Parts SinOf(const Parts& x) {
  const Value s = Sin(x.re), c = Cos(x.re);
  const Value re = s * Cosh(x.im);
  return {re, c * Sinh(x.im)};
}
Parts CosOf(const Parts& x) {
  const Value s = Sin(x.re), c = Cos(x.re);
  const Value re = c * Cosh(x.im);
  return {re, -(s * Sinh(x.im))};
}
// Uses sinh(x) = -i sin(i x), and similar identities below.
Parts SinhOf(const Parts& x) {
  const Parts turned = SinOf({-x.im, x.re});
  return {turned.im, -turned.re};
}
Parts CoshOf(const Parts& x) { return CosOf({-x.im, x.re}); }
// With h = tanh(re) and t = tan(im), returns (h (1 + t^2) + i t / cosh(re)^2) / (1 + h^2 t^2).
Parts TanhOf(const Parts& x) {
  const Value h = Tanh(x.re), t = Tan(x.im);
  const Value hh = h * h, tt = t * t;
  const Value denominator = 1.0 + hh * tt;
  const Value c = Cosh(x.re);
  const Value re = h * (1.0 + tt) / denominator;
  return {re, t / (c * c) / denominator};
}
Parts TanOf(const Parts& x) {
  const Parts turned = TanhOf({-x.im, x.re});
  return {turned.im, -turned.re};
}
Parts LogisticOf(const Parts& x) {
  const Value minus = -x.re;
  const Parts e = ExpOf({minus, -x.im});
  return Reciprocal({1.0 + e.re, e.im});
}
Parts SignOf(const Parts& x) {
  const Value size = Magnitude(x);
  const Value by = Unless(IsZero(size), size, 1);
  const Value re = x.re / by;
  return {re, x.im / by};
}
// Returns exp(y log(x)). 0 to the power of 0 is 1, and 0 to any other power is 0.
Parts PowerOf(const Parts& x, const Parts& y) {
  const Value x_is_zero = IsZero(Magnitude(x));
  const Value re = Unless(x_is_zero, x.re, 1);
  const Parts log = LogOf({re, x.im});
  const Parts power = ExpOf(Product(y, log));
  const Value re_is_zero = IsZero(y.re);
  const Value of_zero = Convert(And(re_is_zero, IsZero(y.im)), x.re.dtype());
  const Value of_re = Select(x_is_zero, of_zero, power.re);
  return {of_re, Unless(x_is_zero, power.im, 0)};
}
// Returns -i log((x + i y) / sqrt(x^2 + y^2)).
Parts Atan2Of(const Parts& y, const Parts& x) {
  const Parts xx = Product(x, x), yy = Product(y, y);
  const Value re = xx.re + yy.re;
  const Parts root = SqrtOf({re, xx.im + yy.im});
  const Value over = x.re - y.im;
  const Parts log = LogOf(Quotient({over, x.im + y.re}, root));
  return {log.im, -log.re};
}

}  // namespace

Parts PartsOf(Value x) {
  const Value re = Real(x);
  return {re, Imag(x)};
}

// Looks up the formula of `def` and emits it. The parts of the operands are taken first, because
// every formula needs them. Ops that have no formula here, such as erf, return nullopt, and
// inference then refuses their complex operands.
std::optional<Value> ElementwiseOnParts(const OpDef& def, const std::vector<Value>& in) {
  using Unary = Parts (*)(const Parts&);
  constexpr std::pair<const OpDef*, Unary> kUnary[] = {
      {&kExp, ExpOf},   {&kExpm1, Expm1Of}, {&kLog, LogOf},           {&kLog1p, Log1pOf},
      {&kSqrt, SqrtOf}, {&kCbrt, CbrtOf},   {&kLogistic, LogisticOf}, {&kSin, SinOf},
      {&kCos, CosOf},   {&kTan, TanOf},     {&kTanh, TanhOf},         {&kSinh, SinhOf},
      {&kCosh, CoshOf}, {&kSign, SignOf}};
  const Parts x = PartsOf(in[0]);
  for (const auto& [op, of] : kUnary)
    if (&def == op) return Joined(of(x));
  if (&def == &kAbs) return Magnitude(x);
  if (&def == &kNeg) {
    const Value re = -x.re;
    return Joined({re, -x.im});
  }
  if (&def == &kRsqrt) return Joined(Reciprocal(SqrtOf(x)));
  if (&def == &kIsFinite) {
    const Value re = IsFinite(x.re);
    return And(re, IsFinite(x.im));
  }
  if (in.size() != 2) return std::nullopt;
  const Parts y = PartsOf(in[1]);
  const auto on_both_parts = [&](Value (*op)(Value, Value)) {
    const Value re = op(x.re, y.re);
    return Joined({re, op(x.im, y.im)});
  };
  if (&def == &kAdd) return on_both_parts(Add);
  if (&def == &kSub) return on_both_parts(Sub);
  if (&def == &kMul) return Joined(Product(x, y));
  if (&def == &kDiv) return Joined(Quotient(x, y));
  if (&def == &kPow) return Joined(PowerOf(x, y));
  if (&def == &kAtan2) return Joined(Atan2Of(x, y));
  // Complex numbers are ordered by their real parts, then by their imaginary parts.
  if (&def == &kMax || &def == &kMin) {
    const char* const direction = &def == &kMax ? "GT" : "LT";
    const Value same = Compare(x.re, y.re, "EQ");
    const Value later = And(same, Compare(x.im, y.im, direction));
    return Select(Or(Compare(x.re, y.re, direction), later), in[0], in[1]);
  }
  return std::nullopt;
}

}  // namespace tessera::ir::ops
