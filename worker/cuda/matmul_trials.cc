// Times algorithms for a matmul. matmul.cc calls FastestTrial while it plans, if
// TESSERA_CUDA_MATMUL_TRIALS asks for trials. The trials allocate memory and block until they have
// ended.
#include "worker/cuda/matmul_trials.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>

#include "worker/cuda/handle.h"

namespace tessera::worker::cuda {
namespace {

// The number of runs that are timed. One run before them warms up.
constexpr int kTimedRuns = 5;
constexpr std::chrono::seconds kTimeout(1);

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) {
    if (Cu().cuMemAlloc_v2(&address_, std::max<size_t>(bytes, 1)) != CUDA_SUCCESS) address_ = 0;
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    if (address_ != 0) Cu().cuMemFree_v2(address_);
  }
  CUdeviceptr get() const { return address_; }

 private:
  CUdeviceptr address_ = 0;
};

// Returns the number of bytes of an operand up to its last element, for the widest dtype.
size_t BytesOf(int64_t batch, int64_t rows, int64_t cols, const int64_t strides[3]) {
  constexpr int64_t kWidthMax = 8;
  return ((batch - 1) * strides[0] + (rows - 1) * strides[1] + (cols - 1) * strides[2] + 1) *
         kWidthMax;
}

// Returns whether the event is reached within the timeout.
bool AwaitEvent(CUevent event) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (true) {
    const CUresult result = Cu().cuEventQuery(event);
    if (result != CUDA_ERROR_NOT_READY) return result == CUDA_SUCCESS;
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
}

}  // namespace

int NumMatmulTrials() {
  const char* text = getenv("TESSERA_CUDA_MATMUL_TRIALS");
  return text == nullptr ? 0 : atoi(text);
}

// Runs each algorithm on memory with arbitrary contents and compares their times by events on the
// device. Any problem means that an algorithm is skipped, or that the library's first choice is
// taken, because planning must not fail on account of a trial.
int FastestTrial(tessera_context* context, const tessera_matmul_shape& shape,
                 const cublasLtMatmulHeuristicResult_t* algorithms, int count, const TrialFn& run) {
  if (context->MakeCurrent() != TESSERA_OK) return 0;
  size_t scratch_bytes = 0;
  for (int i = 0; i < count; ++i) {
    scratch_bytes = std::max(scratch_bytes, algorithms[i].workspaceSize);
  }
  const DeviceMemory a(BytesOf(shape.batch, shape.m, shape.k, shape.a_strides));
  const DeviceMemory b(BytesOf(shape.batch, shape.k, shape.n, shape.b_strides));
  const DeviceMemory c(BytesOf(shape.batch, shape.m, shape.n, shape.c_strides));
  const DeviceMemory scratch(scratch_bytes);
  if (a.get() == 0 || b.get() == 0 || c.get() == 0 || scratch.get() == 0) return 0;
  StreamHandle stream;
  EventHandle begin, end;
  const DriverApi& cu = Cu();
  if (cu.cuStreamCreateWithPriority(stream.out(), CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS ||
      cu.cuEventCreate(begin.out(), CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
      cu.cuEventCreate(end.out(), CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
    return 0;
  }
  const TrialBuffers buffers = {a.get(), b.get(), c.get(), scratch.get()};
  int best = 0;
  float best_ms = std::numeric_limits<float>::infinity();
  for (int i = 0; i < count; ++i) {
    bool ok = run(stream.get(), algorithms[i], buffers) == TESSERA_OK;
    ok = ok && cu.cuEventRecord(begin.get(), stream.get()) == CUDA_SUCCESS;
    for (int j = 0; ok && j < kTimedRuns; ++j) {
      ok = run(stream.get(), algorithms[i], buffers) == TESSERA_OK;
    }
    ok = ok && cu.cuEventRecord(end.get(), stream.get()) == CUDA_SUCCESS && AwaitEvent(end.get());
    float ms = 0;
    ok = ok && cu.cuEventElapsedTime(&ms, begin.get(), end.get()) == CUDA_SUCCESS;
    if (ok && ms < best_ms) {
      best = i;
      best_ms = ms;
    }
  }
  return best;
}

}  // namespace tessera::worker::cuda
