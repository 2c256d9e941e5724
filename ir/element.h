// How C++ sees the elements of each dtype: the type that stores them and the type to compute with.
// Stateless; thread-safe, in the default rounding mode.
#pragma once
#include <complex>
#include <cstdint>
#include <type_traits>

#include "ir/dtype.h"
#include "ir/narrow_float.h"

namespace tessera::ir {

// Storage is the C++ type that holds an element in memory. Compute is a C++ type that represents
// each value exactly; there are far fewer Compute types than dtypes. Load converts an element to
// Compute, and Store converts it back: floats are rounded, and integers keep their low bits.
template <DType>
struct Element;

namespace internal {

template <DType kD, int kBits, class S, class C>
struct ElementOf {
  using Storage = S;
  using Compute = C;
  static constexpr bool kSmallInt = std::is_integral_v<C> && kBits < 8;

  static Compute Load(Storage x) {
    if constexpr (kD == DType::kBool) return x != 0;
    if constexpr (kD == DType::kBF16) return Bf16ToFloat(x);
    if constexpr (kD == DType::kF16) return F16ToFloat(x);
    if constexpr (std::is_same_v<C, float> && sizeof(S) == 1) return NarrowToFloat(kD, x);
    if constexpr (kSmallInt) return Wrapped(x);
    return static_cast<Compute>(x);
  }
  static Storage Store(Compute x) {
    if constexpr (kD == DType::kBF16) return FloatToBf16(x);
    if constexpr (kD == DType::kF16) return FloatToF16(x);
    if constexpr (std::is_same_v<C, float> && sizeof(S) == 1) return DoubleToNarrow(kD, x);
    if constexpr (kSmallInt) return Wrapped(x);
    return static_cast<Storage>(x);
  }

 private:
  // Returns the low kBits bits of x, sign-extended.
  template <class T>
  static T Wrapped(T x) {
    const int shift = 8 - kBits;
    return static_cast<T>(static_cast<T>(static_cast<uint8_t>(x) << shift) >> shift);
  }
};

}  // namespace internal

#define TESSERA_ELEMENT(symbol, bits, computable, ...)                                          \
  template <>                                                                                   \
  struct Element<DType::k##symbol> : internal::ElementOf<DType::k##symbol, bits, __VA_ARGS__> { \
    static constexpr bool kIsComputable = computable;                                           \
    static constexpr int kBits = bits;                                                          \
  };
#define TESSERA_COMPUTED(symbol, name, cls, bits, ...) \
  TESSERA_ELEMENT(symbol, bits, true, __VA_ARGS__)
#define TESSERA_STORED(symbol, name, cls, bits, ...) \
  TESSERA_ELEMENT(symbol, bits, false, __VA_ARGS__)
#include "ir/dtypes.def"
#undef TESSERA_COMPUTED
#undef TESSERA_STORED
#undef TESSERA_ELEMENT

template <class T>
inline constexpr bool IsComplexType = false;
template <class T>
inline constexpr bool IsComplexType<std::complex<T>> = true;

template <DType kD>
using StorageType = typename Element<kD>::Storage;
template <DType kD>
using ComputeType = typename Element<kD>::Compute;
template <DType kD>
inline constexpr bool kIsComputable = Element<kD>::kIsComputable;
template <DType kD>
constexpr int BitWidthOf() {
  return Element<kD>::kBits;
}

// Returns x rounded to the float dtype kD. A number is rounded only once, except that bf16 is
// rounded by way of f32, as in XLA.
template <DType kD>
StorageType<kD> StoreDouble(double x) {
  static_assert(std::is_floating_point_v<ComputeType<kD>>);
  if constexpr (kD == DType::kF16)
    return DoubleToF16(x);
  else if constexpr (sizeof(StorageType<kD>) == 1)
    return DoubleToNarrow(kD, x);
  else
    return Element<kD>::Store(static_cast<ComputeType<kD>>(x));
}

template <DType kD>
struct DTypeTag {
  static constexpr DType kDType = kD;
};
// Calls f with the tag of `dtype`. Code that looks at elements branches on the dtype here and
// nowhere else.
template <class F>
decltype(auto) VisitDType(DType dtype, F&& f) {
  switch (dtype) {
#define TESSERA_COMPUTED(symbol, ...) \
  case DType::k##symbol:              \
    return f(DTypeTag<DType::k##symbol>{});
#define TESSERA_STORED TESSERA_COMPUTED
#include "ir/dtypes.def"
#undef TESSERA_COMPUTED
#undef TESSERA_STORED
  }
  __builtin_unreachable();
}

}  // namespace tessera::ir
