// The fake driver's interface, in addition to control.h and memory.h, for those fake libraries that
// enqueue work on its streams.
#pragma once
#include <functional>
#include <vector>

#include "tests/fakes/control.h"
#include "tests/fakes/memory.h"
#include "worker/cuda/driver_api.h"

namespace tessera::fakes {

// Puts `run` on the stream, or into the capture that the stream takes part in. In a graph `run` may
// run many times. `name` is never freed. If `run` returns anything but CUDA_SUCCESS, the context
// ends.
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
TESSERA_FAKE_EXPORT void Promise(worker::cuda::CUstream stream, int change);

}  // namespace tessera::fakes
