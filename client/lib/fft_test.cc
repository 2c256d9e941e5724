// Tests of the transforms of fft.h: random vectors are transformed on the reference evaluator and
// compared with the definition in f64, for lengths that take different algorithms.
#include "client/fft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <string>
#include <vector>

#include "client/testing/evaluated.h"

namespace tessera {
namespace {

using testing::ErrorOf;
using testing::Evaluated;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using testing::Values;
using Numbers = std::vector<std::complex<double>>;

// Returns numbers in [-1, 1) without a pattern.
double PseudoRandom(int64_t i) {
  const double v = std::sin(static_cast<double>(i) * 12.9898 + 78.233) * 43758.5453;
  return 2 * (v - std::floor(v)) - 1;
}
Numbers RandomNumbers(int64_t n, int64_t from = 0) {
  Numbers all;
  for (int64_t i = 0; i < n; ++i)
    all.emplace_back(PseudoRandom(from + 2 * i), PseudoRandom(from + 2 * i + 1));
  return all;
}
// Computes the transform by its definition.
Numbers DftByDefinition(const Numbers& x, int sign) {
  const auto n = static_cast<int64_t>(x.size());
  Numbers out(n);
  for (int64_t k = 0; k < n; ++k)
    for (int64_t j = 0; j < n; ++j)
      out[k] += x[j] * std::polar(1.0, sign * 2 * std::numbers::pi *
                                           static_cast<double>(j * k % n) / static_cast<double>(n));
  return out;
}
ir::Array PartOf(const Numbers& x, bool is_re, DType dtype, Dims shape = {}) {
  std::vector<double> values;
  for (const std::complex<double> v : x) values.push_back(is_re ? v.real() : v.imag());
  if (shape.empty()) shape = {static_cast<int64_t>(x.size())};
  return ir::Array::Of(dtype, std::move(shape), values);
}
// Returns f(re + i im) as complex numbers, from the parts that a traced function can return.
template <class F>
Numbers Transformed(const F& f, const Numbers& x, DType dtype, const Dims& shape = {}) {
  const std::vector<ir::Array> got = Evaluated(
      [&](Array re, Array im) {
        const Array z = f(lax::complex(re, im));
        return std::vector<Array>{real(z), imag(z)};
      },
      PartOf(x, true, dtype, shape), PartOf(x, false, dtype, shape));
  const std::vector<double> re = got[0].ToDoubles(), im = got[1].ToDoubles();
  Numbers out;
  for (size_t i = 0; i < re.size(); ++i) out.emplace_back(re[i], im[i]);
  return out;
}
// Returns the largest difference, relative to the root of the sum of the squares of the expected
// values.
double RelativeError(const Numbers& got, const Numbers& want) {
  EXPECT_EQ(got.size(), want.size());
  double largest_error = 0, squares = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest_error = std::max(largest_error, std::abs(got[i] - want[i]));
    squares += std::norm(want[i]);
  }
  return largest_error / std::sqrt(squares);
}

// The lengths are small ones, powers of two, products of many factors, small and large primes, and
// a product of two large primes.
TEST(FftTest, MatchesTheDefinitionForEveryLength) {
  for (const int64_t n : {1,  2,   3,   4,   5,   7,   8,   12,   31,   32,   33,   37,  64,
                          97, 127, 128, 131, 210, 360, 541, 1000, 1009, 1024, 2018, 4757}) {
    const Numbers x = RandomNumbers(n), want = DftByDefinition(x, -1);
    const auto forward = [](const Array& z) { return fft::fft(z); };
    EXPECT_LT(RelativeError(Transformed(forward, x, DType::kF64), want), 1e-15 * (4 + std::log2(n)))
        << n;
    EXPECT_LT(RelativeError(Transformed(forward, x, DType::kF32), want), 6e-8 * (4 + std::log2(n)))
        << n;
    const auto round_trip = [](const Array& z) { return fft::ifft(fft::fft(z)); };
    EXPECT_LT(RelativeError(Transformed(round_trip, x, DType::kF64), x),
              1e-15 * (8 + 2 * std::log2(n)))
        << n;
  }
}

// The complex factors of larger transforms are not constants: the program computes them when it
// runs.
TEST(FftTest, TheInverseUndoesLargeTransforms) {
  for (const int64_t n : {int64_t{1} << 17, int64_t{100'003}, int64_t{3 * 5 * 7 * 11 * 13 * 17}}) {
    const Numbers x = RandomNumbers(n);
    const auto round_trip = [](const Array& z) { return fft::ifft(fft::fft(z)); };
    EXPECT_LT(RelativeError(Transformed(round_trip, x, DType::kF32), x), 1e-7) << n;
    // The transform of a wave of one frequency has one element that is not 0.
    Numbers wave(n), line(n);
    for (int64_t j = 0; j < n; ++j)
      wave[j] = std::polar(
          1.0, 2 * std::numbers::pi * static_cast<double>(j * 5 % n) / static_cast<double>(n));
    line[5] = static_cast<double>(n);
    const auto forward = [](const Array& z) { return fft::fft(z); };
    EXPECT_LT(RelativeError(Transformed(forward, wave, DType::kF32), line), 2e-7) << n;
  }
}

TEST(FftTest, TransformsAlongAnotherAxisAndAlongTwoAxes) {
  const Numbers x = RandomNumbers(12);  // reshaped to 3 x 4
  const auto first = [](const Array& z) { return fft::fft(z, 0); };
  const auto two = [](const Array& z) { return fft::fft2(z); };
  Numbers want = x;
  for (int64_t c = 0; c < 4; ++c) {
    const Numbers column = DftByDefinition({x[c], x[4 + c], x[8 + c]}, -1);
    for (int64_t r = 0; r < 3; ++r) want[4 * r + c] = column[r];
  }
  EXPECT_LT(RelativeError(Transformed(first, x, DType::kF64, {3, 4}), want), 1e-15);
  for (int64_t r = 0; r < 3; ++r) {
    const Numbers row =
        DftByDefinition(Numbers(want.begin() + 4 * r, want.begin() + 4 * r + 4), -1);
    std::copy(row.begin(), row.end(), want.begin() + 4 * r);
  }
  EXPECT_LT(RelativeError(Transformed(two, x, DType::kF64, {3, 4}), want), 1e-15);
  const auto round_trip = [](const Array& z) { return fft::ifft2(fft::fft2(z)); };
  EXPECT_LT(RelativeError(Transformed(round_trip, x, DType::kF64, {3, 4}), x), 1e-15);
  const auto each = vmap([](Array z) { return fft::fft(z); });
  const auto rows = [](const Array& z) { return fft::fft(z); };
  EXPECT_LT(RelativeError(Transformed(each, x, DType::kF64, {3, 4}),
                          Transformed(rows, x, DType::kF64, {3, 4})),
            1e-15);
}

TEST(FftTest, RfftReturnsTheFirstHalf) {
  for (const int64_t n : {1, 2, 5, 6, 64, 131, 256}) {
    Numbers x = RandomNumbers(n);
    for (std::complex<double>& v : x) v = v.real();
    Numbers want = DftByDefinition(x, -1);
    want.resize(n / 2 + 1);
    const auto half = [](const Array& z) { return fft::rfft(real(z)); };
    EXPECT_LT(RelativeError(Transformed(half, x, DType::kF64), want), 2e-15) << n;
    const auto round_trip = [n](const Array& z) {
      const Array back = fft::irfft(fft::rfft(real(z)), n);
      return lax::complex(back, back * 0.0);
    };
    EXPECT_LT(RelativeError(Transformed(round_trip, x, DType::kF64), x), 2e-15) << n;
  }
}

MATCHER(IsNear, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) < 1e-9; }

// Expected values are those of jax.numpy.fft 0.10.2.
TEST(FftTest, GradientsAreThoseOfJax) {
  const ir::Array x = ir::Array::Of(DType::kF64, {6}, {1, 4, 9, 16, 25, 36});
  const auto weights = [] { return 1.0 + arange(4, DType::kF64); };
  const auto loss = [&](Array v) {
    const Array f = fft::rfft(v);
    return sum(real(f) * weights()) + sum(imag(f) * weights() * weights());
  };
  EXPECT_THAT(Values(grad(loss), x),
              Pointwise(IsNear(), std::vector<double>{10, -14.7583302492, 6.83012701892, -2,
                                                      -1.83012701892, 7.7583302492}));
  const auto filtered = [&](Array v) {
    const Array f = fft::rfft(v);
    return sum(fft::irfft(lax::complex(real(f) * weights(), imag(f) * weights())) * v);
  };
  EXPECT_THAT(
      Values(grad(filtered), x),
      Pointwise(IsNear(), std::vector<double>{-53.6666666667, -1.66666666667, 6.33333333333,
                                              34.3333333333, 54.3333333333, 142.333333333}));
  const auto inverse = [&](Array w) { return fft::irfft(lax::complex(w, w * w), 7); };
  EXPECT_THAT(Values(inverse, ir::Array::Of(DType::kF64, {4}, {1, 2, 3, 4})),
              Pointwise(IsNear(), std::vector<double>{2.71428571429, -6.10522161004, 3.53158755961,
                                                      -3.03412865006, 2.85038461232, -3.61958142486,
                                                      4.66267379875}));
}

TEST(FftTest, ErrorsSayWhatIsExpected) {
  const auto error_of = [](auto f, const Dims& shape) {
    return std::string(ErrorOf([&] { trace(f, abstract(shape)); }).what());
  };
  EXPECT_THAT(error_of([](Array a) { return fft::fft(a, 1); }, {3}),
              HasSubstr("fft.fft: axis 1 is out of bounds for an array of 1 dims"));
  EXPECT_THAT(error_of([](Array a) { return fft::fft2(a); }, {3}),
              HasSubstr("fft.fft2: axis -2 is out of bounds"));
  EXPECT_THAT(
      error_of([](Array a) { return fft::irfft(a, 8); }, {4}),
      HasSubstr("fft.irfft: n is 8 and the axis has 4 numbers; expected n / 2 + 1 numbers"));
}

}  // namespace
}  // namespace tessera
