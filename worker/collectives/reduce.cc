// The arithmetic of the collectives that combine. HostCollectives (host_collectives.cc) looks up
// one function for each call, and both transports call it on blocks in memory. Each function
// converts a few elements at a time to the compute type, so that narrow floats are rounded only
// once.
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
#include "ir/element.h"

namespace tessera::worker {
namespace {

using ir::ReduceKind;

// The number of elements that are combined at a time: few enough that the accumulators stay in the
// L1 cache.
constexpr int64_t kElementsPerStep = 1024;

// Computes integers in an unsigned type that is not promoted to int, so that they wrap.
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

// Max and Min agree with the elementwise ops max and min: the result is NaN if either operand is
// NaN, and -0 is less than +0. The two zeros are the only values that are equal but have different
// bits. The `and` of their bits is +0, and the `or` is -0.
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

template <ir::DType kD, typename Op>
void Reduce(absl::Span<const std::byte* const> inputs, absl::Span<std::byte* const> outputs,
            int64_t bytes) {
  using Format = ir::Element<kD>;
  using Storage = ir::StorageType<kD>;
  using Compute = ir::ComputeType<kD>;
  Storage loaded[kElementsPerStep];
  Compute result[kElementsPerStep];
  const int64_t elements = bytes / static_cast<int64_t>(sizeof(Storage));
  for (int64_t begin = 0; begin < elements; begin += kElementsPerStep) {
    const int64_t count = std::min(kElementsPerStep, elements - begin);
    const size_t offset = begin * sizeof(Storage);
    const size_t size = count * sizeof(Storage);
    std::memcpy(loaded, inputs[0] + offset, size);
    for (int64_t i = 0; i < count; ++i) result[i] = Format::Load(loaded[i]);
    for (const std::byte* input : inputs.subspan(1)) {
      std::memcpy(loaded, input + offset, size);
      for (int64_t i = 0; i < count; ++i) {
        result[i] = static_cast<Compute>(Op{}(result[i], Format::Load(loaded[i])));
      }
    }
    for (int64_t i = 0; i < count; ++i) loaded[i] = Format::Store(result[i]);
    for (std::byte* output : outputs) std::memcpy(output + offset, loaded, size);
  }
}

// Returns null if the reduction has no meaning for numbers of this dtype.
template <ir::DType kD>
Reducer NumberReducer(ReduceKind reduce) {
  constexpr bool kInteger = std::is_integral_v<ir::ComputeType<kD>>;
  constexpr bool kOrdered = std::is_arithmetic_v<ir::ComputeType<kD>>;
  if (reduce == ReduceKind::kSum) return Reduce<kD, Wrapping<std::plus<>>>;
  if (reduce == ReduceKind::kProd) return Reduce<kD, Wrapping<std::multiplies<>>>;
  if constexpr (kOrdered) {
    if (reduce == ReduceKind::kMax) return Reduce<kD, Max>;
    if (reduce == ReduceKind::kMin) return Reduce<kD, Min>;
  }
  if constexpr (kInteger) {
    if (reduce == ReduceKind::kAnd) return Reduce<kD, std::bit_and<>>;
    if (reduce == ReduceKind::kOr) return Reduce<kD, std::bit_or<>>;
  }
  return nullptr;
}

Reducer BoolReducer(ReduceKind reduce) {
  const bool is_or =
      reduce == ReduceKind::kSum || reduce == ReduceKind::kMax || reduce == ReduceKind::kOr;
  return is_or ? Reduce<ir::DType::kBool, std::bit_or<>> : Reduce<ir::DType::kBool, std::bit_and<>>;
}

}  // namespace

absl::StatusOr<Reducer> FindReducer(ReduceKind reduce, ir::DType dtype) {
  if (reduce < ReduceKind::kSum || reduce > ReduceKind::kOr) {
    return MakeError(ErrorKind::kNotImplemented,
                     absl::StrCat("no exchange combines by ", ToAbsl(ir::ReduceKindName(reduce))));
  }
  const Reducer reducer =
      ir::VisitDType(dtype, [reduce]<ir::DType kD>(ir::DTypeTag<kD>) -> Reducer {
        if constexpr (kD == ir::DType::kBool) return BoolReducer(reduce);
        if constexpr (ir::kIsComputable<kD> || ir::IsComplexType<ir::ComputeType<kD>>)
          return NumberReducer<kD>(reduce);
        return nullptr;
      });
  if (reducer != nullptr) return reducer;
  const bool narrow = !ir::IsComputable(dtype) && !ir::IsComplex(dtype);
  return MakeError(
      narrow ? ErrorKind::kNotImplemented : ErrorKind::kTypeError,
      absl::StrCat(ToAbsl(ir::ReduceKindName(reduce)), " over devices is not defined for ",
                   ToAbsl(ir::DTypeName(dtype)), "; convert to a wider type first"));
}

}  // namespace tessera::worker
