// The CUDA driver of this machine: opened once per process, by the first call that needs it.
//
// TESSERA_CUDA_DRIVER names another library than libcuda.so.1, for tests.
//
// Thread-safe. If the driver cannot be used, the next call tries again.
#pragma once
#include "worker/cuda/driver_api.h"
#include "worker/cuda/error.h"

namespace tessera::worker::cuda {

// The oldest driver that runs our kernels, as cuDriverGetVersion numbers it: those for sm_90 are
// PTX 7.8, which came with CUDA 11.8.
inline constexpr int kDriverVersionMin = 11080;

struct Driver {
  DriverApi api;
  ImageTargetFn image_target = nullptr;  // Null in NVIDIA's driver.
  int version = 0;
};

// TESSERA_UNAVAILABLE, with why, if there is no driver, it sees no device, it is too old, or it
// lacks a function that we need.
int OpenDriver(const Driver** driver);

// Requires: OpenDriver has succeeded.
const Driver& GetDriver();
inline const DriverApi& Cu() { return GetDriver().api; }

// Whether every later call of the context fails with the same error.
bool IsSticky(CUresult result);

// The code of `result`, returned by the driver's function `call`; fails with the driver's text.
int FromDriver(CUresult result, const char* call);

}  // namespace tessera::worker::cuda
