// The part of the CUDA driver API that we use: types, constants and the table of entry points that
// driver.h fills in. We declare it ourselves, so that the plugin builds on any machine.
//
// This is the ABI of cuda.h 13.0 (CUDA_VERSION 13000). worker/cuda/abi_check.cc compares it with
// the real header where there is one. Names are NVIDIA's, in our namespace.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tessera::worker::cuda {

struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

struct CUuuid {
  char bytes[16];
};

using CUresult = uint32_t;
using CUdevice = int;
using CUdeviceptr = uint64_t;
using CUcontext = CUctx_st*;
using CUmodule = CUmod_st*;
using CUfunction = CUfunc_st*;
using CUstream = CUstream_st*;
using CUevent = CUevent_st*;
using CUgraph = CUgraph_st*;
using CUgraphExec = CUgraphExec_st*;

// The results that we distinguish or name. Each row is X(name, value).
// clang-format off
#define TESSERA_CUDA_RESULTS(X)                                                                   \
  X(CUDA_SUCCESS, 0)                                                                              \
  X(CUDA_ERROR_INVALID_VALUE, 1)                                                                  \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                  \
  X(CUDA_ERROR_NOT_INITIALIZED, 3)                                                                \
  X(CUDA_ERROR_DEINITIALIZED, 4)                                                                  \
  X(CUDA_ERROR_STUB_LIBRARY, 34)                                                                  \
  X(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, 36)                                                    \
  X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)                                                            \
  X(CUDA_ERROR_NO_DEVICE, 100)                                                                    \
  X(CUDA_ERROR_INVALID_DEVICE, 101)                                                               \
  X(CUDA_ERROR_INVALID_IMAGE, 200)                                                                \
  X(CUDA_ERROR_INVALID_CONTEXT, 201)                                                              \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                                            \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                                            \
  X(CUDA_ERROR_INVALID_PTX, 218)                                                                  \
  X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)                                                         \
  X(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 221)                                                       \
  X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)                                                      \
  X(CUDA_ERROR_CONTAINED, 226)                                                                    \
  X(CUDA_ERROR_INVALID_HANDLE, 400)                                                               \
  X(CUDA_ERROR_ILLEGAL_STATE, 401)                                                                \
  X(CUDA_ERROR_NOT_FOUND, 500)                                                                    \
  X(CUDA_ERROR_NOT_READY, 600)                                                                    \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                              \
  X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)                                                      \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                                                               \
  X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                                                         \
  X(CUDA_ERROR_ASSERT, 710)                                                                       \
  X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                                                         \
  X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                                                          \
  X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                                                           \
  X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                                                        \
  X(CUDA_ERROR_INVALID_PC, 718)                                                                   \
  X(CUDA_ERROR_LAUNCH_FAILED, 719)                                                                \
  X(CUDA_ERROR_TENSOR_MEMORY_LEAK, 721)                                                           \
  X(CUDA_ERROR_NOT_SUPPORTED, 801)                                                                \
  X(CUDA_ERROR_SYSTEM_NOT_READY, 802)                                                             \
  X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)                                                       \
  X(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804)                                               \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                                                   \
  X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)                                                   \
  X(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902)                                                         \
  X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903)                                                     \
  X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904)                                                      \
  X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905)                                                     \
  X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)                                                      \
  X(CUDA_ERROR_CAPTURED_EVENT, 907)                                                               \
  X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908)                                                  \
  X(CUDA_ERROR_UNKNOWN, 999)
// clang-format on
enum : CUresult {
#define TESSERA_X(name, value) name = value,
  TESSERA_CUDA_RESULTS(TESSERA_X)
#undef TESSERA_X
  // The result is in NVIDIA's table for the runtime API only, but some drivers return it from
  // cuInit.
  CUDA_ERROR_INSUFFICIENT_DRIVER = 35,
};

// Each row is X(name, value).
// clang-format off
#define TESSERA_CUDA_DEVICE_ATTRIBUTES(X)                                                         \
  X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)                                                 \
  X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8)                                           \
  X(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10)                                                            \
  X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                 \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                             \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                             \
  X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)
// clang-format on
enum CUdevice_attribute : uint32_t {
#define TESSERA_X(name, value) name = value,
  TESSERA_CUDA_DEVICE_ATTRIBUTES(TESSERA_X)
#undef TESSERA_X
};

enum CUfunction_attribute : uint32_t { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };

enum CUjit_option : uint32_t {
  CU_JIT_ERROR_LOG_BUFFER = 5,
  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
};

