// Fourier transforms as products of small matrices, on the parts of complex numbers.
//
// A length n = a b is taken apart by Cooley and Tukey: transforms of length a, a factor for each
// element, transforms of length b. Lengths up to kDirectMax, and primes up to kPrimeMax, are
// products with the transform's own matrix; larger primes are convolutions with a chirp, by
// transforms of a power of two. Reference: J. Cooley and J. Tukey, "An algorithm for the machine
// calculation of complex Fourier series" (1965); L. Bluestein, "A linear filtering approach to the
// computation of discrete Fourier transform" (1970).
#include "ir/fft.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <numbers>
#include <utility>

#include "ir/ops/complex.h"
#include "ir/ops/family.h"

namespace tessera::ir {
namespace {

using ops::Parts;
using Numbers = std::vector<std::complex<double>>;

constexpr int64_t kDirectMax = 32, kPrimeMax = 128;
// Factors of up to this many elements are in the program; more are computed as it runs.
constexpr int64_t kLiteralMax = kPrimeMax * kPrimeMax;
// Squares of indices fit into 63 bits.
constexpr int64_t kLengthMax = int64_t{1} << 31;

// Real numbers have no imaginary part at first.
struct Signal {
  Value re, im;  // im: default if all are 0

  bool is_real() const { return !im; }
};

// exp(2 pi i turns / n), of whole turns / n left out.
std::complex<double> RootOfUnity(int64_t turns, int64_t n) {
  const double part = static_cast<double>(turns % n) / static_cast<double>(n);
  const double angle = 2 * std::numbers::pi * (part > 0.5 ? part - 1 : part);
  return {std::cos(angle), std::sin(angle)};
}

Signal Literal(Builder& b, DType dtype, Dims shape, const Numbers& numbers) {
  Array re(dtype, shape), im(dtype, std::move(shape));
  for (size_t i = 0; i < numbers.size(); ++i) {
    re.Set(static_cast<int64_t>(i), numbers[i].real());
    im.Set(static_cast<int64_t>(i), numbers[i].imag());
  }
  const Value of_re = Constant(b, std::move(re));
  return {of_re, Constant(b, std::move(im))};
}

// exp(sign 2 pi i turns / n) of whole turns in [0, n).
Signal RootsOf(Value turns, int64_t n, int sign, DType dtype) {
  // From -n / 2 to n / 2, so that the angle is as exact as it can be.
  const Value past = Compare(turns + turns, FullLike(turns, static_cast<double>(n)), "GT");
  const Value less = turns - FullLike(turns, static_cast<double>(n));
  const Value centered = Convert(Select(past, less, turns), DType::kF64);
  const Value angle = centered * FullLike(centered, sign * 2 * std::numbers::pi / n);
  const Value rounded = Convert(angle, dtype);
  const Value re = Cos(rounded);
  return {re, Sin(rounded)};
}

// exp(sign 2 pi i j k / n) for j < rows and k < cols, of which there are n or few.
Signal Roots(Builder& b, DType dtype, int64_t rows, int64_t cols, int64_t n, int sign) {
  if (rows * cols <= kLiteralMax) {
    Numbers numbers;
    for (int64_t j = 0; j < rows; ++j)
      for (int64_t k = 0; k < cols; ++k) {
        const std::complex<double> root = RootOfUnity(j * k, n);
        numbers.push_back(sign < 0 ? std::conj(root) : root);
      }
    return Literal(b, dtype, {rows, cols}, numbers);
  }
  const Value j = Iota(b, DType::kS64, {rows, cols}, 0);
  return RootsOf(j * Iota(b, DType::kS64, {rows, cols}, 1), n, sign, dtype);
}

// exp(sign pi i k^2 / n) for k < n.
Signal Chirp(Builder& b, DType dtype, int64_t n, int sign) {
  if (n <= kLiteralMax) {
    Numbers numbers;
    for (int64_t k = 0; k < n; ++k) {
      const std::complex<double> root = RootOfUnity(k * k, 2 * n);
      numbers.push_back(sign < 0 ? std::conj(root) : root);
    }
    return Literal(b, dtype, {n}, numbers);
  }
  const Value k = Iota(b, DType::kS64, {n}, 0);
  const Value square = k * k;
  const Value turns = Rem(square, FullLike(square, static_cast<double>(2 * n)));
  return RootsOf(turns, 2 * n, sign, dtype);
}

Signal Times(const Signal& x, const Signal& y) {
  if (x.is_real()) {
    const Value re = x.re * y.re;
    return {re, x.re * y.im};
  }
  const Value ac = x.re * y.re, ad = x.re * y.im;
  const Value re = ac - x.im * y.im;
  return {re, ad + x.im * y.re};
}
// The last dim of x with dim 0 of m.
Value LastWith(Value x, Value m) { return DotGeneral(x, m, {{}, {}, {x.rank() - 1}, {0}}); }
Signal Product(const Signal& x, const Signal& m) {
  const Value ac = LastWith(x.re, m.re), ad = LastWith(x.re, m.im);
  if (x.is_real()) return {ac, ad};
  const Value re = ac - LastWith(x.im, m.im);
  return {re, ad + LastWith(x.im, m.re)};
}

template <class F>
Signal Each(const Signal& x, const F& f) {
  const Value re = f(x.re);
  return {re, x.is_real() ? Value() : f(x.im)};
}
Signal Reshaped(const Signal& x, const Dims& shape) {
  return Each(x, [&](Value v) { return Reshape(v, shape); });
}
Signal LastTwoSwapped(const Signal& x) {
  return Each(x, [](Value v) { return MoveDim(v, v.rank() - 1, v.rank() - 2); });
}
// Elements `begin` to `end` of the last dim; zeros behind the last one.
Signal LastPart(const Signal& x, int64_t begin, int64_t end) {
  return Each(x, [&](Value v) { return SliceInDim(v, v.rank() - 1, begin, end); });
}
Signal LastPadded(const Signal& x, int64_t n) {
  return Each(x, [&](Value v) {
    std::vector<int64_t> low(v.rank(), 0), high = low;
    high.back() = n - v.dim(v.rank() - 1);
    const Value zero = Constant(v.builder(), v.dtype(), 0);
    return Pad(v, zero, std::move(low), std::move(high));
  });
}

// The largest divisor of n up to kDirectMax, else its least prime divisor; n itself if it is prime.
int64_t FactorOf(int64_t n) {
  for (int64_t a = kDirectMax; a > 1; --a)
    if (n % a == 0) return a;
  for (int64_t p = kDirectMax + 1; p * p <= n; ++p)
    if (n % p == 0) return p;
  return n;
}

Signal Transform(const Signal& x, int sign);

// Of the last dims, for a signal of more dims before them.
Signal WithLeadingOnes(const Signal& x, int rank) {
  return Each(x, [&](Value v) {
    Dims shape(rank - v.rank(), 1);
    shape.insert(shape.end(), v.shape().begin(), v.shape().end());
    return Reshape(v, std::move(shape));
  });
}

// With k j = (k^2 + j^2 - (k - j)^2) / 2: the product with a chirp, the convolution with its
// conjugate, the product again.
Signal ByChirp(const Signal& x, int64_t n, int sign) {
  Builder& b = x.re.builder();
  const auto m = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * n - 1)));
  const Signal chirp = Chirp(b, x.re.dtype(), n, sign), back = Chirp(b, x.re.dtype(), n, -sign);
  // The conjugate at 0, 1, ... n - 1 and, from the end, at -1, -2, ... 1 - n.
  const Signal around = Each(back, [&](Value v) {
    const Value zeros = Full(b, v.dtype(), {m - 2 * n + 1}, 0);
    return Concatenate({v, zeros, Reverse(SliceInDim(v, 0, 1, n), {0})}, 0);
  });
  const int rank = x.re.rank();
  const Signal factors = WithLeadingOnes(chirp, rank);
  const Signal scaled = LastPadded(Times(x, factors), m);
  const Signal spectrum = WithLeadingOnes(Transform(around, -1), rank);
  const Signal sums = LastPart(Transform(Times(Transform(scaled, -1), spectrum), 1), 0, n);
  const Signal found =
      Each(sums, [&](Value v) { return v * FullLike(v, 1.0 / static_cast<double>(m)); });
  return Times(found, factors);
}

