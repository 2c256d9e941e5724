// What the fake driver offers to the fakes of libraries that enqueue work on its streams, beside
// control.h and memory.h.
#pragma once
#include <functional>
#include <vector>

#include "tests/fakes/control.h"
#include "tests/fakes/memory.h"
#include "worker/cuda/driver_api.h"

namespace tessera::fakes {

// Puts `run` on the stream, or into the capture that it is part of; it may run many times then.
// `name` lives for ever. What `run` answers ends the context, unless it is CUDA_SUCCESS.
TESSERA_FAKE_EXPORT worker::cuda::CUresult EnqueueOn(worker::cuda::CUstream stream,
                                                     const char* name, std::vector<Place> holds,
                                                     std::function<worker::cuda::CUresult()> run);

TESSERA_FAKE_EXPORT int DeviceOf(worker::cuda::CUstream stream);
// The device of the calling thread's context, or -1.
TESSERA_FAKE_EXPORT int CurrentDevice();

// Whether the calling thread is inside a group of NCCL's, in which nothing may wait.
TESSERA_FAKE_EXPORT void SetInGroup(bool in_group);

// Enqueues that a library will make on the stream later, and before which nobody else may.
TESSERA_FAKE_EXPORT void Promise(worker::cuda::CUstream stream, int change);

}  // namespace tessera::fakes
