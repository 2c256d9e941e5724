// jax.scipy.special: formulas in ir::Formula, with JAX's derivative rules; special.h declares them.
//
// The algorithms are those of JAX (jax/_src/scipy/special.py). Most come from Cephes: S. Moshier,
// "Methods and Programs for Mathematical Functions" (1989). betaln comes from A. DiDonato and A.
// Morris, "Algorithm 708" (1992), zeta's derivatives from F. Johansson, "Rigorous high-precision
// computation of the Hurwitz zeta function and its derivatives" (2015), formula 5.
#include "client/special.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/lax.h"
#include "client/transform.h"
#include "ir/formula.h"
#include "ir/special.h"

namespace tessera::special {
namespace {

using internal::ApplyArgs;
using internal::Operands;
using internal::ThrowError;
using ir::Value;
using ir::Values;
using F = ir::Formula;
using Vs = std::vector<Value>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kEulerGamma = std::numbers::egamma;

DType FormulaDType(const F& x) { return x.value().dtype(); }
bool IsF64(const F& x) { return FormulaDType(x) == DType::kF64; }
double Epsilon(const F& x) { return IsF64(x) ? 0x1p-52 : 0x1p-23; }
double Largest(const F& x) {
  return IsF64(x) ? std::numeric_limits<double>::max()
                  : static_cast<double>(std::numeric_limits<float>::max());
}

// Returns the float dtype in which the operands compute. Throws for complex numbers.
DType FloatDTypeOf(std::string_view name, const std::vector<Arg>& args) {
  const DType common = internal::CommonDType(args);
  if (ir::IsComplex(common))
    ThrowError(ErrorKind::kTypeError, internal::SiteOf(args), "special::", ToAbsl(name),
               ": complex numbers are not supported");
  if (ir::IsFloat(common)) return common;
  return common == DType::kS64 || common == DType::kU64 ? DType::kF64 : DType::kF32;
}

// Applies f in f32 or f64: narrower floats are widened first.
using Function = std::function<F(const std::vector<F>&)>;
Value ApplyWidened(Values in, const Function& f) {
  const DType dtype = in[0].dtype();
  const bool narrow = dtype == DType::kF16 || dtype == DType::kBF16;
  std::vector<F> wide;
  for (const Value& v : in) wide.emplace_back(narrow ? ir::Convert(v, DType::kF32) : v);
  const Value out = *f(wide);
  return narrow ? ir::Convert(out, dtype) : out;
}

// Returns a function that applies f to f32 operands in f64, for formulas that in f32 would be wrong
// by more than a few units in the last place.
Function InDouble(Function f) {
  return [f = std::move(f)](const std::vector<F>& in) {
    if ((*in[0]).dtype() != DType::kF32) return f(in);
    std::vector<F> wide;
    for (const F& v : in) wide.emplace_back(ir::Convert(*v, DType::kF64));
    return F(ir::Convert(*f(wide), DType::kF32));
  };
}

// Applies f to operands of one float dtype and shape.
Array Elementwise(std::string_view name, const std::vector<Arg>& args,
                  const std::function<Value(const Vs&)>& f) {
  const DType dtype = FloatDTypeOf(name, args);
  return ApplyArgs(
      name, args, Operands::kPromote,
      [&](ir::Builder&, Vs in) { return f(ir::MatchVarying(std::move(in))); }, dtype);
}
// Applies a function whose derivatives are those of its formula.
Array ApplyFormula(std::string_view name, const std::vector<Arg>& args, const Function& f) {
  return Elementwise(name, args, [&](const Vs& in) { return ApplyWidened(in, f); });
}
// If the rule of a function calls the function itself, this many successive derivatives use the
// rule.
constexpr int kRuleDepth = 3;
// Applies f, with `tangent` as the formula for the tangent of its result.
using Tangent =
    std::function<F(const std::vector<F>& in, const F& result, const std::vector<F>& d)>;
Value WithRule(const Vs& in, const Function& f, const Tangent& tangent,
               const ir::TangentOptions& options = {}) {
  return ir::WithTangent(
      in, [&](Values v) { return ApplyWidened(v, f); },
      [&](Values v, Value result, Values d) {
        return *tangent({v.begin(), v.end()}, result, {d.begin(), d.end()});
      },
      options);
}
Array ApplyWithRule(std::string_view name, const std::vector<Arg>& args, const Function& f,
                    const Tangent& tangent, const ir::TangentOptions& options = {}) {
  return Elementwise(name, args, [&](const Vs& in) { return WithRule(in, f, tangent, options); });
}
// Applies an op of ir/special.h, which converts its operands itself.
Array ApplyOp(std::string_view name, const std::vector<Arg>& args,
              const std::function<Value(const Vs&)>& f) {
  return Elementwise(name, args, f);
}

// Evaluates a polynomial. The highest power comes first.
F Polynomial(absl::Span<const double> coefficients, const F& x) {
  F out = ir::Like(x, coefficients[0]);
  for (const double c : coefficients.subspan(1)) out = out * x + c;
  return out;
}

// ---- Gamma and beta. ----------------------------------------------------------------------------

F GammaSign(const F& x) {
  const F floor = ir::Floor(x);
  const F negative = x < 0;
  const F pole = (negative & (x == floor)) | ir::IsNan(x);
  // -0 has a sign: 1 / x is below 0.
  const F below = (negative & (floor % 2 != 0)) | ((x == 0) & (1 / x < 0));
  return ir::Where(pole, kNaN, ir::Where(below, ir::Like(x, -1), 1));
}
F GammaOf(const F& x) { return GammaSign(x) * ir::Exp(ir::Lgamma(x)); }
// Returns log gamma(b) - log gamma(a + b), for b of at least 8 and a of at most b.
F LogGammaRatio(const F& a, const F& b) {
  constexpr double kTerms[] = {0.833333333333333e-01, -0.277777777760991e-02,
                               0.793650666825390e-03, -0.595202931351870e-03,
                               0.837308034031215e-03, -0.165322962780713e-02};
  const F h = a / b;
  const F x = h / (1 + h);
  const F d = b + (a - 0.5);
  const F square = x * x;
  std::vector<F> sums = {ir::Like(x, 1)};  // (1 - x^n) / (1 - x), for odd n
  for (int i = 1; i < 6; ++i) sums.push_back(1 + (x + square * sums.back()));
  const F inverse = 1 / b;
  const F t = inverse * inverse;
  F w = kTerms[5] * sums[5];
  for (int i = 4; i >= 0; --i) w = w * t + kTerms[i] * sums[i];
  w = w * (x / b);
  const F u = d * ir::Log1p(a / b), v = a * (ir::Log(b) - 1);
  return ir::Where(u <= v, (w - v) - u, (w - u) - v);
}
F BetaLogarithm(const F& x, const F& y) {
  const F a = ir::Min(x, y), b = ir::Max(x, y);
  const F of_small = ir::Lgamma(a) + (ir::Lgamma(b) - ir::Lgamma(a + b));
  const F of_large = ir::Lgamma(a) + LogGammaRatio(a, b);
  return ir::Where(b < 8, of_small, of_large);
}
F CombinationsOf(const F& n, const F& k) {
  const F inside = (k <= n) & (n >= 0) & (k >= 0);
  const F safe_n = ir::Where(inside, n, 0), safe_k = ir::Where(inside, k, 0);
  const F logarithm =
      ir::Lgamma(safe_n + 1) - ir::Lgamma(safe_k + 1) - ir::Lgamma(safe_n + 1 - safe_k);
  return ir::Where(inside, ir::Exp(logarithm), 0);
}
// Euler and Maclaurin's formula, which can be differentiated by both operands.
F ZetaSeries(const F& s, const F& a) {
  constexpr double kBernoulli[] = {// (2k)! / B(2k)
                                   12.0,
                                   -720.0,
                                   30240.0,
                                   -1209600.0,
                                   47900160.0,
                                   -1307674368000.0 / 691,
                                   74724249600.0,
                                   -10670622842880000.0 / 3617,
                                   5109094217170944000.0 / 43867,
                                   -802857662698291200000.0 / 174611,
                                   14101100039391805440000.0 / 77683,
                                   -1693824136731743669452800000.0 / 236364091,
                                   186134520519971831808000000.0 / 657931,
                                   -37893265687455865519472640000000.0 / 3392780147,
                                   759790291646040068357842010112000000.0 / 1723168255201,
                                   -134196726836183700385281186201600000000.0 / 7709321041217};
  const int n = IsF64(a) ? 16 : 8;
  const F exponent = -s;
  F sum = ir::Pow(a, exponent);
  for (int k = 1; k < n; ++k) sum = sum + ir::Pow(a + k, exponent);
  const F far = a + n;
  const F integral = ir::Pow(far, 1 - s) / (s - 1);
  const F last = ir::Pow(far, exponent);
  F product = s / far;
  F tail = product / kBernoulli[0];
  for (int k = 1; k < n; ++k) {
    product = product * ((s + (2 * k - 1)) / far) * ((s + 2 * k) / far);
    tail = tail + ir::Min(product, Largest(a)) / kBernoulli[k];
  }
  return sum + integral + last * (0.5 + tail);
}

// ---- Normal distribution. -----------------------------------------------------------------------

F NormalDistribution(const F& x) {
  const double half_root = std::sqrt(2.0) / 2;
  const F w = x * half_root;
  const F z = ir::Abs(w);
  const F outside = ir::Where(w > 0, 2 - ir::Erfc(z), ir::Erfc(z));
  return 0.5 * ir::Where(z < half_root, 1 + ir::Erf(w), outside);
}
F LogNormalDistribution(const F& x, int series_order) {
  const double lower = IsF64(x) ? -20 : -10, upper = IsF64(x) ? 8 : 5;
  const F above = x > upper;
  const F distribution = NormalDistribution(ir::Where(above, -x, ir::Max(x, lower)));
  // Far below 0 it is the density times an asymptotic series.
  const F far = ir::Min(x, lower);
  const F square = ir::Square(far);
  F even = ir::Like(x, 0), odd = ir::Like(x, 0), power = square;
  double factorial = 1;
  for (int n = 1; n <= series_order; ++n) {
    factorial *= 2 * n - 1;
    F& sum = n % 2 == 1 ? odd : even;
    sum = sum + factorial / power;
    power = power * square;
  }
  const F scale = -0.5 * square - ir::Log(-far) - 0.5 * std::log(2 * std::numbers::pi);
  const F below = scale + ir::Log(1 + even - odd);
  return ir::Where(above, -distribution, ir::Where(x > lower, ir::Log(distribution), below));
}

constexpr double kExpintA1[] = {-5.350447357812542947283e0, 2.185049168816613393830e2,
                                -4.176572384826693777058e3, 5.541176756393557601232e4,
                                -3.313381331178144034309e5, 1.592627163384945414220e6};
constexpr double kExpintB1[] = {1.0,
                                -5.250547959112862969197e1,
                                1.259616186786790571525e3,
                                -1.756549581973534652631e4,
                                1.493062117002725991967e5,
                                -7.294949239640527645655e5,
                                1.592627163384945429726e6};
constexpr double kExpintA2[] = {1.981808503259689673238e-2,  -1.271645625984917501326e0,
                                -2.088160335681228318920e0,  2.755544509187936721172e0,
                                -4.409507048701600257171e-1, 4.665623805935891391017e-2,
                                -1.545042679673485262580e-3, 7.059980605299617478514e-5};
constexpr double kExpintB2[] = {1.0,
                                1.476498670914921440652e0,
                                5.629177174822436244827e-1,
                                1.699017897879307263248e-1,
                                2.291647179034212017463e-2,
                                4.450150439728752875043e-3,
                                1.727439612206521482874e-4,
                                3.953167195549672482304e-5};
constexpr double kExpintA3[] = {-1.373215375871208729803e0, -7.084559133740838761406e-1,
                                1.580806855547941010501e0,  -2.601500427425622944234e-1,
                                2.994674694113713763365e-2, -1.038086040188744005513e-3,
                                4.371064420753005429514e-5, 2.141783679522602903795e-6};
constexpr double kExpintB3[] = {1.0,
                                8.585231423622028380768e-1,
                                4.483285822873995129957e-1,
                                7.687932158124475434091e-2,
                                2.449868241021887685904e-2,
                                8.832165941927796567926e-4,
                                4.590952299511353531215e-4,
                                -4.729848351866523044863e-6,
                                2.665195537390710170105e-6};
constexpr double kExpintA4[] = {-2.106934601691916512584e0,  1.732733869664688041885e0,
                                -2.423619178935841904839e-1, 2.322724180937565842585e-2,
                                2.372880440493179832059e-4,  -8.343219561192552752335e-5,
                                1.363408795605250394881e-5,  -3.655412321999253963714e-7,
                                1.464941733975961318456e-8,  6.176407863710360207074e-10};
constexpr double kExpintB4[] = {1.0,
                                -2.298062239901678075778e-1,
                                1.105077041474037862347e-1,
                                -1.566542966630792353556e-2,
                                2.761106850817352773874e-3,
                                -2.089148012284048449115e-4,
                                1.708528938807675304186e-5,
                                -4.459311796356686423199e-7,
                                1.394634930353847498145e-8,
                                6.150865933977338354138e-10};
constexpr double kExpintA5[] = {-2.458119367674020323359e-1, -1.483382253322077687183e-1,
                                7.248291795735551591813e-2,  -1.348315687380940523823e-2,
                                1.342775069788636972294e-3,  -7.942465637159712264564e-5,
                                2.644179518984235952241e-6,  -4.239473659313765177195e-8};
constexpr double kExpintB5[] = {1.0,
                                -1.044225908443871106315e-1,
                                -2.676453128101402655055e-1,
                                9.695000254621984627876e-2,
                                -1.601745692712991078208e-2,
                                1.496414899205908021882e-3,
                                -8.462452563778485013756e-5,
                                2.728938403476726394024e-6,
                                -4.239462431819542051337e-8};
constexpr double kExpintA6[] = {1.212561118105456670844e-1, -5.823133179043894485122e-1,
                                2.348887314557016779211e-1, -3.040034318113248237280e-2,
                                1.510082146865190661777e-3, -2.523137095499571377122e-5};
constexpr double kExpintB6[] = {1.0,
                                -1.002252150365854016662e0,
                                2.928709694872224144953e-1,
                                -3.337004338674007801307e-2,
                                1.560544881127388842819e-3,
                                -2.523137093603234562648e-5};
constexpr double kExpintA7[] = {
    -7.657847078286127362028e-1, 6.886192415566705051750e-1,  -2.132598113545206124553e-1,
    3.346107552384193813594e-2,  -3.076541477344756050249e-3, 1.747119316454907477380e-4,
    -6.103711682274170530369e-6, 1.218032765428652199087e-7,  -1.086076102793290233007e-9};
constexpr double kExpintB7[] = {1.0,
                                -1.888802868662308731041e0,
                                1.066691687211408896850e0,
                                -2.751915982306380647738e-1,
                                3.930852688233823569726e-2,
                                -3.414684558602365085394e-3,
                                1.866844370703555398195e-4,
                                -6.345146083130515357861e-6,
                                1.239754287483206878024e-7,
                                -1.086076102793126632978e-9};
constexpr double kNdtriP0[] = {-5.99633501014107895267E1, 9.80010754185999661536E1,
                               -5.66762857469070293439E1, 1.39312609387279679503E1,
                               -1.23916583867381258016E0};
constexpr double kNdtriQ0[] = {1.0,
                               1.95448858338141759834E0,
                               4.67627912898881538453E0,
                               8.63602421390890590575E1,
                               -2.25462687854119370527E2,
                               2.00260212380060660359E2,
                               -8.20372256168333339912E1,
                               1.59056225126211695515E1,
                               -1.18331621121330003142E0};
constexpr double kNdtriP1[] = {
    4.05544892305962419923E0,   3.15251094599893866154E1,   5.71628192246421288162E1,
    4.40805073893200834700E1,   1.46849561928858024014E1,   2.18663306850790267539E0,
    -1.40256079171354495875E-1, -3.50424626827848203418E-2, -8.57456785154685413611E-4};
constexpr double kNdtriQ1[] = {1.0,
                               1.57799883256466749731E1,
                               4.53907635128879210584E1,
                               4.13172038254672030440E1,
                               1.50425385692907503408E1,
                               2.50464946208309415979E0,
                               -1.42182922854787788574E-1,
                               -3.80806407691578277194E-2,
                               -9.33259480895457427372E-4};
constexpr double kNdtriP2[] = {
    3.23774891776946035970E0,  6.91522889068984211695E0,  3.93881025292474443415E0,
    1.33303460815807542389E0,  2.01485389549179081538E-1, 1.23716634817820021358E-2,
    3.01581553508235416007E-4, 2.65806974686737550832E-6, 6.23974539184983293730E-9};
constexpr double kNdtriQ2[] = {1.0,
                               6.02427039364742014255E0,
                               3.67983563856160859403E0,
                               1.37702099489081330271E0,
                               2.16236993594496635890E-1,
                               1.34204006088543189037E-2,
                               3.28014464682127739104E-4,
                               2.89247864745380683936E-6,
                               6.79019408009981274425E-9};
constexpr double kSpenceA[] = {4.65128586073990045278E-5, 7.31589045238094711071E-3,
                               1.33847639578309018650E-1, 8.79691311754530315341E-1,
                               2.71149851196553469920E0,  4.25697156008121755724E0,
                               3.29771340985225106936E0,  1.00000000000000000126E0};
constexpr double kSpenceB[] = {6.90990488912553276999E-4, 2.54043763932544379113E-2,
                               2.82974860602568089943E-1, 1.41172597751831069617E0,
                               3.63800533345137075418E0,  5.03278880143316990390E0,
                               3.54771340985225096217E0,  9.99999999999999998740E-1};

F NormalQuantile(const F& p) {
  const double tail = std::exp(-2.0), other_tail = -std::expm1(-2.0);
  const F nearer = ir::Where(p > other_tail, 1 - p, p);
  const F safe = ir::Where(nearer == 0, 0.5, nearer);
  const F w = safe - 0.5;
  const F square = ir::Square(w);
  const F middle =
      (w + w * square * (Polynomial(kNdtriP0, square) / Polynomial(kNdtriQ0, square))) *
      -std::sqrt(2 * std::numbers::pi);
  const F z = ir::Sqrt(-2 * ir::Log(safe));
  const F first = z - ir::Log(z) / z;
  const F inverse = 1 / z;
  const F far = first - Polynomial(kNdtriP2, inverse) / Polynomial(kNdtriQ2, inverse) / z;
  const F near = first - Polynomial(kNdtriP1, inverse) / Polynomial(kNdtriQ1, inverse) / z;
  const F of_tails = ir::Where(z >= 8, far, near);
  F x = ir::Where(safe > tail, middle, of_tails);
  x = ir::Where(p > 1 - tail, x, -x);
  const F at_one = ir::Where(p == 1, kInf, x);
  return ir::Where(p == 0, -kInf, at_one);
}

// ---- Logarithms. --------------------------------------------------------------------------------

F XLogY(const F& x, const F& y) { return ir::Where((x != 0) | ir::IsNan(y), x * ir::Log(y), 0); }
F XLog1pY(const F& x, const F& y) {
  return ir::Where((x != 0) | ir::IsNan(y), x * ir::Log1p(y), 0);
}
Value XLogX(Value x) {
  return WithRule(
      {x}, [](const auto& v) { return XLogY(v[0], v[0]); },
      [](const auto& v, const F&, const auto& d) { return d[0] * (ir::Log(v[0]) + 1); });
}
Value XLogYWithRule(Value x, Value y) {
  return WithRule(
      {x, y}, [](const auto& v) { return XLogY(v[0], v[1]); },
      [](const auto& v, const F&, const auto& d) {
        return d[0] * ir::Log(v[1]) + d[1] * v[0] / v[1];
      });
}
F RelativeEntropy(const F& p, const F& q) {
  const F both_positive = (p > 0) & (q > 0), p_is_zero = (p == 0) & (q >= 0);
  const F safe_p = ir::Where(both_positive, p, 1), safe_q = ir::Where(both_positive, q, 1);
  const Value of_p = XLogX(*safe_p);
  const F logarithm = F(of_p) - F(XLogYWithRule(*safe_p, *safe_q));
  const F otherwise = ir::Where(p_is_zero, ir::Like(p, 0), kInf);
  return ir::Where(both_positive, logarithm, otherwise);
}
F BoxCox(const F& logarithm, const F& lambda) {
  const F zero = lambda == 0;
  const F safe = ir::Where(zero, 1, lambda);
  return ir::Where(zero, logarithm, ir::Expm1(safe * logarithm) / safe);
}
F ScaledErfc(const F& x) {
  constexpr double kTerms[] = {7918.06640625, -1055.7421875, 162.421875, -29.53125, 6.5625,
                               -1.875,        .75,           -.5,        1.};
  const size_t count = IsF64(x) ? 9 : 5;
  const F large = x > std::sqrt(std::log(Largest(x)));
  const F safe = ir::Where(large, 1, x);
  const F direct = ir::Exp(ir::Square(safe)) * ir::Erfc(safe);
  const auto terms = absl::MakeConstSpan(kTerms).subspan(9 - count);
  const F far = ir::Where(large, x, 1);
  const F series = Polynomial(terms, 1 / ir::Square(far)) / (far * std::sqrt(std::numbers::pi));
  return ir::Where(large, series, direct);
}

// ---- Exponential integrals. ---------------------------------------------------------------------

// Returns exp(-x) times a continued fraction, for x above 1. Elements for which `needed` is false
// are not computed.
F ExpnFraction(const F& x, const F& n, const F& needed) {
  const double big = 1.44115188075855872e17, eps = Epsilon(x);
  enum { kK, kP2, kQ2, kP1, kQ1, kAnswer, kActive };
  const Value one = *ir::Like(x, 1);
  const Value k0 = ir::Constant(one.builder(), FormulaDType(x), 1);
  const Value q1 = *(x + n);
  const Value answer = *(1 / F(q1));
  const Vs end = ir::Loop(
      {k0, one, *x, one, q1, answer, *needed}, {*x, *n},
      [](Values c, Values) { return c[kActive]; },
      [&](Values c, Values consts) {
        const auto in = [&](int i) { return F(c[i]); };
        const F x_in = consts[0], n_in = consts[1];
        const F k = in(kK) + 1;
        const F odd = k % 2 == 1;
        const F y = ir::Where(odd, ir::Like(x_in, 1), x_in);
        const F factor = ir::Where(odd, n_in + (k - 1) / 2, ir::Like(x_in, 1) * (k / 2));
        const F p = in(kP1)*y + in(kP2)*factor;
        const F q = in(kQ1)*y + in(kQ2)*factor;
        const F nonzero = q != 0;
        const F r = p / q;
        const F change = ir::Where(nonzero, ir::Abs((in(kAnswer)-r) / r), 1);
        const F scale = ir::Where(ir::Abs(p) > big, ir::Like(x_in, 1 / big), 1);
        const F active = in(kActive);
        const auto kept = [&](int i, const F& v) { return *ir::Where(active, v, in(i)); };
        const Value next_k = *k;
        const Value answer_out = kept(kAnswer, ir::Where(nonzero, r, in(kAnswer)));
        const Value p2 = kept(kP2, in(kP1)*scale), q2 = kept(kQ2, in(kQ1)*scale);
        const Value p1 = kept(kP1, p * scale), q1_out = kept(kQ1, q * scale);
        return Vs{next_k, p2, q2, p1, q1_out, answer_out, *(active & (change > eps))};
      });
  return F(end[kAnswer]) * ir::Exp(-x);
}
// Evaluates a power series, for x up to 1.
F ExpnSeries(const F& x, const F& n, const F& needed) {
  const double eps = Epsilon(x);
  enum { kI, kPsi };
  const Value psi0 = *(-kEulerGamma - ir::Log(x));
  const Value one = ir::Constant(psi0.builder(), FormulaDType(x), 1);
  const Vs sums = ir::Loop(
      {one, psi0}, {*n, *needed},
      [](Values c, Values k) { return *((F(c[kI]) < F(k[0])) & F(k[1])); },
      [](Values c, Values k) {
        const F i = c[kI], psi = c[kPsi];
        const Value next = *ir::Where(i < F(k[0]), psi + 1 / i, psi);
        return Vs{*(i + 1), next};
      });
  enum { kX, kY, kP, kAnswer, kActive };
  const F is_one = n == 1;
  const Value zero = ir::Constant(psi0.builder(), FormulaDType(x), 0);
  const Value y0 = *ir::Like(x, 1), p0 = *(1 - n);
  const Value answer0 = *ir::Where(is_one, 0, 1 / (1 - ir::Where(is_one, 2, n)));
  const Vs end = ir::Loop(
      {zero, y0, p0, answer0, *needed}, {*x}, [](Values c, Values) { return c[kActive]; },
      [&](Values c, Values consts) {
        const auto in = [&](int i) { return F(c[i]); };
        const F k = in(kX) + 1, z = -F(consts[0]), active = in(kActive);
        const F y = in(kY) * (z / k), p = in(kP) + 1;
        const F answer = in(kAnswer) + ir::Where(p != 0, y / p, 0);
        const F change = ir::Where(answer != 0, ir::Abs(y / answer), 1);
        const Value next_k = *k;
        const Value next_y = *ir::Where(active, y, in(kY));
        const Value next_p = *ir::Where(active, p, in(kP));
        const Value next_answer = *ir::Where(active, answer, in(kAnswer));
        return Vs{next_k, next_y, next_p, next_answer, *(active & (change > eps))};
      });
  const F power = ir::Pow(-x, n - 1);
  const F factorial = ir::Where(n < 3, 1, ir::Exp(ir::Lgamma(n)));
  return power * F(sums[kPsi]) / factorial - F(end[kAnswer]);
}
// If several conditions hold the last one decides, as in JAX. JAX's limit at 0 is 1 / n, although
// the integral's limit is 1 / (n - 1).
F ExpnOf(const F& n, const F& x) {
  const F invalid = (n < 0) | (x < 0), at_zero = x == 0;
  const F huge_n = n >= 5000, above_1 = x > 1;
  const F others = invalid | at_zero | huge_n | above_1 | (n == 0);
  const F fraction = ExpnFraction(x, n, above_1);
  F out = ExpnSeries(x, n, ~others);
  out = ir::Where(invalid, kNaN, out);
  const F divisor = ir::Where(n < 2, 1, n);
  out = ir::Where(at_zero, ir::Where(n < 2, kInf, 1 / divisor), out);
  out = ir::Where((n == 0) & (x >= 0), ir::Exp(-x) / x, out);
  const F t = x + n;
  const F y = 1 / (t * t);
  F large = y * n * (6 * x * x - 8 * n * x + n * n);
  large = y * (large + n * (n - 2 * x));
  large = y * (large + n);
  out = ir::Where(huge_n, (large + 1) * ir::Exp(-x) / t, out);
  return ir::Where(above_1, fraction, out);
}
Value Expn(Value n, Value x, int rule_depth) {
  const Function f = InDouble([](const auto& v) { return ExpnOf(v[0], v[1]); });
  if (rule_depth == 0)
    return ir::WithoutTangent(
        {n, x}, [&](Values v) { return ApplyWidened(v, f); }, "expn");
  return WithRule({n, x}, f,
                  [rule_depth](const auto& v, const F&, const auto& d) {
                    return -d[0] * F(Expn(*(v[0] - 1), *v[1], rule_depth - 1));
                  },
                  {.num_consts = 1});
}
F PositiveExpi(const F& x) {
  struct Piece {
    absl::Span<const double> a, b;
  };
  const Piece pieces[] = {{kExpintA2, kExpintB2}, {kExpintA3, kExpintB3}, {kExpintA4, kExpintB4},
                          {kExpintA5, kExpintB5}, {kExpintA6, kExpintB6}, {kExpintA7, kExpintB7}};
  F out = x * (Polynomial(kExpintA1, x) / Polynomial(kExpintB1, x)) + kEulerGamma + ir::Log(x);
  const F w = 1 / x;
  const F growth = ir::Exp(x);
  double from = 2;
  for (const Piece& piece : pieces) {
    const F series = w * (Polynomial(piece.a, w) / Polynomial(piece.b, w)) + 1;
    out = ir::Where(x > from, growth * w * series, out);
    from *= 2;
  }
  return out;
}
F ExpiOf(const F& x) {
  const F negative = x < 0;
  const Value below = *ir::Where(negative, -x, 1);
  const Value one = *ir::Like(x, 1);
  const F of_negative = -F(Expn(one, below, 0));
  const F of_positive = PositiveExpi(ir::Where(negative, 1, x));
  return ir::Where(x == 0, kNaN, ir::Where(negative, of_negative, of_positive));
}
F SpenceOf(const F& x0) {
  // Where one of the special cases at the end gives the value, compute with 0.75, which keeps the
  // gradient finite.
  const F inside = ir::Where((x0 <= 0) | (x0 == 1), 0.75, x0);
  const F above_2 = inside > 2;
  const F x = ir::Where(above_2, 1 / inside, inside);
  const F above = x > 1.5, below = x < 0.5;
  const F inverted = above_2 | above;
  const F w = ir::Where(above, 1 / x - 1, ir::Where(below, -x, x - 1));
  const F y = -w * Polynomial(kSpenceA, w) / Polynomial(kSpenceB, w);
  const double sixth = std::numbers::pi * std::numbers::pi / 6;
  F out = ir::Where(below, sixth - ir::Log(x) * ir::Log(1 - x) - y, y);
  out = ir::Where(inverted, -0.5 * ir::Square(ir::Log(x)) - out, out);
  out = ir::Where(x0 == 0, sixth, ir::Where(x0 == 1, 0, out));
  return ir::Where(x0 < 0, kNaN, out);
}

}  // namespace

Array gamma(const Arg& x) {
  return ApplyFormula("gamma", {x}, InDouble([](const auto& v) { return GammaOf(v[0]); }));
}
Array gammaln(const Arg& x) {
  return ApplyOp("gammaln", {x}, [](const Vs& v) { return ir::Lgamma(v[0]); });
}
Array loggamma(const Arg& x) {
  return ApplyFormula("loggamma", {x},
                      [](const auto& v) { return ir::Where(v[0] > 0, ir::Lgamma(v[0]), kNaN); });
}
Array gammasgn(const Arg& x) {
  return ApplyFormula("gammasgn", {x}, [](const auto& v) { return GammaSign(v[0]); });
}
Array digamma(const Arg& x) {
  return ApplyOp("digamma", {x}, [](const Vs& v) { return ir::Digamma(v[0]); });
}
Array polygamma(const Arg& n, const Arg& x) {
  return ApplyOp("polygamma", {n, x}, [](const Vs& v) { return ir::Polygamma(v[0], v[1]); });
}
Array gammainc(const Arg& a, const Arg& x) {
  return ApplyOp("gammainc", {a, x}, [](const Vs& v) { return ir::Igamma(v[0], v[1]); });
}
Array gammaincc(const Arg& a, const Arg& x) {
  return ApplyOp("gammaincc", {a, x}, [](const Vs& v) { return ir::Igammac(v[0], v[1]); });
}
Array factorial(const Arg& n) {
  return ApplyFormula("factorial", {n}, [](const auto& v) {
    return ir::Where(v[0] < 0, 0, ir::Exp(ir::Lgamma(v[0] + 1)));
  });
}
Array comb(const Arg& n, const Arg& k, bool repetition) {
  return ApplyFormula("comb", {n, k}, [&](const auto& v) {
    if (!repetition) return CombinationsOf(v[0], v[1]);
    const F one = (v[1] == 0) & (v[0] >= 0);
    return ir::Where(one, 1, CombinationsOf(v[0] + v[1] - 1, v[1]));
  });
}
Array multigammaln(const Arg& a, int64_t d) {
  if (d < 1)
    ThrowError(ErrorKind::kValueError, a.site, "special::multigammaln: d is ", d,
               "; expected 1 or more");
  constexpr int64_t kDimsMax = 4096;  // each dim is a term of the program
  if (d > kDimsMax)
    ThrowError(ErrorKind::kValueError, a.site, "special::multigammaln: d is ", d,
               "; expected at most ", kDimsMax);
  return ApplyFormula("multigammaln", {a}, [&](const auto& v) {
    F sum = ir::Lgamma(v[0]);
    for (int64_t i = 1; i < d; ++i) sum = sum + ir::Lgamma(v[0] - static_cast<double>(i) / 2);
    const auto n = static_cast<double>(d);
    return sum + 0.25 * n * (n - 1) * std::log(std::numbers::pi);
  });
}
Array poch(const Arg& z, const Arg& m) {
  return ApplyWithRule("poch", {z, m}, InDouble([](const auto& v) {
                         return ir::Where(v[1] == 0, 1, GammaOf(v[0] + v[1]) / GammaOf(v[0]));
                       }),
                       [](const auto& v, const F& result, const auto& d) {
                         const F at_sum = ir::Digamma(v[0] + v[1]);
                         return (at_sum - ir::Digamma(v[0])) * result * d[0] +
                                at_sum * result * d[1];
                       },
                       {.rules = kRuleDepth});
}
Array beta(const Arg& a, const Arg& b) {
  return ApplyFormula("beta", {a, b}, InDouble([](const auto& v) {
                        const F sign = GammaSign(v[0]) * GammaSign(v[1]) * GammaSign(v[0] + v[1]);
                        return sign * ir::Exp(BetaLogarithm(v[0], v[1]));
                      }));
}
Array betaln(const Arg& a, const Arg& b) {
  return ApplyFormula("betaln", {a, b}, [](const auto& v) { return BetaLogarithm(v[0], v[1]); });
}
Array betainc(const Arg& a, const Arg& b, const Arg& x) {
  return ApplyOp("betainc", {a, b, x},
                 [](const Vs& v) { return ir::RegularizedIncompleteBeta(v[0], v[1], v[2]); });
}
// ir::Zeta has no derivative, so a rule takes the value from the op and the tangent from a series
// that can be differentiated. Operands are broadcast first, because rules work on arrays of one
// shape.
Array zeta(const Arg& x, const Arg& q) {
  const DType dtype = FloatDTypeOf("zeta", {x, q});
  const Site site = internal::SiteOf({x, q});
  const auto value = [](const Array& s, const Array& a) {
    return ApplyOp("zeta", {Arg(s), Arg(a)}, [](const Vs& v) { return ir::Zeta(v[0], v[1]); });
  };
  const auto series = [](const Array& s, const Array& a) {
    return ApplyFormula("zeta", {Arg(s), Arg(a)},
                        [](const auto& v) { return ZetaSeries(v[0], v[1]); });
  };
  const auto rule = [value, series](const auto& primals, const auto& tangents) {
    const auto& [s, a] = primals;
    const Array tangent = jvp(series, primals, tangents).second;
    return std::pair(value(s, a), tangent);
  };
  return internal::InProgram(
      "zeta", site,
      [&] {
        std::vector<Array> arrays;
        for (const Arg* arg : {&x, &q})
          if (arg->kind == Arg::kArray) arrays.push_back(*arg->array);
        return arrays;
      }(),
      [&] {
        const Dims shape =
            internal::BroadcastShapes("zeta",
                                      {x.kind == Arg::kArray ? x.array->shape() : Dims{},
                                       q.kind == Arg::kArray ? q.array->shape() : Dims{}},
                                      site);
        const auto full = [&](const Arg& arg) {
          return broadcast_to(Arg(internal::AsArray(arg, dtype).astype(dtype, site), site), shape);
        };
        const Array s = full(x);
        return std::vector<Array>{custom_jvp(value, rule, site)(s, full(q))};
      })[0];
}

Array erf(const Arg& x) {
  return ApplyOp("erf", {x}, [](const Vs& v) { return ir::Erf(v[0]); });
}
Array erfc(const Arg& x) {
  return ApplyOp("erfc", {x}, [](const Vs& v) { return ir::Erfc(v[0]); });
}
Array erfcx(const Arg& x) {
  return ApplyWithRule(
      "erfcx", {x}, [](const auto& v) { return ScaledErfc(v[0]); },
      [](const auto& v, const F& result, const auto& d) {
        return d[0] * (2 * v[0] * result - 2 * std::numbers::inv_sqrtpi);
      },
      {.rules = kRuleDepth});
}
Array erfinv(const Arg& x) {
  return ApplyOp("erfinv", {x}, [](const Vs& v) { return ir::ErfInv(v[0]); });
}
Array ndtr(const Arg& x) {
  return ApplyFormula("ndtr", {x}, [](const auto& v) { return NormalDistribution(v[0]); });
}
Array ndtri(const Arg& p) {
  return ApplyFormula("ndtri", {p}, [](const auto& v) { return NormalQuantile(v[0]); });
}
Array log_ndtr(const Arg& x, int series_order) {
  if (series_order < 0 || series_order > 30)
    ThrowError(ErrorKind::kValueError, x.site, "special::log_ndtr: series_order is ", series_order,
               "; expected 0 to 30");
  return ApplyWithRule(
      "log_ndtr", {x}, [&](const auto& v) { return LogNormalDistribution(v[0], series_order); },
      [](const auto& v, const F& result, const auto& d) {
        const F log_density = -0.5 * ir::Square(v[0]) - 0.5 * std::log(2 * std::numbers::pi);
        return d[0] * ir::Exp(log_density - result);
      });
}

Array logit(const Arg& x) {
  return ApplyWithRule(
      "logit", {x}, [](const auto& v) { return ir::Log(v[0] / (1 - v[0])); },
      [](const auto& v, const F&, const auto& d) { return d[0] / (v[0] * (1 - v[0])); });
}
Array expit(const Arg& x) {
  return ApplyOp("expit", {x}, [](const Vs& v) { return ir::Logistic(v[0]); });
}
Array xlogy(const Arg& x, const Arg& y) {
  return ApplyOp("xlogy", {x, y}, [](const Vs& v) { return XLogYWithRule(v[0], v[1]); });
}
Array xlog1py(const Arg& x, const Arg& y) {
  return ApplyWithRule(
      "xlog1py", {x, y}, [](const auto& v) { return XLog1pY(v[0], v[1]); },
      [](const auto& v, const F&, const auto& d) {
        return d[0] * ir::Log1p(v[1]) + d[1] * v[0] / (1 + v[1]);
      });
}
Array entr(const Arg& x) {
  return ApplyFormula("entr", {x}, [](const auto& v) {
    const Value product = XLogX(*v[0]);
    return ir::Where(v[0] < 0, -kInf, -F(product));
  });
}
Array rel_entr(const Arg& p, const Arg& q) {
  return ApplyFormula("rel_entr", {p, q},
                      [](const auto& v) { return RelativeEntropy(v[0], v[1]); });
}
Array kl_div(const Arg& p, const Arg& q) {
  return ApplyFormula("kl_div", {p, q},
                      [](const auto& v) { return RelativeEntropy(v[0], v[1]) - v[0] + v[1]; });
}
Array boxcox(const Arg& x, const Arg& lmbda) {
  return ApplyFormula("boxcox", {x, lmbda},
                      [](const auto& v) { return BoxCox(ir::Log(v[0]), v[1]); });
}
Array boxcox1p(const Arg& x, const Arg& lmbda) {
  return ApplyFormula("boxcox1p", {x, lmbda},
                      [](const auto& v) { return BoxCox(ir::Log1p(v[0]), v[1]); });
}

Array i0e(const Arg& x) {
  return ApplyOp("i0e", {x}, [](const Vs& v) { return ir::BesselI0e(v[0]); });
}
Array i0(const Arg& x) {
  return ApplyFormula("i0", {x}, [](const auto& v) {
    return ir::Exp(ir::Abs(v[0])) * F([x = v[0]] { return ir::BesselI0e(*x); });
  });
}
Array i1e(const Arg& x) {
  return ApplyOp("i1e", {x}, [](const Vs& v) { return ir::BesselI1e(v[0]); });
}
Array i1(const Arg& x) {
  return ApplyFormula("i1", {x}, [](const auto& v) {
    return ir::Exp(ir::Abs(v[0])) * F([x = v[0]] { return ir::BesselI1e(*x); });
  });
}
Array bessel_jn(const Arg& z, int64_t v, int64_t n_iter) {
  if (v < 0 || n_iter < v || n_iter > 1000)
    ThrowError(ErrorKind::kValueError, z.site, "special::bessel_jn: v is ", v, " and n_iter is ",
               n_iter, "; expected 0 <= v <= n_iter <= 1000");
  return Elementwise("bessel_jn", {z}, [&](const Vs& in) {
    const DType dtype = in[0].dtype();
    const bool narrow = dtype == DType::kF16 || dtype == DType::kBF16;
    const F x = narrow ? ir::Convert(in[0], DType::kF32) : in[0];
    F f0 = ir::Like(x, 0), f1 = ir::Like(x, 1e-16), sum = ir::Like(x, 0), f = f0;
    std::vector<F> orders;
    for (int64_t k = n_iter; k >= 0; --k) {
      f = 2.0 * (static_cast<double>(k) + 1) * f1 / x - f0;
      if (k % 2 == 0) sum = sum + 2 * f;
      f0 = f1;
      f1 = f;
      if (k <= v) orders.insert(orders.begin(), f);
    }
    Vs rows;
    for (const F& order : orders) {
      const Value row = *(order / (sum - f));
      rows.push_back(ir::ExpandDims(narrow ? ir::Convert(row, dtype) : row, {0}));
    }
    return ir::Concatenate(rows, 0);
  });
}
Array expi(const Arg& x) {
  return ApplyWithRule(
      "expi", {x}, [](const auto& v) { return ExpiOf(v[0]); },
      [](const auto& v, const F&, const auto& d) { return ir::Exp(v[0]) / v[0] * d[0]; });
}
Array expn(const Arg& n, const Arg& x) {
  return ApplyOp("expn", {n, x}, [](const Vs& v) { return Expn(v[0], v[1], kRuleDepth); });
}
Array exp1(const Arg& x) {
  return ApplyOp("exp1", {x},
                 [](const Vs& v) { return Expn(ir::FullLike(v[0], 1), v[0], kRuleDepth); });
}
Array spence(const Arg& x) {
  return ApplyFormula("spence", {x}, [](const auto& v) { return SpenceOf(v[0]); });
}

}  // namespace tessera::special

