// The inner loops of Fourier transforms for the instructions that every machine has, with vectors
// of 16 bytes. BestKernels takes them if the machine has no better set.
#include "ir/fourier/kernel_sets.h"
#include "ir/fourier/kernels_inl.h"

namespace tessera::ir::fourier {

const Kernels<float> kPlainOfF32 = {4, Runner<float, 4>::Run, Runner<float, 4>::Multiply};
const Kernels<double> kPlainOfF64 = {2, Runner<double, 2>::Run, Runner<double, 2>::Multiply};

}  // namespace tessera::ir::fourier
