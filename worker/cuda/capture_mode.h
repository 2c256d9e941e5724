// While a thread captures a graph, the driver rejects its calls that might invalidate the capture:
// allocation, queries of events. Ours do not, so they are made under a RelaxedCapture, which
// permits them for its scope and costs nothing outside a capture.
#pragma once
#include "worker/cuda/driver_api.h"

namespace tessera::worker::cuda {

// Counts the calling thread's running captures.
void AddThreadCapture(int change);

class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const bool active_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace tessera::worker::cuda
