// Allocations and copies of the plugin's table. The device backend allocates its arena and its
// pinned buffers here once, and then only copies.
#include "worker/cuda/memory.h"

#include <cinttypes>

#include "worker/cuda/capture_mode.h"
#include "worker/cuda/error.h"

namespace tessera::worker::cuda {
namespace {

int CheckSize(const char* where, int64_t bytes, int64_t bytes_min) {
  if (bytes >= bytes_min) return TESSERA_OK;
  return Fail(TESSERA_INVALID, "%s: %" PRId64 " bytes; expected at least %" PRId64, where, bytes,
              bytes_min);
}

int OutOfMemory(const char* where, int64_t bytes) {
  size_t free = 0, total = 0;
  Cu().cuMemGetInfo_v2(&free, &total);
  return Fail(TESSERA_OUT_OF_MEMORY,
              "%s: %" PRId64
              " bytes: %s; %zu of the device's %zu bytes are "
              "free",
              where, bytes, ErrorText(), free, total);
}

// Makes the driver's call `enqueue`, unless there is nothing to copy.
template <class F>
int Enqueue(tessera_stream* stream, const char* where, int64_t bytes, const char* call,
            const F& enqueue) {
  TESSERA_CUDA_TRY(CheckSize(where, bytes, 0));
  TESSERA_CUDA_TRY(stream->context()->MakeCurrent());
  return bytes == 0 ? static_cast<int>(TESSERA_OK) : stream->context()->Check(enqueue(), call);
}

}  // namespace

int Allocate(tessera_context* context, int64_t bytes, uint64_t* address) {
  TESSERA_CUDA_TRY(CheckSize("allocate", bytes, 1));
  TESSERA_CUDA_TRY(context->MakeCurrent());
  const RelaxedCapture relaxed;
  const int code = context->Check(Cu().cuMemAlloc_v2(address, bytes), "cuMemAlloc");
  return code == TESSERA_OUT_OF_MEMORY ? OutOfMemory("allocate", bytes) : code;
}

int Free(tessera_context* context, uint64_t address) {
  TESSERA_CUDA_TRY(context->MakeCurrent());
  const RelaxedCapture relaxed;
  return context->Check(Cu().cuMemFree_v2(address), "cuMemFree");
}

int AllocateHost(tessera_context* context, int64_t bytes, void** address) {
  TESSERA_CUDA_TRY(CheckSize("allocate_host", bytes, 1));
  TESSERA_CUDA_TRY(context->MakeCurrent());
  const RelaxedCapture relaxed;
  const int code = context->Check(Cu().cuMemAllocHost_v2(address, bytes), "cuMemAllocHost");
  if (code != TESSERA_OUT_OF_MEMORY) return code;
  return Fail(code, "allocate_host: %" PRId64 " bytes: %s; the host cannot pin that much", bytes,
              ErrorText());
}

int FreeHost(tessera_context* context, void* address) {
  TESSERA_CUDA_TRY(context->MakeCurrent());
  const RelaxedCapture relaxed;
  return context->Check(Cu().cuMemFreeHost(address), "cuMemFreeHost");
}

int CopyToDevice(tessera_stream* stream, uint64_t to, const void* from, int64_t bytes) {
  return Enqueue(stream, "copy_to_device", bytes, "cuMemcpyHtoDAsync",
                 [&] { return Cu().cuMemcpyHtoDAsync_v2(to, from, bytes, stream->get()); });
}

int CopyToHost(tessera_stream* stream, void* to, uint64_t from, int64_t bytes) {
  return Enqueue(stream, "copy_to_host", bytes, "cuMemcpyDtoHAsync",
                 [&] { return Cu().cuMemcpyDtoHAsync_v2(to, from, bytes, stream->get()); });
}

int Copy(tessera_stream* stream, uint64_t to, uint64_t from, int64_t bytes) {
  return Enqueue(stream, "copy", bytes, "cuMemcpyDtoDAsync",
                 [&] { return Cu().cuMemcpyDtoDAsync_v2(to, from, bytes, stream->get()); });
}

int FillZero(tessera_stream* stream, uint64_t to, int64_t bytes) {
  return Enqueue(stream, "fill_zero", bytes, "cuMemsetD8Async",
                 [&] { return Cu().cuMemsetD8Async(to, 0, bytes, stream->get()); });
}

}  // namespace tessera::worker::cuda
