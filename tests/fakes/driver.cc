// Implements the functions of libcuda that the plugin calls, on host memory and threads. A mistake
// that the real driver notices gives the driver's error. A mistake that it need not notice is a
// violation. The plugin opens this library instead of libcuda if TESSERA_CUDA_DRIVER names it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fakes/ids.h"
#include "tests/fakes/image.h"
#include "tests/fakes/keep.h"
#include "tests/fakes/memory.h"
#include "tests/fakes/stream.h"
#include "worker/cuda/driver_api.h"

namespace tessera::worker::cuda {

struct CUmod_st {
  CUctx_st* context = nullptr;
  std::shared_ptr<fakes::Image> image;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;  // guarded by modules_mutex
  std::atomic<bool> unloaded{false};
  std::atomic<int> kernels_enqueued{0};
};

struct CUfunc_st {
  CUmod_st* module = nullptr;
  std::string name;
  int num_args = 0;
  std::atomic<uint32_t> shared_bytes_max{48 << 10};
};

}  // namespace tessera::worker::cuda

namespace tessera::fakes {
namespace {

constexpr uint32_t kSharedBytesOptIn = 227 << 10;
constexpr uint32_t kThreadsPerBlockMax = 1024;

std::atomic<bool> initialized{false};
std::mutex modules_mutex;

// Returns the physical numbers of the devices that this process sees.
std::vector<int> VisibleDevices() {
  const int count = static_cast<int>(Get(Knob::devices));
  const char* text = getenv("CUDA_VISIBLE_DEVICES");
  std::vector<int> devices;
  // A process sees at most one MIG device. Each fake GPU has one, whose id has the GPU's number.
  if (text != nullptr && strncmp(text, kMigPrefix, strlen(kMigPrefix)) == 0) {
    const int device = DeviceOfId(text);
    if (device >= 0 && device < count) devices.push_back(device);
    return devices;
  }
  if (text == nullptr) {
    for (int i = 0; i < count; ++i) devices.push_back(i);
    return devices;
  }
  for (const char* rest = text; *rest != '\0';) {
    char* end = nullptr;
    const long device = strtol(rest, &end, 10);
    // Like the driver's list, this one ends at the first number that is not a device.
    if (end == rest || device < 0 || device >= count) break;
    devices.push_back(static_cast<int>(device));
    rest = *end == ',' ? end + 1 : end;
  }
  return devices;
}

bool IsDevice(CUdevice device) { return device >= 0 && device < Get(Knob::devices); }

// Enqueues a copy of `bytes` bytes from `from` to `to`.
CUresult EnqueueCopy(CUstream stream, const char* name, Place to, Place from, size_t bytes) {
  std::byte* const target = to.data;
  const std::byte* const source = from.data;
  return Enqueue(stream, {name, {std::move(to), std::move(from)}, [=] {
                            memmove(target, source, bytes);
                            return CUDA_SUCCESS;
                          }});
}

// Finds the device memory that a copy reads or writes. A wrong address ends the context, as it
// would on a GPU.
CUresult FindDeviceEnd(CUstream stream, const char* call, CUdeviceptr address, size_t bytes,
                       Place* place) {
  if (!IsDeviceAddress(address)) {
    ReportViolation("%s: %#llx is no address of a device", call,
                    static_cast<unsigned long long>(address));
    return CUDA_ERROR_INVALID_VALUE;
  }
  *place = FindDevice(stream->context->device, address, bytes);
  if (place->data != nullptr) return CUDA_SUCCESS;
  char why[160];
  snprintf(why, sizeof why, "%zu bytes at %#llx are not inside one live allocation of the device",
           bytes, static_cast<unsigned long long>(address));
  EndContext(stream->context, CUDA_ERROR_ILLEGAL_ADDRESS, call, why);
  return CUDA_SUCCESS;
}

CUresult FindHostEnd(const char* call, const void* address, size_t bytes, Place* place) {
  if (IsDeviceAddress(reinterpret_cast<uint64_t>(address))) {
    ReportViolation("%s: %p is no address of the host", call, address);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *place = FindPinned(address, bytes);
  if (place->data != nullptr) return CUDA_SUCCESS;
  ReportViolation("%s: %zu bytes at %p of the host are not pinned (allocate_host)", call, bytes,
                  address);
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult EnqueueFill(CUstream stream, const char* call, CUdeviceptr to, size_t pitch,
                     unsigned char value, size_t width, size_t height) {
  if (const CUresult result = CheckStream(stream, call)) return result;
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  if (height > 1 && pitch < width) return CUDA_ERROR_INVALID_VALUE;
  Place place;
  if (const CUresult result =
          FindDeviceEnd(stream, call, to, (height - 1) * pitch + width, &place)) {
    return result;
  }
  if (place.data == nullptr) return CUDA_SUCCESS;
  std::byte* const data = place.data;
  return Enqueue(stream, {call, {std::move(place)}, [=] {
                            for (size_t i = 0; i < height; ++i)
                              memset(data + i * pitch, value, width);
                            return CUDA_SUCCESS;
                          }});
}

// A kernel's launch, with device addresses replaced by host addresses, and the memory that it
// holds.
struct BoundLaunch {
  Launch launch;
  std::vector<Place> holds;
};

// Arguments are numbers or addresses. A number that looks like a device address is taken for one.
CUresult BindArguments(CUstream stream, const CUfunc_st& function, void** params,
                       BoundLaunch* bound) {
  for (int i = 0; i < function.num_args; ++i) {
    uint64_t arg = 0;
    memcpy(&arg, params[i], sizeof arg);
    if (IsDeviceAddress(arg)) {
      Place place = FindDevice(stream->context->device, arg, 0);
      if (place.data == nullptr) {
        char why[160];
        snprintf(why, sizeof why, "argument %d, %#llx, is in no live allocation of the device", i,
                 static_cast<unsigned long long>(arg));
        EndContext(stream->context, CUDA_ERROR_ILLEGAL_ADDRESS, "kernel", why);
        return CUDA_SUCCESS;
      }
      arg = reinterpret_cast<uint64_t>(place.data);
      bound->holds.push_back(std::move(place));
    }
    bound->launch.args.push_back(arg);
  }
  return CUDA_SUCCESS;
}

// Returns the first bytes at each address argument of a kernel. The caller compares them later, to
// see what the kernel has written.
std::vector<std::vector<std::byte>> FirstBytes(const BoundLaunch& bound) {
  constexpr size_t kLooked = 64;
  std::vector<std::vector<std::byte>> out;
  for (const Place& place : bound.holds) {
    const Allocation& whole = *place.allocation;
    const size_t left = whole.size() - static_cast<size_t>(place.data - whole.data());
    out.emplace_back(place.data, place.data + std::min(left, kLooked));
  }
  return out;
}

void FlipChangedBit(const BoundLaunch& bound, const std::vector<std::vector<std::byte>>& before) {
  for (size_t p = 0; p < before.size(); ++p) {
    for (size_t i = 0; i < before[p].size(); ++i) {
      std::byte& now = bound.holds[p].data[i];
      if (now == before[p][i]) continue;
      now ^= std::byte{1};
      return;
    }
  }
}

CUresult RunKernel(const CUfunc_st& function, const BoundLaunch& bound) {
  if (CountDown(Knob::sticky_at)) return static_cast<CUresult>(Get(Knob::sticky_code));
  if (CountDown(Knob::stall_at) && !Await(std::chrono::milliseconds(Get(Knob::gate_timeout_ms)),
                                          [] { return Get(Knob::gate) > 0; })) {
    return CUDA_ERROR_LAUNCH_TIMEOUT;
  }
  const bool flips = Get(Knob::flip) > 0;
  const auto before = flips ? FirstBytes(bound) : std::vector<std::vector<std::byte>>();
  const CUresult result = function.module->image->Run(function.name, bound.launch);
  if (flips) FlipChangedBit(bound, before);
  Increment(Knob::kernels_run);
  for (const Place& place : bound.holds) {
    if (!place.allocation->Intact()) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  return result;
}

// Returns the driver's name of an error, or null for a number that is not listed here, which
// cuGetErrorName reports as an invalid value. The macro keeps each name equal to its enumerator.
const char* NameOf(CUresult error) {
  switch (error) {
#define TESSERA_CASE(name) \
  case name:               \
    return #name;
    TESSERA_CASE(CUDA_SUCCESS)
    TESSERA_CASE(CUDA_ERROR_INVALID_VALUE)
    TESSERA_CASE(CUDA_ERROR_OUT_OF_MEMORY)
    TESSERA_CASE(CUDA_ERROR_NOT_INITIALIZED)
    TESSERA_CASE(CUDA_ERROR_NO_DEVICE)
    TESSERA_CASE(CUDA_ERROR_INVALID_DEVICE)
    TESSERA_CASE(CUDA_ERROR_INVALID_IMAGE)
    TESSERA_CASE(CUDA_ERROR_INVALID_CONTEXT)
    TESSERA_CASE(CUDA_ERROR_ECC_UNCORRECTABLE)
    TESSERA_CASE(CUDA_ERROR_INVALID_PTX)
    TESSERA_CASE(CUDA_ERROR_INVALID_HANDLE)
    TESSERA_CASE(CUDA_ERROR_ILLEGAL_STATE)
    TESSERA_CASE(CUDA_ERROR_NOT_FOUND)
    TESSERA_CASE(CUDA_ERROR_ILLEGAL_ADDRESS)
    TESSERA_CASE(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
    TESSERA_CASE(CUDA_ERROR_LAUNCH_TIMEOUT)
    TESSERA_CASE(CUDA_ERROR_MISALIGNED_ADDRESS)
    TESSERA_CASE(CUDA_ERROR_LAUNCH_FAILED)
    TESSERA_CASE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    TESSERA_CASE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    TESSERA_CASE(CUDA_ERROR_STREAM_CAPTURE_MERGE)
    TESSERA_CASE(CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
    TESSERA_CASE(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
    TESSERA_CASE(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
    TESSERA_CASE(CUDA_ERROR_CAPTURED_EVENT)
#undef TESSERA_CASE
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace tessera::fakes

using namespace tessera::fakes;         // NOLINT(google-build-using-namespace): C names are global.
using namespace tessera::worker::cuda;  // NOLINT(google-build-using-namespace): as above.

extern "C" {

// Declares every function with the type that the plugin uses.
#define TESSERA_X(name, params) TESSERA_FAKE_EXPORT CUresult name params;
TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_X)
TESSERA_CUDA_DRIVER_OPTIONAL_FUNCTIONS(TESSERA_X)
#undef TESSERA_X

TESSERA_FAKE_EXPORT const char* tesseraFakeImageTarget() {
  switch (Get(Knob::ptx)) {
    case 80:
      return "nvptx-sm_80";
    case 90:
      return "nvptx-sm_90";
    default:
      return "simt-host";
  }
}

CUresult cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const int64_t error = Get(Knob::init_error)) return static_cast<CUresult>(error);
  initialized = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = static_cast<int>(Get(Knob::driver_version));
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = NameOf(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_SUCCESS ? "no error" : "as the fake driver has it";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
  *count = static_cast<int>(VisibleDevices().size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
  const std::vector<int> devices = VisibleDevices();
  if (ordinal < 0 || ordinal >= static_cast<int>(devices.size())) return CUDA_ERROR_INVALID_DEVICE;
  *device = devices[ordinal];
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, size, "Fake GPU %d", device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  *uuid = {};
  uuid->bytes[0] = '\xfa';
  uuid->bytes[1] = '\x4e';
  uuid->bytes[15] = static_cast<char>(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = static_cast<size_t>(Get(Knob::memory_bytes));
  return CUDA_SUCCESS;
}

// Returns the attributes that the plugin asks for, and an error for any other. The values are
// fixed, except for the compute capability, which a knob sets.
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  const int capability = static_cast<int>(Get(Knob::compute_capability));
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = kThreadsPerBlockMax;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *value = 48 << 10;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 4;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = capability / 10;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = capability % 10;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = kSharedBytesOptIn;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = RetainContext(device);
  return (*context)->sticky_error;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (ReleaseContext(device)) return CUDA_SUCCESS;
  ReportViolation("cuDevicePrimaryCtxRelease of device %d, which nobody retains", device);
  return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  SetCurrentContext(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (const CUresult result = CheckContext()) return result;
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  if (const CUresult result = CheckContext()) return result;
  *free = NumFreeBytes(CurrentContext()->device);
  *total = static_cast<size_t>(Get(Knob::memory_bytes));
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  if (const CUresult result = CheckContext()) return result;
  if (const CUresult result = CheckUncaptured("cuMemAlloc")) return result;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CountDown(Knob::oom_at)) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = AllocateDevice(CurrentContext()->device, bytes);
  return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  if (const CUresult result = CheckContext()) return result;
  if (const CUresult result = CheckUncaptured("cuMemFree")) return result;
  if (address == 0) return CUDA_SUCCESS;
  if (FreeDevice(CurrentContext()->device, address)) return CUDA_SUCCESS;
  ReportViolation("cuMemFree of %#llx, where no live allocation of device %d begins",
                  static_cast<unsigned long long>(address), CurrentContext()->device);
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocHost_v2(void** address, size_t bytes) {
  if (const CUresult result = CheckContext()) return result;
  if (const CUresult result = CheckUncaptured("cuMemAllocHost")) return result;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CountDown(Knob::oom_host_at)) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = AllocatePinned(bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* address) {
  if (const CUresult result = CheckContext()) return result;
  if (const CUresult result = CheckUncaptured("cuMemFreeHost")) return result;
  if (FreePinned(address)) return CUDA_SUCCESS;
  ReportViolation("cuMemFreeHost of %p, where no live pinned allocation begins", address);
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  if (const CUresult result = CheckContext()) return result;
  if (flags != CU_STREAM_NON_BLOCKING) {
    ReportViolation("a stream that waits for the default stream");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (priority < -5 || priority > 0) return CUDA_ERROR_INVALID_VALUE;
  *stream = NewStream();
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) { return DestroyStream(stream); }

CUresult cuStreamQuery(CUstream stream) { return QueryStream(stream); }

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckStream(stream, "cuStreamWaitEvent")) return result;
  return WaitEvent(stream, event);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  if (const CUresult result = CheckStream(stream, "cuStreamBeginCapture")) return result;
  return BeginCapture(stream, mode);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  if (const CUresult result = CheckStream(stream, "cuStreamEndCapture")) return result;
  return EndCapture(stream, graph);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  *mode = ExchangeCaptureMode(*mode);
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  if (const CUresult result = CheckContext()) return result;
  *event = NewEvent(/*timing=*/(flags & CU_EVENT_DISABLE_TIMING) == 0);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) { return DestroyEvent(event); }

CUresult cuEventRecord(CUevent event, CUstream stream) {
  if (const CUresult result = CheckStream(stream, "cuEventRecord")) return result;
  return RecordEvent(event, stream);
}

CUresult cuEventQuery(CUevent event) { return QueryEvent(event); }

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  const auto reached = [](CUevent event) {
    const std::lock_guard<std::mutex> lock(event->mutex);
    return event->timing ? event->point : nullptr;
  };
  const std::shared_ptr<Point> from = reached(begin), to = reached(end);
  if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!from->reached() || !to->reached()) return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(to->when() - from->when()).count();
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  static constexpr char kCall[] = "cuMemcpyHtoDAsync";
  if (const CUresult result = CheckStream(stream, kCall)) return result;
  Place target, source;
  if (const CUresult result = FindHostEnd(kCall, from, bytes, &source)) return result;
  if (const CUresult result = FindDeviceEnd(stream, kCall, to, bytes, &target)) return result;
  if (target.data == nullptr) return CUDA_SUCCESS;
  return EnqueueCopy(stream, kCall, std::move(target), std::move(source), bytes);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  static constexpr char kCall[] = "cuMemcpyDtoHAsync";
  if (const CUresult result = CheckStream(stream, kCall)) return result;
  Place target, source;
  if (const CUresult result = FindHostEnd(kCall, to, bytes, &target)) return result;
  if (const CUresult result = FindDeviceEnd(stream, kCall, from, bytes, &source)) return result;
  if (source.data == nullptr) return CUDA_SUCCESS;
  return EnqueueCopy(stream, kCall, std::move(target), std::move(source), bytes);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  static constexpr char kCall[] = "cuMemcpyDtoDAsync";
  if (const CUresult result = CheckStream(stream, kCall)) return result;
  if (to < from + bytes && from < to + bytes) {
    ReportViolation("%s: the two ranges overlap", kCall);
    return CUDA_ERROR_INVALID_VALUE;
  }
  Place target, source;
  if (const CUresult result = FindDeviceEnd(stream, kCall, to, bytes, &target)) return result;
  if (const CUresult result = FindDeviceEnd(stream, kCall, from, bytes, &source)) return result;
  if (target.data == nullptr || source.data == nullptr) return CUDA_SUCCESS;
  return EnqueueCopy(stream, kCall, std::move(target), std::move(source), bytes);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  return EnqueueFill(stream, "cuMemsetD8Async", to, bytes, value, bytes, 1);
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream) {
  return EnqueueFill(stream, "cuMemsetD2D8Async", to, pitch, value, width, height);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int num_options,
                            CUjit_option* options, void** values) {
  if (const CUresult result = CheckContext()) return result;
  if (const CUresult result = CheckUncaptured("cuModuleLoadDataEx")) return result;
  std::string why;
  std::shared_ptr<Image> loaded = LoadImage(image, &why);
  if (loaded == nullptr) {
    char* log = nullptr;
    size_t size = 0;
    for (unsigned int i = 0; i < num_options; ++i) {
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = static_cast<char*>(values[i]);
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
        size = reinterpret_cast<size_t>(values[i]);
      }
    }
    if (log != nullptr) snprintf(log, size, "%s", why.c_str());
    return CUDA_ERROR_INVALID_PTX;
  }
  auto* const created = KeepNew<CUmod_st>();
  created->context = CurrentContext();
  created->image = std::move(loaded);
  *module = created;
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  if (module->unloaded.exchange(true)) {
    ReportViolation("cuModuleUnload of a module that was unloaded");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (const int running = module->kernels_enqueued) {
    ReportViolation("cuModuleUnload while %d of its kernels are enqueued", running);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  if (module->unloaded) {
    ReportViolation("cuModuleGetFunction of a module that was unloaded");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const std::optional<int> num_args = module->image->NumArgs(name);
  if (!num_args) return CUDA_ERROR_NOT_FOUND;
  const std::lock_guard<std::mutex> lock(modules_mutex);
  std::unique_ptr<CUfunc_st>& slot = module->functions[name];
  if (slot == nullptr) {
    slot = std::make_unique<CUfunc_st>();
    slot->module = module;
    slot->name = name;
    slot->num_args = *num_args;
  }
  *function = slot.get();
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule module) {
  const std::lock_guard<std::mutex> lock(modules_mutex);
  *count = static_cast<unsigned int>(module->functions.size());
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count, CUmodule module) {
  const std::lock_guard<std::mutex> lock(modules_mutex);
  for (const auto& [name, function] : module->functions) {
    if (count-- == 0) break;
    *functions++ = function.get();
  }
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
  return function->module->unloaded ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      static_cast<uint32_t>(value) > kSharedBytesOptIn) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  function->shared_bytes_max = value;
  return CUDA_SUCCESS;
}

// Checks a launch like the real driver, and more strictly: the number of arguments must be right.
// Device addresses are translated here, at enqueue time, so that the launch holds the memory until
// the kernel has run.
CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** params, void** extra) {
  if (const CUresult result = CheckStream(stream, "cuLaunchKernel")) return result;
  if (function->module->unloaded) {
    ReportViolation("cuLaunchKernel of %s, whose module was unloaded", function->name.c_str());
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (function->module->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  if (extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool empty = grid_x * grid_y * grid_z == 0 || block_x * block_y * block_z == 0;
  if (empty || uint64_t{block_x} * block_y * block_z > kThreadsPerBlockMax || grid_y > 65535 ||
      grid_z > 65535 || shared_bytes > function->shared_bytes_max) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (CountDown(Knob::launch_error_at)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  int num_params = 0;
  while (params != nullptr && params[num_params] != nullptr) ++num_params;
  if (num_params != function->num_args) {
    ReportViolation("cuLaunchKernel of %s with %d arguments; it takes %d", function->name.c_str(),
                    num_params, function->num_args);
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto bound = std::make_shared<BoundLaunch>();
  bound->launch = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, {}};
  if (const CUresult result = BindArguments(stream, *function, params, bound.get())) return result;
  if (stream->context->sticky_error != CUDA_SUCCESS)
    return CUDA_SUCCESS;  // BindArguments has ended the context
  // Counts the launches and graphs that still need the module.
  const std::shared_ptr<CUfunc_st> enqueued(function,
                                            [](CUfunc_st* f) { --f->module->kernels_enqueued; });
  ++function->module->kernels_enqueued;
  std::vector<Place> holds = bound->holds;
  return Enqueue(stream, {"kernel", std::move(holds),
                          [enqueued, bound] { return RunKernel(*enqueued, *bound); }});
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  if (const CUresult result = CheckContext()) return result;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto* const created = KeepNew<CUgraphExec_st>();
  created->context = CurrentContext();
  created->nodes = std::make_shared<const std::vector<Work>>(graph->nodes);
  *exec = created;
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  if (const CUresult result = CheckStream(stream, "cuGraphLaunch")) return result;
  return LaunchGraph(exec, stream);
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  if (exec->destroyed.exchange(true)) {
    ReportViolation("cuGraphExecDestroy of a graph that was destroyed");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  // A launch in progress keeps the nodes.
  exec->nodes = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  delete graph;
  return CUDA_SUCCESS;
}

}  // extern "C"
