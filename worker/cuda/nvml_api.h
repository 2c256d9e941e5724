// The part of NVML, NVIDIA's management library, that we use: types, constants and the table of
// entry points that monitor.cc fills in. We declare it ourselves, so that the plugin builds on any
// machine.
//
// This is the ABI of nvml.h 13.5, which drivers of version 520 and newer have too. abi_check.cc
// compares it with the real header where there is one. Names are NVIDIA's, in our namespace.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tessera::worker::cuda {

struct nvmlDevice_st;
struct nvmlEventSet_st;

using nvmlReturn_t = uint32_t;
using nvmlDevice_t = nvmlDevice_st*;
using nvmlEventSet_t = nvmlEventSet_st*;

// The results that we distinguish. Each row is X(name, value).
// clang-format off
#define TESSERA_NVML_RESULTS(X)                                                                   \
  X(NVML_SUCCESS, 0)                                                                              \
  X(NVML_ERROR_UNINITIALIZED, 1)                                                                  \
  X(NVML_ERROR_INVALID_ARGUMENT, 2)                                                               \
  X(NVML_ERROR_NOT_SUPPORTED, 3)                                                                  \
  X(NVML_ERROR_NOT_FOUND, 6)                                                                      \
  X(NVML_ERROR_INSUFFICIENT_SIZE, 7)                                                              \
  X(NVML_ERROR_TIMEOUT, 10)                                                                       \
  X(NVML_ERROR_GPU_IS_LOST, 15)                                                                   \
  X(NVML_ERROR_RESET_REQUIRED, 16)
// clang-format on
enum : nvmlReturn_t {
#define TESSERA_X(name, value) name = value,
  TESSERA_NVML_RESULTS(TESSERA_X)
#undef TESSERA_X
};

enum nvmlTemperatureSensors_t : uint32_t { NVML_TEMPERATURE_GPU = 0 };
enum nvmlClockType_t : uint32_t { NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };
enum nvmlMemoryErrorType_t : uint32_t {
  NVML_MEMORY_ERROR_TYPE_CORRECTED = 0,
  NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1,
};
enum nvmlEccCounterType_t : uint32_t { NVML_VOLATILE_ECC = 0 };
enum nvmlValueType_t : uint32_t {
  NVML_VALUE_TYPE_DOUBLE = 0,
  NVML_VALUE_TYPE_UNSIGNED_INT = 1,
  NVML_VALUE_TYPE_UNSIGNED_LONG = 2,
  NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3,
  NVML_VALUE_TYPE_SIGNED_LONG_LONG = 4,
  NVML_VALUE_TYPE_SIGNED_INT = 5,
};

inline constexpr unsigned long long nvmlEventTypeXidCriticalError = 0x8;

// The reasons for which the clocks of a GPU are lower than they could be. Each row is
// X(name, value).
// clang-format off
#define TESSERA_NVML_THROTTLE_REASONS(X)                                                          \
  X(nvmlClocksThrottleReasonSwPowerCap, 0x4)                                                      \
  X(nvmlClocksThrottleReasonHwSlowdown, 0x8)                                                      \
  X(nvmlClocksThrottleReasonSwThermalSlowdown, 0x20)                                              \
  X(nvmlClocksThrottleReasonHwThermalSlowdown, 0x40)                                              \
  X(nvmlClocksThrottleReasonHwPowerBrakeSlowdown, 0x80)
// clang-format on
#define TESSERA_X(name, value) inline constexpr unsigned long long name = value;
TESSERA_NVML_THROTTLE_REASONS(TESSERA_X)
#undef TESSERA_X

// The fields that we read by nvmlDeviceGetFieldValues. Each row is X(name, value).
// clang-format off
#define TESSERA_NVML_FIELDS(X)                                                                    \
  X(NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, 38)                                            \
  X(NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, 52)                                              \
  X(NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, 59)                                            \
  X(NVML_FI_DEV_MEMORY_TEMP, 82)                                                                  \
  X(NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 138)                                                   \
  X(NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 139)
// clang-format on
enum : unsigned int {
#define TESSERA_X(name, value) name = value,
  TESSERA_NVML_FIELDS(TESSERA_X)
#undef TESSERA_X
};

