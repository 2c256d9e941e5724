// Reads the state of GPUs by NVML, NVIDIA's management library, which is opened when the first
// monitor is made. It comes with the driver. Monitors make no CUDA context and do not start
// the driver of CUDA.
//
// TESSERA_CUDA_NVML names another library than libnvidia-ml.so.1, for tests.
//
// NVML knows the state of a MIG device's memory only. All other figures are those of its GPU, and
// the GPU's errors are told about each of its MIG devices. Thread-compatible.
#pragma once
#include <string>
#include <vector>

#include "worker/cuda/nvml_api.h"
#include "worker/device/device_api.h"

struct tessera_monitor {
 public:
  static int Open(const char* const* ids, int32_t num_devices, tessera_monitor** monitor);
  ~tessera_monitor();

  int Read(int32_t device, int (*is_ours)(int32_t pid), tessera_device_reading* reading);
  int Wait(int32_t timeout_ms, int32_t* device, int64_t* code);

 private:
  struct Device {
    std::string id;
    tessera::worker::cuda::nvmlDevice_t handle;  // of the GPU, or of the MIG device
    tessera::worker::cuda::nvmlDevice_t gpu;     // of the GPU
  };
  // An error that has been read and not been returned yet.
  struct Event {
    int32_t device;
    int64_t code;
  };

  tessera_monitor() = default;
  int AddDevice(const std::string& id);
  int RegisterEvents();

  std::vector<Device> devices_;
  std::vector<Event> events_;
  tessera::worker::cuda::nvmlEventSet_t set_ = nullptr;  // null if no GPU reports errors
};
