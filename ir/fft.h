// Discrete Fourier transforms. Stateless; thread-safe.
#pragma once
#include <vector>

#include "ir/builder.h"

namespace tessera::ir {

enum class FftKind { kFft, kIfft, kRfft, kIrfft };

// The transform of the last dims of x, one for each of `lengths`: StableHLO's fft. Of kFft and
// kIfft, which divides by the number of elements, x is complex and has these dims; of kRfft it is
// real, f32 or f64, and of the last dim the first half, and one more, is given; of kIrfft x is such
// a half, and the result is real. Throws StatusException.
Value Fft(Value x, FftKind kind, const std::vector<int64_t>& lengths);

}  // namespace tessera::ir
