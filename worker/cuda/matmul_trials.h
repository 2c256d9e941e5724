// Finds the fastest of a few algorithms for a matmul on this device by running them.
#pragma once
#include <functional>

#include "worker/cuda/context.h"
#include "worker/cuda/cublaslt_api.h"
#include "worker/device/device_api.h"

namespace tessera::worker::cuda {

// Returns the value of TESSERA_CUDA_MATMUL_TRIALS, or 0 if it is not set.
int NumMatmulTrials();

struct TrialBuffers {
  CUdeviceptr a = 0, b = 0, c = 0, scratch = 0;
};
using TrialFn =
    std::function<int(CUstream, const cublasLtMatmulHeuristicResult_t&, const TrialBuffers&)>;

// Returns the index of the fastest of the first `count` algorithms. Runs them on buffers and a
// stream of its own, and blocks. A trial that fails, or does not end within a second, is left out.
// Returns 0, the library's own choice, if memory is short or no trial is left.
int FastestTrial(tessera_context* context, const tessera_matmul_shape& shape,
                 const cublasLtMatmulHeuristicResult_t* algorithms, int count, const TrialFn& run);

}  // namespace tessera::worker::cuda
