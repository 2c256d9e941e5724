// Tests of the ops of lax.h that need more than one element's arithmetic: broadcasting, products,
// reductions, sorts, windows, precisions. Expected values are those of jax.lax 0.10.2.
#include "client/lax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "client/testing/evaluated.h"
#include "client/transform.h"
#include "ir/op_def.h"
#include "ir/ops.h"

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

// Scalars and dims of size 1 are repeated; missing dims are not.
TEST(BroadcastTest, BinaryOpsRepeatScalarsAndDimsOfSizeOne) {
  const ir::Array column = Host({1, 2, 3}, {3, 1}), row = Host({10, 20}, {1, 2});
  const auto sum = [](Array x, Array y) { return lax::add(x, y); };
  EXPECT_EQ(Evaluated(sum, column, row)[0].shape(), (ir::Dims{3, 2}));
  EXPECT_THAT(Evaluated(sum, column, row)[0].ToDoubles(), ElementsAre(11, 21, 12, 22, 13, 23));
  EXPECT_THAT(Evaluated(sum, row, ir::Array::Scalar(kF32, 5))[0].ToDoubles(), ElementsAre(15, 25));
  const auto less = [](Array x, Array y) { return lax::lt(x, y); };
  EXPECT_THAT(Evaluated(less, column, Host({2, 3}, {1, 2}))[0].ToDoubles(),
              ElementsAre(1, 1, 0, 1, 0, 0));
  // Each operand's gradient is summed over the repeated dims.
  const auto loss = [](Array x, Array y) { return tessera::sum(lax::square(lax::mul(x, y))); };
  EXPECT_THAT(Evaluated(grad(loss), column, row)[0].ToDoubles(), ElementsAre(1000, 2000, 3000));
  const auto error_of = [&](const Dims& x, const Dims& y) {
    return std::string(ErrorOf([&] { trace(sum, abstract(x), abstract(y)); }).what());
  };
  EXPECT_THAT(error_of({3}, {2, 3}),
              HasSubstr("add: got incompatible shapes for broadcasting: (3,), (2, 3)"));
  EXPECT_THAT(error_of({3, 1}, {2, 2}),
              HasSubstr("add: got incompatible shapes for broadcasting: (3, 1), (2, 2)"));
}

// Some dtypes of at most 8 bits have no kernels. Numbers of these dtypes are converted to a wider
// dtype for the arithmetic, and the result is rounded or truncated only once.
TEST(NarrowTest, ComputesInAWiderDtypeAndRoundsOnce) {
  constexpr DType kS4 = DType::kS4, kF8 = DType::kF8E4M3FN;
  const ir::Array x = Vec({7, -8, 3, -1}, kS4), y = Vec({1, 1, 5, -4}, kS4);
  const auto values = [](auto f, const ir::Array& a, const ir::Array& b) {
    return Values([f](Array u, Array v) { return f(u, v).astype(kF32); }, a, b);
  };
  EXPECT_THAT(values([](Array u, Array v) { return lax::add(u, v); }, x, y),
              ElementsAre(-8, -7, -8, -5));
  EXPECT_THAT(values([](Array u, Array v) { return lax::mul(u, v); }, x, y),
              ElementsAre(7, -8, -1, 4));
  EXPECT_THAT(values([](Array u, Array v) { return lax::max(u, v); }, x, y),
              ElementsAre(7, 1, 5, -1));
  EXPECT_THAT(values([](Array u, Array v) { return lax::lt(u, v); }, x, y),
              ElementsAre(0, 1, 1, 0));
  // 17 lies between 16 and 18, and 1.0625 between 1 and 1.125. The even neighbour is taken.
  const ir::Array a = Vec({16, 1, 448}, kF8), b = Vec({1, 0.0625, -448}, kF8);
  EXPECT_THAT(values([](Array u, Array v) { return lax::add(u, v); }, a, b), ElementsAre(16, 1, 0));
  EXPECT_THAT(values([](Array u, Array v) { return lax::sub(u, v); }, a, b).back(),
              ::testing::IsNan());
}

