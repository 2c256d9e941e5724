// Tests of numpy.h and of softmax: promotion, broadcasting, reductions, products, shapes and
// indexing. Traced functions run on the reference evaluator.
#include "client/numpy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "client/apply/operand.h"
#include "client/testing/evaluated.h"

namespace tessera {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using testing::ErrorOf;
using testing::Evaluated;
using ::testing::HasSubstr;
using testing::Host;
using ::testing::IsNan;
using ::testing::Pointwise;
using testing::Values;
using testing::Vec;

const ir::Array kM = Host({1, 2, 3, 4, 5, 6}, {2, 3});

TEST(NumpyTest, ShapesBroadcast) {
  const auto out =
      Evaluated([](Array x, Array y) { return x + y; }, Host({1, 2}, {2, 1}), Vec({10, 20, 30}));
  EXPECT_EQ(out[0].shape(), (Dims{2, 3}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(11, 21, 31, 12, 22, 32));
  const Error e =
      ErrorOf([] { trace([](Array x, Array y) { return x + y; }, abstract({2}), abstract({3})); });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), HasSubstr("add: incompatible shapes for broadcasting: (2), (3)"));
}

TEST(NumpyTest, StdIsAFunctionBesideTheNamespace) {
  using tessera::std;
  const ::std::vector<double> got = Values([](Array x) { return std(x); }, Vec({1, 3}));
  EXPECT_THAT(std::vector<double>(got), ElementsAre(1));
}

TEST(NumpyTest, IntegersDivideAsFloats) {
  const auto out = Evaluated([](Array x) { return x / 2; }, Vec({1, 2}, kS32));
  EXPECT_EQ(out[0].dtype(), kF32);
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(0.5, 1));
}

TEST(NumpyTest, DTypesPromoteOnJaxsLattice) {
  using internal::Promote;
  // The result of jax.numpy.promote_types (JAX 0.10.2, with 64-bit types) for each pair, in the
  // order of ir/dtypes.def. A letter stands for each dtype, a dot for an error.
  static constexpr std::string_view kTable[] = {
      "abcdefghijklmnopqrstuvwxyzAB", "bbcdecdemjklmnopqrstuvwx....",
      "cccdecdemjklmnopqrstuvwx....", "ddddeddemjklmnopqrstuvwx....",
      "eeeeeeeemjklmnopqrstuvwx....", "fccdefghijklmnopqrstuvwx....",
      "gdddegghijklmnopqrstuvwx....", "heeeehhhijklmnopqrstuvwx....",
      "immmmiiiijklmnopqrstuvwx....", "jjjjjjjjjjllmno.............",
      "kkkkkkkkklklmno.............", "llllllllllllmno.............",
      "mmmmmmmmmmmmmoo.............", "nnnnnnnnnnnnono.............",
      "ooooooooooooooo.............", "ppppppppp......p............",
      "qqqqqqqqq.......q...........", "rrrrrrrrr........r..........",
      "sssssssss.........s.........", "ttttttttt..........t........",
      "uuuuuuuuu...........u.......", "vvvvvvvvv............v......",
      "wwwwwwwww.............w.....", "xxxxxxxxx..............x....",
      "y.......................y...", "z........................z..",
      "A.........................A.", "B..........................B",
  };
  static constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzAB";
  ASSERT_EQ(std::size(kTable), static_cast<size_t>(ir::kNumDTypes));
  for (int a = 0; a < ir::kNumDTypes; ++a)
    for (int b = 0; b < ir::kNumDTypes; ++b) {
      const std::optional<DType> common = Promote(static_cast<DType>(a), static_cast<DType>(b));
      EXPECT_EQ(common ? kLetters[static_cast<int>(*common)] : '.', kTable[a][b])
          << ir::DTypeName(static_cast<DType>(a)) << " with "
          << ir::DTypeName(static_cast<DType>(b));
    }
}

