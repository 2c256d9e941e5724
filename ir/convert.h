// Converts elements between any two dtypes, as XLA does. Stateless; thread-safe.
//
// A result that is a float is rounded to nearest, ties to even. A float that becomes an integer is
// truncated towards zero and saturates; NaN becomes 0. An integer that becomes a narrower integer
// keeps its low bits. A bool is true if the number is not 0. A conversion from complex numbers
// ignores the imaginary part, also to bool; only a conversion to another complex dtype keeps it.
#pragma once
#include <cstdint>

#include "ir/array.h"
#include "ir/dtype.h"

namespace tessera::ir {

// Converts n elements. The two ranges must not overlap.
void ConvertElements(DType from, const void* in, DType to, void* out, int64_t n);
Array ConvertArray(const Array& x, DType to);

}  // namespace tessera::ir
