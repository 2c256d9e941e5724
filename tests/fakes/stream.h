// The fake driver's contexts, streams, events and graphs.
//
// A stream is a thread with a queue; the thread is detached and ends when the stream is destroyed
// and its queue is empty. An event is a point in a queue. A stream that is being captured queues
// nothing: its work goes to the capture, which becomes a graph, which runs as one piece of work, in
// the order in which it was captured.
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

// A piece of work. May run many times, if it was captured.
struct Work {
  const char* name = "";  // Lives as long as the process.
  std::vector<Place> holds;
  // Anything but CUDA_SUCCESS ends the context.
  std::function<CUresult()> run;
};

// Reached once, by the stream that it was put on.
class Point {
 public:
  void Reach();
  bool reached() const { return reached_.load(std::memory_order_acquire); }
  void Wait();
  std::chrono::steady_clock::time_point when() const { return when_; }

 private:
  std::atomic<bool> reached_{false};
  std::chrono::steady_clock::time_point when_;  // Written before reached_.
  std::mutex mutex_;
  std::condition_variable changed_;
};

// How many nodes of each stream precede a point of a capture.
using Clock = std::map<CUstream, int>;

struct Capture {
  CUstream origin = nullptr;
  std::thread::id thread;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  CUresult invalid = CUDA_SUCCESS;  // Why it will fail.
  std::vector<Work> nodes;
  std::map<CUstream, Clock> clocks;  // Of the streams that take part.
};

}  // namespace tessera::fakes

namespace tessera::worker::cuda {

struct CUctx_st {
  int device = 0;
  std::atomic<CUresult> sticky{CUDA_SUCCESS};
  int retained = 0;  // Under the lock of contexts.
};

struct CUstream_st {
  CUctx_st* context = nullptr;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<fakes::Work> queue;  // Under mutex, as the next two.
  bool closed = false;
  bool busy = false;
  std::atomic<bool> destroyed{false};
  // Enqueues that a library has promised and not yet made.
  std::atomic<int> promised{0};
  fakes::Capture* capture = nullptr;  // Under the lock of captures.
};

struct CUevent_st {
  CUctx_st* context = nullptr;
  bool timing = false;
  std::atomic<bool> destroyed{false};
  std::mutex mutex;
  std::shared_ptr<fakes::Point> point;  // Under mutex, as the next two; null if never recorded.
  fakes::Capture* capture = nullptr;
  fakes::Clock clock;
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

// The context of the calling thread; null if it has none.
CUcontext CurrentContext();
void SetCurrentContext(CUcontext context);
// The primary context of a device. It goes, and all memory of the device with it, when it has been
// released as often as retained; false if it had been before.
CUcontext RetainContext(int device);
bool ReleaseContext(int device);

// Remembers that the context ended in `error`, and says so on stderr.
void EndContext(CUcontext context, CUresult error, const char* work, const char* why);

// Whether the calling thread may use its context.
CUresult CheckContext();
// Whether it may enqueue on `stream`.
CUresult CheckStream(CUstream stream, const char* call);
// Whether it may make a call that is unsafe during a capture; if not, the capture is invalidated.
CUresult CheckUncaptured(const char* call);

CUstream NewStream();
CUresult DestroyStream(CUstream stream);
CUresult QueryStream(CUstream stream);

// Puts work on the stream, or into the capture that it is part of. The stream is checked.
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
