// Functions of the fake driver for the other fake libraries (NCCL, cuBLASLt), which enqueue work on
// its streams. These libraries also use control.h and memory.h.
#pragma once
#include <functional>
#include <vector>

#include "tests/fakes/control.h"
#include "tests/fakes/memory.h"
#include "worker/cuda/driver_api.h"

namespace tessera::fakes {

// Puts `run` on the stream or, if the stream takes part in a capture, into the capture. `run` may
// run many times if it becomes part of a graph. The memory in `holds` must not be freed while the
// work uses it. `name` must live as long as the process. If `run` returns anything but
// CUDA_SUCCESS, the stream's context ends.
TESSERA_FAKE_EXPORT worker::cuda::CUresult EnqueueOn(worker::cuda::CUstream stream,
                                                     const char* name, std::vector<Place> holds,
                                                     std::function<worker::cuda::CUresult()> run);

TESSERA_FAKE_EXPORT int DeviceOf(worker::cuda::CUstream stream);
// Returns the device of the calling thread's context, or -1 if there is none.
TESSERA_FAKE_EXPORT int CurrentDevice();

// Tells the driver whether the calling thread is inside an NCCL group, in which no call may block.
TESSERA_FAKE_EXPORT void SetInGroup(bool in_group);

// Changes the number of enqueues that a library has promised to make on the stream later. Until
// they are made, nobody else may enqueue on it.
TESSERA_FAKE_EXPORT void ChangePromised(worker::cuda::CUstream stream, int change);

}  // namespace tessera::fakes
