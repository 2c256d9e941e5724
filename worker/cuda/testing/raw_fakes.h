// For tests of the fakes themselves: their functions, without the plugin between.
#pragma once
#include "worker/cuda/cublaslt_api.h"
#include "worker/cuda/driver_api.h"
#include "worker/cuda/nccl_api.h"

namespace tessera::worker::cuda {

// Each function is there.
const DriverApi& RawDriver();
const NcclApi& RawNccl();
const CublasLtApi& RawCublasLt();

}  // namespace tessera::worker::cuda
