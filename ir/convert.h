// Conversion of elements between any two dtypes, as XLA converts them: floats are rounded to
// nearest even; a float becomes the integer towards zero, or the nearest that the dtype has, and
// NaN becomes 0; an integer keeps its low bits; a bool is whether the number is not 0; of a complex
// number only bool looks at the imaginary part. Stateless; thread-safe.
#pragma once
#include <cstdint>

#include "ir/array.h"
#include "ir/dtype.h"

namespace tessera::ir {

// Converts n elements. The two ranges do not overlap.
void ConvertElements(DType from, const void* in, DType to, void* out, int64_t n);
Array ConvertArray(const Array& x, DType to);

}  // namespace tessera::ir
