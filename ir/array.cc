// The storage of host arrays, the access to their elements by number, and their printed form. The
// text parser, the readers in serial/ and the client build arrays here; the evaluator and host
// transfers read and write them.
#include "ir/array.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/element.h"

namespace tessera::ir {
namespace {

int64_t NumElements(const Dims& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

// Truncates towards zero and saturates. NaN becomes 0.
template <class Int>
Int ToInt(double v) {
  if (v != v) return 0;
  if (v <= static_cast<double>(std::numeric_limits<Int>::lowest()))
    return std::numeric_limits<Int>::lowest();
  if (v >= static_cast<double>(std::numeric_limits<Int>::max()))
    return std::numeric_limits<Int>::max();
  return static_cast<Int>(v);
}

std::string ElementText(const Array& a, int64_t i) {
  if (a.dtype() == DType::kBool) return a.At(i) != 0 ? "true" : "false";
  if (a.dtype() == DType::kU64) return absl::StrCat(a.As<uint64_t>()[i]);
  if (IsInteger(a.dtype())) return absl::StrCat(a.IntAt(i));
  if (!IsComplex(a.dtype())) return absl::StrCat(a.At(i));
  const double imaginary = a.ImaginaryAt(i);
  return absl::StrCat(a.At(i), std::signbit(imaginary) ? "-" : "+", std::fabs(imaginary), "j");
}

void AppendText(const Array& a, int dim, absl::FunctionRef<std::string(int64_t)> element,
                int64_t* next, std::string* out) {
  if (dim == a.rank()) {
    *out += element((*next)++);
    return;
  }
  *out += "[";
  int64_t inner = 1;
  for (int d = dim + 1; d < a.rank(); ++d) inner *= a.shape()[d];
  for (int64_t i = 0; i < a.shape()[dim]; ++i) {
    if (i) *out += ", ";
    if (a.shape()[dim] > 16 && i == 8) {
      *out += "...";
      const int64_t skipped = a.shape()[dim] - 16;
      *next += skipped * inner;
      i += skipped - 1;
      continue;
    }
    AppendText(a, dim + 1, element, next, out);
  }
  *out += "]";
}

}  // namespace

Dims StridesOf(const Dims& shape) {
  Dims s(shape.size());
  int64_t n = 1;
  for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
    s[d] = n;
    // The product overflows only for shapes without elements, whose strides mean nothing.
    if (__builtin_mul_overflow(n, shape[d], &n)) n = 0;
  }
  return s;
}

namespace {

// Arrays of at least kAlignedBytesMin bytes are allocated as Lines, so that they start at a cache
// line. Vectorized loops are faster on such arrays.
struct alignas(64) Line {
  std::byte bytes[64];
};
constexpr int64_t kAlignedBytesMin = 4096;

// Returns n bytes that are not initialized.
std::shared_ptr<std::byte[]> AllocateBytes(int64_t n) {
  if (n < kAlignedBytesMin) return std::make_shared_for_overwrite<std::byte[]>(n);
  auto lines = std::make_shared_for_overwrite<Line[]>((n + 63) / 64);
  std::byte* first = lines[0].bytes;
  return {std::move(lines), first};
}

}  // namespace

Array::Array(DType dtype, Dims shape)
    : dtype_(dtype),
      shape_(std::move(shape)),
      num_elements_(NumElements(shape_)),
      bytes_(AllocateBytes(num_bytes())) {
  std::fill_n(bytes_.get(), num_bytes(), std::byte{0});
}

// This constructor throws StatusException for a wrong number of bytes instead of failing a CHECK,
// because users of the SDK call it with their own bytes.
Array::Array(DType dtype, Dims shape, absl::Span<const std::byte> bytes)
    : dtype_(dtype), shape_(std::move(shape)), num_elements_(NumElements(shape_)) {
  if (static_cast<int64_t>(bytes.size()) != num_bytes())
    Throw(ErrorKind::kValueError,
          absl::StrCat("array: ", MakeType(dtype_, shape_).ToString(), " has ", num_bytes(),
                       " bytes, but ", bytes.size(), " were given"));
  bytes_ = AllocateBytes(num_bytes());
  std::copy(bytes.begin(), bytes.end(), bytes_.get());
}

Array::Array(DType dtype, Dims shape, std::shared_ptr<std::byte[]> bytes)
    : dtype_(dtype),
      shape_(std::move(shape)),
      num_elements_(NumElements(shape_)),
      bytes_(std::move(bytes)) {}

Array Array::Of(DType dtype, Dims shape, absl::Span<const double> values) {
  Array a(dtype, std::move(shape));
  if (static_cast<int64_t>(values.size()) != a.num_elements())
    Throw(ErrorKind::kValueError,
          absl::StrCat("array: ", MakeType(dtype, a.shape()).ToString(), " has ", a.num_elements(),
                       " elements, but ", values.size(), " values were given"));
  for (size_t i = 0; i < values.size(); ++i) a.Set(i, values[i]);
  return a;
}

Array Array::Scalar(DType dtype, double value) { return Of(dtype, {}, {value}); }

Array Array::ScalarInt(DType dtype, int64_t value) {
  Array a(dtype, {});
  VisitDType(dtype, [&]<DType kD>(DTypeTag<kD>) {
    if constexpr (kD != DType::kBool && std::is_integral_v<ComputeType<kD>>)
      a.MutableAs<StorageType<kD>>()[0] = Element<kD>::Store(static_cast<ComputeType<kD>>(value));
    else
      a.Set(0, static_cast<double>(value));
  });
  return a;
}

std::byte* Array::MutableData() {
  if (bytes_.use_count() != 1) {
    auto own = AllocateBytes(num_bytes());
    std::copy_n(bytes_.get(), num_bytes(), own.get());
    bytes_ = std::move(own);
  }
  return bytes_.get();
}

// Complex numbers: At returns the real part. Set stores the value as the real part and clears the
// imaginary part.
double Array::At(int64_t i) const {
  return VisitDType(dtype_, [&]<DType kD>(DTypeTag<kD>) {
    const ComputeType<kD> x = Element<kD>::Load(As<StorageType<kD>>()[i]);
    if constexpr (IsComplexType<ComputeType<kD>>)
      return static_cast<double>(x.real());
    else
      return static_cast<double>(x);
  });
}

double Array::ImaginaryAt(int64_t i) const {
  if (dtype_ == DType::kC64) return As<std::complex<float>>()[i].imag();
  return dtype_ == DType::kC128 ? As<std::complex<double>>()[i].imag() : 0;
}

int64_t Array::IntAt(int64_t i) const {
  return VisitDType(dtype_, [&]<DType kD>(DTypeTag<kD>) -> int64_t {
    if constexpr (std::is_integral_v<ComputeType<kD>>)
      return static_cast<int64_t>(Element<kD>::Load(As<StorageType<kD>>()[i]));
    else
      return ToInt<int64_t>(At(i));
  });
}

void Array::Set(int64_t i, double v) {
  VisitDType(dtype_, [&]<DType kD>(DTypeTag<kD>) {
    using C = ComputeType<kD>;
    StorageType<kD>& to = MutableAs<StorageType<kD>>()[i];
    if constexpr (kD == DType::kBool) {
      to = v != 0;
    } else if constexpr (std::is_integral_v<C>) {
      // A value that is too large for the integer dtype keeps its low bits.
      using Wide = std::conditional_t<std::is_same_v<C, uint64_t>, uint64_t, int64_t>;
      to = Element<kD>::Store(static_cast<C>(ToInt<Wide>(v)));
    } else if constexpr (IsComplexType<C>) {
      to = C(static_cast<typename C::value_type>(v));
    } else {
      to = StoreDouble<kD>(v);
    }
  });
}

std::vector<double> Array::ToDoubles() const {
  std::vector<double> out(num_elements_);
  for (int64_t i = 0; i < num_elements_; ++i) out[i] = At(i);
  return out;
}

Array Array::Reshaped(Dims shape) const {
  if (NumElements(shape) != num_elements_)
    Throw(ErrorKind::kValueError, absl::StrCat("array: ", MakeType(dtype_, shape_).ToString(),
                                               " has ", num_elements_, " elements, the shape [",
                                               DimsToString(shape), "] has ", NumElements(shape)));
  Array a = *this;
  a.shape_ = std::move(shape);
  return a;
}

bool Array::operator==(const Array& o) const {
  return dtype_ == o.dtype_ && shape_ == o.shape_ &&
         std::equal(data(), data() + num_bytes(), o.data());
}

std::string Array::ToString() const {
  return ToString([&](int64_t i) { return ElementText(*this, i); });
}

std::string Array::ToString(absl::FunctionRef<std::string(int64_t)> element) const {
  std::string out;
  int64_t next = 0;
  AppendText(*this, 0, element, &next, &out);
  return out;
}

}  // namespace tessera::ir
