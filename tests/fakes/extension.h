// The fake driver's interface for the fakes of libraries that enqueue work on its streams, in
// addition to control.h and memory.h.
#pragma once
#include <functional>
#include <vector>

#include "tests/fakes/control.h"
#include "tests/fakes/memory.h"
#include "worker/cuda/driver_api.h"

namespace tessera::fakes {

// Puts `run` on the stream, or into the capture that it is part of; it may run many times then.
// `name` is never freed. A result of `run` other than CUDA_SUCCESS ends the context.
TESSERA_FAKE_EXPORT worker::cuda::CUresult EnqueueOn(worker::cuda::CUstream stream,
                                                     const char* name, std::vector<Place> holds,
                                                     std::function<worker::cuda::CUresult()> run);

TESSERA_FAKE_EXPORT int DeviceOf(worker::cuda::CUstream stream);
// The device of the calling thread's context, or -1.
TESSERA_FAKE_EXPORT int CurrentDevice();

// Says whether the calling thread is inside an NCCL group, in which no call may block.
TESSERA_FAKE_EXPORT void SetInGroup(bool in_group);

// Counts enqueues that a library will make on the stream later; others must not enqueue before.
TESSERA_FAKE_EXPORT void Promise(worker::cuda::CUstream stream, int change);

}  // namespace tessera::fakes
