// The CUDA driver of this machine. It is opened once per process, by the first call that needs it.
//
// TESSERA_CUDA_DRIVER names another library than libcuda.so.1, for tests.
//
// Thread-safe. If the driver cannot be used, the next call tries again.
#pragma once
#include "worker/cuda/driver_api.h"
#include "worker/cuda/error.h"

namespace tessera::worker::cuda {

// The oldest driver that runs our kernels, numbered as by cuDriverGetVersion. The kernels for sm_90
// are PTX 7.8, which came with CUDA 11.8.
inline constexpr int kDriverVersionMin = 11080;

struct Driver {
  DriverApi api;
  // Null for NVIDIA's driver; only the fake driver has this function.
  ImageTargetFn image_target = nullptr;
  int version = 0;
};

// Returns TESSERA_UNAVAILABLE, with the reason, if there is no driver, it sees no device, it is too
// old, or it lacks a function that we need.
int OpenDriver(const Driver** driver);

// Returns the open driver. Requires that OpenDriver has succeeded.
const Driver& GetDriver();
inline const DriverApi& Cu() { return GetDriver().api; }

// Returns whether every later call of the context fails with the same error.
bool IsSticky(CUresult result);

// Returns the code for `result`, which the driver's function `call` returned. If it is an error,
// fails with the driver's text.
int CheckDriver(CUresult result, const char* call);

}  // namespace tessera::worker::cuda
