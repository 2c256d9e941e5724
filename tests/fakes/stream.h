// The fake driver's contexts, streams, events and graphs.
//
// A stream is a thread with a queue. The thread is detached, and ends when the stream is destroyed
// and its queue is empty. An event is a point in a queue. While a stream is captured, its work goes
// to the capture and not to the queue. The capture becomes a graph, which runs as one piece of
// work, in the order of the capture.
//
// Handles are never freed (keep.h).
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/memory.h"
#include "worker/cuda/driver_api.h"

namespace tessera::fakes {

// NOLINTNEXTLINE(google-build-using-namespace): the fakes speak the driver's names throughout.
using namespace worker::cuda;

// A piece of work. If it was captured, it may run many times.
struct Work {
  const char* name = "";  // lives as long as the process
  std::vector<Place> holds;
  // Does the work. Any result but CUDA_SUCCESS ends the context.
  std::function<CUresult()> run;
};

// A point in the queue of a stream. It is reached once, by the stream that it was put on.
class Point {
 public:
  void Reach();
  bool reached() const { return reached_.load(std::memory_order_acquire); }
  void Wait();
  std::chrono::steady_clock::time_point when() const { return when_; }

 private:
  std::atomic<bool> reached_{false};
  std::chrono::steady_clock::time_point when_;  // written before reached_
  std::mutex mutex_;
  std::condition_variable changed_;
};

// A position in a capture: the number of nodes of each stream that come before it.
using CapturePosition = std::map<CUstream, int>;

struct Capture {
  CUstream origin = nullptr;
  std::thread::id thread;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  CUresult failure = CUDA_SUCCESS;  // reason why the capture will fail
  std::vector<Work> nodes;
  std::map<CUstream, CapturePosition> positions;  // positions of the streams that take part
};

}  // namespace tessera::fakes

namespace tessera::worker::cuda {

struct CUctx_st {
  int device = 0;
  std::atomic<CUresult> sticky_error{CUDA_SUCCESS};
  int num_retained = 0;  // guarded by the lock of the primary contexts
};

struct CUstream_st {
  CUctx_st* context = nullptr;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<fakes::Work> queue;  // guarded by mutex, like the next two members
  bool closed = false;
  bool busy = false;
  std::atomic<bool> destroyed{false};
  // number of enqueues that a library has promised and not made yet
  std::atomic<int> num_promised{0};
  fakes::Capture* capture = nullptr;  // guarded by the lock of the captures
};

struct CUevent_st {
  CUctx_st* context = nullptr;
  bool timing = false;
  std::atomic<bool> destroyed{false};
  std::mutex mutex;
  // null if never recorded; guarded by mutex, like the next two members
  std::shared_ptr<fakes::Point> point;
  fakes::Capture* capture = nullptr;
  fakes::CapturePosition position;
};

struct CUgraph_st {
  std::vector<fakes::Work> nodes;
};

struct CUgraphExec_st {
  CUctx_st* context = nullptr;
  std::shared_ptr<const std::vector<fakes::Work>> nodes;
  std::atomic<bool> destroyed{false};
};

}  // namespace tessera::worker::cuda

namespace tessera::fakes {

// Returns the context of the calling thread, or null if it has none.
CUcontext CurrentContext();
void SetCurrentContext(CUcontext context);
// Retains and releases the primary context of a device. When it has been released as often as it
// was retained, it ends, and all memory of the device is freed. ReleaseContext returns false if the
// context was not retained.
CUcontext RetainContext(int device);
bool ReleaseContext(int device);

// Records that the context ended with `error`, and reports it on stderr.
void EndContext(CUcontext context, CUresult error, const char* work, const char* why);

// Returns success if the calling thread may use its context.
CUresult CheckContext();
// Returns success if the calling thread may enqueue on `stream`.
CUresult CheckStream(CUstream stream, const char* call);
// Returns success if the calling thread may make a call that is unsafe during a capture. Otherwise
// the capture is invalidated.
CUresult CheckUncaptured(const char* call);

CUstream NewStream();
CUresult DestroyStream(CUstream stream);
CUresult QueryStream(CUstream stream);

// Puts work on the stream, or into the capture that the stream takes part in. The caller has
// checked the stream.
CUresult Enqueue(CUstream stream, Work work);

CUevent NewEvent(bool timing);
CUresult DestroyEvent(CUevent event);
CUresult RecordEvent(CUevent event, CUstream stream);
CUresult WaitEvent(CUstream stream, CUevent event);
CUresult QueryEvent(CUevent event);

CUresult BeginCapture(CUstream stream, CUstreamCaptureMode mode);
CUresult EndCapture(CUstream stream, CUgraph* graph);
CUstreamCaptureMode ExchangeCaptureMode(CUstreamCaptureMode mode);
CUresult LaunchGraph(CUgraphExec exec, CUstream stream);

}  // namespace tessera::fakes
