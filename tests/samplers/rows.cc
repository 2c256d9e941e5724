// The table of samplers. rows_test.cc runs its rows in the reference evaluator, cut_test.cc on
// several devices, and dump.cc prints them for scripts/check_samplers. A row has a sampler in C++
// and the text of the same call in Python, which JAX runs.
#include "tests/samplers/rows.h"

#include <utility>

#include "client/tessera.h"

namespace tessera::samplers {
namespace {

// The value of other_per_million for rows in which a rounding error may decide about a rejection or
// a choice, or may change the result much, as for a nearly singular matrix.
constexpr double kRare = 10;
// The error of XLA's log1p in f64, in units in the last place.
constexpr double kLog1pOfXla = 160;

class Builder {
 public:
  using Sample = std::function<Array(const Array&, int64_t)>;
  void Exact(std::string name, std::string python, Sample sample, bool x64 = false) {
    rows_.push_back({.name = std::move(name),
                     .python = std::move(python),
                     .sample = std::move(sample),
                     .x64 = x64});
  }
  // Adds a row whose samples may be off by `ulps` units in the last place.
  Row& Near(std::string name, std::string python, Sample sample, double ulps, double scale = 0) {
    rows_.push_back({.name = std::move(name),
                     .python = std::move(python),
                     .sample = std::move(sample),
                     .ulps = ulps,
                     .scale = scale});
    return rows_.back();
  }
  Row& Rare(std::string name, std::string python, Sample sample, double ulps = 0,
            double scale = 0) {
    Row& row = Near(std::move(name), std::move(python), std::move(sample), ulps, scale);
    row.other_per_million = kRare;
    return row;
  }
  std::vector<Row> Take() { return std::move(rows_); }

