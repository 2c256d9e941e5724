// Floats narrower than bf16's kin, which no C++ type holds: f16 (IEEE binary16) and the two f8
// formats, as bits in the low end of a word. Reference: Micikevicius et al., "FP8 Formats for Deep
// Learning" (2022).
//
// Pure functions; any thread, in the default rounding mode.
#pragma once
#include <cstdint>

#include "ir/dtype.h"

namespace tessera::ir {

// Exact. Requires: `dtype` is f16, f8e4m3fn or f8e5m2.
double NarrowToDouble(DType dtype, uint16_t bits);
// To nearest, ties to even; NaN stays NaN. What is too large is an infinity, or NaN in f8e4m3fn,
// which has none.
uint16_t DoubleToNarrow(DType dtype, double value);

}  // namespace tessera::ir
