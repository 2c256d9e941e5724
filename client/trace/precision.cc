// The thread's default precision. Products without a precision of their own ask for it
// (client/apply/dot.h), and jit makes it part of the key of an executable.
#include "client/precision.h"

#include <string>
#include <utility>

#include "client/error.h"

namespace tessera {
namespace {

using lax::Precision;

thread_local Precision default_precision = Precision::kDefault;

Precision ParsePrecision(std::string_view name, const Site& site) {
  constexpr std::pair<std::string_view, Precision> kNames[] = {
      {"default", Precision::kDefault},    {"high", Precision::kHigh},
      {"highest", Precision::kHighest},    {"bfloat16", Precision::kDefault},
      {"tensorfloat32", Precision::kHigh}, {"float32", Precision::kHighest}};
  for (const auto& [known, precision] : kNames)
    if (known == name) return precision;
  internal::ThrowError(ErrorKind::kValueError, site, "default_matmul_precision: got '",
                       std::string(name),
                       "'; expected default, high, highest, bfloat16, tensorfloat32 or float32");
}

}  // namespace

default_matmul_precision::default_matmul_precision(std::string_view precision, Site site)
    : saved_(default_precision) {
  default_precision = ParsePrecision(precision, site);
}
default_matmul_precision::~default_matmul_precision() { default_precision = saved_; }

namespace internal {
Precision PrecisionOr(std::optional<Precision> precision) {
  return precision.value_or(default_precision);
}
}  // namespace internal

}  // namespace tessera
