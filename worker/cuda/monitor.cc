// Monitors GPUs by NVML. A worker's daemon runs a process (worker/device/monitor_process.h) that
// calls the functions here by the plugin's table.
#include "worker/cuda/monitor.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>

#include "worker/cuda/error.h"
#include "worker/cuda/library.h"

namespace tessera::worker::cuda {
namespace {

int Load(NvmlApi* api) {
  const Library library =
      Library::Open("TESSERA_CUDA_NVML", {"libnvidia-ml.so.1", "libnvidia-ml.so"});
  if (!library.ok()) {
    return Fail(TESSERA_UNAVAILABLE,
                "no NVML: %s; give the container the driver's utilities "
                "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
                library.error().c_str());
  }
  const char* missing = nullptr;
#define TESSERA_X(result, function, params)                             \
  api->function = library.Find<decltype(NvmlApi::function)>(#function); \
  if (api->function == nullptr && missing == nullptr) missing = #function;
  TESSERA_NVML_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
  if (missing != nullptr) {
    return Fail(TESSERA_UNAVAILABLE, "the NVML in %s has no function %s; update the driver",
                library.name().c_str(), missing);
  }
  if (const nvmlReturn_t result = api->nvmlInit_v2(); result != NVML_SUCCESS) {
    return Fail(TESSERA_UNAVAILABLE, "NVML does not start: nvmlInit: %s; check nvidia-smi",
                api->nvmlErrorString(result));
  }
  return TESSERA_OK;
}

LoadedOnce<NvmlApi, Load> the_nvml;

const NvmlApi& Nvml() { return *the_nvml.get(); }

constexpr double kUnknown = -1;
constexpr double kMega = 1e6, kMilli = 1e-3, kKibi = 1024, kPercent = 0.01;

// Reads figures of one GPU and remembers the first result that says that the GPU is lost.
class Reader {
 public:
  explicit Reader(nvmlDevice_t device) : device_(device) {}

  // Returns the result of a function of NVML that reads a number, times `scale`; -1 if the function
  // does not succeed.
  template <class Number, class... Parameters, class... Args>
  double Read(nvmlReturn_t (*function)(nvmlDevice_t, Parameters...), double scale, Args... args) {
    Number value = 0;
    return Succeeded(function(device_, args..., &value)) ? static_cast<double>(value) * scale
                                                         : kUnknown;
  }
  bool Succeeded(nvmlReturn_t result) {
    if (result == NVML_ERROR_GPU_IS_LOST || result == NVML_ERROR_RESET_REQUIRED) lost_ = result;
    return result == NVML_SUCCESS;
  }
  // Reads fields, each with its scope. The result is -1 for a field that is unknown.
  template <size_t n>
  std::array<double, n> ReadFields(const unsigned int (&fields)[n], unsigned int scope) {
    std::array<nvmlFieldValue_t, n> values = {};
    for (size_t i = 0; i < n; ++i) {
      values[i].fieldId = fields[i];
      values[i].scopeId = scope;
    }
    std::array<double, n> numbers;
    const bool ok =
        Succeeded(Nvml().nvmlDeviceGetFieldValues(device_, static_cast<int>(n), values.data()));
    for (size_t i = 0; i < n; ++i)
      numbers[i] = ok && values[i].nvmlReturn == NVML_SUCCESS ? NumberOf(values[i]) : kUnknown;
    return numbers;
  }
  nvmlReturn_t lost() const { return lost_; }

 private:
  static double NumberOf(const nvmlFieldValue_t& field) {
    switch (field.valueType) {
      case NVML_VALUE_TYPE_DOUBLE:
        return field.value.dVal;
      case NVML_VALUE_TYPE_UNSIGNED_INT:
        return field.value.uiVal;
      case NVML_VALUE_TYPE_UNSIGNED_LONG:
        return static_cast<double>(field.value.ulVal);
      case NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
        return static_cast<double>(field.value.ullVal);
      case NVML_VALUE_TYPE_SIGNED_LONG_LONG:
        return static_cast<double>(field.value.sllVal);
      case NVML_VALUE_TYPE_SIGNED_INT:
        return field.value.siVal;
    }
    return kUnknown;
  }

  const nvmlDevice_t device_;
  nvmlReturn_t lost_ = NVML_SUCCESS;
};

// Returns the sum of the numbers that are known; -1 if none is.
double SumOfKnown(double a, double b, double c) {
  double sum = kUnknown;
  for (const double number : {a, b, c}) {
    if (number == kUnknown) continue;
    sum = (sum == kUnknown ? 0 : sum) + number;
  }
  return sum;
}

void ReadMemory(nvmlDevice_t device, int (*is_ours)(int32_t pid), Reader* reader,
                tessera_device_reading* reading) {
  nvmlMemory_t memory = {};
  if (!reader->Succeeded(Nvml().nvmlDeviceGetMemoryInfo(device, &memory))) return;
  reading->memory_total_bytes = static_cast<double>(memory.total);
  reading->memory_used_bytes = static_cast<double>(memory.used);
  std::array<nvmlProcessInfo_t, 128> processes = {};
  auto count = static_cast<unsigned int>(processes.size());
  if (!reader->Succeeded(
          Nvml().nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes.data())))
    return;
  double ours = 0, others = 0;
  bool any_ours = false;
  for (unsigned int i = 0; i < std::min<size_t>(count, processes.size()); ++i) {
    const bool is_our_process = is_ours(static_cast<int32_t>(processes[i].pid)) != 0;
    any_ours |= is_our_process;
    if (processes[i].usedGpuMemory == kNvmlNotAvailable) continue;
    (is_our_process ? ours : others) += static_cast<double>(processes[i].usedGpuMemory);
  }
  // In a container with a pid namespace of its own, NVML's pids mean nothing: none of them is ours.
  if (!any_ours) return;
  reading->memory_worker_bytes = ours;
  reading->memory_others_bytes = others;
}

void ReadThrottling(Reader* reader, tessera_device_reading* reading) {
  const double reasons = reader->Read<unsigned long long>(
      Nvml().nvmlDeviceGetCurrentClocksThrottleReasons, /*scale=*/1);
  if (reasons == kUnknown) return;
  const auto bits = static_cast<unsigned long long>(reasons);
  const auto any = [bits](unsigned long long mask) { return (bits & mask) != 0 ? 1.0 : 0.0; };
  const unsigned long long thermal =
      nvmlClocksThrottleReasonSwThermalSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown;
  reading->throttled_by_power = any(nvmlClocksThrottleReasonSwPowerCap);
  reading->throttled_by_temperature = any(thermal);
  reading->throttled_by_power_brake = any(nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
  // HwSlowdown is also set together with the two more special reasons of the hardware.
  const bool is_special = any(nvmlClocksThrottleReasonHwThermalSlowdown |
                              nvmlClocksThrottleReasonHwPowerBrakeSlowdown) != 0;
  reading->throttled_by_hardware = is_special ? 0 : any(nvmlClocksThrottleReasonHwSlowdown);
}

void ReadErrors(nvmlDevice_t device, Reader* reader, tessera_device_reading* reading) {
  const auto errors = [&](nvmlMemoryErrorType_t type) {
    return reader->Read<unsigned long long>(Nvml().nvmlDeviceGetTotalEccErrors, /*scale=*/1, type,
                                            NVML_VOLATILE_ECC);
  };
  reading->ecc_corrected = errors(NVML_MEMORY_ERROR_TYPE_CORRECTED);
  reading->ecc_uncorrected = errors(NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
  unsigned int corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (reader->Succeeded(
          Nvml().nvmlDeviceGetRemappedRows(device, &corrected, &uncorrected, &pending, &failed))) {
    reading->rows_pending = pending != 0 ? 1 : 0;
    reading->rows_failed = failed != 0 ? 1 : 0;
  }
}

void ReadLinks(Reader* reader, tessera_device_reading* reading) {
  const auto [sent, received] = reader->ReadFields(
      {NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX},
      kNvmlAllLinks);
  if (sent != kUnknown) reading->link_sent_bytes = sent * kKibi;
  if (received != kUnknown) reading->link_received_bytes = received * kKibi;
  const auto [crc, replay, recovery, memory_temperature] = reader->ReadFields(
      {NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
       NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, NVML_FI_DEV_MEMORY_TEMP},
      /*scope=*/0);
  reading->link_errors = SumOfKnown(crc, replay, recovery);
  // A memory without a sensor is said to have 0 degrees.
  if (memory_temperature > 0) reading->memory_temperature_celsius = memory_temperature;
}

}  // namespace
}  // namespace tessera::worker::cuda

// NOLINTNEXTLINE(google-build-using-namespace): the types of the C API are in no namespace.
using namespace tessera::worker::cuda;

int tessera_monitor::Open(const char* const* ids, int32_t num_devices, tessera_monitor** monitor) {
  const NvmlApi* api = nullptr;
  TESSERA_CUDA_TRY(the_nvml.Get(&api));
  std::unique_ptr<tessera_monitor> opened(new tessera_monitor);
  for (int32_t d = 0; d < num_devices; ++d) TESSERA_CUDA_TRY(opened->AddDevice(ids[d]));
  TESSERA_CUDA_TRY(opened->RegisterEvents());
  *monitor = opened.release();
  return TESSERA_OK;
}

tessera_monitor::~tessera_monitor() {
  if (set_ != nullptr) Nvml().nvmlEventSetFree(set_);
}

int tessera_monitor::AddDevice(const std::string& id) {
  Device device = {id, nullptr, nullptr};
  if (const nvmlReturn_t result = Nvml().nvmlDeviceGetHandleByUUID(id.c_str(), &device.handle);
      result != NVML_SUCCESS) {
    return Fail(TESSERA_UNAVAILABLE, "NVML has no device %s: %s", id.c_str(),
                Nvml().nvmlErrorString(result));
  }
  device.gpu = device.handle;
  unsigned int is_mig = 0;
  if (Nvml().nvmlDeviceIsMigDeviceHandle(device.handle, &is_mig) == NVML_SUCCESS && is_mig != 0)
    Nvml().nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device.handle, &device.gpu);
  devices_.push_back(device);
  return TESSERA_OK;
}

// Asks for the errors of all GPUs. A GPU that cannot report errors is only read.
int tessera_monitor::RegisterEvents() {
  if (const nvmlReturn_t result = Nvml().nvmlEventSetCreate(&set_); result != NVML_SUCCESS) {
    return Fail(TESSERA_UNAVAILABLE, "nvmlEventSetCreate: %s", Nvml().nvmlErrorString(result));
  }
  bool any = false;
  for (const Device& device : devices_)
    any |= Nvml().nvmlDeviceRegisterEvents(device.gpu, nvmlEventTypeXidCriticalError, set_) ==
           NVML_SUCCESS;
  if (!any) {
    Nvml().nvmlEventSetFree(set_);
    set_ = nullptr;
  }
  return TESSERA_OK;
}

// Reads all figures. A figure that NVML does not know stays -1, and only a GPU that is lost is an
// error, so that an older GPU or driver costs no more than the figures that it lacks.
int tessera_monitor::Read(int32_t device, int (*is_ours)(int32_t pid),
                          tessera_device_reading* reading) {
  if (device < 0 || device >= static_cast<int32_t>(devices_.size()))
    return Fail(TESSERA_INVALID, "the monitor has no device %d", device);
  const Device& d = devices_[device];
  std::fill_n(reinterpret_cast<double*>(reading), sizeof *reading / sizeof(double), kUnknown);
  Reader reader(d.gpu);
  nvmlUtilization_t utilization = {};
  if (reader.Succeeded(Nvml().nvmlDeviceGetUtilizationRates(d.gpu, &utilization)))
    reading->utilization = utilization.gpu * kPercent;
  ReadMemory(d.handle, is_ours, &reader, reading);
  reading->power_watts = reader.Read<unsigned int>(Nvml().nvmlDeviceGetPowerUsage, kMilli);
  reading->power_limit_watts =
      reader.Read<unsigned int>(Nvml().nvmlDeviceGetEnforcedPowerLimit, kMilli);
  reading->temperature_celsius =
      reader.Read<unsigned int>(Nvml().nvmlDeviceGetTemperature, /*scale=*/1, NVML_TEMPERATURE_GPU);
  reading->clock_hertz =
      reader.Read<unsigned int>(Nvml().nvmlDeviceGetClockInfo, kMega, NVML_CLOCK_SM);
  reading->memory_clock_hertz =
      reader.Read<unsigned int>(Nvml().nvmlDeviceGetClockInfo, kMega, NVML_CLOCK_MEM);
  ReadThrottling(&reader, reading);
  ReadErrors(d.gpu, &reader, reading);
  ReadLinks(&reader, reading);
  if (reader.lost() != NVML_SUCCESS)
    return Fail(TESSERA_STICKY, "NVML: %s", Nvml().nvmlErrorString(reader.lost()));
  return TESSERA_OK;
}

int tessera_monitor::Wait(int32_t timeout_ms, int32_t* device, int64_t* code) {
  if (events_.empty()) {
    if (set_ == nullptr) return Fail(TESSERA_UNSUPPORTED, "no GPU reports errors");
    nvmlEventData_t event = {};
    const nvmlReturn_t result =
        Nvml().nvmlEventSetWait_v2(set_, &event, static_cast<unsigned int>(timeout_ms));
    if (result == NVML_ERROR_TIMEOUT) return TESSERA_NOT_READY;
    if (result != NVML_SUCCESS)
      return Fail(TESSERA_STICKY, "NVML: nvmlEventSetWait: %s", Nvml().nvmlErrorString(result));
    for (size_t d = 0; d < devices_.size(); ++d)
      if (devices_[d].gpu == event.device)
        events_.push_back({static_cast<int32_t>(d), static_cast<int64_t>(event.eventData)});
    if (events_.empty()) return TESSERA_NOT_READY;
  }
  *device = events_.front().device;
  *code = events_.front().code;
  events_.erase(events_.begin());
  return TESSERA_OK;
}
