// Conversion between dtypes for the reference evaluator of the ops (`convert`, and arithmetic of
// dtypes that have no kernels), for contractions, and for arrays in the client.
#include "ir/convert.h"

#include <algorithm>
#include <complex>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "ir/element.h"
#include "ir/scalar_math.h"

namespace tessera::ir {
namespace {

// The type through which elements with the compute type C are converted: the widest type of the
// same class (complex, float, signed or unsigned). The code then grows with the number of dtypes
// and not with its square. A float keeps the type that it is computed in, because narrow floats are
// rounded differently from f32 than from f64.
template <class C>
using WidestOf = std::conditional_t<
    IsComplexType<C>, std::complex<double>,
    std::conditional_t<std::is_floating_point_v<C>, C,
                       std::conditional_t<std::is_signed_v<C>, int64_t, uint64_t>>>;

constexpr int64_t kChunk = 512;

// Converts one number, already in its wide type, to an element of kTo. Doubles go straight to a
// float dtype so that they are rounded once (but see StoreDouble). Floats that become integers of
// fewer than 8 bits are clamped here, as XLA does, because the C++ type that carries them is wider
// than the dtype.
template <DType kTo, class From>
StorageType<kTo> Converted(From x) {
  using C = ComputeType<kTo>;
  if constexpr (IsComplexType<From>) {
    if constexpr (IsComplexType<C>) {
      return C(static_cast<typename C::value_type>(x.real()),
               static_cast<typename C::value_type>(x.imag()));
    } else {
      // The imaginary part is ignored, also in a conversion to bool.
      return Converted<kTo>(x.real());
    }
  } else if constexpr (IsComplexType<C>) {
    return C(static_cast<typename C::value_type>(x));
  } else if constexpr (std::is_same_v<From, double> && std::is_floating_point_v<C>) {
    return StoreDouble<kTo>(x);
  } else {
    C y = scalar::math::Convert<C>(x);
    if constexpr (std::is_floating_point_v<From> && std::is_integral_v<C>) {
      if (const int bits = BitWidth(kTo); bits < 8) {
        const int most = (1 << (std::is_signed_v<C> ? bits - 1 : bits)) - 1;
        const int least = std::is_signed_v<C> ? -most - 1 : 0;
        y = static_cast<C>(std::clamp<int>(y, least, most));
      }
    }
    return Element<kTo>::Store(y);
  }
}

template <class Wide>
void StoreAll(const Wide* wide, DType to, void* out, int64_t n) {
  VisitDType(to, [&]<DType kTo>(DTypeTag<kTo>) {
    auto* stored = static_cast<StorageType<kTo>*>(out);
    for (int64_t i = 0; i < n; ++i) stored[i] = Converted<kTo>(wide[i]);
  });
}

}  // namespace

void ConvertElements(DType from, const void* in, DType to, void* out, int64_t n) {
  const int64_t width = ByteWidth(to);
  VisitDType(from, [&]<DType kFrom>(DTypeTag<kFrom>) {
    const auto* stored = static_cast<const StorageType<kFrom>*>(in);
    WidestOf<ComputeType<kFrom>> wide[kChunk];
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t count = std::min(kChunk, n - begin);
      for (int64_t i = 0; i < count; ++i) wide[i] = Element<kFrom>::Load(stored[begin + i]);
      StoreAll(wide, to, static_cast<std::byte*>(out) + begin * width, count);
    }
  });
}

Array ConvertArray(const Array& x, DType to) {
  if (x.dtype() == to) return x;
  Array out(to, x.shape());
  ConvertElements(x.dtype(), x.data(), to, out.MutableData(), x.num_elements());
  return out;
}

}  // namespace tessera::ir
