// Proves that elements of every dtype survive a load and a store, that floats are rounded to the
// nearest value, and that conversions saturate, wrap and treat special values as XLA and JAX do.
#include "ir/convert.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/element.h"

namespace tessera::ir {
namespace {

using ::testing::ElementsAre;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// Calls f with the tag of each dtype.
template <class F>
void ForEachDType(F f) {
  for (int d = 0; d < kNumDTypes; ++d)
    VisitDType(static_cast<DType>(d), [&](auto tag) {
      SCOPED_TRACE(std::string(DTypeName(static_cast<DType>(d))));
      f(tag);
    });
}

std::vector<double> Converted(DType from, std::vector<double> values, DType to) {
  const auto n = static_cast<int64_t>(values.size());
  return ConvertArray(Array::Of(from, {n}, values), to).ToDoubles();
}

TEST(Element, EveryCodeOfANarrowDTypeComesBack) {
  ForEachDType([]<DType kD>(DTypeTag<kD>) {
    if constexpr (BitWidthOf<kD>() <= 16 && kD != DType::kBool) {
      for (int code = 0; code < 1 << BitWidthOf<kD>(); ++code) {
        const auto x = Element<kD>::Load(static_cast<StorageType<kD>>(code));
        const auto back = Element<kD>::Load(Element<kD>::Store(x));
        if (x != x) {
          EXPECT_NE(back, back) << code;
        } else {
          EXPECT_EQ(back, x) << code;
          if constexpr (std::is_floating_point_v<ComputeType<kD>>) {
            EXPECT_EQ(std::signbit(back), std::signbit(x)) << code;
            EXPECT_EQ(Element<kD>::Store(x), code);
          }
        }
      }
    }
  });
}

TEST(Element, ANumberIsRoundedToTheNearestNarrowFloat) {
  ForEachDType([]<DType kD>(DTypeTag<kD>) {
    if constexpr (std::is_floating_point_v<ComputeType<kD>> && BitWidthOf<kD>() <= 16) {
      const int last = kD == DType::kF8E8M0FNU ? 253 : (1 << (BitWidthOf<kD>() - 1)) - 2;
      for (int code = 0; code < last; ++code) {
        const double low = Element<kD>::Load(static_cast<StorageType<kD>>(code));
        const double high = Element<kD>::Load(static_cast<StorageType<kD>>(code + 1));
        if (!(std::isfinite(low) && std::isfinite(high))) break;
        const double half = low + (high - low) / 2, close = (high - low) * 0x1p-8;
        const auto rounded = [](double x) { return static_cast<int>(StoreDouble<kD>(x)); };
        // F8E8M0FNU holds powers of two only, without mantissa bits that could be even, so a tie
        // goes up.
        const int even = kD == DType::kF8E8M0FNU || code % 2 != 0 ? code + 1 : code;
        EXPECT_EQ(rounded(half), even) << half;
        EXPECT_EQ(rounded(half - close), code) << half;
        EXPECT_EQ(rounded(half + close), code + 1) << half;
        EXPECT_EQ(static_cast<int>(Element<kD>::Store(static_cast<float>(half))), even) << half;
      }
    }
  });
}

TEST(Convert, F64BecomesF16InOneStep) {
  // If the number went through f32 it would become an exact tie and would be rounded to even.
  const double above_half = 1 + 0x1p-11 + 0x1p-40, below_half = 1 + 0x3p-11 - 0x1p-40;
  EXPECT_THAT(Converted(DType::kF64, {above_half, below_half, -above_half}, DType::kF16),
              ElementsAre(1 + 0x1p-10, 1 + 0x1p-10, -1 - 0x1p-10));
  EXPECT_THAT(Converted(DType::kF64, {65519.999, 65520, 1e300, -1e300}, DType::kF16),
              ElementsAre(65504, kInf, kInf, -kInf));
}

TEST(Convert, FloatsAreTruncatedAndSaturateAsIntegers) {
  const std::vector<double> x = {300, -300, 2.9, -2.9, kNan, kInf, -kInf};
  EXPECT_THAT(Converted(DType::kF32, x, DType::kS8), ElementsAre(127, -128, 2, -2, 0, 127, -128));
  EXPECT_THAT(Converted(DType::kF32, x, DType::kU8), ElementsAre(255, 0, 2, 0, 0, 255, 0));
  EXPECT_THAT(Converted(DType::kF32, x, DType::kS4), ElementsAre(7, -8, 2, -2, 0, 7, -8));
  EXPECT_THAT(Converted(DType::kF32, x, DType::kU2), ElementsAre(3, 0, 2, 0, 0, 3, 0));
}

TEST(Convert, IntegersKeepTheirLowBits) {
  const std::vector<double> x = {300, -300, -1, 7, 8, -9};
  EXPECT_THAT(Converted(DType::kS32, x, DType::kS8), ElementsAre(44, -44, -1, 7, 8, -9));
  EXPECT_THAT(Converted(DType::kS32, x, DType::kS4), ElementsAre(-4, 4, -1, 7, -8, 7));
  EXPECT_THAT(Converted(DType::kS32, x, DType::kU2), ElementsAre(0, 0, 3, 3, 0, 3));
  EXPECT_EQ(ConvertArray(Array::ScalarInt(DType::kS8, -1), DType::kU64).As<uint64_t>()[0],
            std::numeric_limits<uint64_t>::max());
}

// StableHLO ignores the imaginary part in conversions to any type that is not complex, also to
// bool.
TEST(Convert, TheImaginaryPartIsIgnored) {
  Array x(DType::kC64, {3});
  x.MutableAs<std::complex<float>>()[0] = {1.5f, 2};
  x.MutableAs<std::complex<float>>()[1] = {0, 1};
  EXPECT_THAT(ConvertArray(x, DType::kBool).ToDoubles(), ElementsAre(1, 0, 0));
  EXPECT_THAT(ConvertArray(x, DType::kF32).ToDoubles(), ElementsAre(1.5, 0, 0));
  EXPECT_EQ(ConvertArray(x, DType::kC128).As<std::complex<double>>()[0],
            (std::complex<double>{1.5, 2}));
  EXPECT_EQ(ConvertArray(Array::Scalar(DType::kS8, -3), DType::kC64).As<std::complex<float>>()[0],
            (std::complex<float>{-3, 0}));
}

// Infinity and numbers that are too large become what JAX makes of them in each format.
TEST(Convert, InfinityAndLargeNumbersAsNarrowFloats) {
  const std::vector<double> x = {kInf, -kInf, 1e9, -1e9, -0.0};
  const auto codes = [&](DType to) {
    const Array y = ConvertArray(Array::Of(DType::kF32, {5}, x), to);
    return std::vector<uint8_t>(y.As<uint8_t>().begin(), y.As<uint8_t>().end());
  };
  EXPECT_THAT(codes(DType::kF8E5M2), ElementsAre(0x7c, 0xfc, 0x7c, 0xfc, 0x80));
  EXPECT_THAT(codes(DType::kF8E4M3FN), ElementsAre(0x7f, 0xff, 0x7f, 0xff, 0x80));
  EXPECT_THAT(codes(DType::kF8E4M3FNUZ), ElementsAre(0x80, 0x80, 0x80, 0x80, 0));
  EXPECT_THAT(codes(DType::kF8E3M4), ElementsAre(0x70, 0xf0, 0x70, 0xf0, 0x80));
  EXPECT_THAT(codes(DType::kF4E2M1FN), ElementsAre(0x7, 0xf, 0x7, 0xf, 0x8));
  EXPECT_THAT(codes(DType::kF8E8M0FNU), ElementsAre(0xff, 0xff, 0x9d, 0xff, 0xff));
  EXPECT_EQ(DoubleToNarrow(DType::kF4E2M1FN, kNan), 0x8);
  EXPECT_EQ(DoubleToNarrow(DType::kF8E8M0FNU, 1e-75), 0xff);
  EXPECT_EQ(DoubleToNarrow(DType::kF8E8M0FNU, 0x1p-149), 0);
}

}  // namespace
}  // namespace tessera::ir
