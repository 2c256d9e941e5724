#include "worker/collectives/reduce.h"

#include <algorithm>
#include <bit>
#include <complex>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::worker {
namespace {

using ir::ReduceKind;

constexpr int64_t kElementsPerStep = 1024;  // Few enough for the accumulators to stay in L1.

// How each dtype is stored, and the type it is accumulated in.
template <typename T>
struct Plain {
  using Storage = T;
  using Compute = T;
  static Compute Widen(Storage x) { return x; }
  static Storage Narrow(Compute x) { return x; }
};

struct Bool {
  using Storage = uint8_t;
  using Compute = uint8_t;
  static Compute Widen(Storage x) { return x != 0; }
  static Storage Narrow(Compute x) { return x; }
};

struct BFloat16 {
  using Storage = uint16_t;
  using Compute = float;
  static Compute Widen(Storage x) { return std::bit_cast<float>(uint32_t{x} << 16); }
  // To nearest, ties to even; NaN stays a quiet NaN.
  static Storage Narrow(Compute x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    return static_cast<Storage>(x != x ? quiet : rounded);
  }
};

struct Float16 {
  using Storage = uint16_t;
  using Compute = float;
  static Compute Widen(Storage x) {
    const uint32_t sign = uint32_t{x & 0x8000u} << 16;
    const uint32_t magnitude = x & 0x7fffu;
    if (magnitude >= 0x7c00u) {  // Infinity and NaN.
      return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    }
    // Place the bits as if the exponent had float's bias, then rescale: exact, subnormals too.
    const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  static Storage Narrow(Compute x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<Storage>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return static_cast<Storage>(sign | 0x7c00u);
    if (magnitude <
        0x38800000u) {  // Subnormal: adding 0.5 rounds to a multiple of the smallest f16.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<Storage>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u;
    return static_cast<Storage>(sign | (rounded >> 13));
  }
};

// Integers are computed in an unsigned type that is not promoted to int, and so wrap.
template <typename Op>
struct Wrapping {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<std::common_type_t<T, int>>;
      return static_cast<T>(Op{}(static_cast<Unsigned>(a), static_cast<Unsigned>(b)));
    } else {
      return Op{}(a, b);
    }
  }
};

// As elementwise max and min: NaN if either operand is NaN, and -0 is less than +0. Only the zeros
// are equal with different bits: `and` of their signs gives +0, `or` gives -0.
template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T same = std::bit_cast<T>(std::bit_cast<BitsOf<T>>(a) & std::bit_cast<BitsOf<T>>(b));
      return a == b ? same : a != a || a > b ? a : b;
    } else {
      return a > b ? a : b;
    }
  }
};
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T same = std::bit_cast<T>(std::bit_cast<BitsOf<T>>(a) | std::bit_cast<BitsOf<T>>(b));
      return a == b ? same : a != a || a < b ? a : b;
    } else {
      return a < b ? a : b;
    }
  }
};

template <typename Format, typename Op>
void Reduce(absl::Span<const std::byte* const> inputs, absl::Span<std::byte* const> outputs,
            int64_t bytes) {
  using Storage = typename Format::Storage;
  using Compute = typename Format::Compute;
  Storage loaded[kElementsPerStep];
  Compute result[kElementsPerStep];
  const int64_t elements = bytes / static_cast<int64_t>(sizeof(Storage));
  for (int64_t begin = 0; begin < elements; begin += kElementsPerStep) {
    const int64_t count = std::min(kElementsPerStep, elements - begin);
    const size_t offset = begin * sizeof(Storage);
    const size_t size = count * sizeof(Storage);
    std::memcpy(loaded, inputs[0] + offset, size);
    for (int64_t i = 0; i < count; ++i) result[i] = Format::Widen(loaded[i]);
    for (const std::byte* input : inputs.subspan(1)) {
      std::memcpy(loaded, input + offset, size);
      for (int64_t i = 0; i < count; ++i) {
        result[i] = static_cast<Compute>(Op{}(result[i], Format::Widen(loaded[i])));
      }
    }
    for (int64_t i = 0; i < count; ++i) loaded[i] = Format::Narrow(result[i]);
    for (std::byte* output : outputs) std::memcpy(output + offset, loaded, size);
  }
}

