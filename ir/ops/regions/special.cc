// Special functions composed of elementwise ops and loops, which client/lib/special.cc offers to
// users. The algorithms are those of JAX (jax/_src/lax/special.py and XLA's decompositions). Most
// come from Cephes: S. Moshier, "Methods and Programs for Mathematical Functions" (1989). The
// incomplete beta function uses the continued fraction of https://dlmf.nist.gov/8.17.E23 by Lentz's
// method.
#include "ir/special.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "ir/formula.h"

namespace tessera::ir {
namespace {

using F = Formula;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool IsNarrow(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }
// Properties of the dtype in which `dtype` is computed: the distance from 1 to the next number, the
// smallest normal number and the largest finite one.
struct Limits {
  double eps, tiny, max;
  explicit Limits(DType dtype) {
    if (dtype == DType::kF64) {
      eps = std::numeric_limits<double>::epsilon();
      tiny = std::numeric_limits<double>::min();
      max = std::numeric_limits<double>::max();
    } else {
      eps = std::numeric_limits<float>::epsilon();
      tiny = std::numeric_limits<float>::min();
      max = std::numeric_limits<float>::max();
    }
  }
};

// Returns the operands with scalars broadcast to the shape of the others.
std::vector<Value> OneShape(std::vector<Value> in) {
  in = Harmonize(std::move(in));
  const Value* full = &in[0];
  for (const Value& v : in)
    if (v.rank() > full->rank()) full = &v;
  const Dims shape = full->shape();
  for (Value& v : in)
    if (v.shape() != shape) v = BroadcastInDim(v, shape, {});
  return in;
}

// Returns f of the operands, computed in f32 or f64. The result has the operands' dtype.
Value InWide(Values in, const std::function<Value(const std::vector<Value>&)>& f) {
  const DType dtype = in[0].dtype();
  std::vector<Value> wide(in.begin(), in.end());
  if (!IsNarrow(dtype)) return f(wide);
  for (Value& v : wide) v = Convert(v, DType::kF32);
  return Convert(f(wide), dtype);
}

// Like InWide, but computes f32 in f64, for formulas that lose more than a few ulp in f32. A result
// of f32 is rounded once. A result of f16 or bf16 is rounded to f32 first.
Value InDouble(Values in, const std::function<Value(const std::vector<Value>&)>& f) {
  return InWide(in, [&](const std::vector<Value>& own) {
    if (own[0].dtype() != DType::kF32) return f(own);
    std::vector<Value> wide = own;
    for (Value& v : wide) v = Convert(v, DType::kF64);
    return Convert(f(wide), DType::kF32);
  });
}

// ---- Zeta and polygamma. ------------------------------------------------------------------------

// Returns the sum of ten terms, and of the remaining terms by the Euler-Maclaurin formula. Where
// the next term is vanishingly small beside the sum, returns the sum alone.
F ZetaSeries(const F& x, const F& q) {
  const double tiny_step = x.value().dtype() == DType::kF64
                               ? std::numeric_limits<double>::denorm_min()
                               : static_cast<double>(std::numeric_limits<float>::denorm_min());
  const F exponent = -x;
  F sum = Pow(q, exponent), at = q;
  for (int i = 0; i < 9; ++i) {
    at = at + 1;
    sum = sum + Pow(at, exponent);
  }
  at = at + 1;
  const F power = Pow(at, exponent);
  // Bernoulli numbers B(2k) over (2k)!, k from 12 to 1.
  constexpr double kBernoulli[] = {
      -1.3954464685812523e-19, 5.5090028283602295e-18,  -2.1748686985580617e-16,
      8.5860620562778446e-15,  -3.3896802963225829e-13, 1.3382536530684679e-11,
      -5.2841901386874932e-10, 2.08767569878681e-08,    -8.2671957671957672e-07,
      3.3068783068783071e-05,  -0.0013888888888888889,  0.083333333333333329};
  constexpr auto kTerms = static_cast<int>(std::size(kBernoulli));
  const F inverse_square = 1 / (at * at);
  F series = kBernoulli[0];
  for (int i = 1; i < kTerms; ++i) {
    const int k = 2 * (kTerms - i);
    series = ((x + k) * (x + (k - 1))) * (inverse_square * series) + kBernoulli[i];
  }
  const F correction = power * (0.5 + x / at * series);
  const F full = (sum + power * at / (x - 1)) + correction;
  return Where(Abs(power) < Abs(sum) * tiny_step, sum, full);
}
F ZetaOf(const F& x, const F& q) {
  F out = Where(x < 1, kNaN, ZetaSeries(x, q));
  const F below = q <= 0;
  out = Where(below & (x != Floor(x)), kNaN, out);
  const F even = (x == Floor(x)) & (x % 2 == 0);
  const F at_pole = Where(even, Like(x, kInf), kNaN);
  out = Where(below & (q == Floor(q)), at_pole, out);
  return Where(x == 1, kInf, out);
}

F PolygammaOf(const F& m, const F& x) {
  const F order = m + 1;
  const F sign = Where(m % 2 == 0, Like(m, -1), 1);
  const F factorial = Exp(Lgamma(order));
  const F of_order = sign * factorial * ZetaOf(order, x);
  const F out = Where(m == 0, Digamma(x), of_order);
  return Where((m != Floor(m)) | (m < 0), kNaN, out);
}
// The number of derivatives, from the first on, that follow the rule that the derivative of
// polygamma is polygamma of the next order. The rules are nested in one another. Higher derivatives
// are computed by differentiating the series.
constexpr int kNestedRules = 3;

Value NestedPolygamma(Value m, Value x, int rules) {
  const auto f = [](Values in) {
    return InDouble(in, [](const auto& v) { return PolygammaOf(v[0], v[1]).value(); });
  };
  if (rules == 0) return f(std::vector<Value>{m, x});
  return WithTangent({m, x}, f,
                     [rules](Values in, Value, Values tangents) {
                       const Value next = *(F(in[0]) + 1);
                       return Mul(tangents[0], NestedPolygamma(next, in[1], rules - 1));
                     },
                     {.num_consts = 1});
}

// ---- Incomplete gamma functions. ----------------------------------------------------------------

// The quantity to compute: the function, its derivative with respect to a, or the derivative of a
// sample of Gamma(a, 1) with respect to a.
enum class GammaQuantity { kValue, kDerivative, kSampleDerivative };

// For x below 1 or below a: returns `ax` times the sum of x^n / (a (a + 1) ... (a + n)), or the
// derivative that `mode` asks for. `ax` is x^a exp(-x) / gamma(a). Elements that are not enabled
// keep their initial values, so that they do not prolong the loop. An element whose sum does not
// converge is NaN.
F IgammaSeries(const F& ax, const F& x, const F& a, const F& enabled, GammaQuantity mode) {
  const bool wants_derivative = mode != GammaQuantity::kValue;
  const double eps = Limits(x.value().dtype()).eps;
  // Terms shrink too slowly if a is larger than about 1e10 and x is close to it. The sum then has
  // not converged after this many terms.
  constexpr double kTermsMax = 1 << 20;
  const Value terms = Constant(x.value().builder(), DType::kS32, 0);
  std::vector<Value> init = {*enabled, *a, *Like(a, 1), *Like(a, 1), terms};
  if (wants_derivative) {
    init.push_back(*Like(a, 0));
    init.push_back(*Like(a, 0));
  }
  const std::vector<Value> end = Loop(
      init, {*x}, [](Values c, Values) { return *(F(c[0]) & (F(c[4]) < kTermsMax)); },
      [&](Values c, Values k) {
        const F on = c[0], x_in = k[0];
        const F r = F(c[1]) + 1;
        const F ratio = x_in / r;
        const F term = F(c[2]) * ratio;
        const F sum = F(c[3]) + term;
        std::vector<Value> out(c.begin(), c.end());
        out[1] = *Where(on, r, F(c[1]));
        if (wants_derivative) {
          const F dterm = F(c[5]) * ratio - F(c[2]) * x_in / (r * r);
          const F dsum = F(c[6]) + dterm;
          out[5] = *Where(on, dterm, F(c[5]));
          out[6] = *Where(on, dsum, F(c[6]));
          out[0] = *(on & (Abs(dterm / dsum) > eps));
        } else {
          out[0] = *(on & (term / sum > eps));
        }
        out[4] = *(F(c[4]) + 1);
        out[2] = *Where(on, term, F(c[2]));
        out[3] = *Where(on, sum, F(c[3]));
        return out;
      });
  const F sum = Where(F(end[0]), kNaN, F(end[3]));
  if (!wants_derivative) return (sum * ax) / a;
  const F dsum = end[6];
  const F dlogax = Log(x) - Digamma(a + 1);
  if (mode == GammaQuantity::kDerivative) return ax * (sum * dlogax + dsum) / a;
  return -(dsum + sum * dlogax) * x / a;
}

// For larger x: returns 1 minus the value of IgammaSeries, by a continued fraction p(k) / q(k), or
// the derivative of this that `mode` asks for. The derivatives of p and q with respect to a are
// carried along in the same loop. p and q are scaled down together whenever p grows too large for
// the dtype. Elements that are not enabled stay as they are.
F IgammacFraction(const F& ax, const F& x, const F& a, const F& enabled, GammaQuantity mode) {
  const bool wants_derivative = mode != GammaQuantity::kValue;
  const DType dtype = x.value().dtype();
  const double eps = Limits(dtype).eps;
  enum { kOn, kAnswer, kY, kZ, kCount, kP1, kQ1, kP2, kQ2, kDp2, kDq2, kDp1, kDq1, kDAnswer };
  const F y = 1 - a;
  const F z = x + y + 1;
  const F p1 = x + 1, q1 = z * x;
  const F answer = p1 / q1;
  const F zeros = Like(x, 0), dq1 = -x;
  std::vector<Value> init = {*enabled, *answer, *y, *z};
  init.push_back(Constant(x.value().builder(), dtype, 0));
  init.push_back(*p1);
  init.push_back(*q1);
  init.push_back(*Like(x, 1));
  init.push_back(*x);
  if (wants_derivative) {
    for (const F& v : {zeros, zeros, zeros, dq1, (zeros - answer * dq1) / q1}) init.push_back(*v);
  }
  const std::vector<Value> end = Loop(
      init, {}, [](Values c, Values) { return *(F(c[kOn]) & (F(c[kCount]) < 2000)); },
      [&](Values c, Values) {
        const auto in = [&](int i) { return F(c[i]); };
        const F on = c[kOn];
        const F count = in(kCount) + 1, y = in(kY) + 1, z = in(kZ) + 2;
        const F yc = y * count;
        const F p = in(kP1)*z - in(kP2)*yc;
        const F q = in(kQ1)*z - in(kQ2)*yc;
        const F nonzero = q != 0;
        const F r = p / q;
        const F answer = Where(nonzero, r, in(kAnswer));
        const F scale = Where(Abs(p) > 1 / eps, Like(p, eps), 1);
        std::vector<Value> out(c.begin(), c.end());
        const auto set = [&](int i, const F& v) { out[i] = *Where(on, v, in(i)); };
        out[kCount] = *count;
        if (wants_derivative) {
          const F dp = in(kDp1)*z - in(kP1)-in(kDp2)*yc + in(kP2)*count;
          const F dq = in(kDq1)*z - in(kQ1)-in(kDq2)*yc + in(kQ2)*count;
          const F dnew = Where(nonzero, (dp - answer * dq) / q, in(kDAnswer));
          const F change = Where(nonzero, Abs(dnew - in(kDAnswer)), 1);
          out[kOn] = *(on & (change > eps));
          set(kDp2, in(kDp1)*scale);
          set(kDq2, in(kDq1)*scale);
          set(kDp1, dp * scale);
          set(kDq1, dq * scale);
          set(kDAnswer, dnew);
        } else {
          const F change = Where(nonzero, Abs((in(kAnswer)-r) / r), 1);
          out[kOn] = *(on & (change > eps));
        }
        set(kAnswer, answer);
        set(kY, y);
        set(kZ, z);
        set(kP2, in(kP1)*scale);
        set(kQ2, in(kQ1)*scale);
        set(kP1, p * scale);
        set(kQ1, q * scale);
        return out;
      });
  const F last = end[kAnswer];
  if (!wants_derivative) return last * ax;
  const F dlast = end[kDAnswer];
  const F dlogax = Log(x) - Digamma(a);
  if (mode == GammaQuantity::kDerivative) return ax * (last * dlogax + dlast);
  return -((dlast + last * dlogax) * x);
}

// Factors that both expansions need. `ax` is x^a exp(-x) / gamma(a), and `underflow` tells where it
// is 0.
struct GammaFactors {
  F ax, underflow;
  GammaFactors(const F& a, const F& x, DType dtype)
      : ax(a * Log(x) - x - Lgamma(a)), underflow(ax < -std::log(Limits(dtype).max)) {
    // `underflow` was made from the logarithm of x^a exp(-x) / gamma(a), and from here on `ax` is
    // the number itself. A formula emits its op only when it is first used.
    ax = Exp(ax);
  }
};

F IgammaOf(const F& a, const F& x) {
  const GammaFactors factors(a, x, x.value().dtype());
  const F at_infinity = x == kInf, at_zero = x == 0;
  const F domain_error = (x < 0) | (a < 0) | ((a == 0) & at_zero) | (IsNan(a) | IsNan(x));
  const F use_fraction = (x >= 1) & (x > a);
  const F enabled = ~(at_zero | domain_error | factors.underflow | at_infinity);
  const F fraction =
      1 - IgammacFraction(factors.ax, x, a, enabled & use_fraction, GammaQuantity::kValue);
  const F series = IgammaSeries(factors.ax, x, a, enabled & ~use_fraction, GammaQuantity::kValue);
  F out = Where(use_fraction, fraction, series);
  out = Where(at_zero, 0, out);
  out = Where(at_infinity, 1, out);
  return Where(domain_error, kNaN, out);
}
F IgammacOf(const F& a, const F& x) {
  const GammaFactors factors(a, x, x.value().dtype());
  const F at_infinity = x == kInf, a_is_zero = a == 0;
  const F domain_error = (x < 0) | (a < 0) | (a_is_zero & (x == 0)) | (IsNan(a) | IsNan(x));
  const F use_series = (x < 1) | (x < a);
  const F enabled = ~(domain_error | factors.underflow | at_infinity | a_is_zero);
  const F series = 1 - IgammaSeries(factors.ax, x, a, enabled & use_series, GammaQuantity::kValue);
  const F fraction =
      IgammacFraction(factors.ax, x, a, enabled & ~use_series, GammaQuantity::kValue);
  F out = Where(use_series, series, fraction);
  out = Where(at_infinity | a_is_zero, 0, out);
  return Where(domain_error, kNaN, out);
}
F GammaDerivativeOf(const F& a, const F& x, GammaQuantity mode) {
  const GammaFactors factors(a, x, x.value().dtype());
  const F at_zero = x == 0, is_nan = IsNan(a) | IsNan(x);
  const F domain_error = (x < 0) | (a <= 0);
  const F use_fraction = (x > 1) & (x > a);
  const F enabled = ~(at_zero | domain_error | factors.underflow | is_nan);
  const F fraction = -IgammacFraction(factors.ax, x, a, enabled & use_fraction, mode);
  const F series = IgammaSeries(factors.ax, x, a, enabled & ~use_fraction, mode);
  F out = Where(use_fraction, fraction, series);
  out = Where(at_zero, 0, out);
  return Where(domain_error | is_nan, kNaN, out);
}

// Returns the derivative of igamma with respect to x: the density of Gamma(a, 1).
F GammaDensity(const F& a, const F& x) { return Exp(-x + (a - 1) * Log(x) - Lgamma(a)); }

Value GammaFunction(Value a, Value x, F (*of)(const F&, const F&), double sign) {
  return WithTangent(
      OneShape({a, x}),
      [of](Values in) {
        return InDouble(in, [of](const auto& v) { return of(v[0], v[1]).value(); });
      },
      [sign](Values in, Value, Values tangents) {
        const auto term = [sign](const F& slope, Value tangent) {
          return F(tangent) * (sign < 0 ? -slope : slope);
        };
        const F by_a = term(IgammaGradA(in[0], in[1]), tangents[0]);
        return *(by_a + term(GammaDensity(in[0], in[1]), tangents[1]));
      },
      {.by_operand = true});
}
Value GammaDerivative(Value a, Value x, GammaQuantity mode, const char* name) {
  return WithoutTangent(
      OneShape({a, x}),
      [mode](Values in) {
        return InDouble(in, [mode](const auto& v) { return *GammaDerivativeOf(v[0], v[1], mode); });
      },
      name);
}

// ---- The incomplete beta function. --------------------------------------------------------------

// Evaluates the continued fraction by Lentz's method. All elements take part until the last one has
// converged, or until the limit of iterations: further steps do not change a converged element.
F BetaFraction(const F& a, const F& b, const F& x) {
  const DType dtype = x.value().dtype();
  const double small = Limits(dtype).eps / 2;
  const int64_t iterations = dtype == DType::kF64 ? 600 : 200;
  Builder& builder = x.value().builder();
  enum { kIteration, kUnconverged, kC, kD, kH };
  const Value h = *Like(x, small);
  const Value one = Constant(builder, Array::ScalarInt(DType::kS32, 1));
  const Value unconverged = *(F(h) == F(h)), zero = *Like(x, 0);
  const std::vector<Value> init = {one, unconverged, h, zero, h};
  const std::vector<Value> end = Loop(
      init, {*a, *b, *x},
      [&](Values c, Values) {
        return *(F(c[kUnconverged]) & (F(c[kIteration]) < static_cast<double>(iterations)));
      },
      [&](Values c, Values k) {
        const F a = k[0], b = k[1], x = k[2], iteration = c[kIteration];
        const F even = iteration % 2 == 0, first = iteration == 1;
        const F half = Formula([=] { return Div(*(iteration - 1), *Like(iteration, 2)); });
        const F m = Formula([=] { return Convert(*half, dtype); });
        const F full_m = Formula([=] { return BroadcastInDim(*m, (*x).shape(), {}); });
        const F twice = 2 * full_m;
        const F at_zero = -(a + b) * x / (a + 1);
        const F even_term = -(a + full_m) * (a + b + full_m) * x / ((a + twice) * (a + twice + 1));
        const F of_even = Where(half == 0, at_zero, even_term);
        const F of_odd = full_m * (b - full_m) * x / ((a + twice - 1) * (a + twice));
        const F numerator = Where(first, 1, Where(even, of_even, of_odd));
        const auto off_zero = [&](const F& v) { return Where(Abs(v) < small, small, v); };
        const F next_c = off_zero(1 + numerator / F(c[kC]));
        const F next_d = 1 / off_zero(1 + numerator * F(c[kD]));
        const F delta = next_c * next_d;
        const Value value_c = *next_c, value_d = *next_d;
        const Value value_h = *(F(c[kH]) * delta);
        const Value unconverged = *(Abs(delta - 1) >= small);
        const Value next = *(iteration + 1);
        return std::vector<Value>{next, unconverged, value_c, value_d, value_h};
      });
  return end[kH];
}
F BetaOf(const F& a0, const F& b0, const F& x0) {
  const double very_small = Limits(x0.value().dtype()).tiny * 2;
  const F a_is_zero = (a0 == 0) | (b0 == kInf), b_is_zero = (b0 == 0) | (a0 == kInf);
  const F x_is_zero = x0 == 0, x_is_one = x0 == 1;
  const F is_zero = (b_is_zero & ~x_is_one) | (a_is_zero & x_is_zero);
  const F is_one = (a_is_zero & ~x_is_zero) | (b_is_zero & x_is_one);
  const F out_of_domain = (a0 < 0) | (b0 < 0) | (x0 < 0) | (x0 > 1);
  const F is_nan = out_of_domain | (a_is_zero & b_is_zero) | (IsNan(a0) | IsNan(b0) | IsNan(x0));
  // The fraction converges where x is small. Elsewhere uses I(a, b, x) = 1 - I(b, a, 1 - x).
  const F converges = x0 < (a0 + 1) / (a0 + b0 + 2);
  const F a = Where(converges, a0, b0), b = Where(converges, b0, a0);
  const F x = Where(converges, x0, 1 - x0);
  const F fraction = BetaFraction(a, b, x);
  const F of_b = Lgamma(b) - Lgamma(a + b);
  const F log_beta = Lgamma(a) + of_b;
  const F factor = Where(a < very_small, Exp(Log1p(-x) * b - of_b),
                         Exp(Log(x) * a + Log1p(-x) * b - log_beta) / a);
  F out = fraction * factor;
  out = Where(converges, out, 1 - out);
  out = Where(is_zero, 0, out);
  out = Where(is_one, 1, out);
  return Where(is_nan, kNaN, out);
}

// ---- Bessel functions. --------------------------------------------------------------------------

// Coefficients of Chebyshev series in Cephes. `near` is a series in x / 2 - 2 for x up to 8, and
// `far` is a series in 32 / x - 2 for x above 8. f32 needs only the last coefficients of each.
struct BesselCoefficients {
  std::vector<double> near, far;
};
const BesselCoefficients& I0eCoefficients(DType dtype) {
  static const BesselCoefficients k64 = {
      {-4.41534164647933937950E-18, 3.33079451882223809783E-17,  -2.43127984654795469359E-16,
       1.71539128555513303061E-15,  -1.16853328779934516808E-14, 7.67618549860493561688E-14,
       -4.85644678311192946090E-13, 2.95505266312963983461E-12,  -1.72682629144155570723E-11,
       9.67580903537323691224E-11,  -5.18979560163526290666E-10, 2.65982372468238665035E-9,
       -1.30002500998624804212E-8,  6.04699502254191894932E-8,   -2.67079385394061173391E-7,
       1.11738753912010371815E-6,   -4.41673835845875056359E-6,  1.64484480707288970893E-5,
       -5.75419501008210370398E-5,  1.88502885095841655729E-4,   -5.76375574538582365885E-4,
       1.63947561694133579842E-3,   -4.32430999505057594430E-3,  1.05464603945949983183E-2,
       -2.37374148058994688156E-2,  4.93052842396707084878E-2,   -9.49010970480476444210E-2,
       1.71620901522208775349E-1,   -3.04682672343198398683E-1,  6.76795274409476084995E-1},
      {-7.23318048787475395456E-18, -4.83050448594418207126E-18, 4.46562142029675999901E-17,
       3.46122286769746109310E-17,  -2.82762398051658348494E-16, -3.42548561967721913462E-16,
       1.77256013305652638360E-15,  3.81168066935262242075E-15,  -9.55484669882830764870E-15,
       -4.15056934728722208663E-14, 1.54008621752140982691E-14,  3.85277838274214270114E-13,
       7.18012445138366623367E-13,  -1.79417853150680611778E-12, -1.32158118404477131188E-11,
       -3.14991652796324136454E-11, 1.18891471078464383424E-11,  4.94060238822496958910E-10,
       3.39623202570838634515E-9,   2.26666899049817806459E-8,   2.04891858946906374183E-7,
       2.89137052083475648297E-6,   6.88975834691682398426E-5,   3.36911647825569408990E-3,
       8.04490411014108831608E-1}};
  static const BesselCoefficients k32 = {{k64.near.begin() + 12, k64.near.end()},
                                         {k64.far.begin() + 18, k64.far.end()}};
  return dtype == DType::kF64 ? k64 : k32;
}
const BesselCoefficients& I1eCoefficients(DType dtype) {
  static const BesselCoefficients k64 = {
      {2.7779141127610464e-18,  -2.111421214358166e-17,  1.5536319577362005e-16,
       -1.1055969477353862e-15, 7.6006842947354077e-15,  -5.0421855047279118e-14,
       3.2237933659455748e-13,  -1.9839743977649436e-12, 1.1736186298890901e-11,
       -6.6634897235020271e-11, 3.6255902815521172e-10,  -1.8872497517228294e-09,
       9.3815373864957726e-09,  -4.4450591287963281e-08, 2.0032947535521353e-07,
       -8.5687202646954547e-07, 3.4702513081376785e-06,  -1.3273163656039436e-05,
       4.7815651075500542e-05,  -0.00016176081582589674, 0.00051228595616857576,
       -0.0015135724506312532,  0.0041564229443128882,   -0.010564084894626197,
       0.024726449030626516,    -0.052945981208094989,   0.10264365868984709,
       -0.17641651835783406,    0.25258718644363365},
      {7.5172963108421052e-18,  4.4143483230717077e-18,  -4.6503053684893586e-17,
       -3.2095259219934238e-17, 2.96262899764595e-16,    3.3082023109209285e-16,
       -1.8803547755107825e-15, -3.8144030724370075e-15, 1.0420276984128802e-14,
       4.272440016711951e-14,   -2.1015418427726643e-14, -4.0835511110921974e-13,
       -7.1985517762459084e-13, 2.0356285441470896e-12,  1.4125807436613782e-11,
       3.2526035830154884e-11,  -1.8974958123505413e-11, -5.5897434621965838e-10,
       -3.835380385964237e-09,  -2.6314688468895196e-08, -2.5122362378702088e-07,
       -3.8825648088776906e-06, -0.00011058893876262371, -0.0097610974913614687,
       0.77857623501828011}};
  static const BesselCoefficients k32 = {{k64.near.begin() + 12, k64.near.end()},
                                         {k64.far.begin() + 18, k64.far.end()}};
  return dtype == DType::kF64 ? k64 : k32;
}
// Evaluates a Chebyshev series by Clenshaw's recurrence.
F Chebyshev(const F& x, const std::vector<double>& coefficients) {
  F b0 = Like(x, 0), b1 = b0, b2 = b0;
  for (const double c : coefficients) {
    b2 = b1;
    b1 = b0;
    b0 = x * b1 - b2 + c;
  }
  return 0.5 * (b0 - b2);
}
F BesselOf(const F& x, int order) {
  const DType dtype = x.value().dtype();
  const BesselCoefficients& k = order == 0 ? I0eCoefficients(dtype) : I1eCoefficients(dtype);
  const F size = Abs(x);
  const F series = Chebyshev(0.5 * size - 2, k.near);
  const F near = order == 0 ? series : size * series;
  // Where x is near, the far series is computed at 8: it would divide by 0 at x = 0, and x would
  // then have no derivative.
  const F is_near = size <= 8;
  const F large = Where(is_near, 8, size);
  const F far = Chebyshev(32 / large - 2, k.far) / Sqrt(large);
  const F of_size = Where(is_near, near, far);
  return order == 0 ? of_size : Sign(x) * of_size;
}

// The first two derivatives follow JAX's rules. At 0 these are not the derivatives of the series.
constexpr int kBesselRules = 2;

Value NestedBessel(Value x, int order, int rules) {
  const auto f = [order](Values in) {
    return InWide(in, [order](const auto& v) { return BesselOf(v[0], order).value(); });
  };
  if (rules == 0) return f(std::vector<Value>{x});
  const auto tangent = [order, rules](Values in, Value result, Values tangents) {
    const F x_in = in[0], y = result, dx = tangents[0];
    if (order == 0) {
      const F other = NestedBessel(in[0], 1, rules - 1);
      return *(dx * (other - Sign(x_in) * y));
    }
    const DType dtype = in[0].dtype();
    const double eps = dtype == DType::kF16    ? 0x1p-10
                       : dtype == DType::kBF16 ? 0x1p-7
                                               : Limits(dtype).eps;
    const F not_tiny = Abs(x_in) > eps;
    const F safe = Where(not_tiny, x_in, eps);
    const F other = NestedBessel(*safe, 0, rules - 1);
    const F slope = other - y * (Sign(safe) + 1 / safe);
    return *(dx * Where(not_tiny, slope, 0.5));
  };
  return WithTangent({x}, f, tangent, {.rules = rules});
}

}  // namespace

Value Zeta(Value x, Value q) {
  return WithoutTangent(
      OneShape({x, q}),
      [](Values in) {
        return InWide(in, [](const auto& v) { return ZetaOf(v[0], v[1]).value(); });
      },
      "zeta");
}
Value Polygamma(Value m, Value x) {
  const std::vector<Value> in = OneShape({m, x});
  return NestedPolygamma(in[0], in[1], kNestedRules);
}
Value Igamma(Value a, Value x) { return GammaFunction(a, x, IgammaOf, 1); }
Value Igammac(Value a, Value x) { return GammaFunction(a, x, IgammacOf, -1); }
Value IgammaGradA(Value a, Value x) {
  return GammaDerivative(a, x, GammaQuantity::kDerivative, "igamma_grad_a");
}
Value RandomGammaGrad(Value a, Value x) {
  return GammaDerivative(a, x, GammaQuantity::kSampleDerivative, "random_gamma_grad");
}
Value RegularizedIncompleteBeta(Value a, Value b, Value x) {
  return WithTangent(
      OneShape({a, b, x}),
      [](Values in) {
        return InDouble(in, [](const auto& v) { return BetaOf(v[0], v[1], v[2]).value(); });
      },
      [](Values in, Value, Values tangents) {
        const F a_in = in[0], b_in = in[1], x_in = in[2];
        const F log_beta = Lgamma(a_in) + Lgamma(b_in) - Lgamma(a_in + b_in);
        const F slope = Exp((b_in - 1) * Log1p(-x_in) + (a_in - 1) * Log(x_in) - log_beta);
        return *(slope * F(tangents[0]));
      },
      {.num_consts = 2});
}
Value BesselI0e(Value x) { return NestedBessel(x, 0, kBesselRules); }
Value BesselI1e(Value x) { return NestedBessel(x, 1, kBesselRules); }

}  // namespace tessera::ir
