// A device's context in this process, and the objects that wait for their destruction. Destroying a
// module or a communicator at once could block, so DestroyLater and PollLater put it off to a call
// of Reap, which functions that create objects make.
#include "worker/cuda/context.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "worker/cuda/capture_mode.h"
#include "worker/cuda/error.h"

// NOLINTNEXTLINE(google-build-using-namespace): the types of the C API are in no namespace.
using namespace tessera::worker::cuda;

int tessera_context::Open(int32_t device, tessera_context** context) {
  const Driver* driver = nullptr;
  TESSERA_CUDA_TRY(OpenDriver(&driver));
  CUdevice handle = 0;
  if (Cu().cuDeviceGet(&handle, device) != CUDA_SUCCESS) {
    int count = 0;
    Cu().cuDeviceGetCount(&count);
    return Fail(TESSERA_UNAVAILABLE, "there is no GPU %d: the driver shows %d; check the number",
                device, count);
  }
  std::unique_ptr<tessera_context> opened(new tessera_context(handle));
  TESSERA_CUDA_TRY(opened->Check(Cu().cuDevicePrimaryCtxRetain(&opened->context_, handle),
                                 "cuDevicePrimaryCtxRetain"));
  TESSERA_CUDA_TRY(opened->MakeCurrent());
  *context = opened.release();
  return TESSERA_OK;
}

tessera_context::~tessera_context() {
  if (context_ == nullptr) return;
  if (MakeCurrent() == TESSERA_OK) Reap();
  removed_marks_.clear();
  matmul_library_ = nullptr;
  // The driver frees everything that is still pending together with the context.
  Cu().cuDevicePrimaryCtxRelease_v2(device_);
}

int tessera_context::MakeCurrent() {
  if (sticky_.load(std::memory_order_acquire)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return Fail(TESSERA_STICKY, "%s", sticky_text_.c_str());
  }
  return Check(Cu().cuCtxSetCurrent(context_), "cuCtxSetCurrent");
}

int tessera_context::Check(CUresult result, const char* call) {
  const int code = CheckDriver(result, call);
  if (code != TESSERA_STICKY) return code;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!sticky_.load(std::memory_order_relaxed)) {
    sticky_text_ = ErrorText();
    sticky_.store(true, std::memory_order_release);
  }
  return Fail(TESSERA_STICKY, "%s", sticky_text_.c_str());
}

int tessera_context::Query(CUdevice_attribute attribute, int32_t* value) {
  return Check(Cu().cuDeviceGetAttribute(value, attribute, device_), "cuDeviceGetAttribute");
}

// Fills in the description of the device: its name, memory, sizes, and the target for which kernels
// must be compiled. The fake driver names its own target, so that tests compile for the emulator. A
// device that is too old for our PTX is refused here, before anything is compiled for it.
int tessera_context::Info(tessera_device_info* info) {
  TESSERA_CUDA_TRY(MakeCurrent());
  Reap();
  *info = {};
  int32_t major = 0, minor = 0;
  TESSERA_CUDA_TRY(Query(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major));
  TESSERA_CUDA_TRY(Query(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor));
  const ImageTargetFn image_target = GetDriver().image_target;
  if (image_target != nullptr) {
    snprintf(info->target, sizeof info->target, "%s", image_target());
  } else if (major >= 8) {
    // PTX for 9.0 runs on later devices, too.
    snprintf(info->target, sizeof info->target, "nvptx-sm_%s", major >= 9 ? "90" : "80");
  } else {
    return Fail(TESSERA_UNSUPPORTED,
                "GPU %d has compute capability %d.%d; our kernels need 8.0 (A100) or newer",
                device_, major, minor);
  }
  TESSERA_CUDA_TRY(
      Check(Cu().cuDeviceGetName(info->name, sizeof info->name, device_), "cuDeviceGetName"));
  size_t total = 0, free = 0, all = 0;
  TESSERA_CUDA_TRY(Check(Cu().cuDeviceTotalMem_v2(&total, device_), "cuDeviceTotalMem"));
  TESSERA_CUDA_TRY(Check(Cu().cuMemGetInfo_v2(&free, &all), "cuMemGetInfo"));
  info->memory_bytes = static_cast<int64_t>(total);
  info->free_bytes = static_cast<int64_t>(free);
  TESSERA_CUDA_TRY(Query(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info->num_cores));
  TESSERA_CUDA_TRY(Query(CU_DEVICE_ATTRIBUTE_WARP_SIZE, &info->warp_size));
  TESSERA_CUDA_TRY(Query(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &info->max_threads_per_block));
  TESSERA_CUDA_TRY(
      Query(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &info->shared_bytes_per_block));
  return TESSERA_OK;
}

std::shared_ptr<const void> tessera_context::MatmulLibrary(
    const std::function<std::shared_ptr<const void>()>& start) {
  const std::lock_guard<std::mutex> lock(matmul_library_mutex_);
  if (matmul_library_ == nullptr) matmul_library_ = start();
  return matmul_library_;
}

void tessera_context::AddStream(CUstream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.push_back(stream);
}

void tessera_context::RemoveStream(CUstream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase(streams_, stream);
  if (Mark mark = RecordMark(stream)) removed_marks_.push_back(std::move(mark));
}

void tessera_context::OnCaptureBegin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++active_captures_;
}

void tessera_context::OnCaptureEnd() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --active_captures_;
}

tessera_context::Mark tessera_context::RecordMark(CUstream stream) {
  EventHandle event;
  if (Cu().cuEventCreate(event.out(), CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return nullptr;
  if (Cu().cuEventRecord(event.get(), stream) != CUDA_SUCCESS) return nullptr;
  return std::make_shared<EventHandle>(std::move(event));
}

bool tessera_context::IsReached(const Mark& mark) {
  const RelaxedCapture relaxed;
  return Cu().cuEventQuery(mark->get()) != CUDA_ERROR_NOT_READY;
}

bool tessera_context::RecordMarks(std::vector<Mark>* marks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (active_captures_ > 0) return false;
  *marks = removed_marks_;
  for (const CUstream stream : streams_) {
    if (Mark mark = RecordMark(stream)) marks->push_back(std::move(mark));
  }
  return true;
}

void tessera_context::DestroyLater(std::function<void()> destroy) {
  PollLater(
      [this, destroy = std::move(destroy), marks = std::vector<Mark>(), marked = false]() mutable {
        if (!marked) marked = RecordMarks(&marks);
        if (!marked) return false;
        std::erase_if(marks, IsReached);
        if (!marks.empty()) return false;
        destroy();
        return true;
      });
}

void tessera_context::PollLater(std::function<bool()> ended) {
  if (MakeCurrent() == TESSERA_OK && ended()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  deferred_polls_.push_back(std::move(ended));
}

void tessera_context::Reap() {
  std::vector<std::function<bool()>> pending;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (active_captures_ > 0) return;
    std::erase_if(removed_marks_, IsReached);
    pending.swap(deferred_polls_);
  }
  for (std::function<bool()>& ended : pending) {
    if (ended()) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    deferred_polls_.push_back(std::move(ended));
  }
}
