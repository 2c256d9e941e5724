// Functions of complex numbers, in terms of their real and imaginary parts. Internal to ir/;
// stateless; thread-safe.
#pragma once
#include <optional>
#include <vector>

#include "ir/ops.h"

namespace tessera::ir::ops {

// What an elementwise op without attributes is of operands of one complex dtype and one shape;
// nullopt for one that complex numbers have not.
std::optional<Value> OfComplex(const OpDef& def, const std::vector<Value>& in);

// The numbers a + bi.
struct Parts {
  Value re, im;
};
Parts PartsOf(Value x);
inline Value Joined(const Parts& parts) { return Complex(parts.re, parts.im); }

}  // namespace tessera::ir::ops
