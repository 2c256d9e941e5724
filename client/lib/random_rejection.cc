// Samplers that draw until a sample is accepted: gamma numbers and distributions derived from them,
// and counts.
//
// The loops run for all elements at once. Each element has a state of its own, and keeps it once
// its sample is accepted, while other elements go on.
#include <algorithm>
#include <cmath>
#include <limits>

#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/lib/random_draws.h"
#include "client/lib/random_rounding.h"
#include "client/numpy.h"
#include "client/random.h"
#include "client/transform.h"
#include "ir/special.h"

namespace tessera::random {
namespace {

using internal::ArraysOf;
using internal::CheckedKey;
using internal::CheckFloat;
using internal::Child;
using internal::KeyWords;
using internal::KeyWordsOf;
using internal::LogAsXla;
using internal::LogFactorialAsXla;
using internal::MulAdd;
using internal::Sampled;
using internal::SamplerArgs;
using internal::SampleShape;
using internal::ShapeOf;
using ir::Value;
using ir::Values;
using tessera::internal::Apply1;
using tessera::internal::BroadcastTo;
using tessera::internal::ThrowError;
using F = ir::Formula;
using Vs = std::vector<Value>;

// ---- Gamma. Reference: G. Marsaglia and W. Tsang, "A simple method for generating gamma
// variables" (2000). ------

// Samples Gamma(a, 1), or its logarithm. For an `a` below 1 it samples Gamma(a + 1, 1) and
// multiplies the sample by a power of a uniform number. Each element draws from its own keys in a
// loop, so that a sample does not depend on the attempts of others.
Value GammaSample(const KeyWords& key, Value a, bool log_space, const Site& site) {
  const DType dtype = a.dtype();
  const Dims shape = a.shape();
  const F alpha = a;
  const F at_least_1 = alpha >= 1;
  const F boosted = ir::Where(at_least_1, alpha, alpha + 1);
  const F d = boosted - 1.0 / 3;
  const F c = F(ir::FullLike(a, 1.0 / 3)) / ir::Sqrt(d);
  const Value d_value = *d, c_value = *c;

  // Each element has its own key.
  const KeyWords keys = internal::CipherWords(key, shape, site);
  const KeyWords loop_keys = Child(keys, 0), boost_keys = Child(keys, 1);
  const Value all_true = *((F(a) == F(a)) | (F(a) != F(a)));
  const Value one = ir::FullLike(a, 1);
  enum { kActive, kHigh, kLow, kV };
  const Vs end = ir::Loop(
      {all_true, loop_keys.high, loop_keys.low, one}, {d_value, c_value},
      [](Values s, Values) { return s[kActive]; },
      [&](Values s, Values consts) {
        const KeyWords own = {s[kHigh], s[kLow]};
        const KeyWords next = Child(own, 0), of_x = Child(own, 1), of_u = Child(own, 2);
        const Value x_zero = ir::FullLike(s[kV], 0);
        const Value v_start = *ir::Where(F(s[kActive]), F(ir::FullLike(x_zero, -1)), 1);
        enum { kXHigh, kXLow, kX, kXV };
        const Vs drawn = ir::Loop(
            {of_x.high, of_x.low, x_zero, v_start}, {consts[1]},
            [](Values t, Values) { return *(F(t[kXV]) <= 0); },
            [&](Values t, Values k) {
              const KeyWords own_x = {t[kXHigh], t[kXLow]};
              const KeyWords next_x = Child(own_x, 0);
              const Value x = internal::Normal(Child(own_x, 1), shape, dtype, site);
              const Value v = *(1 + F(x) * F(k[0]));
              const F x_active = F(t[kXV]) <= 0;
              const Value high = *ir::Where(x_active, F(next_x.high), F(t[kXHigh]));
              const Value low = *ir::Where(x_active, F(next_x.low), F(t[kXLow]));
              const Value x_kept = *ir::Where(x_active, F(x), F(t[kX]));
              return Vs{high, low, x_kept, *ir::Where(x_active, F(v), F(t[kXV]))};
            });
        const F x = drawn[kX], v = drawn[kXV];
        const F square = x * x, cube = v * v * v;
        const F u = internal::Uniform(of_u, shape, dtype, 0, 1, site);
        const F tail = u >= 1 - 0.0331 * (square * square);
        const F log_side = square * 0.5 + F(consts[0]) * (1 - cube + ir::Log(cube));
        const F rejected = tail & (ir::Log(u) >= log_side);
        const F active = s[kActive];
        const Value still_active = *(active & rejected);
        const Value high = *ir::Where(active, F(next.high), F(s[kHigh]));
        const Value low = *ir::Where(active, F(next.low), F(s[kLow]));
        return Vs{still_active, high, low, *ir::Where(active, cube, F(s[kV]))};
      });
  const F v = end[kV];
  if (log_space) {
    const F log_u = -F(internal::Exponential(boost_keys, shape, dtype, site));
    const F boost = ir::Where(at_least_1 | (log_u == 0), 0, log_u * (1 / alpha));
    return *(ir::Log(F(d_value)) + ir::Log(v) + boost);
  }
  const F u = 1 - F(internal::Uniform(boost_keys, shape, dtype, 0, 1, site));
  const F boost = ir::Where(at_least_1, 1, ir::Pow(u, 1 / alpha));
  return *(F(d_value) * v * boost);
}

double LeastNormal(DType dtype) {
  return dtype == DType::kF64   ? std::numeric_limits<double>::min()
         : dtype == DType::kF16 ? 0x1p-14
                                : static_cast<double>(std::numeric_limits<float>::min());
}

// Returns a sample or its logarithm, with its derivative by a.
Value GammaOf(const KeyWords& key, Value a, bool log_space, const Site& site) {
  return ir::WithTangent(
      {key.high, key.low, a},
      [&](Values in) {
        return GammaSample({in[0], in[1]}, in[2], log_space, site);
      },
      [&](Values in, Value result, Values tangents) {
        const F tangent = tangents[0];
        if (!log_space) return *(tangent * F(ir::RandomGammaGrad(in[2], result)));
        const F sample = ir::Exp(F(result));
        const F safe = ir::Where(sample == 0, LeastNormal(in[2].dtype()), sample);
        const F slope = ir::RandomGammaGrad(in[2], *safe);
        return *(tangent * (slope / safe));
      });
}
F LogGammaOf(const SamplerArgs& d, const KeyWords& key, const F& a) {
  return GammaOf(key, *a, /*log_space=*/true, d.site);
}
F ChisquareOf(const SamplerArgs& d, const KeyWords& key, const F& df) {
  return ir::Exp(LogGammaOf(d, key, df / 2)) * 2;
}
F PowerOf(const F& x, const F& p) { return ir::Pow(x, p); }

Value GeneralizedNormal(const KeyWords& key, const Dims& shape, DType dtype, Value p,
                        const Site& site) {
  const F inverse = 1 / F(p);
  const Value of_all = BroadcastTo(*inverse, shape);
  const F g = GammaOf(Child(key, 0), of_all, /*log_space=*/false, site);
  const F sign = internal::Signs(Child(key, 1), shape, dtype, site);
  return *(sign * PowerOf(g, F(of_all)));
}
void CheckScalar(std::string_view name, const Arg& p, const Site& site) {
  if (!ShapeOf(p).empty())
    ThrowError(ErrorKind::kValueError, site, "random::", ToAbsl(name),
               ": p must be a number or a scalar, got ", p.array->type().ToString());
}

// ---- Poisson. -----------------------------------------------------------------------------------

// Knuth's method: counts the uniform numbers whose product stays above exp(-lam).
Value PoissonKnuth(const KeyWords& key, Value lam, DType dtype, double max_iterations,
                   const Site& site) {
  ir::Builder& b = lam.builder();
  const Dims shape = lam.shape();
  const Value i = ir::Constant(b, ir::Array::ScalarInt(DType::kS32, 0));
  const Value k0 = internal::Filled(b, dtype, 0, shape);
  const Value zero = ir::FullLike(lam, 0);
  enum { kI, kK, kHigh, kLow, kLogProduct };
  const auto above = [](Values s, Values consts) { return F(s[kLogProduct]) > -F(consts[0]); };
  const Vs end = ir::Loop(
      {i, k0, key.high, key.low, zero}, {lam},
      [&](Values s, Values consts) { return *(above(s, consts) & (F(s[kI]) < max_iterations)); },
      [&](Values s, Values consts) {
        const KeyWords own = {s[kHigh], s[kLow]};
        const KeyWords next = Child(own, 0);
        const F k = s[kK];
        const Value counted = *ir::Where(above(s, consts), k + 1, k);
        const F u = internal::Uniform(Child(own, 1), shape, DType::kF32, 0, 1, site);
        const Value log_product = *(F(s[kLogProduct]) + ir::Log(u));
        return Vs{*(F(s[kI]) + 1), counted, next.high, next.low, log_product};
      });
  return *(F(end[kK]) - 1);
}
// Reference: W. Hormann, "The transformed rejection method for generating Poisson random variables"
// (1993). It rounds like XLA (random_rounding.h). If the rate is a C++ number, XLA computes the
// values that depend on it alone at compile time, where it rounds each operation by itself.
Value PoissonRejection(const KeyWords& key, Value lam, bool is_number, DType dtype,
                       double max_iterations, const Site& site) {
  ir::Builder& builder = lam.builder();
  const Dims shape = lam.shape();
  const auto line = [&](double at_0, double slope, const F& x) {
    return is_number ? at_0 + slope * x : MulAdd(ir::Like(x, slope), x, ir::Like(x, at_0));
  };
  const Value log_lam = is_number ? *ir::Log(F(lam)) : *LogAsXla(F(lam));
  const F b0 = line(0.931, 2.53, ir::Sqrt(F(lam)));
  const F a0 = line(-0.059, 0.02483, b0);
  const F inv_alpha0 = 1.1239 + 1.1328 / (b0 - 3.4);
  const F v_r0 = 0.9277 - 3.6224 / (b0 - 2);
  const Value i = ir::Constant(builder, ir::Array::ScalarInt(DType::kS32, 0));
  const Value k0 = ir::FullLike(lam, -1);
  const Value accepted0 = *(F(lam) != F(lam));
  const Value all_false = *(F(accepted0) & ~F(accepted0));
  enum { kI, kK, kAccepted, kHigh, kLow };
  const Vs end = ir::Loop(
      {i, k0, all_false, key.high, key.low}, {lam, log_lam, *b0, *a0, *inv_alpha0, *v_r0},
      [&](Values s, Values) { return *(~F(s[kAccepted]) & (F(s[kI]) < max_iterations)); },
      [&](Values s, Values consts) {
        const F lam_in = consts[0], log_in = consts[1], b = consts[2], a = consts[3];
        const F inv_alpha = consts[4], v_r = consts[5];
        const KeyWords own = {s[kHigh], s[kLow]};
        const KeyWords next = Child(own, 0);
        const F u = F(internal::Uniform(Child(own, 1), shape, DType::kF32, 0, 1, site)) - 0.5;
        const F v = internal::Uniform(Child(own, 2), shape, DType::kF32, 0, 1, site);
        const F inside = 0.5 - ir::Abs(u);
        const F k = ir::Floor(MulAdd(2 * a / inside + b, u, lam_in) + 0.43);
        const F left = LogAsXla(v * inv_alpha / (a / (inside * inside) + b));
        const F right = MulAdd(k, log_in, -lam_in) - LogFactorialAsXla(k);
        const F quick_accept = (inside >= 0.07) & (v <= v_r);
        const F rejected = (k < 0) | ((inside < 0.013) & (v > inside));
        const F accepted = quick_accept | (~rejected & (left <= right));
        const Value kept = *ir::Where(accepted, k, F(s[kK]));
        const Value done = *(F(s[kAccepted]) | accepted);
        return Vs{*(F(s[kI]) + 1), kept, done, next.high, next.low};
      });
  return ir::Convert(end[kK], dtype);
}

// ---- Binomial. ----------------------------------------------------------------------------------

// Sums geometric numbers until the sum exceeds the count.
Value BinomialInversion(const KeyWords& key, Value count, Value prob, const Site& site) {
  const DType dtype = prob.dtype();
  const Dims shape = prob.shape();
  const Value log_other = *ir::Log1p(-F(prob));
  const Value zero = ir::FullLike(prob, 0);
  enum { kNumber, kSum, kHigh, kLow };
  const Vs end = ir::Loop(
      {zero, zero, key.high, key.low}, {count, log_other},
      [](Values s, Values consts) { return *(F(s[kSum]) <= F(consts[0])); },
      [&](Values s, Values consts) {
        const KeyWords own = {s[kHigh], s[kLow]};
        const KeyWords next = Child(own, 1);
        const F number = s[kNumber], sum = s[kSum];
        const Value counted = *ir::Where(sum <= F(consts[0]), number + 1, number);
        const F u = internal::Uniform(Child(own, 0), shape, dtype, 0, 1, site);
        const Value more = *(sum + ir::Ceil(ir::Log(u) / F(consts[1])));
        return Vs{counted, more, next.high, next.low};
      });
  return *(F(end[kNumber]) - 1);
}
// Returns the error of Stirling's approximation of log k!. For k above 9 it returns the asymptotic
// formula's value at 9, as JAX does.
F StirlingTail(const F& k) {
  constexpr double kTail[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983,
                              0.02079067210376509, 0.0166446911898211, 0.0138761288230707,
                              0.0118967099458917,  0.0104112652619720, 0.00925546218271273,
                              0.00833056343336287};
  const F inside = ir::Min(ir::Max(k, 0), 9);
  const F square = (inside + 1) * (inside + 1);
  const F approximate = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (inside + 1);
  const F whole = ir::Floor(inside);
  F small_tail = ir::Like(k, kTail[0]);
  for (int i = 1; i < 10; ++i) small_tail = ir::Where(whole == i, kTail[i], small_tail);
  return ir::Where(k <= 9, small_tail, approximate);
}
// Reference: W. Hormann, "The generation of binomial random variates" (1993), BTRS. In f32 it
// rounds like XLA (random_rounding.h), which computes values that depend only on C++ numbers at
// compile time.
Value BinomialRejection(const KeyWords& key, Value count_in, Value prob_in, bool are_numbers,
                        const Site& site) {
  const DType dtype = prob_in.dtype();
  const bool as_xla = dtype == DType::kF32;
  const auto log = [=](const F& x) { return as_xla ? LogAsXla(x) : ir::Log(x); };
  const auto mul_add = [=](const F& x, const F& y, const F& z) {
    return as_xla ? MulAdd(x, y, z) : x * y + z;
  };
  const Dims shape = prob_in.shape();
  const F count0 = count_in, prob0 = prob_in;
  const F deviation = ir::Sqrt(count0 * prob0 * (1 - prob0));
  // Returns at_0 + slope * x.
  const auto line = [&](const F& at_0, double slope, const F& x) {
    return are_numbers ? at_0 + slope * x : mul_add(ir::Like(x, slope), x, at_0);
  };
  const F b0 = line(ir::Like(prob0, 1.15), 2.53, deviation);
  const F a0 = line(line(ir::Like(prob0, -0.0873), 0.0248, b0), 0.01, prob0);
  const F half = ir::Like(prob0, 0.5);
  const F c0 = are_numbers ? count0 * prob0 + half : mul_add(count0, prob0, half);
  const F v_r0 = 0.92 - 4.2 / b0;
  const F r0 = prob0 / (1 - prob0);
  const F alpha0 = (2.83 + 5.1 / b0) * deviation;
  const F m0 = ir::Floor((count0 + 1) * prob0);
  const F ratio0 = (m0 + 1) / (r0 * (count0 - m0 + 1));
  const F of_m0 = (m0 + 0.5) * (are_numbers ? ir::Log(ratio0) : log(ratio0));
  const Value k0 = ir::FullLike(prob_in, -1);
  const F nan = prob0 != prob0;
  const Value all_false = *(nan & ~nan);
  // Each attempt succeeds more often than not. The bound ends the loop for elements whose attempts
  // never succeed.
  constexpr double kAttemptsMax = 1000;
  const Value attempts0 = ir::Constant(prob_in.builder(), DType::kS32, 0);
  enum { kK, kAccepted, kHigh, kLow, kAttempts };
  const Vs end = ir::Loop(
      {k0, all_false, key.high, key.low, attempts0},
      {count_in, *b0, *a0, *c0, *v_r0, *r0, *alpha0, *m0, *of_m0},
      [](Values s, Values) { return *(~F(s[kAccepted]) & (F(s[kAttempts]) < kAttemptsMax)); },
      [&](Values s, Values consts) {
        const F count = consts[0], b = consts[1], a = consts[2], c = consts[3], v_r = consts[4];
        const F r = consts[5], alpha = consts[6], m = consts[7], of_m = consts[8];
        const KeyWords own = {s[kHigh], s[kLow]};
        const KeyWords next = Child(own, 0);
        const F u = F(internal::Uniform(Child(own, 1), shape, dtype, 0, 1, site)) - 0.5;
        const F v = internal::Uniform(Child(own, 2), shape, dtype, 0, 1, site);
        const F inside = 0.5 - ir::Abs(u);
        const F quick_accept = (inside >= 0.07) & (v <= v_r);
        const F k = ir::Floor(mul_add(2 * a / inside + b, u, c));
        const F rejected = (k < 0) | (k > count);
        const F log_v = log(v * alpha / (a / (inside * inside) + b));
        const F of_count = log((count - m + 1) / (count - k + 1));
        const F of_k = log(r * (count - k + 1) / (k + 1));
        const F logs = mul_add(k + 0.5, of_k, mul_add(count + 1, of_count, of_m));
        const F bound = logs + StirlingTail(m) + StirlingTail(count - m) - StirlingTail(k) -
                        StirlingTail(count - k);
        const F accepted = quick_accept | (~rejected & (log_v <= bound));
        const Value kept = *ir::Where(accepted, k, F(s[kK]));
        const Value done = *(F(s[kAccepted]) | accepted);
        return Vs{kept, done, next.high, next.low, *(F(s[kAttempts]) + 1)};
      });
  return end[kK];
}

// Returns the dtype in which a parameter is computed: floats keep theirs, integers become floats.
DType FloatDTypeOf(std::string_view name, const Arg& a) {
  if (a.kind != Arg::kArray) return DType::kF32;
  if (ir::IsComplex(a.array->dtype()))
    ThrowError(ErrorKind::kTypeError, a.site, "random::", std::string(name), ": got ",
               a.array->type().ToString(), "; real numbers are expected");
  const DType dtype = a.array->dtype();
  if (ir::IsFloat(dtype)) return dtype;
  return dtype == DType::kS64 || dtype == DType::kU64 ? DType::kF64 : DType::kF32;
}

}  // namespace

Array gamma(const Arg& k, const Arg& a, Shape shape, DType dtype) {
  return Sampled("gamma", k, shape, {a}, dtype, [](const SamplerArgs& d) {
    return F(GammaOf(d.key, *d[0], /*log_space=*/false, d.site));
  });
}
Array loggamma(const Arg& k, const Arg& a, Shape shape, DType dtype) {
  return Sampled("loggamma", k, shape, {a}, dtype,
                 [](const SamplerArgs& d) { return LogGammaOf(d, d.key, d[0]); });
}
Array beta(const Arg& k, const Arg& a, const Arg& b, Shape shape, DType dtype) {
  return Sampled("beta", k, shape, {a, b}, dtype, [](const SamplerArgs& d) {
    const F log_a = LogGammaOf(d, Child(d.key, 0), d[0]);
    const F log_b = LogGammaOf(d, Child(d.key, 1), d[1]);
    // Subtracting the larger logarithm keeps one exponential at 1, so that the sum is not 0.
    const F most = ir::Max(log_a, log_b);
    const F of_a = ir::Exp(log_a - most), of_b = ir::Exp(log_b - most);
    return of_a / (of_a + of_b);
  });
}
Array chisquare(const Arg& k, const Arg& df, Shape shape, DType dtype) {
  return Sampled("chisquare", k, shape, {df}, dtype,
                 [](const SamplerArgs& d) { return ChisquareOf(d, d.key, d[0]); });
}
Array f(const Arg& k, const Arg& dfnum, const Arg& dfden, Shape shape, DType dtype) {
  return Sampled("f", k, shape, {dfnum, dfden}, dtype, [](const SamplerArgs& d) {
    const KeyWords of_denominator = Child(d.key, 0);
    const F above = ChisquareOf(d, Child(d.key, 1), d[0]) / d[0];
    const F below = ChisquareOf(d, of_denominator, d[1]) / d[1];
    return above / below;
  });
}
Array t(const Arg& k, const Arg& df, Shape shape, DType dtype) {
  return Sampled("t", k, shape, {df}, dtype, [](const SamplerArgs& d) {
    const F n = internal::Normal(Child(d.key, 0), d.shape, d.dtype, d.site);
    const F half = d[0] / 2;
    const Value half_value = *half;
    const F g = GammaOf(Child(d.key, 1), half_value, /*log_space=*/false, d.site);
    return n * ir::Sqrt(half / g);
  });
}
Array dirichlet(const Arg& k, const Arg& alpha, Shape shape, DType dtype) {
  CheckedKey("dirichlet", k);
  if (alpha.kind != Arg::kArray || alpha.array->rank() < 1)
    ThrowError(ErrorKind::kValueError, k.site,
               "random::dirichlet requires an alpha of at least 1 dim");
  const Dims& alpha_shape = alpha.array->shape();
  Dims out =
      SampleShape("dirichlet", shape, {Dims(alpha_shape.begin(), alpha_shape.end() - 1)}, k.site);
  out.push_back(alpha_shape.back());
  return Sampled("dirichlet", k, out, {alpha}, dtype, [](const SamplerArgs& d) {
    const Value logs = *LogGammaOf(d, d.key, d[0]);
    const int last = logs.rank() - 1;
    const Value most = ir::StopGradient(ir::ReduceMax(logs, {last}));
    const F shifted = F(logs) - F(BroadcastTo(ir::ExpandDims(most, {last}), logs.shape()));
    const Value scaled = *ir::Exp(shifted);
    const Value sum = ir::ReduceSum(scaled, {last});
    return F(scaled) / F(BroadcastTo(ir::ExpandDims(sum, {last}), logs.shape()));
  });
}

Array generalized_normal(const Arg& k, const Arg& p, Dims shape, DType dtype) {
  const Array& key = CheckedKey("generalized_normal", k);
  CheckFloat("generalized_normal", dtype, k.site);
  CheckScalar("generalized_normal", p, k.site);
  return Apply1("random_generalized_normal", k.site, ArraysOf(key, {p}), [&](ir::Builder& b, Vs v) {
    size_t next = 1;
    const Value power = internal::NextParam(b, p, dtype, v, &next);
    return GeneralizedNormal(KeyWordsOf(v[0]), shape, dtype, power, k.site);
  });
}
Array ball(const Arg& k, int64_t d, const Arg& p, Dims shape, DType dtype) {
  const Array& key = CheckedKey("ball", k);
  CheckFloat("ball", dtype, k.site);
  CheckScalar("ball", p, k.site);
  if (d < 0)
    ThrowError(ErrorKind::kValueError, k.site, "random::ball: a number of dims of 0 or more is ",
               "expected, got ", d);
  Dims full = shape;
  full.push_back(d);
  return Apply1("random_ball", k.site, ArraysOf(key, {p}), [&](ir::Builder& b, Vs v) {
    size_t next = 1;
    const Value power = internal::NextParam(b, p, dtype, v, &next);
    const KeyWords words = KeyWordsOf(v[0]);
    const Value g = GeneralizedNormal(Child(words, 0), full, dtype, power, k.site);
    const F e = internal::Exponential(Child(words, 1), shape, dtype, k.site);
    const Value powers = *PowerOf(ir::Abs(F(g)), F(BroadcastTo(power, full)));
    const F sum = F(ir::ReduceSum(powers, {powers.rank() - 1})) + e;
    const F inverse = BroadcastTo(*(1 / F(power)), shape);
    const Value size = *PowerOf(sum, inverse);
    return *(F(g) / F(BroadcastTo(ir::ExpandDims(size, {size.rank()}), full)));
  });
}

Array geometric(const Arg& k, const Arg& p, Shape shape, DType dtype) {
  internal::CheckInteger("geometric", dtype, k.site);
  const DType compute_dtype = FloatDTypeOf("geometric", p);
  return Sampled("geometric", k, shape, {p}, compute_dtype, [&](const SamplerArgs& d) {
    const F u = d.uniform();
    const F log_u = ir::Log(ir::Where(u == 0, 1, u));
    const Value g = *(ir::Floor(log_u / ir::Log1p(-d[0])) + 1);
    return F(ir::Convert(g, dtype));
  });
}

Array poisson(const Arg& k, const Arg& lam, Shape shape, DType dtype) {
  const Array& key = CheckedKey("poisson", k);
  internal::CheckInteger("poisson", dtype, k.site);
  const Dims out = SampleShape("poisson", shape, {ShapeOf(lam)}, k.site);
  const int digits = ir::BitWidth(dtype) - (ir::IsSignedInt(dtype) ? 1 : 0);
  // The dtype bounds the number of iterations.
  const double max_iterations = std::min(std::ldexp(1.0, digits), 0x1p31) - 1;
  return Apply1("random_poisson", k.site, ArraysOf(key, {lam}), [&](ir::Builder& b, Vs v) {
    size_t next = 1;
    const Value rate = BroadcastTo(internal::NextParam(b, lam, DType::kF32, v, &next), out);
    const KeyWords words = KeyWordsOf(v[0]);
    const F rates = rate;
    const F is_small = ir::IsNan(rates) | (rates < 10);
    const Value knuth_rate = *ir::Where(is_small, rates, 0);
    const Value rejection_rate = *ir::Where(is_small, 1e5, rates);
    const Value knuth = PoissonKnuth(words, knuth_rate, dtype, max_iterations, k.site);
    const Value rejection = PoissonRejection(words, rejection_rate, lam.kind != Arg::kArray, dtype,
                                             max_iterations, k.site);
    const F count = ir::Where(is_small, F(knuth), F(rejection));
    return *ir::Where(rates == 0, 0, count);
  });
}

// Draws with the probability q = min(p, 1 - p), and returns n minus the sample if p is above 1/2.
// Small counts use inversion, others rejection; each method gets harmless parameters for the
// elements of the other, because both run for all elements. Invalid parameters give NaN.
Array binomial(const Arg& k, const Arg& n, const Arg& p, Shape shape, DType dtype) {
  const Array& key = CheckedKey("binomial", k);
  CheckFloat("binomial", dtype, k.site);
  const Dims out = SampleShape("binomial", shape, {ShapeOf(n), ShapeOf(p)}, k.site);
  const DType compute_dtype = FloatDTypeOf("binomial", p);
  CheckFloat("binomial", compute_dtype, k.site);
  return Apply1("random_binomial", k.site, ArraysOf(key, {n, p}), [&](ir::Builder& b, Vs v) {
    size_t next = 1;
    const F count0 = BroadcastTo(internal::NextParam(b, n, compute_dtype, v, &next), out);
    const F prob = BroadcastTo(internal::NextParam(b, p, compute_dtype, v, &next), out);
    const F below_half = prob < 0.5;
    const F q0 = ir::Where(below_half, prob, 1 - prob);
    const F bad_count = ir::IsNan(count0) | (count0 < 0);
    const F infinite = ir::Abs(count0) == std::numeric_limits<double>::infinity();
    const F q_nan = ir::IsNan(q0), q_negative = q0 < 0;
    const F q = ir::Where(q_nan | q_negative, 0.01, q0);
    const F nothing_drawn = bad_count | infinite;
    const F inversion = nothing_drawn | (count0 * q <= 10);
    const F count = ir::Floor(count0);
    const KeyWords words = KeyWordsOf(v[0]);
    const Value inverted =
        BinomialInversion(words, *ir::Where(inversion & ~nothing_drawn, count, 0), *q, k.site);
    const Value count_rejection = *ir::Where(inversion, 1e4, count);
    const bool are_numbers = n.kind != Arg::kArray && p.kind != Arg::kArray;
    const Value rejection = BinomialRejection(words, count_rejection, *ir::Where(inversion, 0.5, q),
                                              are_numbers, k.site);
    const F drawn_counts = ir::Convert(*ir::Where(inversion, F(inverted), F(rejection)), dtype);
    const F invalid = q_negative | q_nan | bad_count;
    F samples = ir::Where(invalid, std::numeric_limits<double>::quiet_NaN(), drawn_counts);
    samples = ir::Where(infinite & ~invalid, std::numeric_limits<double>::infinity(), samples);
    const F whole = ir::Convert(*count, dtype);
    return *ir::Where(below_half | bad_count | q_nan | infinite, samples, whole - samples);
  });
}

// Draws the categories one after another: the count of each is a binomial number of the draws that
// are left, with the category's share of the remaining probability. A scan over the categories does
// this.
Array multinomial(const Arg& k, const Arg& n, const Arg& p, Shape shape, DType dtype) {
  const Array& key = CheckedKey("multinomial", k);
  CheckFloat("multinomial", dtype, k.site);
  if (p.kind != Arg::kArray || p.array->rank() < 1)
    ThrowError(ErrorKind::kValueError, k.site,
               "random::multinomial requires probabilities of at least 1 dim");
  const Dims out = shape.value_or(p.array->shape());
  SampleShape("multinomial", out, {p.array->shape()}, k.site);
  const Dims batch(out.begin(), out.end() - 1);
  SampleShape("multinomial", batch, {ShapeOf(n)}, k.site);
  const DType p_dtype = FloatDTypeOf("multinomial", p);
  const DType compute_dtype =
      n.kind == Arg::kArray
          ? tessera::internal::Promote(p_dtype, FloatDTypeOf("multinomial", n)).value_or(p_dtype)
          : p_dtype;
  return tessera::internal::InProgram("random_multinomial", k.site, ArraysOf(key, {n, p}), [&] {
    const auto arg = [&](const Array& a) { return Arg(a, k.site); };
    const Array draws = broadcast_to(
        arg(tessera::internal::AsArray(n, compute_dtype).astype(compute_dtype, k.site)), batch);
    const Array spread = broadcast_to(arg(p.array->astype(compute_dtype, k.site)), out);
    const int rank = spread.rank();
    std::vector<int64_t> order = {rank - 1};
    for (int d = 0; d + 1 < rank; ++d) order.push_back(d);
    const Array probabilities = transpose(arg(spread), order);
    const Array tail_sums = lax::cumsum(arg(probabilities), 0, /*reverse=*/true);
    const Array ratios =
        arg(probabilities) / arg(where(arg(equal(arg(tail_sums), 0.0)), 1.0, arg(tail_sums)));
    const Array keys = split(k, probabilities.dim(0));
    const auto step = [&](const Array& remaining, const std::pair<Array, Array>& x) {
      const Array ratio = clip(arg(x.first), 0.0, 1.0);
      const Array count =
          binomial(arg(x.second), arg(remaining), arg(ratio), std::nullopt, compute_dtype);
      return std::pair(Array(arg(remaining) - arg(count)), count);
    };
    // In a shard_map the remaining draws vary over the same axes as the keys and the probabilities.
    const std::vector<Array> in =
        tessera::internal::Apply("random_multinomial", k.site, {draws, ratios, keys},
                                 [](ir::Builder&, Vs v) { return ir::MatchVarying(std::move(v)); });
    const Array counts = scan(step, in[0], std::pair(in[1], in[2]), {}, k.site).second;
    std::vector<int64_t> order_back;
    for (int d = 1; d < rank; ++d) order_back.push_back(d);
    order_back.push_back(0);
    return std::vector<Array>{transpose(arg(counts), order_back).astype(dtype, k.site)};
  })[0];
}

}  // namespace tessera::random
