// For tests of the fakes themselves: the functions of the fakes, without the plugin in between.
#pragma once
#include "worker/cuda/cublaslt_api.h"
#include "worker/cuda/driver_api.h"
#include "worker/cuda/nccl_api.h"

namespace tessera::worker::cuda {

// Return the tables of the fakes' functions. No entry is null.
const DriverApi& RawDriver();
const NcclApi& RawNccl();
const CublasLtApi& RawCublasLt();

}  // namespace tessera::worker::cuda