// The sums of x_j exp(sign 2 pi i j k / n) along the last dim.
Signal Transform(const Signal& x, int sign) {
  Builder& b = x.re.builder();
  const DType dtype = x.re.dtype();
  const Dims shape = x.re.shape();
  const int64_t n = shape.back();
  if (n == 1) return x;
  const int64_t a = FactorOf(n);
  if (n <= kDirectMax || (a == n && n <= kPrimeMax))
    return Product(x, Roots(b, dtype, n, n, n, sign));
  if (a == n) return ByChirp(x, n, sign);
  // Element i rest + j of x is [i, j], and k1 + a k2 of the result is [k2, k1].
  const int64_t rest = n / a;
  Dims split(shape.begin(), shape.end() - 1);
  split.push_back(a);
  split.push_back(rest);
  const Signal inner = Transform(LastTwoSwapped(Reshaped(x, split)), sign);
  const Signal factors = WithLeadingOnes(Roots(b, dtype, rest, a, n, sign), inner.re.rank());
  const Signal outer = Transform(LastTwoSwapped(Times(inner, factors)), sign);
  return Reshaped(LastTwoSwapped(outer), shape);
}

[[noreturn]] void Fail(ErrorKind kind, const std::string& message) {
  Throw(MakeError(kind, absl::StrCat("fft: ", message)));
}

