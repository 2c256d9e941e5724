// Tests of indexing: reads, updates, gradients and errors. Expected values are those of jax.numpy
// 0.10.2; traced functions run on the reference evaluator.
#include "client/indexing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "client/testing/evaluated.h"
#include "client/transform.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using testing::ErrorOf;
using testing::Evaluated;
using ::testing::HasSubstr;
using testing::Host;
using testing::Values;
using testing::Vec;

ir::Array Iota(Dims shape) {
  std::vector<double> values(ir::MakeType(kF32, shape).num_elements());
  std::iota(values.begin(), values.end(), 0);
  return Host(values, std::move(shape));
}
Array Ints(std::vector<int32_t> values) {
  std::vector<Array> parts;
  for (int32_t v : values) parts.push_back(lax::full({1}, v, kS32));
  return parts.empty() ? lax::full({0}, 0, kS32) : concatenate(parts);
}

struct ReadCase {
  const char* name;
  std::function<Array(const Array& x, const Array& a, const Array& b, const Array& c,
                      const Array& s)>
      read;
  Dims shape;
  std::vector<double> values;
};

TEST(IndexingTest, ReadsAsNumpyDoes) {
  using A = const Array&;
  const ReadCase cases[] = {
      {"x[-1, 1:3]",
       [](A x, A, A, A, A) {
         return x[{-1, Slice{1, 3}}];
       },
       {2, 4},
       {16, 17, 18, 19, 20, 21, 22, 23}},
      {"x[..., 2]",
       [](A x, A, A, A, A) {
         return x[{ellipsis, 2}];
       },
       {2, 3},
       {2, 6, 10, 14, 18, 22}},
      {"x[:, None, 1]",
       [](A x, A, A, A, A) {
         return x[{Slice{}, None, 1}];
       },
       {2, 1, 4},
       {4, 5, 6, 7, 16, 17, 18, 19}},
      {"x[::-1, ::2, 3:0:-2]",
       [](A x, A, A, A, A) {
         return x[{Slice{.step = -1}, Slice{.step = 2}, Slice{3, 0, -2}}];
       },
       {2, 2, 2},
       {15, 13, 23, 21, 3, 1, 11, 9}},
      {"x[0, a]",
       [](A x, A a, A, A, A) {
         return x[{0, a}];
       },
       {3, 4},
       {4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}},
      {"x[a, :, c]",
       [](A x, A a, A, A c, A) {
         return x[{a, Slice{}, c}];
       },
       {3, 3},
       {15, 19, 23, 0, 4, 8, 12, 16, 20}},
      {"x[:, b, 0]",
       [](A x, A, A b, A, A) {
         return x[{Slice{}, b, 0}];
       },
       {2, 2, 2},
       {0, 8, 8, 4, 12, 20, 20, 16}},
      {"x[a, 1]",
       [](A x, A a, A, A, A) {
         return x[{a, 1}];
       },
       {3, 4},
       {16, 17, 18, 19, 4, 5, 6, 7, 16, 17, 18, 19}},
      {"x[None, a, ..., -1]",
       [](A x, A a, A, A, A) {
         return x[{None, a, ellipsis, -1}];
       },
       {3, 1, 3},
       {15, 19, 23, 3, 7, 11, 15, 19, 23}},
      {"x[1, b, 1:3]",
       [](A x, A, A b, A, A) {
         return x[{1, b, Slice{1, 3}}];
       },
       {2, 2, 2},
       {13, 14, 21, 22, 21, 22, 17, 18}},
      {"x[[[1], [0]], b, None, ::-2]",
       [](A x, A, A b, A, A) {
         return x[{Ints({1, 0}).reshape({2, 1}), b, None, Slice{.step = -2}}];
       },
       {2, 2, 1, 2},
       {15, 13, 23, 21, 11, 9, 7, 5}},
      {"x[s, 1:]",
       [](A x, A, A, A, A s) {
         return x[{s, Slice{1}}];
       },
       {2, 4},
       {16, 17, 18, 19, 20, 21, 22, 23}},
      {"x[s, :, s]",
       [](A x, A, A, A, A s) {
         return x[{s, Slice{}, s}];
       },
       {3},
       {15, 19, 23}},
      {"x[[5, -9, 1], 0, 0]",
       [](A x, A, A, A, A) {
         return x[{Ints({5, -9, 1}), 0, 0}];
       },
       {3},
       {12, 0, 12}},
      {"x[:, 1, a]",
       [](A x, A a, A, A, A) {
         return x[{Slice{}, 1, a}];
       },
       {2, 3},
       {5, 4, 5, 17, 16, 17}},
      {"x[0, ..., a]",
       [](A x, A a, A, A, A) {
         return x[{0, ellipsis, a}];
       },
       {3, 3},
       {1, 5, 9, 0, 4, 8, 1, 5, 9}},
      {"x[:, 0:0]",
       [](A x, A, A, A, A) {
         return x[{Slice{}, Slice{0, 0}}];
       },
       {2, 0, 4},
       {}},
      {"x[[]]", [](A x, A, A, A, A) { return x[Ints({})]; }, {0, 3, 4}, {}},
  };
  for (const ReadCase& r : cases) {
    SCOPED_TRACE(r.name);
    const ir::Array got = Evaluated(
        [&](Array x, Array a, Array b, Array c, Array s) { return r.read(x, a, b, c, s); },
        Iota({2, 3, 4}), Vec({1, 0, 1}, kS32), Host({0, 2, -1, 1}, {2, 2}, kS32),
        Vec({3, 0, -4}, kS32), Host({-1}, {}, kS32))[0];
    EXPECT_EQ(got.shape(), r.shape);
    EXPECT_THAT(got.ToDoubles(), ElementsAreArray(r.values));
  }
}

