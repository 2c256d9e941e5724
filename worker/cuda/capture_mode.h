// While a thread captures a graph, the driver rejects its calls that might invalidate the capture,
// such as allocations and event queries. Our calls do not invalidate it, so a RelaxedCapture
// permits them for its scope. If the thread captures nothing, RelaxedCapture makes no call of the
// driver.
#pragma once
#include "worker/cuda/driver_api.h"

namespace tessera::worker::cuda {

// Adds `change` to the number of captures that the calling thread has begun and not yet ended.
void AddToThreadCaptures(int change);

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
