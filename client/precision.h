// How exact products are at least: lax::Precision, an option of each, and default_matmul_precision,
// what products have that say none. The default is thread-local.
#pragma once
#include <optional>
#include <string_view>

#include "base/site.h"
#include "ir/precision.h"

namespace tessera {

namespace lax {
// Of factors of f32: GPUs round them to TF32, 10 bits of mantissa, and add the products up in f32,
// unless it is kHighest. Everywhere else, and of all other dtypes, nothing is rounded.
using ir::Precision;

// clang-format off
#define TESSERA_DOT_ALGORITHMS(X)                                                                  \
  X(DEFAULT) X(ANY_F8_ANY_F8_F32) X(ANY_F8_ANY_F8_F32_FAST_ACCUM) X(ANY_F8_ANY_F8_ANY)             \
  X(ANY_F8_ANY_F8_ANY_FAST_ACCUM) X(F16_F16_F16) X(F16_F16_F32) X(BF16_BF16_BF16)                  \
  X(BF16_BF16_F32) X(BF16_BF16_F32_X3) X(BF16_BF16_F32_X6) X(BF16_BF16_F32_X9) X(TF32_TF32_F32)    \
  X(TF32_TF32_F32_X3) X(F32_F32_F32) X(F64_F64_F64)
// clang-format on
// How a product of floats is computed: the types of the factors and of what adds their products up,
// and as how many products of parts of them. Operands of another dtype are converted, and so is the
// result, to what it has without an algorithm. What is computed is at least as exact: f32 as BF16
// with sums of F32, or in several products, stays f32, with the highest precision; as TF32 it is
// rounded, also on CPUs. Products of cotangents have the precision, and round nothing. Errors:
// TYPE_ERROR for operands that are no floats; VALUE_ERROR for ANY_F8 of other than floats of 8
// bits. Reference: jax.lax.DotAlgorithmPreset.
#define TESSERA_ENUMERATOR(name) k##name,
enum class DotAlgorithmPreset : uint8_t { TESSERA_DOT_ALGORITHMS(TESSERA_ENUMERATOR) };
#undef TESSERA_ENUMERATOR

// What products take as `precision`: one of the two, or neither, which is
// default_matmul_precision's.
struct PrecisionLike {
  std::optional<Precision> precision;
  DotAlgorithmPreset algorithm = DotAlgorithmPreset::kDEFAULT;

  PrecisionLike() = default;
  // NOLINTBEGIN(google-explicit-constructor): reads as the precision
  PrecisionLike(Precision p) : precision(p) {}
  PrecisionLike(std::optional<Precision> p) : precision(p) {}
  PrecisionLike(DotAlgorithmPreset a) : algorithm(a) {}
  // NOLINTEND(google-explicit-constructor)
};
}  // namespace lax

// For the lifetime of the object, products of this thread whose options say no precision have this
// one: "default", "high" or "highest"; or "bfloat16", "tensorfloat32" or "float32", JAX's other
// words for the three. Throws VALUE_ERROR.
//
//   const default_matmul_precision exact("highest");
class [[nodiscard]] default_matmul_precision {
 public:
  explicit default_matmul_precision(std::string_view precision, Site site = Site::Here());
  ~default_matmul_precision();
  default_matmul_precision(const default_matmul_precision&) = delete;
  default_matmul_precision& operator=(const default_matmul_precision&) = delete;

 private:
  const lax::Precision saved_;
};

namespace internal {
// What a product has: that of its options or, without one, this thread's default.
lax::Precision PrecisionOr(std::optional<lax::Precision> precision);
}  // namespace internal

}  // namespace tessera
