#include "worker/collectives/reduce.h"

#include <algorithm>
#include <bit>
#include <complex>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::worker {
namespace {

using ir::ReduceKind;

constexpr int64_t kLanes = 1024;  // Elements reduced at a time: the accumulators stay in L1.

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
    if (magnitude < 0x38800000u) {  // Subnormal: adding 0.5 rounds at the right bit.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<Storage>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u;
    return static_cast<Storage>(sign | (rounded >> 13));
  }
};

template <typename T>
bool IsNan(T x) {
  return x != x;
}

// Integer arithmetic wraps, in a type that does not promote to a signed one.
template <typename T>
using Wrapping = std::make_unsigned_t<std::common_type_t<T, int>>;

struct Add {
  template <typename T>
  static T Of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
};
struct Multiply {
  template <typename T>
  static T Of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return a * b;
    }
  }
};
// As elementwise max and min: NaN if either is, -0 below +0. Equal numbers have equal bits, but for
// the zeros, whose signs are joined.
template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
struct Max {
  template <typename T>
  static T Of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      const T same = std::bit_cast<T>(std::bit_cast<BitsOf<T>>(a) & std::bit_cast<BitsOf<T>>(b));
      return a == b ? same : IsNan(a) || a > b ? a : b;
    } else {
      return a > b ? a : b;
    }
  }
};
struct Min {
  template <typename T>
  static T Of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      const T same = std::bit_cast<T>(std::bit_cast<BitsOf<T>>(a) | std::bit_cast<BitsOf<T>>(b));
      return a == b ? same : IsNan(a) || a < b ? a : b;
    } else {
      return a < b ? a : b;
    }
  }
};
struct And {
  template <typename T>
  static T Of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  static T Of(T a, T b) {
    return static_cast<T>(a | b);
  }
};

template <typename Format, typename Op>
void Reduce(absl::Span<const std::byte* const> inputs, absl::Span<std::byte* const> outputs,
            int64_t bytes) {
  using Storage = typename Format::Storage;
  using Compute = typename Format::Compute;
  Storage loaded[kLanes];
  Compute sum[kLanes];
  const int64_t elements = bytes / static_cast<int64_t>(sizeof(Storage));
  for (int64_t begin = 0; begin < elements; begin += kLanes) {
    const int64_t lanes = std::min(kLanes, elements - begin);
    const size_t offset = begin * sizeof(Storage);
    const size_t size = lanes * sizeof(Storage);
    std::memcpy(loaded, inputs[0] + offset, size);
    for (int64_t i = 0; i < lanes; ++i) sum[i] = Format::Widen(loaded[i]);
    for (const std::byte* input : inputs.subspan(1)) {
      std::memcpy(loaded, input + offset, size);
      for (int64_t i = 0; i < lanes; ++i) sum[i] = Op::Of(sum[i], Format::Widen(loaded[i]));
    }
    for (int64_t i = 0; i < lanes; ++i) loaded[i] = Format::Narrow(sum[i]);
    for (std::byte* output : outputs) std::memcpy(output + offset, loaded, size);
  }
}

template <typename Format>
Reducer ArithmeticReducer(ReduceKind reduce) {
  switch (reduce) {
    case ReduceKind::kSum:
      return Reduce<Format, Add>;
    case ReduceKind::kProd:
      return Reduce<Format, Multiply>;
    default:
      return nullptr;
  }
}

template <typename Format>
Reducer OrderedReducer(ReduceKind reduce) {
  switch (reduce) {
    case ReduceKind::kMax:
      return Reduce<Format, Max>;
    case ReduceKind::kMin:
      return Reduce<Format, Min>;
    default:
      return ArithmeticReducer<Format>(reduce);
  }
}

template <typename Format>
Reducer IntegerReducer(ReduceKind reduce) {
  switch (reduce) {
    case ReduceKind::kAnd:
      return Reduce<Format, And>;
    case ReduceKind::kOr:
      return Reduce<Format, Or>;
    default:
      return OrderedReducer<Format>(reduce);
  }
}

Reducer BoolReducer(ReduceKind reduce) {
  const bool any =
      reduce == ReduceKind::kSum || reduce == ReduceKind::kMax || reduce == ReduceKind::kOr;
  return any ? Reduce<Bool, Or> : Reduce<Bool, And>;
}

// Null where the reduction has no meaning.
Reducer ReducerOrNull(ReduceKind reduce, ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kBool:
      return BoolReducer(reduce);
    case ir::DType::kS8:
      return IntegerReducer<Plain<int8_t>>(reduce);
    case ir::DType::kS16:
      return IntegerReducer<Plain<int16_t>>(reduce);
    case ir::DType::kS32:
      return IntegerReducer<Plain<int32_t>>(reduce);
    case ir::DType::kS64:
      return IntegerReducer<Plain<int64_t>>(reduce);
    case ir::DType::kU8:
      return IntegerReducer<Plain<uint8_t>>(reduce);
    case ir::DType::kU16:
      return IntegerReducer<Plain<uint16_t>>(reduce);
    case ir::DType::kU32:
      return IntegerReducer<Plain<uint32_t>>(reduce);
    case ir::DType::kU64:
      return IntegerReducer<Plain<uint64_t>>(reduce);
    case ir::DType::kF16:
      return OrderedReducer<Float16>(reduce);
    case ir::DType::kBF16:
      return OrderedReducer<BFloat16>(reduce);
    case ir::DType::kF32:
      return OrderedReducer<Plain<float>>(reduce);
    case ir::DType::kF64:
      return OrderedReducer<Plain<double>>(reduce);
    case ir::DType::kC64:
      return ArithmeticReducer<Plain<std::complex<float>>>(reduce);
    case ir::DType::kC128:
      return ArithmeticReducer<Plain<std::complex<double>>>(reduce);
    default:
      return nullptr;
  }
}

}  // namespace

absl::StatusOr<Reducer> FindReducer(ReduceKind reduce, ir::DType dtype) {
  if (reduce < ReduceKind::kSum || reduce > ReduceKind::kOr) {
    return MakeError(ErrorKind::kNotImplemented,
                     absl::StrCat("no exchange combines by ", ToAbsl(ir::ReduceKindName(reduce))));
  }
  if (const Reducer reducer = ReducerOrNull(reduce, dtype)) return reducer;
  const bool narrow = ir::IsFloat(dtype) && ir::ByteWidth(dtype) == 1;
  return MakeError(
      narrow ? ErrorKind::kNotImplemented : ErrorKind::kTypeError,
      absl::StrCat(ToAbsl(ir::ReduceKindName(reduce)), " over devices is not defined for ",
                   ToAbsl(ir::DTypeName(dtype)), "; convert to a wider type first"));
}

}  // namespace tessera::worker
