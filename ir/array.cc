#include "ir/array.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/narrow_float.h"
#include "ir/strided.h"

namespace tessera::ir {
namespace {

int64_t NumElements(const Dims& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

template <class T>
T Load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}
template <class T>
void Store(std::byte* p, T v) {
  std::memcpy(p, &v, sizeof(T));
}

// Converts towards zero, saturating; NaN becomes 0.
template <class Int>
Int ToInt(double v) {
  if (v != v) return 0;
  if (v <= static_cast<double>(std::numeric_limits<Int>::lowest()))
    return std::numeric_limits<Int>::lowest();
  if (v >= static_cast<double>(std::numeric_limits<Int>::max()))
    return std::numeric_limits<Int>::max();
  return static_cast<Int>(v);
}

// The offset of the element at `index` of an array with these strides.
int64_t OffsetOf(const Dims& index, const Dims& strides) {
  return std::inner_product(index.begin(), index.end(), strides.begin(), int64_t{0});
}

void Print(const Array& a, int dim, int64_t* next, std::string* out) {
  if (dim == a.rank()) {
    if (a.dtype() == DType::kBool) {
      absl::StrAppend(out, a.At((*next)++) != 0 ? "true" : "false");
    } else if (IsInteger(a.dtype())) {
      absl::StrAppend(out, a.IntAt((*next)++));
    } else if (IsComplex(a.dtype())) {
      const int64_t i = (*next)++;
      const double imaginary = a.dtype() == DType::kC64 ? a.As<std::complex<float>>()[i].imag()
                                                        : a.As<std::complex<double>>()[i].imag();
      absl::StrAppend(out, a.At(i), std::signbit(imaginary) ? "-" : "+", std::fabs(imaginary), "j");
    } else {
      absl::StrAppend(out, a.At((*next)++));
    }
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
    Print(a, dim + 1, next, out);
  }
  *out += "]";
}

}  // namespace

float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t FloatToBf16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

Dims StridesOf(const Dims& shape) {
  Dims s(shape.size());
  int64_t n = 1;
  for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
    s[d] = n;
    n *= shape[d];
  }
  return s;
}

namespace {

// Arrays of kAlignedFrom bytes and more start at a cache line, for vectorized loops.
struct alignas(64) Line {
  std::byte bytes[64];
};
constexpr int64_t kAlignedFrom = 4096;

std::shared_ptr<std::byte[]> Uninitialized(int64_t n) {
  if (n < kAlignedFrom) return std::make_shared_for_overwrite<std::byte[]>(n);
  auto lines = std::make_shared_for_overwrite<Line[]>((n + 63) / 64);
  std::byte* first = lines[0].bytes;
  return {std::move(lines), first};
}

}  // namespace

Array::Array(DType dtype, Dims shape)
    : dtype_(dtype),
      shape_(std::move(shape)),
      num_elements_(NumElements(shape_)),
      bytes_(Uninitialized(num_bytes())) {
  std::fill_n(bytes_.get(), num_bytes(), std::byte{0});
}

// Users of the SDK pass values and bytes too: a wrong number of them throws StatusException.
Array::Array(DType dtype, Dims shape, absl::Span<const std::byte> bytes)
    : dtype_(dtype), shape_(std::move(shape)), num_elements_(NumElements(shape_)) {
  if (static_cast<int64_t>(bytes.size()) != num_bytes())
    Throw(ErrorKind::kValueError,
          absl::StrCat("array: ", MakeType(dtype_, shape_).ToString(), " has ", num_bytes(),
                       " bytes, ", bytes.size(), " were given"));
  bytes_ = Uninitialized(num_bytes());
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
                       " elements, ", values.size(), " values were given"));
  for (size_t i = 0; i < values.size(); ++i) a.Set(i, values[i]);
  return a;
}

Array Array::Scalar(DType dtype, double value) { return Of(dtype, {}, {value}); }

Array Array::ScalarInt(DType dtype, int64_t value) {
  Array a(dtype, {});
  if (IsInteger(dtype)) {
    std::memcpy(a.MutableData(), &value, ByteWidth(dtype));  // the low bytes come first
  } else {
    a.Set(0, static_cast<double>(value));
  }
  return a;
}