TEST(NumpyTest, ReductionsOverAxes) {
  EXPECT_THAT(Values([](Array x) { return sum(x, 0); }, kM), ElementsAre(5, 7, 9));
  EXPECT_THAT(Values([](Array x) { return sum(x, {0, 1}); }, kM), ElementsAre(21));
  EXPECT_THAT(Values([](Array x) { return mean(x, -1); }, kM), ElementsAre(2, 5));
  EXPECT_THAT(Values([](Array x) { return max(x); }, kM), ElementsAre(6));
  EXPECT_THAT(Values([](Array x) { return prod(x, 1); }, kM), ElementsAre(6, 120));
  EXPECT_THAT(Values([](Array x) { return argmax(-x, 1); }, kM), ElementsAre(0, 0));
  EXPECT_THAT(Values([](Array x) { return argmax(x); }, kM), ElementsAre(5));
  EXPECT_THAT(Values([](Array x) { return sum(x > 2, 0); }, kM), ElementsAre(1, 1, 2));
  EXPECT_THAT(Values([](Array x) { return any(x > 5, 1); }, kM), ElementsAre(0, 1));
  const auto kept = Evaluated([](Array x) { return var(x, 1, /*keepdims=*/true); }, kM);
  EXPECT_EQ(kept[0].shape(), (Dims{2, 1}));
  EXPECT_THAT(kept[0].ToDoubles(), Pointwise(DoubleNear(1e-6), {2. / 3, 2. / 3}));
  const Error e = ErrorOf([] { trace([](Array x) { return sum(x, 2); }, abstract({2, 3})); });
  EXPECT_THAT(e.what(), HasSubstr("axis 2 is out of bounds for array of dimension 2"));
  EXPECT_THAT(e.what(), HasSubstr("numpy_test.cc:"));
}

TEST(NumpyTest, SoftmaxIsStableAndItsGradientIsRight) {
  EXPECT_THAT(Values([](Array x) { return softmax(x); }, Vec({1000, 1000})), ElementsAre(0.5, 0.5));
  EXPECT_THAT(Values([](Array x) { return log_softmax(x); }, Vec({0, 0, 0, 0})),
              Pointwise(DoubleNear(1e-6), std::vector<double>(4, -std::log(4.0))));
  EXPECT_THAT(Values([](Array x) { return logsumexp(x); }, Vec({-1000, -1000})),
              Pointwise(DoubleNear(1e-3), {-1000 + std::log(2.0)}));
  const ir::Array x = Host({1, 2, 4, 3, 3, 3}, {2, 3});
  const auto near = [](std::vector<double> values) {
    return Pointwise(DoubleNear(1e-5), std::move(values));
  };
  EXPECT_THAT(Values([](Array v) { return standardize(v); }, x),
              near({-1.0690417, -0.26726055, 1.3363019, 0, 0, 0}));
  EXPECT_THAT(Values([](Array v) { return standardize(v, -1, 0.5); }, x),
              near({-0.92998135, -0.23249541, 1.1624764, 0, 0, 0}));
  EXPECT_THAT(Values(
                  [](Array v) {
                    return standardize(v, {0, 1});
                  },
                  x),
              near({-1.7677574, -0.707103, 1.4142058, 0.3535514, 0.3535514, 0.3535514}));
  const auto cubes = [](Array v) {
    const Array s = standardize(v, {0, 1});
    return sum(s * s * s);
  };
  EXPECT_THAT(Values(grad(cubes), x),
              near({4.0271573, -2.6847405, 5.3694806, -2.2373, -2.2373, -2.2373}));
  // The gradient of logsumexp is softmax.
  EXPECT_THAT(Values(grad([](Array x) { return logsumexp(x); }), Vec({0, std::log(3.0)})),
              Pointwise(DoubleNear(1e-6), {0.25, 0.75}));
}

