// How exact products are at least: lax.Precision. Attribute `precision` of dot_general and
// convolution says it in JAX's words, "high" or "highest"; without it, it is the default.
//
// Devices that can take factors of f32 as TF32, with 10 bits of mantissa, for products whose
// precision is not kHighest, and add these up in f32, as XLA does on GPUs. All others, and the
// evaluator, multiply numbers as they are (docs/decisions/0023).
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "ir/attrs.h"

namespace tessera::ir {

enum class Precision : uint8_t { kDefault, kHigh, kHighest };

std::string_view PrecisionName(Precision precision);  // "default", "high", "highest"
std::optional<Precision> FindPrecision(std::string_view name);

// That of an op which inference has checked.
Precision PrecisionOf(const Attrs& attrs);
void SetPrecision(Precision precision, Attrs* attrs);

}  // namespace tessera::ir
