// Tests of sets.h: results of a given size, edge cases without elements or with NaNs, and
// transforms. Expected values are those of jax.numpy and jax.ops 0.10.2.
#include "client/sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "client/numpy.h"
#include "client/testing/evaluated.h"
#include "client/transform.h"
#include "ir/strided.h"

namespace tessera {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using testing::ErrorOf;
using testing::Evaluated;
using ::testing::HasSubstr;
using testing::Host;
using ::testing::IsEmpty;
using ::testing::IsNan;
using testing::Values;
using testing::Vec;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Returns each result of `f` as a list.
template <class F, class... A>
std::vector<std::vector<double>> Lists(const F& f, const A&... args) {
  std::vector<std::vector<double>> out;
  for (const ir::Array& a : Evaluated(f, args...)) out.push_back(a.ToDoubles());
  return out;
}
std::string ErrorText(const std::function<Array(Array)>& f, Dims shape, DType dtype = kF32) {
  return ErrorOf([&] { trace(f, abstract(shape, dtype)); }).what();
}

TEST(SearchsortedTest, FindsThePlaceLeftOrRightOfEqualElements) {
  const ir::Array sorted = Vec({-1, 0, 0, 2, 2, 2, 5, kNan, kNan});
  const ir::Array v = Host({-2, -1, -0.0, 2, 3, 5, kNan, kInf}, {2, 4});
  const auto left = [](Array a, Array x) { return searchsorted(a, x); };
  const auto right = [](Array a, Array x) { return searchsorted(a, x, "right"); };
  EXPECT_THAT(Values(left, sorted, v), ElementsAre(0, 0, 1, 3, 6, 6, 7, 7));
  EXPECT_THAT(Values(right, sorted, v), ElementsAre(0, 1, 3, 6, 6, 7, 9, 7));
  EXPECT_EQ(Evaluated(left, sorted, v)[0].shape(), (Dims{2, 4}));
  EXPECT_EQ(Evaluated(left, sorted, v)[0].dtype(), kS32);
  EXPECT_THAT(Values([](Array a) { return searchsorted(a, 4); }, Vec({1, 3, 5, 7, 9}, kS32)),
              ElementsAre(2));
  EXPECT_THAT(Values([](Array a) { return searchsorted(a, 2.5); }, Vec({1, 3, 5}, kS32)),
              ElementsAre(1));
  EXPECT_THAT(Values(left, Host({}, {0}), Vec({1, 2})), ElementsAre(0, 0));
  for (int n = 1; n < 20; ++n) {
    std::vector<double> all;
    for (int i = 0; i < n; ++i) all.push_back(i);
    const std::vector<double> l = Values(left, Vec(all, kS32), Vec(all, kS32));
    const std::vector<double> r = Values(right, Vec(all, kS32), Vec(all, kS32));
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(l[i], i) << n;
      EXPECT_EQ(r[i], i + 1) << n;
    }
  }
  EXPECT_THAT(ErrorText([](Array x) { return searchsorted(x, 1); }, {2, 2}),
              HasSubstr("a should be 1-dimensional"));
  EXPECT_THAT(ErrorText([](Array x) { return searchsorted(x, 1, "middle"); }, {2}),
              HasSubstr("'middle' is an invalid value for keyword 'side'"));
}