TEST(NumpyTest, MatmulOfVectorsMatricesAndBatches) {
  const auto mm = [](Array x, Array y) { return matmul(x, y); };
  EXPECT_THAT(Values(mm, Vec({1, 2}), kM), ElementsAre(9, 12, 15));
  EXPECT_THAT(Values(mm, kM, Vec({1, 0, 1})), ElementsAre(4, 10));
  EXPECT_THAT(Values(mm, Vec({1, 2}), Vec({3, 4})), ElementsAre(11));
  const auto batched = Evaluated(mm, Host({1, 2, 3, 4}, {2, 1, 2}), Host({1, 1}, {2, 1}));
  EXPECT_EQ(batched[0].shape(), (Dims{2, 1, 1}));
  EXPECT_THAT(batched[0].ToDoubles(), ElementsAre(3, 7));
  const auto wide = Evaluated(mm, Host({1, 2}, {1, 2}), Host({1, 2, 3, 4}, {2, 2, 1}));
  EXPECT_EQ(wide[0].shape(), (Dims{2, 1, 1}));
  EXPECT_THAT(wide[0].ToDoubles(), ElementsAre(5, 11));
  const Error e = ErrorOf([&] { trace(mm, abstract({2, 3}), abstract({2, 3})); });
  EXPECT_THAT(e.what(), HasSubstr("matmul: contracting sizes differ"));
}

TEST(NumpyTest, Einsum) {
  const auto f = [](const char* spec) {
    return [spec](Array x, Array y) { return einsum(spec, {x, y}); };
  };
  EXPECT_THAT(Values(f("ij,kj->ki"), kM, Host({1, 0, 1, 0, 1, 0}, {2, 3})),
              ElementsAre(4, 10, 2, 5));
  EXPECT_THAT(Values(f("ij,ij->j"), kM, kM), ElementsAre(17, 29, 45));
  EXPECT_THAT(Values(f("i,j"), Vec({1, 2}), Vec({3, 4})), ElementsAre(3, 4, 6, 8));
  EXPECT_THAT(Values([](Array x) { return einsum("ij->ji", {x}); }, kM),
              ElementsAre(1, 4, 2, 5, 3, 6));
  const Error e = ErrorOf([&] { trace(f("ij,jk->ik"), abstract({2, 3}), abstract({4, 2})); });
  EXPECT_THAT(e.what(), HasSubstr("letter j is both 3 and 4"));
}

TEST(NumpyTest, ProductsHaveTheirPrecision) {
  using enum lax::Precision;
  const auto f = [](Array x) {
    const Array a = einsum("ij,jk,kl->il", {x, x, x}, kHighest);
    const Array b = dot(a, x, kHigh) * dot(x, 2.0, kHigh);
    return matmul(b, x, {.precision = kHighest});
  };
  std::vector<lax::Precision> precisions;
  const auto traced = trace(f, abstract({2, 2}));
  for (const ir::Op& op : traced.program.entry->ops)
    if (op.def == &ir::ops::kDotGeneral) precisions.push_back(ir::PrecisionOf(op.attrs));
  EXPECT_THAT(precisions, ElementsAre(kHighest, kHighest, kHigh, kHighest));
}

