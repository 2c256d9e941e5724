// Memory of the device, pinned memory of the host, and copies between them.
#pragma once
#include "worker/cuda/stream.h"

namespace tessera::worker::cuda {

// Free waits for the device's work to end. The other functions do not.
int Allocate(tessera_context* context, int64_t bytes, uint64_t* address);
int Free(tessera_context* context, uint64_t address);
int AllocateHost(tessera_context* context, int64_t bytes, void** address);
int FreeHost(tessera_context* context, void* address);

int CopyToDevice(tessera_stream* stream, uint64_t to, const void* from, int64_t bytes);
int CopyToHost(tessera_stream* stream, void* to, uint64_t from, int64_t bytes);
int Copy(tessera_stream* stream, uint64_t to, uint64_t from, int64_t bytes);
int FillZero(tessera_stream* stream, uint64_t to, int64_t bytes);

}  // namespace tessera::worker::cuda
