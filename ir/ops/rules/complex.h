// Functions of complex numbers, in terms of their real and imaginary parts. Internal to ir/;
// stateless; thread-safe.
#pragma once
#include <optional>
#include <vector>

#include "ir/ops.h"

namespace tessera::ir::ops {

// Returns the composite of real ops that applies `def`, an elementwise op without attributes, to
// operands of the same complex dtype and shape. Returns nullopt if `def` is not defined on complex
// numbers.
std::optional<Value> ElementwiseOnParts(const OpDef& def, const std::vector<Value>& in);

// The complex numbers re + i im of an array, element by element.
struct Parts {
  Value re, im;
};
Parts PartsOf(Value x);
inline Value Joined(const Parts& parts) { return Complex(parts.re, parts.im); }

}  // namespace tessera::ir::ops
