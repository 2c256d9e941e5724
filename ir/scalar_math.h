// The definition of each scalar primitive (scalar_graph.h) on C++ numbers. Every code generator is
// compared with it, bit for bit.
//
// Integers follow XLA: arithmetic wraps, x / 0 is -1 (all ones), INT_MIN / -1 is INT_MIN, x rem 0
// is x, and a shift by the width or more gives 0 (ShrA gives copies of the sign bit). f32 functions
// are computed in double and rounded once. Stateless; thread-safe. All functions assume the default
// rounding mode.
#pragma once
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tessera::ir::scalar::math {

template <class T>
concept Bool = std::same_as<T, bool>;
template <class T>
concept Int = std::integral<T> && !Bool<T>;
template <class T>
concept Float = std::floating_point<T>;
template <Int T>
using Unsigned = std::make_unsigned_t<T>;
// The unsigned type in which arithmetic wraps. Types narrower than uint32_t would be promoted to
// int, which may overflow.
template <Int T>
using Wrapping = std::conditional_t<(sizeof(T) < sizeof(uint32_t)), uint32_t, Unsigned<T>>;

// ---- Arithmetic. ----
#define TESSERA_ARITHMETIC(Name, op)                         \
  template <Float T>                                         \
  T Name(T x, T y) {                                         \
    return x op y;                                           \
  }                                                          \
  template <Int T>                                           \
  T Name(T x, T y) {                                         \
    return static_cast<T>(Wrapping<T>(x) op Wrapping<T>(y)); \
  }
TESSERA_ARITHMETIC(Add, +)
TESSERA_ARITHMETIC(Sub, -)
TESSERA_ARITHMETIC(Mul, *)
#undef TESSERA_ARITHMETIC
template <Float T>
T Neg(T x) {
  return -x;
}
template <Int T>
T Neg(T x) {
  return Sub(T{0}, x);
}
template <Float T>
T Abs(T x) {
  return std::fabs(x);
}
template <Int T>
T Abs(T x) {
  return x < 0 ? Neg(x) : x;
}

template <Float T>
T Div(T x, T y) {
  return x / y;
}
template <Int T>
T Div(T x, T y) {
  if (y == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>) {
    if (y == -1) return Neg(x);
  }
  return x / y;
}
// The remainder has the sign of the dividend x.
template <Float T>
T Rem(T x, T y) {
  return std::fmod(x, y);
}
template <Int T>
T Rem(T x, T y) {
  if (y == 0) return x;
  if constexpr (std::is_signed_v<T>) {
    if (y == -1) return 0;
  }
  return x % y;
}

template <Float T>
T Pow(T x, T y) {
  return static_cast<T>(std::pow(static_cast<double>(x), static_cast<double>(y)));
}
// Raises x to a power by repeated squaring. A negative exponent gives 0, except for the bases 1 and
// -1.
template <Int T>
T Pow(T x, T y) {
  if constexpr (std::is_signed_v<T>) {
    if (y < 0) return x == 1 ? 1 : x == -1 ? ((y & 1) ? -1 : 1) : 0;
  }
  T result = 1;
  for (Unsigned<T> n = y; n != 0; n >>= 1) {
    if (n & 1) result = Mul(result, x);
    x = Mul(x, x);
  }
  return result;
}

// Returns NaN if either operand is NaN. -0 is less than +0.
template <Float T>
T Max(T x, T y) {
  if (x != x) return x;
  if (x == y) return std::signbit(x) ? y : x;
  return x > y ? x : y;
}
template <class T>
T Max(T x, T y) {
  return x < y ? y : x;
}
template <Float T>
T Min(T x, T y) {
  if (x != x) return x;
  if (x == y) return std::signbit(x) ? x : y;
  return x < y ? x : y;
}
template <class T>
T Min(T x, T y) {
  return y < x ? y : x;
}

// ---- Functions of floats: computed in double and rounded once. ----
#define TESSERA_VIA_DOUBLE(Name, function)                   \
  template <Float T>                                         \
  T Name(T x) {                                              \
    return static_cast<T>(function(static_cast<double>(x))); \
  }
TESSERA_VIA_DOUBLE(Exp, std::exp)
TESSERA_VIA_DOUBLE(Expm1, std::expm1)
TESSERA_VIA_DOUBLE(Log, std::log)
TESSERA_VIA_DOUBLE(Log1p, std::log1p)
TESSERA_VIA_DOUBLE(Sin, std::sin)
TESSERA_VIA_DOUBLE(Cos, std::cos)
TESSERA_VIA_DOUBLE(Tan, std::tan)
TESSERA_VIA_DOUBLE(Tanh, std::tanh)
TESSERA_VIA_DOUBLE(Cbrt, std::cbrt)
TESSERA_VIA_DOUBLE(Erf, std::erf)
TESSERA_VIA_DOUBLE(Rsqrt, 1.0 / std::sqrt)
TESSERA_VIA_DOUBLE(Sqrt, std::sqrt)
TESSERA_VIA_DOUBLE(Floor, std::floor)
TESSERA_VIA_DOUBLE(Ceil, std::ceil)
TESSERA_VIA_DOUBLE(RoundEven, std::nearbyint)
TESSERA_VIA_DOUBLE(RoundAway, std::round)
#undef TESSERA_VIA_DOUBLE
template <Float T>
T Atan2(T y, T x) {
  return static_cast<T>(std::atan2(static_cast<double>(y), static_cast<double>(x)));
}
template <Float T>
bool IsFinite(T x) {
  return std::isfinite(x);
}

// ---- Bits. ----
#define TESSERA_BITWISE(Name, op)  \
  template <std::integral T>       \
  T Name(T x, T y) {               \
    return static_cast<T>(x op y); \
  }
TESSERA_BITWISE(And, &)
TESSERA_BITWISE(Or, |)
TESSERA_BITWISE(Xor, ^)
#undef TESSERA_BITWISE
inline bool Not(bool x) { return !x; }
template <Int T>
T Not(T x) {
  return static_cast<T>(~x);
}
// Returns whether a shift by `amount`, taken as unsigned, leaves no bit of the number.
template <Int T>
bool ShiftsOut(T amount) {
  return Unsigned<T>(amount) >= std::numeric_limits<Unsigned<T>>::digits;
}
template <Int T>
T Shl(T x, T amount) {
  return ShiftsOut(amount) ? 0 : static_cast<T>(Unsigned<T>(x) << amount);
}
template <Int T>
T ShrL(T x, T amount) {
  return ShiftsOut(amount) ? 0 : static_cast<T>(Unsigned<T>(x) >> amount);
}
template <Int T>
T ShrA(T x, T amount) {
  using Signed = std::make_signed_t<T>;
  const T by = ShiftsOut(amount) ? std::numeric_limits<Unsigned<T>>::digits - 1 : amount;
  return static_cast<T>(static_cast<Signed>(x) >> by);
}
template <Int T>
T PopCount(T x) {
  return static_cast<T>(std::popcount(Unsigned<T>(x)));
}
template <Int T>
T Clz(T x) {
  return static_cast<T>(std::countl_zero(Unsigned<T>(x)));
}

// ---- Comparisons: false if an operand is NaN, except for Ne. ----
#define TESSERA_COMPARISON(Name, op) \
  template <class T>                 \
  bool Name(T x, T y) {              \
    return x op y;                   \
  }
TESSERA_COMPARISON(Eq, ==)
TESSERA_COMPARISON(Ne, !=)
TESSERA_COMPARISON(Lt, <)
TESSERA_COMPARISON(Le, <=)
TESSERA_COMPARISON(Gt, >)
TESSERA_COMPARISON(Ge, >=)
#undef TESSERA_COMPARISON
template <class T>
T Select(bool pred, T on_true, T on_false) {
  return pred ? on_true : on_false;
}

// ---- Conversions. ----
// A conversion to bool tells whether the number is not 0. From float to integer it truncates
// towards zero and saturates, and NaN becomes 0. Between integers it keeps the low bits.
template <class To, class From>
To Convert(From x) {
  if constexpr (Bool<To>) {
    return x != From{0};
  } else if constexpr (Int<To> && Float<From>) {
    using Limits = std::numeric_limits<To>;
    if (x != x) return 0;
    // 2^digits is exact in every float type; max() may not be.
    if (x >= std::ldexp(From{1}, Limits::digits)) return Limits::max();
    if (x <= static_cast<From>(Limits::min())) return Limits::min();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}
template <class To, class From>
To Bitcast(From x) {
  return std::bit_cast<To>(x);
}

}  // namespace tessera::ir::scalar::math
