// For abi_check.cc and nvml_abi_check.cc, which compare our declarations with NVIDIA's headers.
#pragma once
#include <type_traits>

namespace tessera::worker::cuda {

// Parameters are compatible if their class, size and alignment are equal. Any two pointers are
// compatible.
enum class ParameterClass { kVoid, kPointer, kFloat, kInteger, kStruct };
template <class T>
constexpr ParameterClass ClassOf() {
  using enum ParameterClass;
  if (std::is_void_v<T>) return kVoid;
  if (std::is_pointer_v<T>) return kPointer;
  if (std::is_floating_point_v<T>) return kFloat;
  return std::is_integral_v<T> || std::is_enum_v<T> ? kInteger : kStruct;
}
template <class A, class B>
constexpr bool AreCompatible() {
  if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
    return std::is_void_v<A> && std::is_void_v<B>;
  } else {
    return ClassOf<A>() == ClassOf<B>() && sizeof(A) == sizeof(B) && alignof(A) == alignof(B);
  }
}
template <class A, class B>
struct SameCall : std::false_type {};
template <class RA, class... A, class RB, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<RA (*)(A...), RB (*)(B...)>
    : std::bool_constant<AreCompatible<RA, RB>() && (AreCompatible<A, B>() && ...)> {
};

// These assertions check SameCall itself.
static_assert(SameCall<int (*)(int, void*), unsigned (*)(unsigned, char*)>::value);
static_assert(!SameCall<int (*)(int), int (*)(long)>::value);
static_assert(!SameCall<int (*)(int), int (*)(void*)>::value);
static_assert(!SameCall<int (*)(int), int (*)(int, int)>::value);

// The unqualified name is ours, and the name after :: is NVIDIA's.
#define TESSERA_SAME(name) \
  static_assert(static_cast<long long>(name) == static_cast<long long>(::name), #name)

}  // namespace tessera::worker::cuda