TEST(NumpyTest, ShapesAndJoins) {
  EXPECT_THAT(Values(
                  [](Array x) {
                    return reshape(x, {3, -1});
                  },
                  kM),
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Values([](Array x) { return x.T(); }, kM), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(Values([](Array x) { return x[-1]; }, kM), ElementsAre(4, 5, 6));
  EXPECT_THAT(Values(
                  [](Array x) {
                    return concatenate({x[0], x[1]});
                  },
                  kM),
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(Evaluated([](Array x) { return stack({x, x}, -1); }, kM)[0].shape(), (Dims{2, 3, 2}));
  EXPECT_THAT(Values([](Array x) { return flip(x, 1); }, kM), ElementsAre(3, 2, 1, 6, 5, 4));
  EXPECT_THAT(Values([](Array x) { return one_hot(x, 3); }, Vec({2, 0}, kS32)),
              ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_THAT(Values([](Array x) { return where(x > 3, x, -1); }, kM),
              ElementsAre(-1, -1, -1, 4, 5, 6));
  EXPECT_THAT(Values([](Array x) { return clip(x, 2, 5); }, kM), ElementsAre(2, 2, 3, 4, 5, 5));
  EXPECT_THAT(Values([](Array x) { return x * 0 + arange(0, 1.5, 0.5); }, Vec({0, 0, 0})),
              ElementsAre(0, 0.5, 1));
  EXPECT_THAT(ErrorOf([] { abstract({2, 3}).reshape({4, -1}); }).what(), HasSubstr("cannot infer"));
}

// Expected values are those of jax.numpy.
TEST(NumpyTest, TakesElements) {
  const ir::Array at = Host({1, -1, 0, 7}, {2, 2}, kS32);
  const auto rows = Evaluated([](Array x, Array i) { return take(x, i, 1); }, kM, at);
  EXPECT_EQ(rows[0].shape(), (Dims{2, 2, 2}));
  EXPECT_THAT(rows[0].ToDoubles(), ElementsAre(2, 3, 1, IsNan(), 5, 6, 4, IsNan()));
  EXPECT_THAT(Values([](Array x, Array i) { return take(x, i, 0, lax::GatherScatterMode::kClip); },
                     kM, Vec({1, 9}, kS32)),
              ElementsAre(4, 5, 6, 4, 5, 6));
  EXPECT_THAT(Values([](Array x, Array i) { return take(x, i); }, kM, Vec({5, -6, 2}, kS32)),
              ElementsAre(6, 1, 3));
  EXPECT_THAT(Values([](Array x) { return take(x, 1, 0); }, kM), ElementsAre(4, 5, 6));
  EXPECT_THAT(Values([](Array x, Array i) { return take_along_axis(x, i, 1); }, kM,
                     Host({2, 0, -3, 1}, {2, 2}, kS32)),
              ElementsAre(3, 1, 4, 5));
  const Error e = ErrorOf(
      [] { trace([](Array x, Array i) { return take(x, i); }, abstract({4}), abstract({2})); });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), HasSubstr("take: indices are of type f32; expected an integer type"));
}

TEST(NumpyTest, SortsAndCumulates) {
  const ir::Array x = Host({3, 1, 2, 9, 7, 8}, {2, 3});
  EXPECT_THAT(Values([](Array v) { return sort(v); }, x), ElementsAre(1, 2, 3, 7, 8, 9));
  EXPECT_THAT(Values([](Array v) { return sort(-v, 0); }, x), ElementsAre(-9, -7, -8, -3, -1, -2));
  EXPECT_THAT(Values([](Array v) { return argsort(v); }, x), ElementsAre(1, 2, 0, 1, 2, 0));
  EXPECT_THAT(Values([](Array v) { return cumsum(v, 1); }, x), ElementsAre(3, 4, 6, 9, 16, 24));
  EXPECT_THAT(Values([](Array v) { return cumsum(v > 2); }, x), ElementsAre(1, 1, 1, 2, 3, 4));
  EXPECT_THAT(Values([](Array v) { return cumprod(v, 0); }, x), ElementsAre(3, 1, 2, 27, 7, 16));
  EXPECT_THAT(Values([](Array v) { return top_k(v, 2).first; }, x), ElementsAre(3, 2, 9, 8));
  EXPECT_THAT(Values([](Array v) { return top_k(v, 1, 0).second; }, x), ElementsAre(1, 1, 1));
}

TEST(NumpyTest, RemainderHasTheSignOfTheDivisor) {
  const auto f = [](Array x, Array y) { return remainder(x, y); };
  EXPECT_THAT(Values(f, Vec({-7, 7, -7, 7, 5}, kS32), Vec({3, 3, -3, -3, 0}, kS32)),
              ElementsAre(2, 1, -1, -2, 0));
  EXPECT_THAT(Values(f, Vec({-7, 7, -7, 7, 0}), Vec({3, 3, -3, -3, -3})),
              ElementsAre(2, 1, -1, -2, 0));
}

TEST(NumpyTest, RoundTakesHalvesToEven) {
  EXPECT_THAT(Values([](Array x) { return round(x); }, Vec({0.5, 1.5, 2.5, -0.5, -1.5})),
              ElementsAre(0, 2, 2, 0, -2));
}

TEST(NumpyTest, IntegersAndBoolsAreAccepted) {
  const auto dtype = [](auto f, DType d) { return Evaluated(f, Vec({0, 1}, d))[0].dtype(); };
  EXPECT_EQ(dtype([](Array x) { return floor(x); }, kS32), kS32);
  EXPECT_EQ(dtype([](Array x) { return round(x); }, kS32), kS32);
  EXPECT_EQ(dtype([](Array x) { return tanh(x); }, kS32), kF32);
  EXPECT_EQ(dtype([](Array x) { return arctan2(x, 2); }, kS64), kF64);
  EXPECT_EQ(dtype([](Array x) { return exp(x); }, kS64), kF64);
  EXPECT_EQ(dtype([](Array x) { return x / x; }, kS64), kF64);
  EXPECT_EQ(dtype([](Array x) { return mean(x); }, kS64), kF64);
  EXPECT_THAT(Values([](Array x) { return is_finite(x); }, Vec({0, 1}, kS32)), ElementsAre(1, 1));
  const auto f = [](Array x, Array y) { return std::make_pair(x + y, x * y); };
  const auto out = Evaluated(f, Vec({1, 1, 0}, kBool), Vec({1, 0, 0}, kBool));
  EXPECT_EQ(out[0].dtype(), kBool);
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(1, 1, 0));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(1, 0, 0));
}

