// Discrete Fourier transforms as ops. Stateless; thread-safe.
#pragma once
#include <vector>

#include "ir/builder.h"

namespace tessera::ir {

enum class FftKind { kFft, kIfft, kRfft, kIrfft };

// Returns the transform of the last dims of x, one dim for each entry of `lengths`, as StableHLO's
// fft does. For kFft and kIfft, x is complex and has dims of these lengths; kIfft divides by the
// number of elements. For kRfft, x is real (f32 or f64), and the last dim of the result, of length
// n / 2 + 1, holds the first half only. For kIrfft, x is such a half, and the result is real.
// Throws StatusException.
Value Fft(Value x, FftKind kind, const std::vector<int64_t>& lengths);

}  // namespace tessera::ir
