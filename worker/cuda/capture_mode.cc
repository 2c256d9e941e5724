// Counts the captures of each thread, and relaxes the driver's capture mode. Functions that
// allocate, load code or query events use RelaxedCapture, since they may run while a graph is being
// captured.
#include "worker/cuda/capture_mode.h"

#include "worker/cuda/driver.h"

namespace tessera::worker::cuda {
namespace {

thread_local int active_captures = 0;

}  // namespace

void AddToThreadCaptures(int change) { active_captures += change; }

RelaxedCapture::RelaxedCapture() : active_(active_captures > 0) {
  if (active_) Cu().cuThreadExchangeStreamCaptureMode(&mode_);
}

RelaxedCapture::~RelaxedCapture() {
  if (active_) Cu().cuThreadExchangeStreamCaptureMode(&mode_);
}

}  // namespace tessera::worker::cuda