 private:
  std::vector<Row> rows_;
};

struct FloatName {
  DType dtype;
  std::string name, python;
};
const std::vector<FloatName>& Floats() {
  static const std::vector<FloatName> kFloats = {{kF32, "f32", "jnp.float32"},
                                                 {kF64, "f64", "jnp.float64"},
                                                 {kF16, "f16", "jnp.float16"},
                                                 {kBF16, "bf16", "jnp.bfloat16"}};
  return kFloats;
}

// Adds samplers that use the random bits without inexact functions. The samples must equal JAX's.
void AddBits(Builder& b) {
  for (const auto& [dtype, name] :
       {std::pair(kU8, "uint8"), {kU16, "uint16"}, {kU32, "uint32"}, {kU64, "uint64"}}) {
    b.Exact(
        std::string("bits_") + name, std::string("jr.bits(k, (n,), jnp.") + name + ")",
        [dtype = dtype](const Array& k, int64_t n) { return random::bits(k, {n}, dtype); },
        dtype == kU64);
  }
  for (const auto& [dtype, name, python] : Floats()) {
    const DType d = dtype;
    b.Exact(
        "uniform_" + name, "jr.uniform(k, (n,), " + python + ")",
        [d](const Array& k, int64_t n) { return random::uniform(k, {n}, d); }, d == kF64);
    b.Exact(
        "uniform_bounds_" + name, "jr.uniform(k, (n,), " + python + ", -3.3, 7.7)",
        [d](const Array& k, int64_t n) { return random::uniform(k, {n}, d, -3.3, 7.7); },
        d == kF64);
  }
  b.Exact("uniform_array_bounds",
          "jr.uniform(k, (n // 4, 4), jnp.float32, jnp.array([-1., 0., 2., 5.], 'f4'), 9.5)",
          [](const Array& k, int64_t n) {
            const Array low = arange(4).astype(kF32) * arange(4).astype(kF32) * 0.5 - 1.0;
            return random::uniform(
                k, {n / 4, 4}, kF32,
                concatenate({low[Index(Slice{0, 1})], full({1}, 0), full({1}, 2), full({1}, 5)}),
                9.5);
          });
  struct Integers {
    DType dtype;
    std::string name;
    int64_t low, high;
  };
  for (const Integers& i : std::vector<Integers>{{kS8, "int8", -100, 101},
                                                 {kU8, "uint8", 0, 256},
                                                 {kS16, "int16", -30000, 32768},
                                                 {kU16, "uint16", 7, 65000},
                                                 {kS32, "int32", -5, 1000003},
                                                 {kU32, "uint32", 3, 2000000011},
                                                 {kS64, "int64", -5, 4000000000000000037},
                                                 {kU64, "uint64", 3, 4000000000000000037}}) {
    b.Exact(
        "randint_" + i.name,
        "jr.randint(k, (n,), " + std::to_string(i.low) + ", " + std::to_string(i.high) + ", jnp." +
            i.name + ")",
        [i](const Array& k, int64_t n) { return random::randint(k, {n}, i.low, i.high, i.dtype); },
        ir::BitWidth(i.dtype) == 64);
  }
  b.Exact("randint_all", "jr.randint(k, (n,), -2**31, 2**31 - 1, jnp.int32)",
          [](const Array& k, int64_t n) {
            return random::randint(k, {n}, -(int64_t{1} << 31), (int64_t{1} << 31) - 1);
          });
  b.Exact(
      "randint_all_s64", "jr.randint(k, (n,), jnp.int64(-2**31), jnp.int64(2**31), jnp.int32)",
      [](const Array& k, int64_t n) {
        return random::randint(k, {n}, -(int64_t{1} << 31), int64_t{1} << 31);
      },
      /*x64=*/true);
  b.Exact("randint_empty", "jr.randint(k, (n,), 5, 5)",
          [](const Array& k, int64_t n) { return random::randint(k, {n}, 5, 5); });
  b.Exact(
      "randint_arrays",
      "jr.randint(k, (n // 4, 4), jnp.arange(4) * 3 - 2, jnp.array([[5], [1 << 20]] * (n // 8)))",
      [](const Array& k, int64_t n) {
        const Array pair = concatenate({full({1, 1}, 5, kS32), full({1, 1}, 1 << 20, kS32)});
        const Array high = reshape(broadcast_to(expand_dims(pair, 0), {n / 8, 2, 1}), {n / 4, 1});
        return random::randint(k, {n / 4, 4}, arange(4) * 3 - 2, high);
      });
  b.Exact("randint_arrays_u8",
          "jr.randint(k, (n // 2, 2), jnp.array([0, 250]), jnp.array([256, 300]), jnp.uint8)",
          [](const Array& k, int64_t n) {
            const Array low = concatenate({full({1}, 0, kS32), full({1}, 250, kS32)});
            const Array high = concatenate({full({1}, 256, kS32), full({1}, 300, kS32)});
            return random::randint(k, {n / 2, 2}, low, high, kU8);
          });
  b.Exact("bernoulli", "jr.bernoulli(k, 0.3, (n,))",
          [](const Array& k, int64_t n) { return random::bernoulli(k, 0.3, Dims{n}); });
  b.Exact("bernoulli_high", "jr.bernoulli(k, jnp.full((n,), 1e-3, 'f4'), mode='high')",
          [](const Array& k, int64_t n) {
            return random::bernoulli(k, full({n}, 1e-3), std::nullopt, "high");
          });
  b.Exact("rademacher", "jr.rademacher(k, (n,), jnp.int8)",
          [](const Array& k, int64_t n) { return random::rademacher(k, {n}, kS8); });
}

// Adds permutations, choices and Gumbel noise. Unweighted choices use only random bits and are
// exact. Weighted choices compare floats, so that in rare cases a rounding error decides.
void AddChoices(Builder& b) {
  b.Exact("permutation", "jr.permutation(k, n)",
          [](const Array& k, int64_t n) { return random::permutation(k, n); });
  b.Exact("permutation_rows", "jr.permutation(k, jnp.arange(n).reshape(4, n // 4), 1)",
          [](const Array& k, int64_t n) {
            return random::permutation(k, reshape(arange(n), {4, n / 4}), 1);
          });
  b.Exact("permutation_independent",
          "jr.permutation(k, jnp.arange(n, dtype=jnp.float32).reshape(n // 4, 4), 1, True)",
          [](const Array& k, int64_t n) {
            return random::permutation(k, reshape(arange(n, kF32), {n / 4, 4}), -1, true);
          });
  b.Exact("choice", "jr.choice(k, 1000, (n,))",
          [](const Array& k, int64_t n) { return random::choice(k, 1000, {n}); });
  b.Exact(
      "choice_rows", "jr.choice(k, jnp.arange(24).reshape(2, 6, 2), (n // 8, 2), axis=1)",
      [](const Array& k, int64_t n) {
        return random::choice(k, reshape(arange(24), {2, 6, 2}), {n / 8, 2}, true, std::nullopt, 1);
      });
  b.Exact("choice_distinct", "jr.choice(k, n + 5, (n,), replace=False)",
          [](const Array& k, int64_t n) { return random::choice(k, n + 5, {n}, false); });
  b.Rare("choice_weights", "jr.choice(k, 7, (n,), p=jnp.arange(7, dtype=jnp.float32) / 21)",
         [](const Array& k, int64_t n) {
           return random::choice(k, 7, {n}, true, Array(arange(7, kF32) / 21.0));
         });
  b.Rare("choice_weights_distinct",
         "jr.choice(k, n, (n // 2,), replace=False, p=jnp.arange(1, n + 1, dtype=jnp.float64))"
         ".astype(jnp.int32)",
         [](const Array& k, int64_t n) {
           return random::choice(k, n, {n / 2}, false, Array(arange(n, kF64) + 1.0));
         })
      .x64 = true;
  for (const char* mode : {"low", "high", "highest"}) {
    const std::string m = mode;
    b.Near(
        "gumbel_" + m, "jr.gumbel(k, (n,), jnp.float32, mode='" + m + "')",
        [m](const Array& k, int64_t n) { return random::gumbel(k, {n}, kF32, m); }, 4, 1);
  }
  b.Near(
       "gumbel_f64", "jr.gumbel(k, (n,), jnp.float64)",
       [](const Array& k, int64_t n) { return random::gumbel(k, {n}, kF64); }, 4, 1)
      .x64 = true;
  b.Rare("categorical", "jr.categorical(k, jnp.arange(5, dtype=jnp.float32), shape=(n,))",
         [](const Array& k, int64_t n) {
           return random::categorical(k, arange(5, kF32), -1, Dims{n});
         });
  b.Rare("categorical_axis",
         "jr.categorical(k, jnp.sin(jnp.arange(12, dtype=jnp.float32)).reshape(3, 4), axis=0, "
         "shape=(n // 4, 4))",
         [](const Array& k, int64_t n) {
           return random::categorical(k, reshape(sin(arange(12, kF32)), {3, 4}), 0, Dims{n / 4, 4});
         });
  b.Rare("categorical_distinct",
         "jr.categorical(k, jnp.zeros((n // 4, 9), jnp.float32), shape=(4, n // 4), replace=False)",
         [](const Array& k, int64_t n) {
           return random::categorical(k, zeros({n / 4, 9}), -1, Dims{4, n / 4}, false);
         });
}

// Adds distributions that transform a uniform or normal number. The tolerance of a row allows for
// the differences between our functions and those of XLA.
void AddContinuous(Builder& b) {
  for (const auto& [dtype, name, python] : Floats()) {
    const DType d = dtype;
    Row& row = b.Near(
        "normal_" + name, "jr.normal(k, (n,), " + python + ")",
        [d](const Array& k, int64_t n) { return random::normal(k, {n}, d); },
        d == kF64 ? kLog1pOfXla : 6);
    row.x64 = d == kF64;
  }
  b.Near(
      "normal_c64", "jr.normal(k, (n,), jnp.complex64)",
      [](const Array& k, int64_t n) { return random::normal(k, {n}, kC64); }, 6);
  b.Near(
      "truncated_normal", "jr.truncated_normal(k, -1.5, 2.5, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::truncated_normal(k, -1.5, 2.5, Dims{n}); }, 16,
      1);
  b.Near(
       "multivariate_normal",
       "jr.multivariate_normal(k, jnp.array([1., 2.], 'f4'), "
       "jnp.array([[2., .5], [.5, 1.]], 'f4'), (n,))",
       [](const Array& k, int64_t n) {
         const Array half = full({2, 2}, 0.5);
         const Array cov = half + eye(2) * reshape(1.5 - arange(2, kF32), {2, 1});
         return random::multivariate_normal(k, arange(2, kF32) + 1.0, cov, Dims{n});
       },
       8, 1)
      .rows = true;
  b.Near(
      "lognormal", "jr.lognormal(k, 0.7, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::lognormal(k, 0.7, Dims{n}); }, 8);
  b.Near(
      "exponential", "jr.exponential(k, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::exponential(k, {n}); }, 4);
  b.Near(
       "exponential_f64", "jr.exponential(k, (n,), jnp.float64)",
       [](const Array& k, int64_t n) { return random::exponential(k, {n}, kF64); }, kLog1pOfXla)
      .x64 = true;
  b.Near(
      "laplace", "jr.laplace(k, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::laplace(k, {n}); }, 4);
  b.Near(
      "logistic", "jr.logistic(k, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::logistic(k, {n}); }, 4, 1);
  b.Near(
      "cauchy", "jr.cauchy(k, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::cauchy(k, {n}); }, 8);
  b.Near(
      "maxwell", "jr.maxwell(k, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::maxwell(k, {n}); }, 8);
  b.Near(
      "double_sided_maxwell", "jr.double_sided_maxwell(k, 0.5, 2.0, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::double_sided_maxwell(k, 0.5, 2.0, {n}); }, 8,
      1);
  b.Near(
      "pareto", "jr.pareto(k, 1.5, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::pareto(k, 1.5, Dims{n}); }, 12);
  b.Near(
      "rayleigh", "jr.rayleigh(k, jnp.float32(2.), (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::rayleigh(k, 2.0, Dims{n}); }, 4);
  b.Near(
      "triangular", "jr.triangular(k, -1., 0.5, 2., (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::triangular(k, -1.0, 0.5, 2.0, Dims{n}); }, 4,
      1);
  b.Near(
       "wald", "jr.wald(k, jnp.float32(1.5), (n,), jnp.float32)",
       [](const Array& k, int64_t n) { return random::wald(k, 1.5, Dims{n}); }, 256, 4)
      .other_per_million = kRare;
  b.Near(
      "weibull_min", "jr.weibull_min(k, 2.0, 1.7, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::weibull_min(k, 2.0, 1.7, {n}); }, 8);
  b.Near(
       "orthogonal", "jr.orthogonal(k, 3, (n // 9,), jnp.float32)",
       [](const Array& k, int64_t n) { return random::orthogonal(k, 3, {n / 9}); }, 128, 1)
      .other_per_million = kRare;
  b.Near(
       "orthogonal_wide", "jr.orthogonal(k, 2, (n // 6,), jnp.float32, 3)",
       [](const Array& k, int64_t n) { return random::orthogonal(k, 2, {n / 6}, kF32, 3); }, 128, 1)
      .other_per_million = kRare;
}

// Adds distributions that draw until a sample is accepted, or that count. A rounding error may then
// lead to another sample, so all rows allow a few other samples.
void AddRejection(Builder& b) {
  for (const auto& [a, name] : {std::pair(0.3, "small"), {2.5, "medium"}, {40.0, "large"}}) {
    const std::string text = std::to_string(a);
    b.Rare(
        std::string("gamma_") + name, "jr.gamma(k, " + text + ", (n,), jnp.float32)",
        [a = a](const Array& k, int64_t n) { return random::gamma(k, a, Dims{n}); }, 64);
    b.Rare(
        std::string("loggamma_") + name, "jr.loggamma(k, " + text + ", (n,), jnp.float32)",
        [a = a](const Array& k, int64_t n) { return random::loggamma(k, a, Dims{n}); }, 16, 1);
  }
  b.Rare(
       "gamma_f64", "jr.gamma(k, 1.75, (n,), jnp.float64)",
       [](const Array& k, int64_t n) { return random::gamma(k, 1.75, Dims{n}, kF64); }, 32)
      .x64 = true;
  b.Rare(
      "gamma_array", "jr.gamma(k, jnp.array([.1, .5, 1., 9.], 'f4'), (n // 4, 4), jnp.float32)",
      [](const Array& k, int64_t n) {
        const Array a = concatenate({full({1}, 0.1), full({1}, 0.5), full({1}, 1), full({1}, 9)});
        return random::gamma(k, a, Dims{n / 4, 4});
      },
      256);
  b.Rare(
      "beta", "jr.beta(k, 0.5, 2.0, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::beta(k, 0.5, 2.0, Dims{n}); }, 32);
  b.Rare(
      "chisquare", "jr.chisquare(k, 3.0, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::chisquare(k, 3.0, Dims{n}); }, 32);
  b.Rare(
      "f", "jr.f(k, 5.0, 7.0, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::f(k, 5.0, 7.0, Dims{n}); }, 64);
  b.Rare(
      "t", "jr.t(k, 4.0, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::t(k, 4.0, Dims{n}); }, 16);
  b.Rare(
       "dirichlet", "jr.dirichlet(k, jnp.array([.2, 1., 3.], 'f4'), (n // 3,), jnp.float32)",
       [](const Array& k, int64_t n) {
         const Array alpha = concatenate({full({1}, 0.2), full({1}, 1), full({1}, 3)});
         return random::dirichlet(k, alpha, Dims{n / 3});
       },
       48)
      .rows = true;
  b.Rare(
      "generalized_normal", "jr.generalized_normal(k, 1.3, (n,), jnp.float32)",
      [](const Array& k, int64_t n) { return random::generalized_normal(k, 1.3, {n}); }, 32);
  b.Rare(
       "ball", "jr.ball(k, 3, 2, (n // 3,), jnp.float32)",
       [](const Array& k, int64_t n) { return random::ball(k, 3, 2, {n / 3}); }, 64)
      .rows = true;
  b.Rare("geometric", "jr.geometric(k, 0.2, (n,), jnp.int32)",
         [](const Array& k, int64_t n) { return random::geometric(k, 0.2, Dims{n}); });
  for (const auto& [lam, name] : {std::pair(0.7, "small"), {9.0, "medium"}, {55.0, "large"}}) {
    b.Rare(std::string("poisson_") + name,
           "jr.poisson(k, " + std::to_string(lam) + ", (n,), jnp.int32)",
           [lam = lam](const Array& k, int64_t n) { return random::poisson(k, lam, Dims{n}); });
  }
  b.Rare("poisson_array",
         "jr.poisson(k, jnp.array([0., .5, 12., 100.], 'f4'), (n // 4, 4), jnp.int32)",
         [](const Array& k, int64_t n) {
           const Array lam =
               concatenate({full({1}, 0), full({1}, 0.5), full({1}, 12), full({1}, 100)});
           return random::poisson(k, lam, Dims{n / 4, 4});
         });
  // A rejection compares f32 numbers near lam log lam, which are large, so that their units in the
  // last place are large, too.
  b.Rare("poisson_huge", "jr.poisson(k, 1e4, (n,), jnp.int32)",
         [](const Array& k, int64_t n) { return random::poisson(k, 1e4, Dims{n}); });
  b.Rare("poisson_rates",
         "jr.poisson(k, jr.randint(k, (n,), 10, 10**7).astype('f4'), (n,), jnp.int32)",
         [](const Array& k, int64_t n) {
           return random::poisson(k, random::randint(k, {n}, 10, 10000000).astype(kF32), Dims{n});
         });
  b.Rare("binomial_counts",
         "jr.binomial(k, jr.randint(k, (n,), 1, 10**6).astype('f4'), jr.uniform(k, (n,)), (n,), "
         "jnp.float32)",
         [](const Array& k, int64_t n) {
           const Array count = random::randint(k, {n}, 1, 1000000).astype(kF32);
           return random::binomial(k, count, random::uniform(k, {n}), Dims{n});
         });
  b.Rare("binomial_small", "jr.binomial(k, 12., 0.3, (n,), jnp.float32)",
         [](const Array& k, int64_t n) { return random::binomial(k, 12, 0.3, Dims{n}); });
  b.Rare("binomial_large", "jr.binomial(k, 400., 0.7, (n,), jnp.float32)",
         [](const Array& k, int64_t n) { return random::binomial(k, 400, 0.7, Dims{n}); });
  b.Rare("multinomial",
         "jr.multinomial(k, jnp.full((n // 3,), 50., 'f4'), jnp.array([.2, .3, .5], 'f4'), "
         "shape=(n // 3, 3), dtype=jnp.float32)",
         [](const Array& k, int64_t n) {
           const Array p = concatenate({full({1}, 0.2), full({1}, 0.3), full({1}, 0.5)});
           return random::multinomial(k, 50.0, p, Dims{n / 3, 3});
         })
      .rows = true;
}

}  // namespace

const std::vector<Row>& Rows() {
  static const std::vector<Row> kRows = [] {
    Builder b;
    AddBits(b);
    AddChoices(b);
    AddContinuous(b);
    AddRejection(b);
    return b.Take();
  }();
  return kRows;
}

}  // namespace tessera::samplers
