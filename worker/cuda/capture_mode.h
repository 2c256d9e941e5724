// While a thread records a graph, the driver forbids it calls that might disturb the recording:
// allocation, queries of events. Our calls do not, so they are made under a RelaxedCapture, which
// permits them for its scope and costs nothing outside a recording.
#pragma once
#include "worker/cuda/driver_api.h"

namespace tessera::worker::cuda {

// Counts the calling thread's recordings under way.
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
