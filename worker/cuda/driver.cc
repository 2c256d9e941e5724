// Opens the NVIDIA driver and translates its errors. plugin.cc opens it to count devices, and
// context.cc to open one. Every reason why it cannot be used becomes a single line that says what
// to do, since workers without a GPU come here, too.
#include "worker/cuda/driver.h"

#include <string>

#include "worker/cuda/library.h"

namespace tessera::worker::cuda {
namespace {

int FindFunctions(const Library& library, DriverApi* api) {
  const char* missing = nullptr;
  const auto find = [&]<class F>(F* slot, const char* name, bool needed) {
    *slot = library.Find<F>(name);
    if (needed && *slot == nullptr && missing == nullptr) missing = name;
  };
#define TESSERA_X(name, params) find(&api->name, #name, /*needed=*/true);
  TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
#define TESSERA_X(name, params) find(&api->name, #name, /*needed=*/false);
  TESSERA_CUDA_DRIVER_OPTIONAL_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
  if (missing == nullptr) return TESSERA_OK;
  return Fail(TESSERA_UNAVAILABLE,
              "the NVIDIA driver %s has no function %s: it is too old or no driver; install one of "
              "CUDA 11.8 (driver 520) or newer",
              library.name().c_str(), missing);
}

std::string DescribeResult(const DriverApi& api, CUresult result) {
  const char* name = nullptr;
  const char* words = nullptr;
  std::string text = "error " + std::to_string(result);
  if (api.cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) {
    text += std::string(" ") + name;
  }
  if (api.cuGetErrorString(result, &words) == CUDA_SUCCESS && words != nullptr) {
    text += std::string(" (") + words + ")";
  }
  return text;
}

// Returns the code for cuInit's result. If it is an error, fails with advice.
int CheckInit(const DriverApi& api, CUresult result) {
  switch (result) {
    case CUDA_SUCCESS:
      return TESSERA_OK;
    case CUDA_ERROR_NO_DEVICE:
      return Fail(TESSERA_UNAVAILABLE,
                  "the NVIDIA driver finds no GPU (cuInit: error 100); check nvidia-smi, and that "
                  "CUDA_VISIBLE_DEVICES or the container hides no GPU");
    case CUDA_ERROR_INSUFFICIENT_DRIVER:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return Fail(TESSERA_UNAVAILABLE,
                  "the NVIDIA driver's library and its kernel module do not fit (cuInit: error "
                  "%u); install matching versions, or restart after an update",
                  result);
    case CUDA_ERROR_STUB_LIBRARY:
      return Fail(TESSERA_UNAVAILABLE,
                  "libcuda.so.1 is the toolkit's stub, not a driver (cuInit: error 34); take the "
                  "folder of stubs off the library path");
    default:
      return Fail(TESSERA_UNAVAILABLE,
                  "the NVIDIA driver does not start: cuInit: %s; check nvidia-smi and dmesg",
                  DescribeResult(api, result).c_str());
  }
}

int Load(Driver* driver) {
  const Library library = Library::Open("TESSERA_CUDA_DRIVER", {"libcuda.so.1"});
  if (!library.ok()) {
    return Fail(TESSERA_UNAVAILABLE,
                "no NVIDIA driver: %s; install the driver, or give the container its libraries",
                library.error().c_str());
  }
  TESSERA_CUDA_TRY(FindFunctions(library, &driver->api));
  driver->image_target = library.Find<ImageTargetFn>(kImageTargetSymbol);
  TESSERA_CUDA_TRY(CheckInit(driver->api, driver->api.cuInit(0)));
  if (driver->api.cuDriverGetVersion(&driver->version) != CUDA_SUCCESS) driver->version = 0;
  if (driver->version < kDriverVersionMin) {
    return Fail(TESSERA_UNAVAILABLE,
                "the NVIDIA driver is too old: it is of CUDA %d.%d, and our kernels (PTX 7.8) need "
                "CUDA %d.%d (driver 520) or newer; update the driver",
                driver->version / 1000, driver->version % 1000 / 10, kDriverVersionMin / 1000,
                kDriverVersionMin % 1000 / 10);
  }
  return TESSERA_OK;
}

LoadedOnce<Driver, Load> the_driver;

// Returns the code of a result that is not sticky.
int CodeOf(CUresult result) {
  switch (result) {
    case CUDA_SUCCESS:
      return TESSERA_OK;
    case CUDA_ERROR_NOT_READY:
      return TESSERA_NOT_READY;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return TESSERA_OUT_OF_MEMORY;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return TESSERA_UNAVAILABLE;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
      return TESSERA_UNSUPPORTED;
    default:
      break;
  }
  const bool capture = result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
                       result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  return capture ? TESSERA_UNSUPPORTED : TESSERA_INVALID;
}

}  // namespace

int OpenDriver(const Driver** driver) { return the_driver.Get(driver); }

const Driver& GetDriver() { return *the_driver.get(); }

bool IsSticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

int CheckDriver(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return TESSERA_OK;
  // The result is no failure, and callers poll for it, so no text is made.
  if (result == CUDA_ERROR_NOT_READY) return TESSERA_NOT_READY;
  const std::string name = DescribeResult(Cu(), result);
  if (IsSticky(result)) {
    return Fail(TESSERA_STICKY,
                "%s: %s: the device's context is lost, and with it every array in this process; "
                "end the process and start another",
                call, name.c_str());
  }
  return Fail(CodeOf(result), "%s: %s", call, name.c_str());
}

}  // namespace tessera::worker::cuda
