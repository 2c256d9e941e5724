// Implements the functions of NVML that the plugin calls. GPUs are those of the fake driver, and
// knobs set what they report. NVML may fail to notice a call before nvmlInit, or a handle
// that it has not given out. Here both are violations.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "tests/fakes/control.h"
#include "tests/fakes/ids.h"
#include "worker/cuda/nvml_api.h"

namespace tessera::fakes {
namespace {

using namespace worker::cuda;  // NOLINT(google-build-using-namespace): NVML's types

constexpr uintptr_t kGpuHandle = 0x1000, kMigHandle = 0x2000;
constexpr unsigned long long kGiB = 1ULL << 30;
constexpr unsigned int kOthersPid = 1;

std::atomic<bool> initialized{false};

bool IsMig(nvmlDevice_t device) { return reinterpret_cast<uintptr_t>(device) >= kMigHandle; }
int NumberOf(nvmlDevice_t device) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(device) % kGpuHandle);
}
nvmlDevice_t HandleOf(uintptr_t kind, int device) {
  return reinterpret_cast<nvmlDevice_t>(kind + static_cast<uintptr_t>(device));
}

// Checks a call about a device, and returns the result with which it must end.
nvmlReturn_t Check(const char* function, nvmlDevice_t device) {
  ReadKnobsFile();
  if (!initialized) {
    ReportViolation("%s: nvmlInit was not called", function);
    return NVML_ERROR_UNINITIALIZED;
  }
  const auto handle = reinterpret_cast<uintptr_t>(device);
  if (handle < kGpuHandle || handle >= kMigHandle + kGpuHandle ||
      NumberOf(device) >= Get(Knob::devices)) {
    ReportViolation("%s: %p is no handle of a device", function, static_cast<void*>(device));
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  if (NumberOf(device) != Get(Knob::nvml_device)) return NVML_SUCCESS;
  if (Get(Knob::nvml_hangs) != 0)
    Await(std::chrono::hours(1), [] { return Get(Knob::nvml_hangs) == 0; });
  return Get(Knob::nvml_lost) != 0 ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}
// Like Check, for figures that NVML does not know of MIG devices.
nvmlReturn_t CheckGpu(const char* function, nvmlDevice_t device) {
  const nvmlReturn_t result = Check(function, device);
  return result == NVML_SUCCESS && IsMig(device) ? NVML_ERROR_NOT_SUPPORTED : result;
}

// Returns the value of a knob that describes one device, and 0 for the other devices.
int64_t GetFor(nvmlDevice_t device, Knob knob) {
  return NumberOf(device) == Get(Knob::nvml_device) ? Get(knob) : 0;
}

template <class T>
nvmlReturn_t Answer(const char* function, nvmlDevice_t device, T* place, int64_t value) {
  const nvmlReturn_t result = CheckGpu(function, device);
  if (result == NVML_SUCCESS) *place = static_cast<T>(value);
  return result;
}

// The errors that the set waits for, and the last one that it has reported.
struct EventSet {
  bool registered[64] = {};
  int64_t reported = 0;
};

}  // namespace
}  // namespace tessera::fakes

// NOLINTNEXTLINE(google-build-using-namespace): the functions have NVML's types.
using namespace tessera::worker::cuda;
using namespace tessera::fakes;  // NOLINT(google-build-using-namespace)

extern "C" {

#define TESSERA_NVML_FUNCTION TESSERA_FAKE_EXPORT nvmlReturn_t

TESSERA_NVML_FUNCTION nvmlInit_v2() {
  ReadKnobsFile();
  constexpr nvmlReturn_t kDriverNotLoaded = 9;
  if (Get(Knob::nvml_none) != 0) return kDriverNotLoaded;
  initialized = true;
  return NVML_SUCCESS;
}

TESSERA_NVML_FUNCTION nvmlShutdown() {
  initialized = false;
  return NVML_SUCCESS;
}

TESSERA_FAKE_EXPORT const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case 9:
      return "Driver Not Loaded";
    case NVML_ERROR_GPU_IS_LOST:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}

TESSERA_NVML_FUNCTION nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  if (!initialized) return NVML_ERROR_UNINITIALIZED;
  const int number = DeviceOfId(uuid);
  if (number < 0 || number >= Get(Knob::devices)) return NVML_ERROR_NOT_FOUND;
  *device = HandleOf(uuid[0] == 'M' ? kMigHandle : kGpuHandle, number);
  return NVML_SUCCESS;
}

TESSERA_NVML_FUNCTION nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int* is_mig) {
  *is_mig = IsMig(device) ? 1 : 0;
  return NVML_SUCCESS;
}

TESSERA_NVML_FUNCTION nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig,
                                                                   nvmlDevice_t* device) {
  if (!IsMig(mig)) return NVML_ERROR_INVALID_ARGUMENT;
  *device = HandleOf(kGpuHandle, NumberOf(mig));
  return NVML_SUCCESS;
}

TESSERA_NVML_FUNCTION nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* rates) {
  const nvmlReturn_t result = CheckGpu("nvmlDeviceGetUtilizationRates", device);
  if (result == NVML_SUCCESS)
    *rates = {static_cast<unsigned int>(GetFor(device, Knob::nvml_utilization)), 0};
  return result;
}

TESSERA_NVML_FUNCTION nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  const nvmlReturn_t result = Check("nvmlDeviceGetMemoryInfo", device);
  if (result != NVML_SUCCESS) return result;
  const unsigned long long total = 16 * kGiB;
  const unsigned long long ours = GetFor(device, Knob::nvml_pid) != 0 ? kGiB : 0;
  const auto others = static_cast<unsigned long long>(GetFor(device, Knob::nvml_others_bytes));
  *memory = {total, total - ours - others, ours + others};
  return NVML_SUCCESS;
}