TEST(NumpyTest, MaxOfNoElementsIsRefused) {
  const Error e = ErrorOf([] { trace([](Array x) { return max(x); }, abstract({0})); });
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(),
              HasSubstr("zero-size array to reduction operation max which has no identity"));
  EXPECT_EQ(Evaluated([](Array x) { return max(x, 1); }, Host({}, {0, 2}))[0].shape(), (Dims{0}));
}

TEST(NumpyTest, Activations) {
  EXPECT_THAT(Values(grad([](Array x) { return sum(relu(x)); }), Vec({-1, 0, 2})),
              ElementsAre(0, 0, 1));
  EXPECT_THAT(Values([](Array x) { return gelu(x); }, Vec({1})),
              Pointwise(DoubleNear(1e-5), {0.841192}));
  EXPECT_THAT(Values([](Array x) { return gelu(x, false); }, Vec({1})),
              Pointwise(DoubleNear(1e-5), {0.841345}));
}

TEST(NumpyTest, RepeatByCountsThatAreComputedMakesNoTable) {
  const auto f = [](Array x, Array counts) { return repeat(x, counts, 5, 0); };
  EXPECT_THAT(Values(f, Vec({10, 20, 30}), Vec({2, 0, 2}, kS32)), ElementsAre(10, 10, 30, 30, 30));
  EXPECT_THAT(Values(f, Vec({10, 20, 30}), Vec({1, 3, 4}, kS32)), ElementsAre(10, 20, 20, 20, 30));
  EXPECT_THAT(Values(f, Vec({10, 20, 30}), Host({3}, {}, kS32)), ElementsAre(10, 10, 10, 20, 20));
  // A table of all places and elements would have 60,000 elements.
  const auto traced = trace([](Array x, Array counts) { return repeat(x, counts, 300, 0); },
                            abstract({200}), abstract({200}, kS32));
  for (const ir::Type& type : traced.fn()->types) EXPECT_LE(type.num_elements(), 300);
}

}  // namespace
}  // namespace tessera
