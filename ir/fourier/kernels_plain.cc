// The inner loops of Fourier transforms for the instructions that every machine has: 16 bytes at
// once.
#include "ir/fourier/kernel_sets.h"
#include "ir/fourier/kernels_inl.h"

namespace tessera::ir::fourier {

const Kernels<float> kPlainOfF32 = {4, Runner<float, 4>::Run, Runner<float, 4>::Multiply};
const Kernels<double> kPlainOfF64 = {2, Runner<double, 2>::Run, Runner<double, 2>::Multiply};

}  // namespace tessera::ir::fourier
