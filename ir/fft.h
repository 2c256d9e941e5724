// Discrete Fourier transforms as ops. Stateless; thread-safe.
#pragma once
#include <vector>

#include "ir/builder.h"

namespace tessera::ir {

enum class FftKind { kFft, kIfft, kRfft, kIrfft };

// Returns the transform of the last dims of x, one dim for each entry of `lengths`, as StableHLO's
// fft does. For kFft and kIfft, x is complex and has these dims; kIfft divides by the number of
// elements. For kRfft, x is real (f32 or f64), and the result holds only the first half of the last
// dim plus one element. For kIrfft, x is such a half, and the result is real. Throws
// StatusException.
Value Fft(Value x, FftKind kind, const std::vector<int64_t>& lengths);

}  // namespace tessera::ir
