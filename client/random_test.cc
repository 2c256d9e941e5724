// Known answers from JAX with jax_threefry_partitionable.
#include "client/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

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

// Evaluates f(key(0)); the argument only makes it a function.
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
  // The counter is the flat index, whatever the shape.
  EXPECT_THAT(FromKey0([](Array k) {
                return random::bits(k, {2, 2});
              }),
              ElementsAre(4070199207, 4202968722, 1427181096, 2012915765));
}
TEST(RandomTest, Uniform) {
  EXPECT_THAT(FromKey0([](Array k) { return random::uniform(k, {4}); }),
              Pointwise(DoubleNear(1e-7), {0.947667, 0.97857988, 0.33229148, 0.46866846}));
}
TEST(RandomTest, KeysHoldTheSeedsWords) {
  EXPECT_THAT(Values([](Array) { return random::key((uint64_t{7} << 32) | 9); }, Vec({0})),
              ElementsAre(7, 9));
}
TEST(RandomTest, NormalHasTheMoments) {
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
TEST(RandomTest, BatchedKeysDrawAsEachAlone) {
  EXPECT_EQ(FromKey0([](Array k) {
              return vmap([](Array key) { return random::bits(key, {3}); })(random::split(k, 2));
            }),
            FromKey0([](Array k) {
              const Array keys = random::split(k, 2);
              return concatenate({random::bits(keys[0], {3}), random::bits(keys[1], {3})});
            }));
}
TEST(RandomTest, RefusesWhatIsNoKey) {
  const Error e =
      ErrorOf([] { trace([](Array x) { return random::bits(x, {2}); }, abstract({2})); });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), HasSubstr("a key, u32[2], is expected, not f32[2]"));
}

}  // namespace
}  // namespace tessera
