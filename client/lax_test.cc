// Expected values are those of jax.lax 0.10.2.
#include "client/lax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "client/testing/evaluated.h"
#include "client/transform.h"
#include "ir/op_def.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using testing::Evaluated;
using ::testing::HasSubstr;
using testing::Host;
using testing::Values;
using testing::Vec;
using Arrays = std::vector<Array>;

constexpr double kInf = std::numeric_limits<double>::infinity();

// The largest of each row with its column; of equals the first.
std::vector<Array> LargestOfRows(Array x) {
  const Array column = lax::iota(kS32, x.shape(), 1);
  const auto larger = [](const Arrays& a, const Arrays& b) {
    const Array first = logical_or(a[0] > b[0], logical_and(equal(a[0], b[0]), a[1] < b[1]));
    return Arrays{where(first, a[0], b[0]), where(first, a[1], b[1])};
  };
  return lax::reduce({x, column}, {-kInf, 0}, larger, {1});
}

TEST(ReduceTest, OfPairs) {
  const auto out = Evaluated(LargestOfRows, Host({3, 9, 9, 4, 1, -2}, {2, 3}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(9, 4));
  EXPECT_EQ(out[1].dtype(), kS32);
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(1, 0));
}

TEST(ReduceTest, OfOneOperand) {
  const ir::Array x = Host({1, 2, 3, 4, 5, 6}, {2, 3});
  const auto product = [](Array a, Array b) { return a * b; };
  EXPECT_THAT(Values(
                  [&](Array v) {
                    return lax::reduce(v, 1, product, {0, 1});
                  },
                  x),
              ElementsAre(720));
  EXPECT_THAT(Values([](Array v) { return lax::reduce(v, 10, lax::add, {0}); }, x),
              ElementsAre(15, 17, 19));
  EXPECT_THAT(
      Values([](Array v) { return lax::reduce(v.astype(kS32), 0, lax::bitwise_xor, {1}); }, x),
      ElementsAre(0, 7));
  // What numpy's operators do is known as well as an op of lax.
  const auto traced =
      trace([&](Array v) { return lax::reduce(v, 1, product, {0}); }, abstract({2}));
  EXPECT_EQ(traced.fn()->ops.back().def->name, "reduce_prod");
  // As an op of its own, and as vmap and grad see it.
  const auto logaddexp = [](Array a, Array b) {
    const Array most = maximum(a, b);
    return most + log1p(exp(-abs(a - b)));
  };
  const auto f = [&](Array v) { return lax::reduce(v, -1e30, logaddexp, {0}); };
  EXPECT_NEAR(Values(f, Vec({1, 2, 3}))[0], 3.4076059, 1e-5);
  const std::vector<double> gradient = Values(grad(f), Vec({1, 2, 3}));
  EXPECT_NEAR(gradient[0], 0.0900306, 1e-5);
  EXPECT_NEAR(gradient[2], 0.6652409, 1e-5);
  EXPECT_NEAR(Values(vmap(f), Host({1, 2, 3, 0, 0, 0}, {2, 3}))[1], std::log(3), 1e-5);
}

TEST(ReduceTest, SaysWhatIsWrong) {
  const auto error = [](const std::function<Array(Array)>& f) {
    return std::string(ErrorOf([&] { trace(f, abstract({2, 3})); }).what());
  };
  EXPECT_THAT(error([](Array x) {
                return lax::reduce(x, 0, [&](Array a, Array b) { return a + b + x[{0, 0}]; }, {0});
              }),
              HasSubstr("reduce: computations can't close over arrays, but this one uses an array "
                        "of type f32"));
  EXPECT_THAT(
      error([](Array x) { return lax::reduce(x, 0, [](Array a, Array b) { return a < b; }, {0}); }),
      HasSubstr("result 0 of the computation is bool[]; expected f32[]"));
  const auto both = [](const Arrays& a, const Arrays&) { return a; };
  EXPECT_THAT(error([&](Array x) {
                return lax::reduce({x, x}, {0}, both, {0})[0];
              }),
              HasSubstr("Must have same total number of operands as init_values: 2 vs. 1"));
}

TEST(SortByTest, OrdersByTheComparator) {
  const ir::Array x = Host({3, -1, 2, 0, -5, 4}, {2, 3});
  EXPECT_THAT(
      Values([](Array v) { return lax::sort_by(v, [](Array a, Array b) { return a > b; }); }, x),
      ElementsAre(3, 2, -1, 4, 0, -5));
  EXPECT_THAT(Values(
                  [](Array v) {
                    return lax::sort_by(
                        v, [](Array a, Array b) { return abs(a) < abs(b); }, 0);
                  },
                  x),
              ElementsAre(0, -1, 2, 3, -5, 4));
  // By two keys; what goes along has a gradient.
  const auto ordered = [](Array key, Array v) {
    return lax::sort_by({key, v}, [](const Arrays& a, const Arrays& b) {
      return logical_or(a[0] < b[0], logical_and(equal(a[0], b[0]), a[1] > b[1]));
    })[1];
  };
  const ir::Array keys = Vec({1, 0, 1, 0}, kS32);
  EXPECT_THAT(Values(ordered, keys, Vec({1, 2, 3, 4})), ElementsAre(4, 2, 3, 1));
  const auto weighted = [&](Array v, Array key) {
    return sum(ordered(key, v) * lax::iota(kF32, {4}, 0));
  };
  EXPECT_THAT(Values(grad(weighted), Vec({1, 2, 3, 4}), keys), ElementsAre(3, 1, 2, 0));
}

TEST(ScatterApplyTest, AppliesOnceForEachIndex) {
  const lax::ScatterDimensionNumbers dims{
      .update_window_dims = {}, .inserted_window_dims = {0}, .scatter_dims_to_operand_dims = {0}};
  const auto f = [&](Array x, Array i) {
    return lax::scatter_apply(x, i, [](Array v) { return v * 2 + 1; }, dims, {3});
  };
  EXPECT_THAT(Values(f, Vec({1, 2, 3}), Host({2, 0, 2}, {3, 1}, kS32)), ElementsAre(3, 2, 15));
  const Error e = ErrorOf([&] {
    trace(grad([&](Array x, Array i) { return sum(f(x, i)); }), abstract({3}),
          abstract({3, 1}, kS32));
  });
  EXPECT_EQ(e.kind(), ErrorKind::kNotImplemented);
  EXPECT_THAT(e.what(), HasSubstr("'scatter_apply' not implemented"));
}

}  // namespace
}  // namespace tessera