TEST(IndexingTest, UpdatesReturnTheWholeArray) {
  const auto updated = [](const std::function<Array(Array)>& f) { return Values(f, Iota({2, 3})); };
  EXPECT_THAT(updated([](Array m) {
                return m.at({Slice{}, Slice{1}}).set(lax::full({2, 1}, 10, kF32));
              }),
              ElementsAre(0, 10, 10, 3, 10, 10));
  EXPECT_THAT(updated([](Array m) { return m.at(-1).add(5); }), ElementsAre(0, 1, 2, 8, 9, 10));
  EXPECT_THAT(updated([](Array m) {
                return m.at({Slice{}, Slice{.step = -2}}).set(m[{0, Slice{1}}] + 6);
              }),
              ElementsAre(8, 1, 7, 8, 4, 7));
  EXPECT_THAT(updated([](Array m) {
                return m.at(Ints({1, 1, 0})).add(1);
              }),
              ElementsAre(1, 2, 3, 5, 6, 7));
  EXPECT_THAT(updated([](Array m) {
                return m.at({Ints({0, 1}), Ints({-1, 0})}).set(Ints({50, 60}).astype(kF32));
              }),
              ElementsAre(0, 1, 50, 60, 4, 5));
  EXPECT_THAT(updated([](Array m) {
                return m.at(Ints({2, -3, 0})).set(-1);
              }),
              ElementsAre(-1, -1, -1, 3, 4, 5));
  EXPECT_THAT(updated([](Array m) {
                return m.at({Slice{}, Ints({1, 1})}).multiply(3);
              }),
              ElementsAre(0, 9, 2, 3, 36, 5));
  EXPECT_THAT(updated([](Array m) {
                return m.at({Ints({0, 1}), 1}).min(2);
              }),
              ElementsAre(0, 1, 2, 3, 2, 5));
  EXPECT_THAT(updated([](Array m) {
                return m.at({Ints({0, 1}), 1}).max(3.5);
              }),
              ElementsAre(0, 3.5, 2, 3, 4, 5));
  EXPECT_THAT(updated([](Array m) {
                return m.at({1, Ints({0, 2})}).divide(2);
              }),
              ElementsAre(0, 1, 2, 1.5, 4, 2.5));
  EXPECT_THAT(updated([](Array m) { return m.at(0).subtract(1); }), ElementsAre(-1, 0, 1, 3, 4, 5));
  EXPECT_THAT(updated([](Array m) {
                return m.at({None, Ints({1}), None, Slice{.step = 2}}).set(9);
              }),
              ElementsAre(0, 1, 2, 9, 4, 9));
  EXPECT_THAT(updated([](Array m) { return m.at({Ints({1, 0}), 2}).get(); }), ElementsAre(5, 2));
  EXPECT_THAT(updated([](Array m) {
                return m.at({Ints({0, 1}), 2}).power(3);
              }),
              ElementsAre(0, 1, 8, 3, 4, 125));
  // `func` is applied as often as an index names the element.
  const auto next = [](Array v) { return v * 2 + 1; };
  EXPECT_THAT(updated([&](Array m) {
                return m.at({Ints({1, 1, 0, 5}), 0}).apply(next);
              }),
              ElementsAre(1, 1, 2, 15, 4, 5));
  EXPECT_THAT(updated([&](Array m) {
                return m.at({Slice{}, Slice{1}}).apply(next);
              }),
              ElementsAre(0, 3, 5, 3, 9, 11));
  EXPECT_THAT(updated([&](Array m) {
                return m.at({Slice{}, Slice{.step = -2}}).apply(next);
              }),
              ElementsAre(1, 1, 5, 7, 4, 11));
}