enum CUstreamCaptureMode : uint32_t {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

inline constexpr unsigned int CU_STREAM_NON_BLOCKING = 1;
inline constexpr unsigned int CU_EVENT_DEFAULT = 0;
inline constexpr unsigned int CU_EVENT_DISABLE_TIMING = 2;

// Every function of the driver that we call. Each row is X(symbol, parameters), and all functions
// return CUresult. The symbol is the one in the library, with its version suffix.
// clang-format off
#define TESSERA_CUDA_DRIVER_FUNCTIONS(X)                                                          \
  X(cuInit, (unsigned int flags))                                                                 \
  X(cuDriverGetVersion, (int* version))                                                           \
  X(cuGetErrorName, (CUresult error, const char** text))                                          \
  X(cuGetErrorString, (CUresult error, const char** text))                                        \
  X(cuDeviceGetCount, (int* count))                                                               \
  X(cuDeviceGet, (CUdevice* device, int ordinal))                                                 \
  X(cuDeviceGetName, (char* name, int size, CUdevice device))                                     \
  X(cuDeviceGetUuid_v2, (CUuuid* uuid, CUdevice device))                                          \
  X(cuDeviceTotalMem_v2, (size_t* bytes, CUdevice device))                                        \
  X(cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device))            \
  X(cuDevicePrimaryCtxRetain, (CUcontext* context, CUdevice device))                              \
  X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                              \
  X(cuCtxSetCurrent, (CUcontext context))                                                         \
  X(cuCtxGetStreamPriorityRange, (int* least, int* greatest))                                     \
  X(cuMemGetInfo_v2, (size_t* free, size_t* total))                                               \
  X(cuMemAlloc_v2, (CUdeviceptr* address, size_t bytes))                                          \
  X(cuMemFree_v2, (CUdeviceptr address))                                                          \
  X(cuMemAllocHost_v2, (void** address, size_t bytes))                                            \
  X(cuMemFreeHost, (void* address))                                                               \
  X(cuStreamCreateWithPriority, (CUstream* stream, unsigned int flags, int priority))             \
  X(cuStreamDestroy_v2, (CUstream stream))                                                        \
  X(cuStreamQuery, (CUstream stream))                                                             \
  X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags))                      \
  X(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))                         \
  X(cuStreamEndCapture, (CUstream stream, CUgraph* graph))                                        \
  X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode* mode))                               \
  X(cuEventCreate, (CUevent* event, unsigned int flags))                                          \
  X(cuEventDestroy_v2, (CUevent event))                                                           \
  X(cuEventRecord, (CUevent event, CUstream stream))                                              \
  X(cuEventQuery, (CUevent event))                                                                \
  X(cuEventElapsedTime, (float* milliseconds, CUevent begin, CUevent end))                        \
  X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))      \
  X(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream))            \
  X(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))      \
  X(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))        \
  X(cuMemsetD2D8Async, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width,          \
                        size_t height, CUstream stream))                                          \
  X(cuModuleLoadDataEx, (CUmodule* module, const void* image, unsigned int num_options,           \
                         CUjit_option* options, void** values))                                   \
  X(cuModuleUnload, (CUmodule module))                                                            \
  X(cuModuleGetFunction, (CUfunction* function, CUmodule module, const char* name))               \
  X(cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value))         \
  X(cuLaunchKernel, (CUfunction function, unsigned int grid_x, unsigned int grid_y,               \
                     unsigned int grid_z, unsigned int block_x, unsigned int block_y,             \
                     unsigned int block_z, unsigned int shared_bytes, CUstream stream,            \
                     void** params, void** extra))                                                \
  X(cuGraphInstantiateWithFlags, (CUgraphExec* exec, CUgraph graph, unsigned long long flags))    \
  X(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                           \
  X(cuGraphExecDestroy, (CUgraphExec exec))                                                       \
  X(cuGraphDestroy, (CUgraph graph))

// Functions that older drivers lack and that we can do without. They are null in the table if the
// driver lacks them.
#define TESSERA_CUDA_DRIVER_OPTIONAL_FUNCTIONS(X)                                                 \
  X(cuModuleGetFunctionCount, (unsigned int* count, CUmodule module))                             \
  X(cuModuleEnumerateFunctions, (CUfunction* functions, unsigned int count, CUmodule module))     \
  X(cuFuncLoad, (CUfunction function))
// clang-format on

struct DriverApi {
#define TESSERA_X(name, params) CUresult(*name) params = nullptr;
  TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_X)
  TESSERA_CUDA_DRIVER_OPTIONAL_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
};

// The fake driver of the tests exports this symbol. The function returns the target whose code the
// driver runs ("simt-host").
inline constexpr char kImageTargetSymbol[] = "tesseraFakeImageTarget";
using ImageTargetFn = const char* (*)();

}  // namespace tessera::worker::cuda