std::byte* Array::MutableData() {
  if (bytes_.use_count() != 1) {
    auto own = Uninitialized(num_bytes());
    std::copy_n(bytes_.get(), num_bytes(), own.get());
    bytes_ = std::move(own);
  }
  return bytes_.get();
}

// At returns, and Set sets, the real part of a complex number; Set clears the imaginary part.
double Array::At(int64_t i) const {
  const std::byte* p = data() + i * ByteWidth(dtype_);
  switch (dtype_) {
    case DType::kF32:
    case DType::kC64:  // the real part comes first
      return Load<float>(p);
    case DType::kF64:
    case DType::kC128:
      return Load<double>(p);
    case DType::kBF16:
      return Bf16ToFloat(Load<uint16_t>(p));
    case DType::kU64:
      return static_cast<double>(Load<uint64_t>(p));
    case DType::kF16:
      return NarrowToDouble(dtype_, Load<uint16_t>(p));
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
      return NarrowToDouble(dtype_, Load<uint8_t>(p));
    case DType::kBool:
    case DType::kS8:
    case DType::kS16:
    case DType::kS32:
    case DType::kS64:
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
      break;
  }
  return static_cast<double>(IntAt(i));
}

int64_t Array::IntAt(int64_t i) const {
  const std::byte* p = data() + i * ByteWidth(dtype_);
  switch (dtype_) {
    case DType::kBool:
    case DType::kU8:
      return Load<uint8_t>(p);
    case DType::kS8:
      return Load<int8_t>(p);
    case DType::kS16:
      return Load<int16_t>(p);
    case DType::kU16:
      return Load<uint16_t>(p);
    case DType::kS32:
      return Load<int32_t>(p);
    case DType::kU32:
      return Load<uint32_t>(p);
    case DType::kS64:
    case DType::kU64:
      return Load<int64_t>(p);
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
    case DType::kF64:
    case DType::kC64:
    case DType::kC128:
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
      break;
  }
  return ToInt<int64_t>(At(i));
}

void Array::Set(int64_t i, double v) {
  std::byte* p = MutableData() + i * ByteWidth(dtype_);
  switch (dtype_) {
    case DType::kBool:
      Store<uint8_t>(p, v != 0);
      break;
    case DType::kU8:
    case DType::kS8:
    case DType::kU16:
    case DType::kS16:
    case DType::kU32:
    case DType::kS32:
    case DType::kS64: {
      const auto n = ToInt<int64_t>(v);
      std::memcpy(p, &n, ByteWidth(dtype_));  // the low bytes come first
      break;
    }
    case DType::kU64:
      Store<uint64_t>(p, ToInt<uint64_t>(v));
      break;
    case DType::kF16:
      Store<uint16_t>(p, DoubleToNarrow(dtype_, v));
      break;
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
      Store<uint8_t>(p, static_cast<uint8_t>(DoubleToNarrow(dtype_, v)));
      break;
    case DType::kC64:
      Store<std::complex<float>>(p, static_cast<float>(v));
      break;
    case DType::kC128:
      Store<std::complex<double>>(p, v);
      break;
    case DType::kBF16:
      Store<uint16_t>(p, FloatToBf16(static_cast<float>(v)));
      break;
    case DType::kF32:
      Store<float>(p, static_cast<float>(v));
      break;
    case DType::kF64:
      Store<double>(p, v);
      break;
  }
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
  std::string out;
  int64_t next = 0;
  Print(*this, 0, &next, &out);
  return out;
}

Array SliceBlock(const Array& global, const Dims& starts, const Dims& shape) {
  const Dims strides = StridesOf(global.shape());
  return ReadStrided(global, OffsetOf(starts, strides), strides, shape);
}

void WriteBlock(Array* global, const Dims& starts, const Array& block) {
  const int64_t width = ByteWidth(global->dtype());
  const Dims strides = StridesOf(global->shape());
  CopyStrided(width, block.shape(), block.data(), StridesOf(block.shape()),
              global->MutableData() + OffsetOf(starts, strides) * width, strides);
}

}  // namespace tessera::ir
