// The lowest precision at which products may be computed: lax.Precision. The attribute `precision`
// of dot_general and convolution holds it in JAX's words, "high" or "highest". Without the
// attribute the precision is kDefault.
//
// If the precision is not kHighest, devices that support TF32 (10 bits of mantissa) round factors
// of f32 to TF32 and add the products up in f32, as XLA does on GPUs. All other devices, and the
// evaluator, multiply numbers as they are (docs/decisions/0023). Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "ir/attrs.h"

namespace tessera::ir {

enum class Precision : uint8_t { kDefault, kHigh, kHighest };

std::string_view PrecisionName(Precision precision);  // "default", "high", "highest"
std::optional<Precision> FindPrecision(std::string_view name);

// Returns the precision of an op. Requires: inference has checked the op.
Precision PrecisionOf(const Attrs& attrs);
void SetPrecision(Precision precision, Attrs* attrs);

}  // namespace tessera::ir