struct nvmlUtilization_t {
  unsigned int gpu, memory;  // percent
};
struct nvmlMemory_t {
  unsigned long long total, free, used;  // bytes
};
struct nvmlProcessInfo_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;  // bytes, or kNvmlNotAvailable
  unsigned int gpuInstanceId, computeInstanceId;
};
inline constexpr unsigned long long kNvmlNotAvailable = ~0ULL;
struct nvmlEventData_t {
  nvmlDevice_t device;
  unsigned long long eventType, eventData;
  unsigned int gpuInstanceId, computeInstanceId;
};
union nvmlValue_t {
  double dVal;
  int siVal;
  unsigned int uiVal;
  unsigned long ulVal;
  unsigned long long ullVal;
  long long sllVal;
};
struct nvmlFieldValue_t {
  unsigned int fieldId;
  unsigned int scopeId;  // a link, or kNvmlAllLinks
  long long timestamp, latencyUsec;
  nvmlValueType_t valueType;
  nvmlReturn_t nvmlReturn;
  nvmlValue_t value;
};
inline constexpr unsigned int kNvmlAllLinks = ~0U;

// Every function of NVML that we call. Each row is X(result, symbol, parameters). The symbol is the
// one in the library, with its version suffix.
// clang-format off
#define TESSERA_NVML_FUNCTIONS(X)                                                                 \
  X(nvmlReturn_t, nvmlInit_v2, ())                                                                \
  X(nvmlReturn_t, nvmlShutdown, ())                                                               \
  X(const char*, nvmlErrorString, (nvmlReturn_t result))                                          \
  X(nvmlReturn_t, nvmlDeviceGetHandleByUUID, (const char* uuid, nvmlDevice_t* device))            \
  X(nvmlReturn_t, nvmlDeviceIsMigDeviceHandle, (nvmlDevice_t device, unsigned int* is_mig))       \
  X(nvmlReturn_t, nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (nvmlDevice_t mig,                \
                                                                 nvmlDevice_t* device))           \
  X(nvmlReturn_t, nvmlDeviceGetUtilizationRates, (nvmlDevice_t device, nvmlUtilization_t* rates)) \
  X(nvmlReturn_t, nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t* memory))           \
  X(nvmlReturn_t, nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice_t device,                  \
                                                            unsigned int* count,                  \
                                                            nvmlProcessInfo_t* infos))            \
  X(nvmlReturn_t, nvmlDeviceGetPowerUsage, (nvmlDevice_t device, unsigned int* milliwatts))       \
  X(nvmlReturn_t, nvmlDeviceGetEnforcedPowerLimit, (nvmlDevice_t device,                          \
                                                    unsigned int* milliwatts))                    \
  X(nvmlReturn_t, nvmlDeviceGetTemperature, (nvmlDevice_t device,                                 \
                                             nvmlTemperatureSensors_t sensor,                     \
                                             unsigned int* celsius))                              \
  X(nvmlReturn_t, nvmlDeviceGetClockInfo, (nvmlDevice_t device, nvmlClockType_t type,             \
                                           unsigned int* megahertz))                              \
  X(nvmlReturn_t, nvmlDeviceGetCurrentClocksThrottleReasons, (nvmlDevice_t device,                \
                                                              unsigned long long* reasons))       \
  X(nvmlReturn_t, nvmlDeviceGetTotalEccErrors, (nvmlDevice_t device, nvmlMemoryErrorType_t type,  \
                                                nvmlEccCounterType_t counter,                     \
                                                unsigned long long* count))                       \
  X(nvmlReturn_t, nvmlDeviceGetRemappedRows, (nvmlDevice_t device, unsigned int* corrected,       \
                                              unsigned int* uncorrected, unsigned int* pending,   \
                                              unsigned int* failed))                              \
  X(nvmlReturn_t, nvmlDeviceGetFieldValues, (nvmlDevice_t device, int count,                      \
                                             nvmlFieldValue_t* values))                           \
  X(nvmlReturn_t, nvmlEventSetCreate, (nvmlEventSet_t* set))                                      \
  X(nvmlReturn_t, nvmlEventSetFree, (nvmlEventSet_t set))                                         \
  X(nvmlReturn_t, nvmlDeviceRegisterEvents, (nvmlDevice_t device, unsigned long long types,       \
                                             nvmlEventSet_t set))                                 \
  X(nvmlReturn_t, nvmlEventSetWait_v2, (nvmlEventSet_t set, nvmlEventData_t* event,               \
                                        unsigned int timeout_ms))
// clang-format on

struct NvmlApi {
#define TESSERA_X(result, name, params) result(*name) params = nullptr;
  TESSERA_NVML_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
};

}  // namespace tessera::worker::cuda