// Expected values: jax.lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=...).
TEST(DotTest, AccumulatesInThePreferredElementType) {
  constexpr DType kF8 = DType::kF8E4M3FN;
  const auto dot = [](std::optional<DType> preferred) {
    return [preferred](Array x, Array y) {
      lax::DotOptions options;
      options.precision = lax::Precision::kHighest;
      options.preferred_element_type = preferred;
      return lax::dot_general(x, y, {{1}, {0}, {}, {}}, options);
    };
  };
  const auto run = [&](DType operands, std::optional<DType> preferred, double value) {
    const std::vector<double> elements(40, value);
    return Evaluated(dot(preferred), Host(elements, {1, 40}, operands),
                     Host(elements, {40, 1}, operands))[0];
  };
  EXPECT_EQ(run(kF8, {}, 3).dtype(), kF8);
  EXPECT_EQ(run(kF8, {}, 3).At(0), 352);
  EXPECT_EQ(run(kF8, kF32, 3).dtype(), kF32);
  EXPECT_EQ(run(kF8, kF32, 3).At(0), 360);
  EXPECT_EQ(run(DType::kS4, {}, 3).At(0), -8);
  EXPECT_EQ(run(DType::kS8, {}, 3).At(0), 104);
  EXPECT_EQ(run(DType::kS8, DType::kS32, 3).At(0), 360);
  // Sums 40 times 2.5625 squared, in bf16 and in f32.
  EXPECT_EQ(run(DType::kBF16, {}, 2.5625).At(0), 262);
  EXPECT_EQ(run(DType::kBF16, kF32, 2.5625).At(0), 262.65625);
  const auto error = ErrorOf([&] {
    trace(dot(DType::kS8), abstract({1, 4}, DType::kS32), abstract({4, 1}, DType::kS32));
  });
  EXPECT_THAT(error.what(), HasSubstr("must not be narrower than the original type, got "
                                      "preferred_element_type of s8 for result type of s32"));
  // numpy's matmul behaves the same; its gradient has the operand's dtype.
  const auto loss = [](Array x, Array y) {
    lax::DotOptions options;
    options.preferred_element_type = kF32;
    return sum(matmul(x, y, options));
  };
  const ir::Array slope = Evaluated(grad(loss), Host({1, 2}, {1, 2}, DType::kBF16),
                                    Host({3, 4}, {2, 1}, DType::kBF16))[0];
  EXPECT_EQ(slope.dtype(), DType::kBF16);
  EXPECT_THAT(slope.ToDoubles(), ElementsAre(3, 4));
}

TEST(BitcastTest, ConvertsBetweenWidths) {
  const auto to = [](DType dtype) {
    return [dtype](Array x) { return lax::bitcast_convert_type(x, dtype); };
  };
  const ir::Array x = Vec({1.5, -2.25, 3e10});
  const ir::Array bytes = Evaluated(to(kU8), x)[0];
  EXPECT_EQ(bytes.shape(), (ir::Dims{3, 4}));
  EXPECT_THAT(bytes.ToDoubles(), ElementsAre(0, 0, 192, 63, 0, 0, 16, 192, 118, 132, 223, 80));
  EXPECT_TRUE(Evaluated(to(kF32), bytes)[0] == x);
  EXPECT_TRUE(Evaluated(to(kF32), Evaluated(to(DType::kS16), x)[0])[0] == x);
  const ir::Array nibbles = Evaluated(to(DType::kS4), Vec({0x12, 0xfe}, kU8))[0];
  EXPECT_THAT(nibbles.ToDoubles(), ElementsAre(2, 1, -2, -1));
  EXPECT_THAT(Evaluated(to(kU8), nibbles)[0].ToDoubles(), ElementsAre(0x12, 0xfe));
  const auto error = ErrorOf([&] { trace(to(kF32), abstract({3, 3}, kU8)); });
  EXPECT_THAT(error.what(), HasSubstr("cannot read u8[3,3] as f32; its last dim must hold the 32 "
                                      "bits of an element, 4 elements of 8"));
}

