// Checks the bytes of a literal. The readers of programs call it. Stateless; thread-safe.
#pragma once
#include "ir/array.h"

namespace tessera::ir {

// Returns whether each byte is a valid element of the dtype. A byte of a bool is 0 or 1. The unused
// bits of an element of fewer than 8 bits repeat its sign, or are 0 if the dtype is unsigned.
bool HasValidElements(const Array& literal);

}  // namespace tessera::ir
