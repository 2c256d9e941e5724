// The inner loops of Fourier transforms for x86-64 machines with AVX2 and FMA. CMakeLists.txt
// passes the compiler the options for these instructions; BestKernels takes the loops if the
// machine has them.
#include "ir/fourier/kernel_sets.h"
#include "ir/fourier/kernels_inl.h"

namespace tessera::ir::fourier {

const Kernels<float> kAvx2OfF32 = {8, Runner<float, 8>::Run, Runner<float, 8>::Multiply};
const Kernels<double> kAvx2OfF64 = {4, Runner<double, 4>::Run, Runner<double, 4>::Multiply};

}  // namespace tessera::ir::fourier
