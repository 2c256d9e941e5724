// Float formats that no C++ type holds: f16 (IEEE binary16) and the two f8 formats, as the low bits
// of a uint16_t. Reference: Micikevicius et al., "FP8 Formats for Deep Learning" (2022). Stateless;
// thread-safe, in the default rounding mode.
#pragma once
#include <cstdint>

#include "ir/dtype.h"

namespace tessera::ir {

// Exact. Requires: `dtype` is f16, f8e4m3fn or f8e5m2.
double NarrowToDouble(DType dtype, uint16_t bits);
// Rounds to nearest, ties to even; NaN stays NaN. A value that is too large becomes an infinity, or
// NaN in f8e4m3fn, which has no infinity.
uint16_t DoubleToNarrow(DType dtype, double value);

}  // namespace tessera::ir
