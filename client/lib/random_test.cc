// Tests of random.h: known answers from JAX with jax_threefry_partitionable, derivatives, batches
// of keys, and errors. Traced functions run on the reference evaluator.
#include "client/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "client/testing/evaluated.h"

namespace tessera {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using testing::Values;
using testing::Vec;

// Evaluates f(key(0)). The argument of the lambda is unused: Values needs a function with an
// argument.
template <class F>
std::vector<double> FromKey0(const F& f) {
  return Values([&](Array) { return f(random::key(0)); }, Vec({0}));
}

TEST(RandomTest, Split) {
  EXPECT_THAT(FromKey0([](Array k) { return random::split(k, 4); }),
              ElementsAre(1797259609, 2579123966, 928981903, 3453687069, 4146024105, 2718843009,
                          2467461003, 3840466878));
}
TEST(RandomTest, FoldIn) {
  EXPECT_THAT(FromKey0([](Array k) { return random::fold_in(k, 4); }),
              ElementsAre(2285895361, 433833334));
}
TEST(RandomTest, Bits) {
  EXPECT_THAT(FromKey0([](Array k) { return random::bits(k, {4}); }),
              ElementsAre(4070199207, 4202968722, 1427181096, 2012915765));
  // The counter of an element is its index in the flattened array, so the shape does not change the
  // bits.
  EXPECT_THAT(FromKey0([](Array k) {
                return random::bits(k, {2, 2});
              }),
              ElementsAre(4070199207, 4202968722, 1427181096, 2012915765));
}
TEST(RandomTest, Uniform) {
  EXPECT_THAT(FromKey0([](Array k) { return random::uniform(k, {4}); }),
              Pointwise(DoubleNear(1e-7), {0.947667, 0.97857988, 0.33229148, 0.46866846}));
}
TEST(RandomTest, AKeyHoldsTheTwoWordsOfItsSeed) {
  EXPECT_THAT(Values([](Array) { return random::key((uint64_t{7} << 32) | 9); }, Vec({0})),
              ElementsAre(7, 9));
}
TEST(RandomTest, NormalHasMeanZeroAndVarianceOne) {
  for (const DType dtype : {kF32, kF64}) {
    const std::vector<double> x =
        FromKey0([&](Array k) { return random::normal(k, {4096}, dtype); });
    double mean = 0, square = 0;
    for (double v : x) {
      mean += v / 4096;
      square += v * v / 4096;
    }
    EXPECT_NEAR(mean, 0, 0.05);
    EXPECT_NEAR(square, 1, 0.08);
  }
}
TEST(RandomTest, RandintStaysInside) {
  const std::vector<double> x = FromKey0([](Array k) { return random::randint(k, {512}, -3, 4); });
  EXPECT_EQ(*std::min_element(x.begin(), x.end()), -3);
  EXPECT_EQ(*std::max_element(x.begin(), x.end()), 3);
}
TEST(RandomTest, BatchedKeysDrawTheNumbersOfEachKey) {
  EXPECT_EQ(FromKey0([](Array k) {
              return vmap([](Array key) { return random::bits(key, {3}); })(random::split(k, 2));
            }),
            FromKey0([](Array k) {
              const Array keys = random::split(k, 2);
              return concatenate({random::bits(keys[0], {3}), random::bits(keys[1], {3})});
            }));
}

// ---- Derivatives: expected values are those of JAX 0.10.2. ----

// Returns the gradient of the sum of f(key(0), a).
template <class F>
std::vector<double> Gradients(const F& f) {
  return Values(
      [&](Array a) { return grad([&](Array v) { return sum(f(random::key(0), v)); })(a); },
      Vec({0.3, 1.5, 8}));
}
MATCHER_P(Relative, tolerance, "") {
  const double got = std::get<0>(arg), want = std::get<1>(arg);
  return std::fabs(got - want) <= tolerance * std::fabs(want);
}

TEST(RandomTest, GammaHasDerivatives) {
  EXPECT_THAT(Gradients([](Array k, Array a) { return random::gamma(k, a); }),
              Pointwise(Relative(3e-6), {2.2258236, 1.0139239, 0.91381234}));
  EXPECT_THAT(Gradients([](Array k, Array a) { return random::loggamma(k, a); }),
              Pointwise(Relative(3e-6), {3.5371535, 0.8144075, 0.14203495}));
}
TEST(RandomTest, SamplersThatUseGammaHaveDerivatives) {
  EXPECT_THAT(
      Gradients([](Array k, Array a) { return random::dirichlet(k, a) * arange(3).astype(kF32); }),
      Pointwise(Relative(1e-5), {-0.45509532, -0.08526611, 0.033145063}));
  EXPECT_THAT(Gradients([](Array k, Array a) { return random::beta(k, a, 2.0); }),
              Pointwise(Relative(2e-5), {0.4252034, 0.32383564, 0.006271157}));
  EXPECT_THAT(Gradients([](Array k, Array a) { return random::t(k, a); }),
              Pointwise(Relative(2e-5), {-1.5071397e+02, 7.0359032e+01, 3.4349464e-02}));
}
TEST(RandomTest, FormulasHaveDerivatives) {
  EXPECT_THAT(Gradients([](Array k, Array a) { return random::uniform(k, {3}, kF32, 0.0, a); }),
              Pointwise(Relative(1e-6), {0.947667, 0.9785799, 0.33229148}));
  const std::vector<double> x =
      Gradients([](Array k, Array a) { return random::truncated_normal(k, -a, a); });
  EXPECT_THAT((std::vector<double>{x[0], x[1]}),
              Pointwise(Relative(3e-6), {0.88718456, 0.7941156}));
}
TEST(RandomTest, BatchedSamplersDrawTheSamplesOfEachKey) {
  const auto samples = [](Array k) {
    return concatenate(
        {random::gamma(k, 0.5, Dims{2}), random::poisson(k, 20.0, Dims{2}).astype(kF32),
         random::permutation(k, 5).astype(kF32), random::binomial(k, 30, 0.4, Dims{2})});
  };
  EXPECT_EQ(FromKey0([&](Array k) { return vmap(samples)(random::split(k, 3)); }),
            FromKey0([&](Array k) {
              const Array keys = random::split(k, 3);
              return concatenate({samples(keys[0]), samples(keys[1]), samples(keys[2])});
            }));
}

// ---- Errors. ----

template <class F>
std::string MessageOf(const F& f) {
  return ErrorOf([&] { trace([&](Array) { return f(random::key(0)); }, abstract({1})); }).what();
}
TEST(RandomTest, RefusesWrongArguments) {
  EXPECT_THAT(MessageOf([](Array k) { return random::uniform(k, {2}, kS32); }),
              HasSubstr("dtype is s32; a float of 16 bits or more is expected"));
  EXPECT_THAT(MessageOf([](Array k) { return random::bits(k, {2}, kS32); }),
              HasSubstr("dtype is s32; u8, u16, u32 or u64 is expected"));
  EXPECT_THAT(MessageOf([](Array k) { return random::gamma(k, ones({3}), Dims{2}); }),
              HasSubstr("incompatible shapes for broadcasting"));
  EXPECT_THAT(MessageOf([](Array k) { return random::gamma(k, ones({3}), Dims{1}); }),
              HasSubstr("must give that shape, but it gives (3) for the shape argument (1)"));
  EXPECT_THAT(MessageOf([](Array k) { return random::gamma(k, ones({3}, kF64)); }),
              HasSubstr("cannot safely cast a parameter of type f64 to f32"));
  EXPECT_THAT(MessageOf([](Array k) { return random::choice(k, 3, {4}, false); }),
              HasSubstr("cannot take a larger sample (size 4) than the population (size 3)"));
  EXPECT_THAT(MessageOf([](Array k) { return random::choice(k, 3, {4}, true, ones({2})); }),
              HasSubstr("p must be a vector with the size of the axis, 3, got f32[2]"));
  EXPECT_THAT(MessageOf([](Array k) { return random::permutation(k, 1.5); }),
              HasSubstr("a whole number or an array of at least 1 dim is expected"));
  EXPECT_THAT(MessageOf([](Array k) {
                return random::categorical(k, ones({2, 3}), 2);
              }),
              HasSubstr("axis 2 is out of bounds for an array of 2 dims"));
  EXPECT_THAT(
      MessageOf([](Array k) { return random::categorical(k, ones({3}), -1, Dims{4}, false); }),
      HasSubstr("(4) cannot exceed the number of categories (3)"));
  EXPECT_THAT(MessageOf([](Array k) { return random::gumbel(k, {2}, kF32, "most"); }),
              HasSubstr("mode is 'most'; expected low, high or highest"));
  EXPECT_THAT(MessageOf([](Array k) { return random::randint(k, {2}, 0.5, 3); }),
              HasSubstr("the bounds must be integers"));
  EXPECT_THAT(MessageOf([](Array k) { return random::poisson(k, 3.0, Dims{2}, kF32); }),
              HasSubstr("dtype is f32; an integer of 8 bits or more is expected"));
  EXPECT_THAT(MessageOf([](Array k) {
                return random::multivariate_normal(k, ones({2}), ones({3, 3}));
              }),
              HasSubstr("requires a covariance of shape [..., n, n] for n = 2, got f32[3,3]"));
  EXPECT_THAT(MessageOf([](Array k) { return random::dirichlet(k, 1.0); }),
              HasSubstr("requires an alpha of at least 1 dim"));
}
TEST(RandomTest, RefusesAnArrayThatIsNoKey) {
  const Error e =
      ErrorOf([] { trace([](Array x) { return random::bits(x, {2}); }, abstract({2})); });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), HasSubstr("a key, u32[2], is expected, not f32[2]"));
}

