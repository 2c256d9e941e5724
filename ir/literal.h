// What the bytes of a literal may be, which its readers check.
#pragma once
#include "ir/array.h"

namespace tessera::ir {

// Whether each byte is one that an element of the dtype has: 0 or 1 for a bool; of an element of
// fewer than 8 bits the others are those of its sign, or 0.
bool HasOnlyElements(const Array& literal);

}  // namespace tessera::ir
