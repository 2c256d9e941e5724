// The inner loops of Fourier transforms for x86-64 machines with AVX-512. CMakeLists.txt passes the
// compiler the options for these instructions; BestKernels takes the loops if the machine has them.
#include "ir/fourier/kernel_sets.h"
#include "ir/fourier/kernels_inl.h"

namespace tessera::ir::fourier {

const Kernels<float> kAvx512OfF32 = {16, Runner<float, 16>::Run, Runner<float, 16>::Multiply};
const Kernels<double> kAvx512OfF64 = {8, Runner<double, 8>::Run, Runner<double, 8>::Multiply};

}  // namespace tessera::ir::fourier