TESSERA_NVML_FUNCTION nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                              unsigned int* count,
                                                              nvmlProcessInfo_t* infos) {
  const nvmlReturn_t result = Check("nvmlDeviceGetComputeRunningProcesses", device);
  if (result != NVML_SUCCESS) return result;
  unsigned int found = 0;
  const auto add = [&](int64_t pid, int64_t bytes) {
    if (pid == 0 || bytes == 0 || found == *count) return;
    infos[found++] = {static_cast<unsigned int>(pid), static_cast<unsigned long long>(bytes), 0, 0};
  };
  add(GetFor(device, Knob::nvml_pid), kGiB);
  add(kOthersPid, GetFor(device, Knob::nvml_others_bytes));
  *count = found;
  return NVML_SUCCESS;
}

TESSERA_NVML_FUNCTION nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* milliwatts) {
  return Answer("nvmlDeviceGetPowerUsage", device, milliwatts, 123'500);
}

TESSERA_NVML_FUNCTION nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device,
                                                      unsigned int* milliwatts) {
  return Answer("nvmlDeviceGetEnforcedPowerLimit", device, milliwatts, 700'000);
}

TESSERA_NVML_FUNCTION nvmlDeviceGetTemperature(nvmlDevice_t device,
                                               nvmlTemperatureSensors_t /*sensor*/,
                                               unsigned int* celsius) {
  return Answer("nvmlDeviceGetTemperature", device, celsius, 45);
}

TESSERA_NVML_FUNCTION nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                             unsigned int* megahertz) {
  return Answer("nvmlDeviceGetClockInfo", device, megahertz, type == NVML_CLOCK_SM ? 1980 : 2619);
}

TESSERA_NVML_FUNCTION nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                                unsigned long long* reasons) {
  return Answer("nvmlDeviceGetCurrentClocksThrottleReasons", device, reasons,
                GetFor(device, Knob::nvml_throttle));
}

TESSERA_NVML_FUNCTION nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                                  nvmlEccCounterType_t /*counter*/,
                                                  unsigned long long* count) {
  return Answer(
      "nvmlDeviceGetTotalEccErrors", device, count,
      type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED ? GetFor(device, Knob::nvml_ecc_uncorrected) : 0);
}

TESSERA_NVML_FUNCTION nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int* corrected,
                                                unsigned int* uncorrected, unsigned int* pending,
                                                unsigned int* failed) {
  *corrected = *uncorrected = *failed = 0;
  return Answer("nvmlDeviceGetRemappedRows", device, pending,
                GetFor(device, Knob::nvml_rows_pending));
}

TESSERA_NVML_FUNCTION nvmlDeviceGetFieldValues(nvmlDevice_t device, int count,
                                               nvmlFieldValue_t* values) {
  const nvmlReturn_t result = CheckGpu("nvmlDeviceGetFieldValues", device);
  for (int i = 0; result == NVML_SUCCESS && i < count; ++i) {
    nvmlFieldValue_t& field = values[i];
    field.nvmlReturn = NVML_SUCCESS;
    if (field.fieldId == NVML_FI_DEV_MEMORY_TEMP) {
      field.valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
      field.value.uiVal = 51;
      continue;
    }
    if (GetFor(device, Knob::nvml_no_links) != 0) field.nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    const bool is_bytes = field.fieldId == NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX ||
                          field.fieldId == NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX;
    if (is_bytes && field.scopeId != kNvmlAllLinks)
      ReportViolation("nvmlDeviceGetFieldValues: field %u needs a link", field.fieldId);
    field.valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    field.value.ullVal = is_bytes ? 8 : 1;
  }
  return result;
}

TESSERA_NVML_FUNCTION nvmlEventSetCreate(nvmlEventSet_t* set) {
  *set = reinterpret_cast<nvmlEventSet_t>(new EventSet);
  return NVML_SUCCESS;
}

TESSERA_NVML_FUNCTION nvmlEventSetFree(nvmlEventSet_t set) {
  delete reinterpret_cast<EventSet*>(set);
  return NVML_SUCCESS;
}

TESSERA_NVML_FUNCTION nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                               nvmlEventSet_t set) {
  const nvmlReturn_t result = CheckGpu("nvmlDeviceRegisterEvents", device);
  if (result == NVML_SUCCESS && types == nvmlEventTypeXidCriticalError)
    reinterpret_cast<EventSet*>(set)->registered[NumberOf(device)] = true;
  return result;
}

TESSERA_NVML_FUNCTION nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* event,
                                          unsigned int timeout_ms) {
  auto* const events = reinterpret_cast<EventSet*>(set);
  const auto device = [] { return static_cast<int>(Get(Knob::nvml_device)); };
  const auto has_event = [&] {
    return events->registered[device()] && Get(Knob::nvml_xid) != events->reported &&
           Get(Knob::nvml_xid) != 0;
  };
  // A file does not wake the wait, so it is read in between.
  for (unsigned int waited = 0;; waited += 20) {
    ReadKnobsFile();
    if (Await(std::chrono::milliseconds(std::min(20U, timeout_ms - waited)), has_event)) break;
    if (waited + 20 >= timeout_ms) return NVML_ERROR_TIMEOUT;
  }
  events->reported = Get(Knob::nvml_xid);
  *event = {HandleOf(kGpuHandle, device()), nvmlEventTypeXidCriticalError,
            static_cast<unsigned long long>(events->reported), 0, 0};
  return NVML_SUCCESS;
}

}  // extern "C"
