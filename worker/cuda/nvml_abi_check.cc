// Compiles only if our declarations of NVML agree with NVIDIA's header. It is built wherever nvml.h
// is installed.
//
// Our header comes first, because NVIDIA's header defines some of the names as macros.
#include "worker/cuda/nvml_api.h"

namespace tessera::worker::cuda {

// Copies of our constants under names that no macro hides.
enum : unsigned long long {
#define TESSERA_X(name, value) Our_##name = name,
  TESSERA_NVML_RESULTS(TESSERA_X) TESSERA_NVML_FIELDS(TESSERA_X)
      TESSERA_NVML_THROTTLE_REASONS(TESSERA_X)
#undef TESSERA_X
          Our_nvmlEventTypeXidCriticalError = nvmlEventTypeXidCriticalError,
};

}  // namespace tessera::worker::cuda

#include <nvml.h>

#include <cstddef>

#include "worker/cuda/abi_check.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace tessera::worker::cuda {
namespace {

#define TESSERA_X(result, name, params) \
  static_assert(SameCall<decltype(NvmlApi::name), decltype(&::name)>::value, #name);
TESSERA_NVML_FUNCTIONS(TESSERA_X)
#undef TESSERA_X

#define TESSERA_X(name, value) \
  static_assert(Our_##name == static_cast<unsigned long long>(name), #name);
TESSERA_NVML_FIELDS(TESSERA_X)
TESSERA_NVML_THROTTLE_REASONS(TESSERA_X)
#undef TESSERA_X
#define TESSERA_X(name, value) TESSERA_SAME(name);
TESSERA_NVML_RESULTS(TESSERA_X)
#undef TESSERA_X
static_assert(Our_nvmlEventTypeXidCriticalError == nvmlEventTypeXidCriticalError);
TESSERA_SAME(NVML_TEMPERATURE_GPU);
TESSERA_SAME(NVML_CLOCK_SM);
TESSERA_SAME(NVML_CLOCK_MEM);
TESSERA_SAME(NVML_MEMORY_ERROR_TYPE_CORRECTED);
TESSERA_SAME(NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
TESSERA_SAME(NVML_VOLATILE_ECC);
TESSERA_SAME(NVML_VALUE_TYPE_DOUBLE);
TESSERA_SAME(NVML_VALUE_TYPE_UNSIGNED_INT);
TESSERA_SAME(NVML_VALUE_TYPE_UNSIGNED_LONG);
TESSERA_SAME(NVML_VALUE_TYPE_UNSIGNED_LONG_LONG);
TESSERA_SAME(NVML_VALUE_TYPE_SIGNED_LONG_LONG);
TESSERA_SAME(NVML_VALUE_TYPE_SIGNED_INT);

static_assert(sizeof(nvmlUtilization_t) == sizeof(::nvmlUtilization_t));
static_assert(offsetof(nvmlUtilization_t, gpu) == offsetof(::nvmlUtilization_t, gpu));
static_assert(sizeof(nvmlMemory_t) == sizeof(::nvmlMemory_t));
static_assert(offsetof(nvmlMemory_t, total) == offsetof(::nvmlMemory_t, total));
static_assert(offsetof(nvmlMemory_t, used) == offsetof(::nvmlMemory_t, used));
static_assert(sizeof(nvmlProcessInfo_t) == sizeof(::nvmlProcessInfo_t));
static_assert(offsetof(nvmlProcessInfo_t, pid) == offsetof(::nvmlProcessInfo_t, pid));
static_assert(offsetof(nvmlProcessInfo_t, usedGpuMemory) ==
              offsetof(::nvmlProcessInfo_t, usedGpuMemory));
static_assert(sizeof(nvmlEventData_t) == sizeof(::nvmlEventData_t));
static_assert(offsetof(nvmlEventData_t, eventType) == offsetof(::nvmlEventData_t, eventType));
static_assert(offsetof(nvmlEventData_t, eventData) == offsetof(::nvmlEventData_t, eventData));
static_assert(sizeof(nvmlFieldValue_t) == sizeof(::nvmlFieldValue_t));
static_assert(offsetof(nvmlFieldValue_t, scopeId) == offsetof(::nvmlFieldValue_t, scopeId));
static_assert(offsetof(nvmlFieldValue_t, valueType) == offsetof(::nvmlFieldValue_t, valueType));
static_assert(offsetof(nvmlFieldValue_t, nvmlReturn) == offsetof(::nvmlFieldValue_t, nvmlReturn));
static_assert(offsetof(nvmlFieldValue_t, value) == offsetof(::nvmlFieldValue_t, value));

}  // namespace
}  // namespace tessera::worker::cuda