TEST(IndexingTest, IndexesEmptyDimsAndTakesExtremeSteps) {
  const auto shape = [](const std::function<Array(Array)>& f, Dims x_shape) {
    return Evaluated(f, Iota(std::move(x_shape)))[0].shape();
  };
  EXPECT_EQ(shape([](Array x) { return x[Ints({})]; }, {0, 4}), (Dims{0, 4}));
  EXPECT_EQ(shape(
                [](Array x) {
                  return x[{Ints({1, 2}), Slice{.step = 2}}];
                },
                {3, 0}),
            (Dims{2, 0}));
  EXPECT_EQ(shape([](Array x) { return x.at(Ints({})).set(1); }, {0, 4}), (Dims{0, 4}));
  EXPECT_EQ(shape([](Array x) { return x[Slice{.step = INT64_MAX}]; }, {3}), (Dims{1}));
  EXPECT_EQ(shape([](Array x) { return x[Slice{.step = INT64_MIN}]; }, {3}), (Dims{1}));
}

// An index of 64 bits that is out of bounds must not become valid when it is converted to 32 bits.
TEST(IndexingTest, IndicesOf64BitsDoNotWrap) {
  const auto f = [](Array x, Array i) { return x[i]; };
  const ir::Array wide = ir::Array::Of(kS64, {3}, {0x1p32 + 1, -0x1p40, 1});
  EXPECT_THAT(Evaluated(f, Vec({10, 20, 30}), wide)[0].ToDoubles(), ElementsAre(30, 10, 20));
  const auto set = [](Array x, Array i) { return x.at(i).set(0); };
  EXPECT_THAT(Evaluated(set, Vec({10, 20, 30}), wide)[0].ToDoubles(), ElementsAre(10, 0, 30));
}

TEST(IndexingTest, HasGradients) {
  const auto f = [](Array m) {
    return grad([](Array x) {
      return sum(x[{Ints({0, 1, 1}), Ints({2, 0, 0})}] * 3) + sum(x.at(0).set(x[1] * 2));
    })(m);
  };
  EXPECT_THAT(Values(f, Iota({2, 3})), ElementsAre(0, 0, 3, 3 + 3 + 3, 3, 3));
}

TEST(IndexingTest, RefusesWhatNumpyRefuses) {
  const auto error = [](const std::function<Array(Array)>& f) {
    return std::string(ErrorOf([&] { trace(f, abstract({2, 3})); }).what());
  };
  EXPECT_THAT(error([](Array m) { return m[2]; }),
              HasSubstr("index 2 is out of bounds for dim 0 of f32[2,3]"));
  EXPECT_THAT(error([](Array m) {
                return m[{0, 0, 0}];
              }),
              HasSubstr("too many indices for array: f32[2,3] has 2 dims, but 3 were indexed"));
  EXPECT_THAT(error([](Array m) {
                return m[{ellipsis, ellipsis}];
              }),
              HasSubstr("can only have a single ellipsis"));
  EXPECT_THAT(error([](Array m) { return m[Slice{.step = 0}]; }), HasSubstr("step cannot be zero"));
  EXPECT_THAT(error([](Array m) { return m[m]; }), HasSubstr("indexer must have integer type"));
  EXPECT_THAT(error([](Array m) { return m[m > 1]; }), HasSubstr("use where"));
  EXPECT_THAT(error([](Array m) { return m.at(0).set(m); }),
              HasSubstr("does not broadcast to the indexed shape f32[3]"));
  EXPECT_THAT(error([](Array m) { return m.astype(kS32).at(0).set(1.5); }),
              HasSubstr("cannot safely cast 1.5 to s32"));
  EXPECT_THAT(error([](Array m) { return m.astype(kBF16).at(0).set(m[0]); }),
              HasSubstr("cannot safely cast value from f32 to bf16"));
  EXPECT_THAT(error([](Array m) { return m[2]; }), HasSubstr("indexing_test.cc:"));
}

}  // namespace
}  // namespace tessera
