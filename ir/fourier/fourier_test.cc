// Compares transforms of many lengths and layouts with their definition, computed with more digits,
// and with the kernels of every instruction set that this machine has.
#include "ir/fourier/fourier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numbers>
#include <thread>
#include <vector>

#include "base/testing/status_matchers.h"
#include "ir/fourier/kernels.h"

namespace tessera::ir::fourier {
namespace {

using Number = std::complex<long double>;

template <class T>
std::vector<T> PseudoRandom(int64_t n, uint64_t seed = 1) {
  std::vector<T> x;
  for (int64_t i = 0; i < n; ++i) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    x.push_back(static_cast<T>(static_cast<double>(seed >> 40) * 0x1p-23 - 1));
  }
  return x;
}
Number Root(int64_t turns, int64_t n, bool inverse) {
  return std::polar<long double>(1, (inverse ? 2 : -2) * std::numbers::pi_v<long double> *
                                        static_cast<long double>(turns % n) /
                                        static_cast<long double>(n));
}
// Returns the complex number x[i].
template <class T>
Number At(const std::vector<T>& x, int64_t i) {
  return {x[2 * i], x[2 * i + 1]};
}
// Returns the error that a result may have, relative to the root of the sum of the squares of its
// inputs. A chirp takes two transforms of about four times the length.
template <class T>
double ErrorBound(int64_t n) {
  return static_cast<double>(std::numeric_limits<T>::epsilon()) / 2 *
         (8 + std::log2(static_cast<double>(n)));
}

struct Layout {
  int64_t outer, n, inner;
};
// Expects a small largest error. All elements are compared if there are few, otherwise elements at
// a fixed step.
template <class T>
void ExpectMatchesDefinition(const Layout& l, bool inverse, T scale, const std::vector<T>& x,
                             const std::vector<T>& y) {
  const int64_t elements = l.outer * l.n * l.inner;
  const int64_t step = std::max<int64_t>(elements * l.n / 40'000, 1) | 1;
  double worst = 0;
  for (int64_t at = 0; at < elements; at += step) {
    const int64_t o = at / (l.n * l.inner), k = at / l.inner % l.n, i = at % l.inner;
    Number sum = 0;
    long double squares = 0;
    for (int64_t j = 0; j < l.n; ++j) {
      const Number v = At(x, (o * l.n + j) * l.inner + i);
      sum += v * Root(j * k, l.n, inverse);
      squares += std::norm(v);
    }
    const long double off = std::abs(At(y, at) - static_cast<long double>(scale) * sum);
    worst = std::max(worst, static_cast<double>(off / (scale * std::sqrt(squares))));
  }
  EXPECT_LT(worst, ErrorBound<T>(l.n))
      << "of [" << l.outer << ", " << l.n << ", " << l.inner << "]";
}
template <class T>
void CheckTransform(const Layout& l, bool inverse) {
  const auto x = PseudoRandom<T>(2 * l.outer * l.n * l.inner);
  std::vector<T> y(x.size());
  ASSERT_THAT(Transform<T>(l.outer, l.n, l.inner, inverse, T{0.5}, x.data(), y.data(), InOrder),
              IsOk());
  ExpectMatchesDefinition<T>(l, inverse, T{0.5}, x, y);
  std::vector<T> in_place = x;
  ASSERT_THAT(Transform<T>(l.outer, l.n, l.inner, inverse, T{0.5}, in_place.data(), in_place.data(),
                           InOrder),
              IsOk());
  EXPECT_EQ(in_place, y);
}

TEST(Fourier, ShortLengthsInEveryLayout) {
  for (int64_t n = 1; n <= 130; ++n)
    for (const Layout& l : {Layout{1, n, 1}, {19, n, 1}, {2, n, 17}, {3, n, 2}}) {
      CheckTransform<float>(l, n % 2 == 0);
      CheckTransform<double>(l, n % 2 == 1);
    }
}

// The lengths cover two dims with and without idle lanes, odd radices, chirps whose own transforms
// are long, and columns that are not transformed directly.
TEST(Fourier, LongLengths) {
  for (const int64_t n : {256, 360, 997, 1024, 1331, 2018, 3600, 4096, 7921, 16384, 32768, 32771})
    for (const Layout& l : {Layout{1, n, 1}, {3, n, 1}, {1, n, 3}}) {
      CheckTransform<float>(l, false);
      CheckTransform<double>(l, true);
    }
  CheckTransform<float>({1, 1'000'000, 1}, true);
  CheckTransform<double>({1, 99'991, 1}, false);
}

template <class T>
void CheckReal(int64_t rows, int64_t n) {
  const auto x = PseudoRandom<T>(rows * n);
  const int64_t half = n / 2 + 1;
  std::vector<T> y(2 * rows * half), numbers(2 * rows * n), whole(2 * rows * n), back(rows * n);
  ASSERT_THAT(FromReal<T>(rows, n, x.data(), y.data(), InOrder), IsOk());
  for (int64_t i = 0; i < rows * n; ++i) numbers[2 * i] = x[i];
  ASSERT_THAT(Transform<T>(rows, n, 1, false, T{1}, numbers.data(), whole.data(), InOrder), IsOk());
  const double near = 2 * ErrorBound<T>(n) * std::sqrt(static_cast<double>(n));
  for (int64_t r = 0; r < rows; ++r) {
    EXPECT_EQ(y[2 * r * half + 1], 0);
    if (n % 2 == 0) {
      EXPECT_EQ(y[2 * (r * half + half - 1) + 1], 0);
    }
    for (int64_t i = 0; i < 2 * half; ++i)
      ASSERT_NEAR(y[2 * r * half + i], whole[2 * r * n + i], near) << n << " at " << i;
    // These imaginary parts are taken as 0.
    y[2 * r * half + 1] = 3;
    if (n % 2 == 0) y[2 * (r * half + half - 1) + 1] = -5;
  }
  ASSERT_THAT(ToReal<T>(rows, n, static_cast<T>(1.0 / static_cast<double>(n)), y.data(),
                        back.data(), InOrder),
              IsOk());
  for (int64_t i = 0; i < rows * n; ++i) ASSERT_NEAR(back[i], x[i], 2 * ErrorBound<T>(n)) << n;
}
TEST(Fourier, RealRows) {
  for (int64_t n = 1; n <= 140; ++n) {
    CheckReal<float>(3, n);
    CheckReal<double>(1, n);
  }
  for (const int64_t n : {997, 1024, 2018, 4095, 65536, 65538, 99'991}) {
    CheckReal<float>(2, n);
    CheckReal<double>(1, n);
  }
}

// Checks that a row is computed in the same way wherever it stands and however many rows there are,
// and that a NaN stays in its own row.
template <class T>
void CheckRows(int64_t n) {
  constexpr int64_t kRows = 37;
  auto x = PseudoRandom<T>(2 * kRows * n);
  std::vector<T> all(x.size()), one(2 * n);
  x[2 * n * 5 + 2 * (n / 2)] = std::numeric_limits<T>::quiet_NaN();
  ASSERT_THAT(Transform<T>(kRows, n, 1, false, T{1}, x.data(), all.data(), InOrder), IsOk());
  for (int64_t r = 0; r < kRows; ++r) {
    const std::vector<T> row(all.begin() + 2 * n * r, all.begin() + 2 * n * (r + 1));
    if (r == 5) {
      EXPECT_TRUE(std::isnan(row[0]));
      continue;
    }
    ASSERT_THAT(Transform<T>(1, n, 1, false, T{1}, x.data() + 2 * n * r, one.data(), InOrder),
                IsOk());
    EXPECT_EQ(one, row) << "row " << r << " of " << n;
  }
}
TEST(Fourier, RowsDoNotDependOnEachOther) {
  for (const int64_t n : {7, 16, 60, 101, 128, 256, 360, 1000}) {
    CheckRows<float>(n);
    CheckRows<double>(n);
  }
}

TEST(Fourier, ThreadsShareTheWorkAndAnErrorStopsIt) {
  const auto in_two = [](int64_t n, int64_t, Work work) {
    if (n < 2) return InOrder(n, 0, work);
    std::thread other([&] { work(0, n / 2); });
    work(n / 2, n);
    other.join();
    return absl::OkStatus();
  };
  for (const Layout& l : {Layout{100, 360, 1}, {5, 40'000, 1}, {1, 30'011, 1}, {3, 64, 100}}) {
    const auto x = PseudoRandom<float>(2 * l.outer * l.n * l.inner);
    std::vector<float> alone(x.size()), shared(x.size());
    ASSERT_THAT(Transform<float>(l.outer, l.n, l.inner, false, 1, x.data(), alone.data(), InOrder),
                IsOk());
    ASSERT_THAT(Transform<float>(l.outer, l.n, l.inner, false, 1, x.data(), shared.data(), in_two),
                IsOk());
    EXPECT_EQ(alone, shared);
    const auto stopped = [](int64_t, int64_t, Work) { return absl::CancelledError("stop"); };
    EXPECT_THAT(Transform<float>(l.outer, l.n, l.inner, false, 1, x.data(), shared.data(), stopped),
                StatusIs(absl::StatusCode::kCancelled));
  }
}

// Checks each instruction set alone, for every number of lanes up to its vector's width.
template <class T>
void CheckKernels() {
  const KernelList<T> all = AllKernels<T>();
  ASSERT_GE(all.count, 1);
  for (int k = 0; k < all.count; ++k) {
    const Kernels<T>& kernels = *all.kernels[k];
    const int64_t width = kernels.width;
    // The length is 12 = 4 * 3. These are the factors of the two passes.
    std::vector<T> factors;
    const auto add = [&](Number x) {
      factors.push_back(static_cast<T>(x.real()));
      factors.push_back(static_cast<T>(x.imag()));
    };
    for (int64_t j = 1; j < 4; ++j)
      for (int64_t i = 0; i < 3; ++i) add(Root(i * j, 12, false));
    for (int64_t j = 1; j < 3; ++j) add(Root(0, 12, false));
    const Pass passes[] = {{4, 1, 3, 0, 0}, {3, 4, 1, 9, 0}};
    for (int64_t lanes = 1; lanes <= width; ++lanes) {
      const auto x = PseudoRandom<T>(2 * 12 * lanes), by = PseudoRandom<T>(2 * 12 * lanes, 7);
      std::vector<T> y(x.size());
      T* const scratch =
          static_cast<T*>(::operator new(4 * 12 * width * sizeof(T), std::align_val_t(64)));
      for (const bool rows : {true, false}) {
        kernels.transform({.pass_list = {12, passes, 2, factors.data()},
                           .in = x.data(),
                           .out = y.data(),
                           .from = rows ? Strides{1, 12} : Strides{lanes, 1},
                           .to = rows ? Strides{1, 12} : Strides{lanes, 1},
                           .lanes = lanes,
                           .scratch = scratch});
        ExpectMatchesDefinition<T>(rows ? Layout{lanes, 12, 1} : Layout{1, 12, lanes}, false, T{1},
                                   x, y);
      }
      ::operator delete(scratch, std::align_val_t(64));
      const int64_t n = 12 * lanes - 1;
      kernels.multiply({.n = n, .in = x.data(), .factors = by.data(), .out = y.data(), .scale = 2});
      for (int64_t i = 0; i < n; ++i)
        ASSERT_LT(std::abs(At(y, i) - Number(2) * At(x, i) * At(by, i)), 8 * ErrorBound<T>(1)) << i;
    }
  }
}

// A transform of a long row computes tables first. If the length is prime, the tables take a
// transform of another length.
TEST(Fourier, TablesAreComputedInPiecesToo) {
  for (const int64_t n : {int64_t{1} << 19, int64_t{393'203}}) {
    int64_t calls = 0, fails_at = 0, most = 0;
    const auto failing = [&](int64_t count, int64_t each, Work work) -> absl::Status {
      if (calls++ == fails_at) return absl::CancelledError("enough");
      most = std::max(most, each);
      return InOrder(count, each, work);
    };
    const auto x = PseudoRandom<float>(2 * n);
    std::vector<float> y(2 * n), want(2 * n);
    // Tables that were not completed are not kept, so that one more call succeeds each time.
    while (!Transform<float>(1, n, 1, false, 1, x.data(), y.data(), failing).ok())
      calls = 0, ++fails_at;
    EXPECT_GE(fails_at, 3) << "in each of two tables, and in the transform";
    EXPECT_LE(most, 64 * n) << "a part is a small share of the transform";
    ASSERT_THAT(Transform<float>(1, n, 1, false, 1, x.data(), want.data(), InOrder), IsOk());
    EXPECT_EQ(y, want);
  }
}

TEST(Fourier, EverySetOfInstructions) {
  CheckKernels<float>();
  CheckKernels<double>();
}

}  // namespace
}  // namespace tessera::ir::fourier
