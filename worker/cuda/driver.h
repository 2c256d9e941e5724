// The CUDA driver of this machine: opened once per process, by the first call that needs it.
//
// TESSERA_CUDA_DRIVER names another library than libcuda.so.1, for tests.
//
// Any thread. A driver that could not be used is tried again by the next call; one that could is
// kept until the process ends.
#pragma once
#include "worker/cuda/driver_api.h"
#include "worker/cuda/error.h"

namespace tessera::worker::cuda {

// The oldest driver that runs our code, as cuDriverGetVersion says it: PTX 7.8, which our kernels
// for sm_90 are written in, came with CUDA 11.8.
inline constexpr int kDriverVersionMin = 11080;

struct Driver {
  DriverApi api;
  ImageTargetFn image_target = nullptr;  // Null in NVIDIA's driver.
  int version = 0;
};

// TESSERA_UNAVAILABLE, with why, if there is no driver, it sees no device, it is too old, or it
// lacks a function that we need.
int OpenDriver(const Driver** driver);

// The driver, which OpenDriver has found before.
const Driver& GetDriver();
inline const DriverApi& Cu() { return GetDriver().api; }

// True of the errors after which a context answers every call with the same error.
bool IsSticky(CUresult result);

// TESSERA_OK, or what `result` of the function `call` means, with the driver's own words.
int FromDriver(CUresult result, const char* call);

}  // namespace tessera::worker::cuda
