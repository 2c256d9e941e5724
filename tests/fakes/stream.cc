// Implements the fake driver's contexts, streams, events and captures; driver.cc calls it. Each
// stream runs its work on a thread of its own, so that the plugin's code meets real concurrency.
// The rules of captures are those of the real driver, with the same errors. Other mistakes that the
// real driver need not notice are violations.
#include "tests/fakes/stream.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>

#include "tests/fakes/extension.h"
#include "tests/fakes/keep.h"

namespace tessera::fakes {
namespace {

thread_local CUcontext current_context = nullptr;
thread_local CUstreamCaptureMode thread_capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
thread_local bool thread_in_group = false;

// The captures are never destroyed, because threads of streams outlive main.
struct Captures {
  std::mutex mutex;
  std::set<Capture*> active;
};
Captures& TheCaptures() {
  static auto* const captures = new Captures;
  return *captures;
}

struct PrimaryContexts {
  std::mutex mutex;
  std::map<int, CUcontext> by_device;  // null while the device's context is not retained
};
PrimaryContexts& ThePrimaryContexts() {
  static auto* const contexts = new PrimaryContexts;
  return *contexts;
}

// Changes the number of pieces of enqueued work that use the memory that this work holds.
void AddUsers(const Work& work, int change) {
  for (const Place& place : work.holds) {
    if (place.allocation != nullptr) place.allocation->num_users += change;
  }
}

// Runs one piece of work. If it fails or holds freed memory, its context ends.
void RunWork(CUcontext context, const Work& work) {
  if (context->sticky_error != CUDA_SUCCESS) return;
  for (const Place& place : work.holds) {
    if (place.allocation != nullptr && place.allocation->freed) {
      EndContext(context, CUDA_ERROR_ILLEGAL_ADDRESS, work.name, "uses memory that was freed");
      return;
    }
  }
  const CUresult result = work.run();
  if (result != CUDA_SUCCESS) EndContext(context, result, work.name, "failed");
}

void RunQueue(CUstream stream) {
  std::unique_lock<std::mutex> lock(stream->mutex);
  while (true) {
    stream->changed.wait(lock, [&] { return stream->closed || !stream->queue.empty(); });
    if (stream->queue.empty()) return;
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    stream->busy = true;
    lock.unlock();
    RunWork(stream->context, work);
    AddUsers(work, -1);
    work = {};
    lock.lock();
    stream->busy = false;
  }
}

// Requires the lock of captures.
void Invalidate(Capture* capture, CUresult error) {
  if (capture->failure == CUDA_SUCCESS) capture->failure = error;
}

bool Covers(const CapturePosition& position, const CapturePosition& other) {
  return std::all_of(other.begin(), other.end(), [&](const auto& entry) {
    const auto it = position.find(entry.first);
    return it != position.end() && it->second >= entry.second;
  });
}

void Merge(const CapturePosition& from, CapturePosition* into) {
  for (const auto& [stream, count] : from) (*into)[stream] = std::max((*into)[stream], count);
}

// Reports a violation if the calling thread is inside an NCCL group, where `call` could wait for
// work that the group has not launched. Otherwise returns success.
CUresult CheckUngrouped(const char* call) {
  if (!thread_in_group) return CUDA_SUCCESS;
  ReportViolation(
      "%s between ncclGroupStart and ncclGroupEnd may wait for what the group has not "
      "launched",
      call);
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

void Point::Reach() {
  when_ = std::chrono::steady_clock::now();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    reached_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void Point::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return reached_.load(); });
}

CUcontext CurrentContext() { return current_context; }
void SetCurrentContext(CUcontext context) { current_context = context; }

CUcontext RetainContext(int device) {
  PrimaryContexts& primary = ThePrimaryContexts();
  const std::lock_guard<std::mutex> lock(primary.mutex);
  CUcontext& context = primary.by_device[device];
  if (context == nullptr) {
    context = KeepNew<CUctx_st>();
    context->device = device;
  }
  ++context->num_retained;
  return context;
}

bool ReleaseContext(int device) {
  PrimaryContexts& primary = ThePrimaryContexts();
  const std::lock_guard<std::mutex> lock(primary.mutex);
  CUcontext& context = primary.by_device[device];
  if (context == nullptr) return false;
  if (--context->num_retained > 0) return true;
  // The streams of the old context run nothing any more, and the next caller gets a new context.
  context->sticky_error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  context = nullptr;
  FreeAll(device);
  return true;
}

void EndContext(CUcontext context, CUresult error, const char* work, const char* why) {
  CUresult none = CUDA_SUCCESS;
  if (!context->sticky_error.compare_exchange_strong(none, error)) return;
  fprintf(stderr, "fake device %d: %s: %s: every later call answers error %u\n", context->device,
          work, why, error);
}

CUresult CheckContext() {
  if (current_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return current_context->sticky_error;
}

CUresult CheckStream(CUstream stream, const char* call) {
  if (const CUresult result = CheckContext()) return result;
  if (stream == nullptr) {
    ReportViolation("%s on the default stream, which waits for the others", call);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (stream->destroyed) {
    ReportViolation("%s on a stream that was destroyed", call);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (stream->context != current_context) {
    ReportViolation("%s on a stream of device %d by a thread whose context is of device %d", call,
                    stream->context->device, current_context->device);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (stream->num_promised > 0) {
    ReportViolation("%s on a stream on which NCCL, whose call is in progress, has yet to enqueue",
                    call);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}

CUresult CheckUncaptured(const char* call) {
  if (const CUresult result = CheckUngrouped(call)) return result;
  if (thread_capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  Captures& captures = TheCaptures();
  const std::lock_guard<std::mutex> lock(captures.mutex);
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : captures.active) {
    const bool ours = capture->thread == std::this_thread::get_id();
    const bool forbidden = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL
                               ? ours || thread_capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL
                               : ours && capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    if (!forbidden) continue;
    Invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUstream NewStream() {
  auto* const stream = KeepNew<CUstream_st>();
  stream->context = current_context;
  std::thread(RunQueue, stream).detach();
  return stream;
}

CUresult DestroyStream(CUstream stream) {
  if (stream == nullptr || stream->destroyed.exchange(true)) {
    ReportViolation("cuStreamDestroy of a stream that was destroyed");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  {
    const std::lock_guard<std::mutex> lock(stream->mutex);
    stream->closed = true;
  }
  stream->changed.notify_all();
  return CUDA_SUCCESS;
}

CUresult QueryStream(CUstream stream) {
  if (const CUresult result = CheckContext()) return result;
  if (const CUresult result = CheckUngrouped("cuStreamQuery")) return result;
  if (stream == nullptr) return CUDA_SUCCESS;
  if (stream->destroyed) {
    ReportViolation("cuStreamQuery of a stream that was destroyed");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const std::lock_guard<std::mutex> lock(stream->mutex);
  return stream->queue.empty() && !stream->busy ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult Enqueue(CUstream stream, Work work) {
  {
    Captures& captures = TheCaptures();
    const std::lock_guard<std::mutex> lock(captures.mutex);
    if (Capture* capture = stream->capture) {
      if (capture->failure != CUDA_SUCCESS) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      ++capture->positions[stream][stream];
      capture->nodes.push_back(std::move(work));
      return CUDA_SUCCESS;
    }
  }
  AddUsers(work, 1);
  {
    const std::lock_guard<std::mutex> lock(stream->mutex);
    stream->queue.push_back(std::move(work));
  }
  stream->changed.notify_all();
  return CUDA_SUCCESS;
}

CUevent NewEvent(bool timing) {
  auto* const event = KeepNew<CUevent_st>();
  event->context = current_context;
  event->timing = timing;
  return event;
}

CUresult DestroyEvent(CUevent event) {
  if (event == nullptr || event->destroyed.exchange(true)) {
    ReportViolation("cuEventDestroy of an event that was destroyed");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}

// Records an event on a stream. In a capture the event remembers the stream's position in the
// capture. Otherwise it puts a new point on the queue. The destructor of that work reaches the
// point. It also runs if the context has ended, so that nobody waits for the point for ever.
CUresult RecordEvent(CUevent event, CUstream stream) {
  if (event->destroyed) {
    ReportViolation("cuEventRecord of an event that was destroyed");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (event->context != stream->context) {
    ReportViolation("cuEventRecord of an event of device %d on a stream of device %d",
                    event->context->device, stream->context->device);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Captures& captures = TheCaptures();
  {
    const std::lock_guard<std::mutex> lock(captures.mutex);
    if (Capture* capture = stream->capture) {
      if (capture->failure != CUDA_SUCCESS) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      const std::lock_guard<std::mutex> event_lock(event->mutex);
      event->capture = capture;
      event->position = capture->positions[stream];
      event->point = nullptr;
      return CUDA_SUCCESS;
    }
  }
  auto point = std::make_shared<Point>();
  {
    const std::lock_guard<std::mutex> lock(event->mutex);
    event->capture = nullptr;
    event->point = point;
  }
  // The destructor of the work reaches the point, and not its run function, because points must
  // also be reached on a lost context, where no work runs.
  {
    const std::lock_guard<std::mutex> lock(stream->mutex);
    stream->queue.push_back({"event", {}, [] { return CUDA_SUCCESS; }});
    // The guard is destroyed with the work, whether the work has run or not.
    stream->queue.back().run = [guard = std::shared_ptr<Point>(point.get(), [point](Point*) {
                                  point->Reach();
                                })] { return CUDA_SUCCESS; };
  }
  stream->changed.notify_all();
  return CUDA_SUCCESS;
}

// Makes a stream wait for an event. If the event was recorded in a capture, the stream joins that
// capture. The driver's rules apply: captures may not merge, and a captured stream may not wait for
// an event from outside.
CUresult WaitEvent(CUstream stream, CUevent event) {
  if (event->destroyed) {
    ReportViolation("cuStreamWaitEvent for an event that was destroyed");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  std::shared_ptr<Point> point;
  {
    Captures& captures = TheCaptures();
    const std::lock_guard<std::mutex> lock(captures.mutex);
    const std::lock_guard<std::mutex> event_lock(event->mutex);
    point = event->point;
    if (event->capture != nullptr) {
      if (captures.active.count(event->capture) == 0) return CUDA_ERROR_CAPTURED_EVENT;
      if (stream->capture == nullptr) {
        stream->capture = event->capture;
      } else if (stream->capture != event->capture) {
        Invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        Invalidate(event->capture, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
      }
      Merge(event->position, &stream->capture->positions[stream]);
      return CUDA_SUCCESS;
    }
    if (stream->capture != nullptr) {
      if (point == nullptr) return CUDA_SUCCESS;
      Invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
  }
  if (point == nullptr) return CUDA_SUCCESS;
  return Enqueue(stream, {"wait", {}, [point] {
                            point->Wait();
                            return CUDA_SUCCESS;
                          }});
}

CUresult QueryEvent(CUevent event) {
  if (event->destroyed) {
    ReportViolation("cuEventQuery of an event that was destroyed");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (const CUresult result = CheckUncaptured("cuEventQuery")) return result;
  if (event->context->sticky_error != CUDA_SUCCESS) return event->context->sticky_error;
  const std::lock_guard<std::mutex> lock(event->mutex);
  if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  return event->point == nullptr || event->point->reached() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult BeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  Captures& captures = TheCaptures();
  const std::lock_guard<std::mutex> lock(captures.mutex);
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  // The capture is kept, because events still point to it.
  auto* const capture = KeepNew<Capture>();
  capture->origin = stream;
  capture->thread = std::this_thread::get_id();
  capture->mode = mode;
  capture->positions[stream] = {};
  stream->capture = capture;
  captures.active.insert(capture);
  return CUDA_SUCCESS;
}

CUresult EndCapture(CUstream stream, CUgraph* graph) {
  *graph = nullptr;
  Captures& captures = TheCaptures();
  const std::lock_guard<std::mutex> lock(captures.mutex);
  Capture* const capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->thread != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  captures.active.erase(capture);
  bool joined = true;
  for (const auto& [member, position] : capture->positions) {
    member->capture = nullptr;
    joined = joined && Covers(capture->positions[stream], position);
  }
  std::vector<Work> nodes = std::move(capture->nodes);
  capture->nodes.clear();
  if (capture->failure != CUDA_SUCCESS) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = new CUgraph_st{std::move(nodes)};
  return CUDA_SUCCESS;
}

CUstreamCaptureMode ExchangeCaptureMode(CUstreamCaptureMode mode) {
  return std::exchange(thread_capture_mode, mode);
}

CUresult LaunchGraph(CUgraphExec exec, CUstream stream) {
  if (exec->destroyed) {
    ReportViolation("cuGraphLaunch of a graph that was destroyed");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Work work = {"graph", {}, nullptr};
  for (const Work& node : *exec->nodes) {
    work.holds.insert(work.holds.end(), node.holds.begin(), node.holds.end());
  }
  work.run = [context = stream->context, nodes = exec->nodes] {
    for (const Work& node : *nodes) RunWork(context, node);
    Increment(Knob::graphs_run);
    return CUDA_SUCCESS;
  };
  return Enqueue(stream, std::move(work));
}

// These functions are for the other fakes (extension.h).

CUresult EnqueueOn(CUstream stream, const char* name, std::vector<Place> holds,
                   std::function<CUresult()> run) {
  if (const CUresult result = CheckStream(stream, name)) return result;
  return Enqueue(stream, {name, std::move(holds), std::move(run)});
}

int DeviceOf(CUstream stream) { return stream->context->device; }

int CurrentDevice() { return current_context == nullptr ? -1 : current_context->device; }

void SetInGroup(bool in_group) { thread_in_group = in_group; }

void ChangePromised(CUstream stream, int change) { stream->num_promised += change; }

}  // namespace tessera::fakes