// Null where the reduction has no meaning for the numbers of the format.
template <typename Format>
Reducer NumberReducer(ReduceKind reduce) {
  constexpr bool kInteger = std::is_integral_v<typename Format::Compute>;
  constexpr bool kOrdered = std::is_arithmetic_v<typename Format::Compute>;
  if (reduce == ReduceKind::kSum) return Reduce<Format, Wrapping<std::plus<>>>;
  if (reduce == ReduceKind::kProd) return Reduce<Format, Wrapping<std::multiplies<>>>;
  if constexpr (kOrdered) {
    if (reduce == ReduceKind::kMax) return Reduce<Format, Max>;
    if (reduce == ReduceKind::kMin) return Reduce<Format, Min>;
  }
  if constexpr (kInteger) {
    if (reduce == ReduceKind::kAnd) return Reduce<Format, std::bit_and<>>;
    if (reduce == ReduceKind::kOr) return Reduce<Format, std::bit_or<>>;
  }
  return nullptr;
}

Reducer BoolReducer(ReduceKind reduce) {
  const bool is_or =
      reduce == ReduceKind::kSum || reduce == ReduceKind::kMax || reduce == ReduceKind::kOr;
  return is_or ? Reduce<Bool, std::bit_or<>> : Reduce<Bool, std::bit_and<>>;
}

struct DTypeReducers {
  ir::DType dtype;
  Reducer (*find)(ReduceKind reduce);
};
constexpr DTypeReducers kReducers[] = {
    {ir::DType::kBool, BoolReducer},
    {ir::DType::kS8, NumberReducer<Plain<int8_t>>},
    {ir::DType::kS16, NumberReducer<Plain<int16_t>>},
    {ir::DType::kS32, NumberReducer<Plain<int32_t>>},
    {ir::DType::kS64, NumberReducer<Plain<int64_t>>},
    {ir::DType::kU8, NumberReducer<Plain<uint8_t>>},
    {ir::DType::kU16, NumberReducer<Plain<uint16_t>>},
    {ir::DType::kU32, NumberReducer<Plain<uint32_t>>},
    {ir::DType::kU64, NumberReducer<Plain<uint64_t>>},
    {ir::DType::kF16, NumberReducer<Float16>},
    {ir::DType::kBF16, NumberReducer<BFloat16>},
    {ir::DType::kF32, NumberReducer<Plain<float>>},
    {ir::DType::kF64, NumberReducer<Plain<double>>},
    {ir::DType::kC64, NumberReducer<Plain<std::complex<float>>>},
    {ir::DType::kC128, NumberReducer<Plain<std::complex<double>>>},
};

}  // namespace

absl::StatusOr<Reducer> FindReducer(ReduceKind reduce, ir::DType dtype) {
  if (reduce < ReduceKind::kSum || reduce > ReduceKind::kOr) {
    return MakeError(ErrorKind::kNotImplemented,
                     absl::StrCat("no exchange combines by ", ToAbsl(ir::ReduceKindName(reduce))));
  }
  for (const DTypeReducers& row : kReducers) {
    if (row.dtype != dtype) continue;
    if (const Reducer reducer = row.find(reduce)) return reducer;
  }
  const bool narrow = ir::IsFloat(dtype) && ir::ByteWidth(dtype) == 1;
  return MakeError(
      narrow ? ErrorKind::kNotImplemented : ErrorKind::kTypeError,
      absl::StrCat(ToAbsl(ir::ReduceKindName(reduce)), " over devices is not defined for ",
                   ToAbsl(ir::DTypeName(dtype)), "; convert to a wider type first"));
}

}  // namespace tessera::worker