Signal AlongDim(const Signal& x, int dim, int sign) {
  const int last = x.re.rank() - 1;
  const auto moved = [](const Signal& s, int from, int to) {
    return Each(s, [&](Value v) { return MoveDim(v, from, to); });
  };
  return moved(Transform(moved(x, dim, last), sign), last, dim);
}

// What the first half of the transform of real numbers, along the last dim, says of all n.
Signal FromHalf(const Signal& x, int64_t n) {
  const int64_t half = n / 2 + 1;
  const Signal rest = Each(LastPart(x, 1, half - (n % 2 == 0 ? 1 : 0)),
                           [](Value v) { return Reverse(v, {v.rank() - 1}); });
  const int last = x.re.rank() - 1;
  const Value re = Concatenate({x.re, rest.re}, last);
  return {re, Concatenate({x.im, -rest.im}, last)};
}

}  // namespace

Value Fft(Value x, FftKind kind, const std::vector<int64_t>& lengths) {
  const int rank = x.rank(), count = static_cast<int>(lengths.size());
  const bool to_half = kind == FftKind::kRfft, from_half = kind == FftKind::kIrfft;
  if (count < 1 || count > rank)
    Fail(ErrorKind::kValueError, absl::StrCat("has ", count, " lengths for ", x.type().ToString(),
                                              "; expected one for each of its last dims"));
  const bool fits =
      to_half ? x.dtype() == DType::kF32 || x.dtype() == DType::kF64 : IsComplex(x.dtype());
  if (!fits)
    Fail(ErrorKind::kTypeError,
         absl::StrCat("requires ", to_half ? "f32 or f64" : "a complex dtype", ", got ",
                      x.type().ToString()));
  int64_t elements = 1;
  bool none = x.type().num_elements() == 0;
  for (int i = 0; i < count; ++i) {
    const int64_t length = lengths[i], size = x.dim(rank - count + i);
    const bool is_half = from_half && i == count - 1 && length > 0;
    const int64_t want = is_half ? length / 2 + 1 : length;
    if (length < 0 || length > kLengthMax || size != want)
      Fail(ErrorKind::kValueError, absl::StrCat("length ", length, " of dim ", rank - count + i,
                                                " does not fit ", x.type().ToString()));
    if (!none && __builtin_mul_overflow(elements, length, &elements)) elements = kLengthMax;
    none = none || length == 0;
  }
  Builder& b = x.builder();
  if (none) {
    Type t = x.type();
    t.dtype = to_half     ? (x.dtype() == DType::kF32 ? DType::kC64 : DType::kC128)
              : from_half ? (x.dtype() == DType::kC64 ? DType::kF32 : DType::kF64)
                          : x.dtype();
    if (to_half) t.shape.back() = lengths.back() == 0 ? 0 : lengths.back() / 2 + 1;
    if (from_half) t.shape.back() = lengths.back();
    return Zeros(b, t);
  }
  Signal s{x, Value()};
  if (!to_half) {
    const Parts parts = ops::PartsOf(x);
    s = {parts.re, parts.im};
  }
  const int sign = kind == FftKind::kIfft || from_half ? 1 : -1;
  if (to_half) {
    s = LastPart(AlongDim(s, rank - 1, sign), 0, lengths.back() / 2 + 1);
    if (s.is_real()) s.im = Zeros(b, s.re.type());  // of one element
  }
  for (int dim = rank - count; dim < rank - 1; ++dim) s = AlongDim(s, dim, sign);
  if (from_half) s = FromHalf(s, lengths.back());
  if (!to_half) s = AlongDim(s, rank - 1, sign);
  if (sign > 0)
    s = Each(s, [&](Value v) { return v * FullLike(v, 1.0 / static_cast<double>(elements)); });
  return from_half ? s.re : Complex(s.re, s.im);
}

}  // namespace tessera::ir
