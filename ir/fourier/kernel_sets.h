// The sets of kernels from which BestKernels chooses. Internal to ir/fourier.
#pragma once
#include "ir/fourier/kernels.h"

namespace tessera::ir::fourier {

// Constants without constructors, so that no code for a special instruction set runs before main.
extern const Kernels<float> kPlainOfF32, kAvx2OfF32, kAvx512OfF32;
extern const Kernels<double> kPlainOfF64, kAvx2OfF64, kAvx512OfF64;

}  // namespace tessera::ir::fourier