// Returns the largest element of each row with its column; of equal elements the first.
std::vector<Array> LargestOfRows(Array x) {
  const Array column = lax::iota(kS32, x.shape(), 1);
  const auto larger = [](const Arrays& a, const Arrays& b) {
    const Array first = logical_or(a[0] > b[0], logical_and(equal(a[0], b[0]), a[1] < b[1]));
    return Arrays{where(first, a[0], b[0]), where(first, a[1], b[1])};
  };
  return lax::reduce({x, column}, {-kInf, 0}, larger, {1});
}

TEST(ReduceTest, ReducesPairs) {
  const auto out = Evaluated(LargestOfRows, Host({3, 9, 9, 4, 1, -2}, {2, 3}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(9, 4));
  EXPECT_EQ(out[1].dtype(), kS32);
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(1, 0));
}

TEST(ReduceTest, ReducesOneOperand) {
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
  // A computation that uses numpy's operators is recognized like one that uses an op of lax.
  const auto traced =
      trace([&](Array v) { return lax::reduce(v, 1, product, {0}); }, abstract({2}));
  EXPECT_EQ(traced.fn()->ops.back().def->name, "reduce_prod");
  // The reduction is an op of its own, also under vmap and grad.
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

TEST(ReduceTest, RefusesWrongComputations) {
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
  // Sorts by two keys, of which v is the second. v has a gradient.
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

// Returns the precisions of the products in a trace, in order.
template <class F, class... A>
std::vector<lax::Precision> PrecisionsOf(const F& f, const A&... args) {
  std::vector<lax::Precision> precisions;
  const auto traced = trace(f, args...);
  for (const ir::Op& op : traced.program.entry->ops)
    if (op.def == &ir::ops::kDotGeneral || op.def == &ir::ops::kConvolution)
      precisions.push_back(ir::PrecisionOf(op.attrs));
  return precisions;
}

TEST(PrecisionTest, OptionsOverrideTheThreadsDefault) {
  using enum lax::Precision;
  const auto f = [](Array x, Array image) {
    const lax::DotDimensions dims{{1}, {0}, {}, {}};
    const Array a = lax::dot_general(x, x, dims);
    const Array b = lax::dot_general(a, x, dims, lax::DotOptions{.precision = kHigh});
    lax::ConvOptions options;
    const Array c = lax::conv_general_dilated(image, image, {1}, "SAME", options);
    options.precision = kHighest;
    const Array d = lax::conv_general_dilated(image, image, {1}, "SAME", options);
    options.dimension_numbers = {"NCH", "OIH", "NCH"};
    return std::vector<Array>{b, c, d, lax::conv_transpose(image, image, {1}, "SAME", options)};
  };
  const Array x = abstract({2, 2}), image = abstract({1, 1, 3});
  EXPECT_THAT(PrecisionsOf(f, x, image),
              ElementsAre(kDefault, kHigh, kDefault, kHighest, kHighest));
  const default_matmul_precision exact("highest");
  EXPECT_THAT(PrecisionsOf(f, x, image),
              ElementsAre(kHighest, kHigh, kHighest, kHighest, kHighest));
  {
    const default_matmul_precision rounded("tensorfloat32");
    EXPECT_THAT(PrecisionsOf(f, x, image), ElementsAre(kHigh, kHigh, kHigh, kHighest, kHighest));
  }
  EXPECT_THAT(PrecisionsOf(f, x, image),
              ElementsAre(kHighest, kHigh, kHighest, kHighest, kHighest));
  // An explicit option counts even if it is the default.
  const auto by_default = [](Array v) { return matmul(v, v, {.precision = kDefault}); };
  EXPECT_THAT(PrecisionsOf(by_default, x), ElementsAre(kDefault));
  const Error e = ErrorOf([] { const default_matmul_precision none("bf16"); });
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(), HasSubstr("default_matmul_precision: got 'bf16'; expected default, high"));
}

TEST(PrecisionTest, AnAlgorithmSetsTheDtypesOfFactorsAndSums) {
  using Preset = lax::DotAlgorithmPreset;
  const auto with = [](Preset algorithm) {
    return [=](Array x, Array y) { return matmul(x, y, {.precision = algorithm}); };
  };
  // 1 + 2^-12 has more digits than TF32 and bf16 hold.
  const ir::Array x = Vec({1 + 0x1p-12, 1}), y = Vec({1, 1});
  const std::vector<std::pair<Preset, double>> wants = {{Preset::kDEFAULT, 2 + 0x1p-12},
                                                        {Preset::kF32_F32_F32, 2 + 0x1p-12},
                                                        {Preset::kF64_F64_F64, 2 + 0x1p-12},
                                                        {Preset::kTF32_TF32_F32, 2},
                                                        {Preset::kTF32_TF32_F32_X3, 2 + 0x1p-12},
                                                        {Preset::kBF16_BF16_F32, 2 + 0x1p-12},
                                                        {Preset::kBF16_BF16_F32_X6, 2 + 0x1p-12},
                                                        {Preset::kBF16_BF16_BF16, 2},
                                                        {Preset::kF16_F16_F32, 2},
                                                        {Preset::kF16_F16_F16, 2}};
  for (const auto& [algorithm, want] : wants) {
    const auto out = Evaluated(with(algorithm), x, y);
    EXPECT_EQ(out[0].dtype(), kF32);
    EXPECT_EQ(out[0].At(0), want) << static_cast<int>(algorithm);
  }
  // Sums in f16 and in f32; the result has the operands' dtype.
  const ir::Array large = Vec({2048, 1}, kF16), ones = Vec({1, 1}, kF16);
  EXPECT_EQ(Evaluated(with(Preset::kF16_F16_F32), large, ones)[0].dtype(), kF16);
  const auto wide = [](Array x, Array y) {
    return matmul(x, y, {.precision = Preset::kF16_F16_F32, .preferred_element_type = kF32});
  };
  EXPECT_EQ(Values(wide, large, ones)[0], 2049);
  const Array m = abstract({2, 2});
  const auto precisions = [&](Preset algorithm) { return PrecisionsOf(with(algorithm), m, m); };
  using enum lax::Precision;
  EXPECT_THAT(precisions(Preset::kF32_F32_F32), ElementsAre(kHighest));
  EXPECT_THAT(precisions(Preset::kBF16_BF16_F32_X3), ElementsAre(kHighest));
  EXPECT_THAT(precisions(Preset::kBF16_BF16_F32), ElementsAre(kDefault));
  const auto others = [](Array x) {
    const Preset exact = Preset::kF32_F32_F32;
    return std::tuple(dot(x, x, exact), einsum("ij,jk->ik", {x, x}, exact),
                      tensordot(x, x, 1, exact), linalg::multi_dot({x, x}, exact),
                      inner(x, x, exact));
  };
  EXPECT_THAT(PrecisionsOf(others, m),
              ElementsAre(kHighest, kHighest, kHighest, kHighest, kHighest));
  const auto loss = [&](Array a, Array b) { return sum(with(Preset::kF32_F32_F32)(a, b)); };
  EXPECT_THAT(PrecisionsOf(grad<0, 1>(loss), m, m), ::testing::Each(kHighest));
  const auto error = [&](Preset algorithm, DType dtype) {
    return ErrorOf([&] { trace(with(algorithm), abstract({2}, dtype), abstract({2}, dtype)); });
  };
  EXPECT_THAT(error(Preset::kF32_F32_F32, kS32).what(),
              HasSubstr("The dot algorithm 'F32_F32_F32' requires floats, got s32[2]"));
  const Error f8 = error(Preset::kANY_F8_ANY_F8_F32, kF32);
  EXPECT_EQ(f8.kind(), ErrorKind::kValueError);
  EXPECT_THAT(f8.what(), HasSubstr("requires both inputs to have float8 dtypes, got f32[2]"));
}

TEST(PrecisionTest, DerivativesAndVmapKeepThePrecision) {
  using enum lax::Precision;
  const auto loss = [](Array x, Array y) { return sum(matmul(x, y, {.precision = kHighest})); };
  const Array x = abstract({2, 2}), rows = abstract({3, 2, 2});
  EXPECT_THAT(PrecisionsOf(grad<0, 1>(loss), x, x), ::testing::Each(kHighest));
  EXPECT_THAT(PrecisionsOf(vmap(loss), rows, rows), ElementsAre(kHighest));
}

TEST(ConvolutionTest, AppliesStridesAndPadding) {
  std::vector<double> counted(12);
  for (size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<double>(i);
  const ir::Array x = Host(counted, {1, 4, 3, 1}), kernel = Host({1, 2, 0, -1}, {2, 2, 1, 1});
  const auto conv = [](std::vector<int64_t> strides, lax::Padding padding) {
    return [strides, padding](Array x, Array kernel) {
      lax::ConvOptions options;
      options.dimension_numbers = {"NHWC", "HWIO", "NHWC"};
      return lax::conv_general_dilated(x, kernel, strides, padding, options);
    };
  };
  EXPECT_THAT(Evaluated(conv({1, 1}, "SAME"), x, kernel)[0].ToDoubles(),
              ElementsAre(-2, 0, 2, 4, 6, 5, 10, 12, 8, 29, 32, 11));
  EXPECT_THAT(Evaluated(conv({2, 1}, "VALID"), x, kernel)[0].ToDoubles(),
              ElementsAre(-2, 0, 10, 12));
  EXPECT_THAT(Evaluated(conv({1, 2}, {{1, 0}, {0, 1}}), x, kernel)[0].ToDoubles(),
              ElementsAre(-1, 0, -2, 2, 4, 5, 10, 8));
  const auto loss = [&](Array x, Array kernel) {
    return sum(lax::square(conv({1, 1}, "SAME")(x, kernel)));
  };
  EXPECT_THAT(Evaluated(grad<1>(loss), x, kernel)[0].ToDoubles(),
              ElementsAre(1950, 1704, 816, 600));
  const auto of_x = [&](Array x, Array kernel) {
    return sum(lax::square(conv({2, 1}, "SAME")(x, kernel)));
  };
  EXPECT_THAT(Evaluated(grad(of_x), x, kernel)[0].ToDoubles(),
              ElementsAre(-4, -8, 4, 0, 4, 0, 20, 64, 64, 0, -20, -24));
}

TEST(ConvolutionTest, FeaturesComeFirstByDefault) {
  const ir::Array y = Host({0, 1, 2, 3, 4, 5}, {1, 1, 6}), kernel = Host({1, -2, 3}, {1, 1, 3});
  const auto lower = [](Array x, Array k) {
    return lax::conv_general_dilated(x, k, {2}, "SAME_LOWER");
  };
  EXPECT_THAT(Evaluated(lower, y, kernel)[0].ToDoubles(), ElementsAre(3, 6, 10));
  const auto dilated = [](Array x, Array k) {
    lax::ConvOptions options;
    options.rhs_dilation = {2};
    return lax::conv_general_dilated(x, k, {1}, "VALID", options);
  };
  EXPECT_THAT(Evaluated(dilated, y, kernel)[0].ToDoubles(), ElementsAre(8, 10));
}

TEST(ConvolutionTest, Transposed) {
  const ir::Array x = Host({1, 2, 3}, {1, 3, 1}), kernel = Host({1, 10, 100}, {3, 1, 1});
  const auto transposed = [](lax::Padding padding) {
    return [padding](Array x, Array k) { return lax::conv_transpose(x, k, {2}, padding); };
  };
  EXPECT_THAT(Evaluated(transposed("SAME"), x, kernel)[0].ToDoubles(),
              ElementsAre(100, 10, 201, 20, 302, 30));
  EXPECT_THAT(Evaluated(transposed("VALID"), x, kernel)[0].ToDoubles(),
              ElementsAre(100, 10, 201, 20, 302, 30, 3));
  EXPECT_THAT(Evaluated(transposed({{1, 2}}), x, kernel)[0].ToDoubles(),
              ElementsAre(10, 201, 20, 302, 30, 3));
}

TEST(ConvolutionTest, ErrorsSayWhatIsExpected) {
  const auto error_of = [](const Dims& x, const Dims& kernel, lax::Padding padding,
                           const lax::ConvOptions& options = {}) {
    const auto f = [&](Array x, Array k) {
      return lax::conv_general_dilated(x, k, {1}, padding, options);
    };
    return std::string(ErrorOf([&] { trace(f, abstract(x), abstract(kernel)); }).what());
  };
  EXPECT_THAT(error_of({1, 1, 6}, {1, 1, 3}, "SOME"),
              HasSubstr("Unrecognized padding type: expected 'VALID', 'SAME', or 'SAME_LOWER', "
                        "got SOME"));
  lax::ConvOptions spread;
  spread.lhs_dilation = {2};
  EXPECT_THAT(error_of({1, 1, 6}, {1, 1, 3}, "SAME", spread), HasSubstr("use conv_transpose"));
  EXPECT_THAT(error_of({1, 1, 6}, {1, 2, 3}, "SAME"),
              HasSubstr("lhs feature dimension size divided by feature_group_count must equal the "
                        "rhs input feature dimension size, but 1 // 1 != 2"));
  EXPECT_THAT(error_of({1, 1, 6}, {1, 3}, "SAME"),
              HasSubstr("requires lhs and rhs ndim to be equal, got 3 and 2"));
  lax::ConvOptions letters;
  letters.dimension_numbers = {"NHC", "HIO", "NWC"};
  EXPECT_THAT(error_of({1, 6, 1}, {3, 1, 1}, "SAME", letters),
              HasSubstr("'NWC' must contain the character 'H' exactly once"));
}

TEST(ReduceWindowTest, CombinesEachWindow) {
  const ir::Array x = Host({1, 5, 2, 8, 4, 4, 7, 0, 3, 9, 6, 2}, {3, 4});
  const auto add = [](const Array& a, const Array& b) { return lax::add(a, b); };
  const auto larger = [](const Array& a, const Array& b) { return lax::max(a, b); };
  const auto largest = [&](Array v) {
    return lax::reduce_window(v, -kInf, larger, {2, 2}, {1, 2}, "SAME");
  };
  EXPECT_THAT(Values(largest, x), ElementsAre(5, 8, 9, 7, 9, 6));
  const auto sums = [&](Array v) {
    return lax::reduce_window(v, 0.0, add, {2, 3}, {1, 1}, "VALID");
  };
  EXPECT_THAT(Values(sums, x), ElementsAre(23, 26, 33, 28));
  const auto spread = [&](Array v) {
    return lax::reduce_window(v, 0.0, add, {2, 2}, {2, 1}, {{1, 0}, {0, 2}},
                              {.base_dilation = {1, 2}, .window_dilation = {1, 2}});
  };
  EXPECT_THAT(Values(spread, x), ElementsAre(6, 0, 7, 0, 10, 0, 8, 20, 0, 26, 0, 15, 0, 2));
  const auto loss = [&](Array v) {
    return sum(lax::square(lax::reduce_window(v, 0.0, add, {2, 2}, {1, 2}, "SAME")));
  };
  EXPECT_THAT(Values(grad(loss), x), ElementsAre(28, 28, 34, 34, 68, 68, 64, 64, 64, 64, 46, 46));
  const auto weighted = [&](Array v) {
    const Array best = lax::reduce_window(v, -kInf, larger, {2, 2}, {1, 1}, "VALID");
    return sum(best * lax::convert_element_type(
                          lax::iota(kS32, {2, 3}, 0) * 3 + lax::iota(kS32, {2, 3}, 1), kF32));
  };
  EXPECT_THAT(Values(grad(weighted), x), ElementsAre(0, 0, 0, 2, 0, 0, 6, 0, 0, 7, 0, 0));
}

TEST(ReduceWindowTest, ErrorsSayWhatIsExpected) {
  const auto error_of = [](std::vector<int64_t> window, std::vector<int64_t> strides) {
    const auto f = [&](Array v) {
      return lax::reduce_window(
          v, 0.0, [](const Array& a, const Array& b) { return lax::add(a, b); }, window, strides,
          "SAME");
    };
    return std::string(ErrorOf([&] { trace(f, abstract({3, 4})); }).what());
  };
  EXPECT_THAT(error_of({2}, {1, 1}),
              HasSubstr("window_dimensions has 1 entries; expected 2, one for each dim"));
  EXPECT_THAT(error_of({2, 2}, {0, 1}), HasSubstr("window_strides has the entry 0"));
  EXPECT_THAT(error_of({0, 2}, {1, 1}), HasSubstr("has size 0"));
}

}  // namespace
}  // namespace tessera