TEST(NonzeroTest, ReturnsAsManyIndicesAsTheSize) {
  const ir::Array x = Host({0, 5, 0, 7, 0, kNan}, {2, 3});
  const auto nonzero_of = [&](int64_t size, int64_t fill_value) {
    return Lists([=](Array a) { return nonzero(a, size, fill_value); }, x);
  };
  EXPECT_THAT(nonzero_of(5, 0),
              ElementsAre(ElementsAre(0, 1, 1, 0, 0), ElementsAre(1, 0, 2, 0, 0)));
  EXPECT_THAT(nonzero_of(5, -1),
              ElementsAre(ElementsAre(0, 1, 1, -1, -1), ElementsAre(1, 0, 2, -1, -1)));
  EXPECT_THAT(nonzero_of(2, 0), ElementsAre(ElementsAre(0, 1), ElementsAre(1, 0)));
  EXPECT_THAT(nonzero_of(0, 0), ElementsAre(IsEmpty(), IsEmpty()));
  EXPECT_THAT(
      Lists([](Array a) { return nonzero(equal(remainder(a, 5), 1), 4, 7); },
            Host({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {2, 3, 2}, kS32)),
      ElementsAre(ElementsAre(0, 1, 1, 7), ElementsAre(0, 0, 2, 7), ElementsAre(1, 0, 1, 7)));
  EXPECT_THAT(Lists([](Array a) { return nonzero(a, 2, 7); }, Host({}, {0, 3})),
              ElementsAre(ElementsAre(0, 0), ElementsAre(0, 0)));
  EXPECT_THAT(Values([](Array a) { return flatnonzero(a, 4, 9); }, x), ElementsAre(1, 3, 5, 9));
  EXPECT_THAT(Values([](Array a) { return flatnonzero(a, 2, 9); }, Host({3}, {})),
              ElementsAre(0, 9));
  const ir::Array rows = Evaluated([](Array a) { return argwhere(a, 4, 8); }, x)[0];
  EXPECT_EQ(rows.shape(), (Dims{4, 2}));
  EXPECT_THAT(rows.ToDoubles(), ElementsAre(0, 1, 1, 0, 1, 2, 8, 8));
  EXPECT_THAT(ErrorText([](Array a) { return nonzero(a, 1)[0]; }, {}),
              HasSubstr("Calling nonzero on 0d arrays is not allowed"));
  EXPECT_THAT(ErrorText([](Array a) { return nonzero(a, -1)[0]; }, {3}),
              HasSubstr("nonzero: size is -1"));
}

TEST(UniqueTest, ReturnsAsManyValuesAsTheSize) {
  const ir::Array x = Host({3, 1, kNan, 3, 1, kNan, -0.0, 0}, {2, 4});
  EXPECT_THAT(Values([](Array a) { return unique(a, 6); }, x), ElementsAre(0, 1, 3, IsNan(), 0, 0));
  EXPECT_THAT(Values([](Array a) { return unique(a, 6, 9); }, x),
              ElementsAre(0, 1, 3, IsNan(), 9, 9));
  EXPECT_TRUE(std::signbit(Values([](Array a) { return unique(a, 2); }, x)[0]));
  EXPECT_THAT(Values([](Array a) { return unique(a, 2, 3); }, Host({}, {0})), ElementsAre(3, 3));
  EXPECT_THAT(ErrorText([](Array a) { return unique(a, 2); }, {0}),
              HasSubstr("for zero-sized input with nonzero size argument, fill_value must be"));
}

TEST(UniqueTest, UniqueAllReturnsIndicesInverseAndCounts) {
  const auto all = [](int64_t size, std::optional<double> fill_value = {}) {
    return [=](Array a) {
      const UniqueAll u = unique_all(a, size, fill_value);
      return std::vector<Array>{u.values, u.indices, u.inverse_indices, u.counts};
    };
  };
  const ir::Array x = Host({3, 1, 4, 1, 5, 1}, {2, 3}, kS32);
  const auto inverse = ElementsAre(1, 0, 2, 0, 3, 0);
  EXPECT_THAT(Lists(all(6, -7), x),
              ElementsAre(ElementsAre(1, 3, 4, 5, -7, -7), ElementsAre(1, 0, 2, 4, 1, 1), inverse,
                          ElementsAre(3, 1, 1, 1, 0, 0)));
  EXPECT_EQ(Evaluated(all(6), x)[2].shape(), (Dims{2, 3}));
  EXPECT_THAT(Lists(all(6), x),
              ElementsAre(ElementsAre(1, 3, 4, 5, 1, 1), ElementsAre(1, 0, 2, 4, 1, 1), inverse,
                          ElementsAre(3, 1, 1, 1, 0, 0)));
  EXPECT_THAT(Lists(all(2), x),
              ElementsAre(ElementsAre(1, 3), ElementsAre(1, 0), inverse, ElementsAre(3, 1)));
  EXPECT_THAT(Lists(all(4), Vec({kNan, 1, kNan})),
              ElementsAre(ElementsAre(1, IsNan(), IsNan(), 1), ElementsAre(1, 0, 2, 1),
                          ElementsAre(1, 0, 2), ElementsAre(1, 1, 1, 0)));
  EXPECT_THAT(Lists(all(1), Vec({2})),
              ElementsAre(ElementsAre(2), ElementsAre(0), ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(Lists(all(0), Vec({2, 3})),
              ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(0, 1), IsEmpty()));
  EXPECT_THAT(Lists(all(2, 3), Host({}, {0, 2})),
              ElementsAre(ElementsAre(3, 3), IsEmpty(), IsEmpty(), IsEmpty()));
}

TEST(BincountTest, CountsOrSumsWeights) {
  const ir::Array x = Vec({-1, -1, 1, 3, 10, 1}, kS32);
  EXPECT_THAT(Values([](Array v) { return bincount(v, 5); }, x), ElementsAre(2, 2, 0, 1, 0));
  EXPECT_EQ(Evaluated([](Array v) { return bincount(v, 5); }, x)[0].dtype(), kS32);
  EXPECT_THAT(
      Values([](Array v, Array w) { return bincount(v, w, 5); }, x, Vec({1, 2, 3, 4, 5, 6})),
      ElementsAre(3, 9, 0, 4, 0));
  EXPECT_THAT(Values([](Array v) { return bincount(v, 2); }, Vec({1, 0, 1}, kBool)),
              ElementsAre(1, 2));
  EXPECT_THAT(Values([](Array v) { return bincount(v, 0); }, x), IsEmpty());
  EXPECT_THAT(ErrorText([](Array v) { return bincount(v, 2); }, {3}),
              HasSubstr("x argument to bincount must have an integer type"));
  EXPECT_THAT(ErrorText([](Array v) { return bincount(v, 2); }, {3, 3}, kS32),
              HasSubstr("only 1-dimensional input supported"));
  EXPECT_THAT(ErrorText([](Array v) { return bincount(v, v[Slice{1}], 2); }, {3}, kS32),
              HasSubstr("shape of weights must match"));
}

TEST(HistogramTest, CountsInBinsOrBetweenEdges) {
  const ir::Array x = Vec({1, 2, 3, 10, 11, 15, 19, 25}, kS32);
  EXPECT_THAT(Lists([](Array v) { return histogram(v, 8); }, x),
              ElementsAre(ElementsAre(3, 0, 0, 2, 1, 0, 1, 1),
                          ElementsAre(1, 4, 7, 10, 13, 16, 19, 22, 25)));
  EXPECT_EQ(Evaluated([](Array v) { return histogram(v, 8); }, x)[0].dtype(), kF32);
  EXPECT_THAT(Lists(
                  [](Array v) {
                    return histogram(v, 5, {.range = {{0, 25}}});
                  },
                  x),
              ElementsAre(ElementsAre(3, 0, 2, 2, 1), ElementsAre(0, 5, 10, 15, 20, 25)));
  EXPECT_THAT(Values(
                  [](Array v) {
                    return histogram(v, 5, {.range = {{0, 25}}, .density = true});
                  },
                  x),
              ElementsAre(DoubleNear(0.075, 1e-8), 0, DoubleNear(0.05, 1e-8),
                          DoubleNear(0.05, 1e-8), DoubleNear(0.025, 1e-8)));
  EXPECT_THAT(Lists([](Array v, Array e) { return histogram(v, e); }, x, Vec({0, 5, 20, 25})),
              ElementsAre(ElementsAre(3, 4, 1), ElementsAre(0, 5, 20, 25)));
  EXPECT_THAT(Lists([](Array v, Array w) { return histogram(v, 4, {.weights = w}); }, x,
                    Vec({0, 1, 2, 3, 4, 5, 6, 7})),
              ElementsAre(ElementsAre(3, 7, 5, 13), ElementsAre(1, 7, 13, 19, 25)));
  EXPECT_THAT(Lists([](Array v) { return histogram(v, 2); }, Vec({2, 2, 2})),
              ElementsAre(ElementsAre(0, 3), ElementsAre(1.5, 2, 2.5)));
  EXPECT_THAT(Lists(
                  [](Array v) {
                    return histogram(v, 2, {.range = {{1, 3}}});
                  },
                  Vec({kNan, 1, 2, 3})),
              ElementsAre(ElementsAre(1, 2), ElementsAre(1, 2, 3)));
  EXPECT_THAT(ErrorText([](Array v) { return histogram(v, 0).first; }, {3}),
              HasSubstr("bins is 0; expected 1 or more"));
  EXPECT_THAT(ErrorText([](Array v) { return histogram(v, 2).first; }, {0}),
              HasSubstr("which has no identity"));
  EXPECT_THAT(ErrorText([](Array v) { return histogram(v, v).first; }, {3, 3}),
              HasSubstr("edges are f32[3,3]; expected a vector"));
  EXPECT_THAT(ErrorText([](Array v) { return histogram(v, 2, {.weights = v[0]}).first; }, {3, 3}),
              HasSubstr("weights should have the same shape as a"));
}

TEST(SegmentTest, CombinesTheRowsOfEachSegment) {
  const ir::Array d = Vec({1, 2, 3, 4, 5}), ids = Vec({0, 2, 2, -1, 7}, kS32);
  const ir::Array rows = Host({0, 1, 2, 3, 4, 5}, {3, 2}, kS32), row_ids = Vec({1, 1, 0}, kS32);
  using Segment = Array (*)(const Array&, const Array&, int64_t, const SegmentOptions&, Site);
  const auto with = [](Segment f, int64_t n) {
    return [=](Array x, Array i) { return f(x, i, n, {}, Site::Here()); };
  };
  EXPECT_THAT(Values(with(segment_sum, 4), d, ids), ElementsAre(1, 0, 5, 0));
  EXPECT_THAT(Values(with(segment_prod, 4), d, ids), ElementsAre(1, 1, 6, 1));
  EXPECT_THAT(Values(with(segment_max, 4), d, ids), ElementsAre(1, -kInf, 3, -kInf));
  EXPECT_THAT(Values(with(segment_min, 4), d, ids), ElementsAre(1, kInf, 2, kInf));
  EXPECT_THAT(Values(with(segment_sum, 3), rows, row_ids), ElementsAre(4, 5, 2, 4, 0, 0));
  EXPECT_THAT(Values(with(segment_prod, 3), rows, row_ids), ElementsAre(4, 5, 0, 3, 1, 1));
  EXPECT_THAT(Values(with(segment_max, 3), rows, row_ids),
              ElementsAre(4, 5, 2, 3, -2147483648.0, -2147483648.0));
  EXPECT_THAT(Values(with(segment_min, 3), rows, row_ids),
              ElementsAre(4, 5, 0, 1, 2147483647, 2147483647));
  EXPECT_THAT(Values(with(segment_max, 2), Vec({1, 0}, kBool), Vec({0, 0}, kS32)),
              ElementsAre(1, 0));
  EXPECT_THAT(Values(with(segment_min, 2), Vec({0, 1}, kU32), Vec({0, 0}, kS32)),
              ElementsAre(0, 4294967295));
  EXPECT_THAT(Values(with(segment_sum, 0), d, ids), IsEmpty());

  const auto weights = [](double first) { return lax::iota(kF32, {4}, 0) + first; };
  const auto total = [&](Array x, Array i) { return sum(segment_sum(x, i, 4) * weights(0)); };
  EXPECT_THAT(Values(grad(total), d, ids), ElementsAre(0, 2, 2, 0, 0));
  const auto most = [&](Array x, Array i) {
    const Array m = segment_max(x, i, 4);
    return sum(where(is_finite(m), m, 0) * weights(1));
  };
  EXPECT_THAT(Values(grad(most), d, ids), ElementsAre(1, 0, 3, 0, 0));

  const auto error = [](Dims data, Dims ids, DType dtype = kS32) {
    return std::string(ErrorOf([&] {
                         trace([](Array x, Array i) { return segment_sum(x, i, 2); },
                               abstract(data), abstract(ids, dtype));
                       }).what());
  };
  EXPECT_THAT(error({3}, {3}, kF32), HasSubstr("segment_ids are f32[3]; expected an integer type"));
  EXPECT_THAT(error({3}, {4}), HasSubstr("expected a vector with an id for each row of data"));
  EXPECT_THAT(error({}, {0}), HasSubstr("expected a vector with an id for each row of data"));
}

// Applies all functions to a vector of small integers.
std::vector<Array> ApplyAllFunctions(Array x) {
  const Array ids = x.astype(kS32);
  std::vector<Array> out = nonzero(x, 3, 9);
  const UniqueAll u = unique_all(x, 3, 8);
  const auto [counts, edges] = histogram(x, 3);
  const auto [within, bounds] = histogram(x, 3, {.range = {{0, 3}}});
  for (const Array& a : {unique(x, 3), u.values, u.indices, u.inverse_indices, u.counts, counts,
                         edges, within, searchsorted(sort(x), 1), searchsorted(arange(3, kF32), x),
                         bincount(ids, 3), segment_sum(x, ids, 3), segment_max(x, ids, 3)})
    out.push_back(a);
  return out;
}

// Under vmap and in the blocks of a shard_map, each row must have the results of the row alone.
TEST(SetsTest, FunctionsWorkUnderVmapAndInShardMap) {
  const std::vector<double> rows = {0, 2, 2, 1, 1, 0, 0, 0};
  const ir::Array x = Host(rows, {2, 4});
  const auto mapped = Evaluated([](Array v) { return vmap(ApplyAllFunctions)(v); }, x);
  const auto in_blocks = Evaluated(
      [](Array v) {
        const auto block = [](Array b) {
          std::vector<Array> out = ApplyAllFunctions(squeeze(b, 0));
          for (Array& a : out) a = expand_dims(a, 0);
          return out;
        };
        return shard_map(block, abstract_mesh({2}, {"i"}, {AxisType::kAuto}), {P("i")}, P("i"))(v);
      },
      x);
  for (int row = 0; row < 2; ++row) {
    const auto alone =
        Evaluated(ApplyAllFunctions, Vec({rows.begin() + 4 * row, rows.begin() + 4 * row + 4}));
    ASSERT_EQ(mapped.size(), alone.size());
    ASSERT_EQ(in_blocks.size(), alone.size());
    for (size_t r = 0; r < alone.size(); ++r) {
      const auto of_row = [&](const ir::Array& all) {
        Dims start(all.rank(), 0), shape = all.shape();
        start[0] = row;
        shape[0] = 1;
        return ir::SliceBlock(all, start, shape).Reshaped(alone[r].shape());
      };
      EXPECT_TRUE(of_row(mapped[r]) == alone[r]) << "result " << r << " of row " << row;
      EXPECT_TRUE(of_row(in_blocks[r]) == alone[r]) << "result " << r << " of row " << row;
    }
  }
}

}  // namespace
}  // namespace tessera
