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