namespace tessera::lax {
namespace {

using Vs = std::vector<ir::Value>;

Array ApplyStrict(std::string_view name, const std::vector<Arg>& args,
                  const std::function<ir::Value(const Vs&)>& f) {
  return internal::ApplyArgs(name, args, internal::Operands::kStrict, [&](ir::Builder&, Vs v) {
    for (const ir::Value& x : v) {
      if (!ir::IsFloat(x.dtype()))
        internal::ThrowError(ErrorKind::kTypeError, internal::SiteOf(args), ToAbsl(name),
                             " requires floats, got ", x.type().ToString());
    }
    return f(v);
  });
}

}  // namespace

Array bessel_i0e(const Arg& x) {
  return ApplyStrict("bessel_i0e", {x}, [](const Vs& v) { return ir::BesselI0e(v[0]); });
}
Array bessel_i1e(const Arg& x) {
  return ApplyStrict("bessel_i1e", {x}, [](const Vs& v) { return ir::BesselI1e(v[0]); });
}
Array polygamma(const Arg& m, const Arg& x) {
  return ApplyStrict("polygamma", {m, x}, [](const Vs& v) { return ir::Polygamma(v[0], v[1]); });
}
Array zeta(const Arg& x, const Arg& q) {
  return ApplyStrict("zeta", {x, q}, [](const Vs& v) { return ir::Zeta(v[0], v[1]); });
}
Array igamma(const Arg& a, const Arg& x) {
  return ApplyStrict("igamma", {a, x}, [](const Vs& v) { return ir::Igamma(v[0], v[1]); });
}
Array igammac(const Arg& a, const Arg& x) {
  return ApplyStrict("igammac", {a, x}, [](const Vs& v) { return ir::Igammac(v[0], v[1]); });
}
Array igamma_grad_a(const Arg& a, const Arg& x) {
  return ApplyStrict("igamma_grad_a", {a, x},
                     [](const Vs& v) { return ir::IgammaGradA(v[0], v[1]); });
}
Array random_gamma_grad(const Arg& a, const Arg& x) {
  return ApplyStrict("random_gamma_grad", {a, x},
                     [](const Vs& v) { return ir::RandomGammaGrad(v[0], v[1]); });
}
Array betainc(const Arg& a, const Arg& b, const Arg& x) {
  return ApplyStrict("betainc", {a, b, x},
                     [](const Vs& v) { return ir::RegularizedIncompleteBeta(v[0], v[1], v[2]); });
}

}  // namespace tessera::lax
