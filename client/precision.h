// The least precision of products: lax::Precision is an option of each product, and
// default_matmul_precision sets the precision of products without one. The default is thread-local.
#pragma once
#include <optional>
#include <string_view>

#include "base/site.h"
#include "ir/precision.h"

namespace tessera {

namespace lax {
// The precision of products of f32 factors. Unless it is kHighest, GPUs round the factors to TF32,
// with 10 bits of mantissa, and sum the products in f32. Other devices round nothing, and factors
// of other dtypes are not rounded either.
using ir::Precision;

// clang-format off
#define TESSERA_DOT_ALGORITHMS(X)                                                                  \
  X(DEFAULT) X(ANY_F8_ANY_F8_F32) X(ANY_F8_ANY_F8_F32_FAST_ACCUM) X(ANY_F8_ANY_F8_ANY)             \
  X(ANY_F8_ANY_F8_ANY_FAST_ACCUM) X(F16_F16_F16) X(F16_F16_F32) X(BF16_BF16_BF16)                  \
  X(BF16_BF16_F32) X(BF16_BF16_F32_X3) X(BF16_BF16_F32_X6) X(BF16_BF16_F32_X9) X(TF32_TF32_F32)    \
  X(TF32_TF32_F32_X3) X(F32_F32_F32) X(F64_F64_F64)
// clang-format on How a product of floats is computed: the dtypes of the two factors and of the
// sums. _X3, _X6 and _X9 split each factor into parts of fewer bits and sum that many products of
// parts. Operands of another dtype are converted. The result is converted to the dtype that it has
// without an algorithm.
//
// The computation is at least as exact as the algorithm. BF16 factors with sums of F32, and
// algorithms with several products, leave f32 operands in f32, with the highest precision.
// TF32_TF32_F32 rounds the operands to TF32, also on CPUs. Products of cotangents have the same
// precision, and round nothing. Errors: TYPE_ERROR for operands that are no floats; VALUE_ERROR for
// ANY_F8 with other than floats of 8 bits. Reference: jax.lax.DotAlgorithmPreset.
#define TESSERA_ENUMERATOR(name) k##name,
enum class DotAlgorithmPreset : uint8_t { TESSERA_DOT_ALGORITHMS(TESSERA_ENUMERATOR) };
#undef TESSERA_ENUMERATOR

// The option `precision` of products: a Precision, or an algorithm, or neither. Without both,
// default_matmul_precision counts.
struct PrecisionLike {
  std::optional<Precision> precision;
  DotAlgorithmPreset algorithm = DotAlgorithmPreset::kDEFAULT;

  PrecisionLike() = default;
  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
  PrecisionLike(Precision p) : precision(p) {}
  PrecisionLike(std::optional<Precision> p) : precision(p) {}
  PrecisionLike(DotAlgorithmPreset a) : algorithm(a) {}
  // NOLINTEND(google-explicit-constructor)
};
}  // namespace lax

// For the lifetime of the object, products on this thread without a precision of their own have
// this one: "default", "high" or "highest". "bfloat16", "tensorfloat32" and "float32" are JAX's
// other words for these three. Throws VALUE_ERROR for any other word.
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
// Returns the precision of a product: that of its options or, without one, this thread's default.
lax::Precision PrecisionOr(std::optional<lax::Precision> precision);
}  // namespace internal

}  // namespace tessera