TEST(RandomTest, RefusesNumbersThatWouldLoseBits) {
  EXPECT_THAT(MessageOf([](Array k) { return random::fold_in(k, 3.0); }),
              HasSubstr("data is 3, a number of a float type; expected an integer"));
  EXPECT_THAT(MessageOf([](Array k) { return random::fold_in(k, int64_t{1} << 33); }),
              HasSubstr("expected an integer of 32 bits"));
  EXPECT_THAT(MessageOf([](Array k) { return random::fold_in(k, ones({2}, kS32)); }),
              HasSubstr("data is s32[2]; expected one integer"));
  EXPECT_THAT(MessageOf([](Array k) { return random::choice(k, int64_t{3'000'000'000}, {4}); }),
              HasSubstr("expected at most 2^31 - 1"));
  EXPECT_THAT(MessageOf([](Array k) {
                return random::randint(k, {2}, 0, std::numeric_limits<uint64_t>::max(), kU64);
              }),
              HasSubstr("expected a bound of at most 63 bits, or an array of u64"));
  EXPECT_THAT(MessageOf([](Array k) {
                const Array p = lax::complex(ones({2}), ones({2}));
                return random::binomial(k, 3, p, Dims{2});
              }),
              HasSubstr("real numbers are expected"));
}

// The sampler's loops end for every parameter.
TEST(RandomTest, BinomialEndsForInvalidCountsAndProbabilities) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> got =
      Values([&](Array n, Array p) { return random::binomial(random::key(0), n, p); },
             Vec({infinity, infinity, infinity, nan, -1, 1e30, 4, 4, 4}),
             Vec({0, 1, 0.5, 0.5, 0.5, 0, nan, -1, 2}));
  EXPECT_EQ(got[0], infinity);
  EXPECT_TRUE(std::isnan(got[3]) && std::isnan(got[4]) && std::isnan(got[6]));
  EXPECT_EQ(got[5], 0);
}

}  // namespace
}  // namespace tessera
