// Captures the work of a stream as a graph, and launches graphs. The device backend
// (worker/device/runner.cc) captures the steps between two collectives.
#include "worker/cuda/graph.h"

#include <algorithm>
#include <utility>

#include "worker/cuda/capture_mode.h"
#include "worker/cuda/error.h"

// NOLINTNEXTLINE(google-build-using-namespace): the types of the C API are in no namespace.
using namespace tessera::worker::cuda;

int tessera_graph::Begin(tessera_stream* stream) {
  if (stream->capturing) {
    return Fail(TESSERA_INVALID, "graph_begin: the stream is being recorded; end that first");
  }
  tessera_context* context = stream->context();
  TESSERA_CUDA_TRY(context->MakeCurrent());
  context->OnCaptureBegin();
  // The mode is thread-local, so that other threads may allocate meanwhile.
  const int code = context->Check(
      Cu().cuStreamBeginCapture_v2(stream->get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
      "cuStreamBeginCapture");
  if (code != TESSERA_OK) {
    context->OnCaptureEnd();
    return code;
  }
  stream->capturing = true;
  AddToThreadCaptures(1);
  return TESSERA_OK;
}

// Ends a capture and makes the graph. The state of the stream and of the context is reset before
// any error is returned, so that a failed capture leaves both usable. The graph takes over the
// modules that were launched, to keep them loaded.
int tessera_graph::End(tessera_stream* stream, tessera_graph** graph) {
  if (!stream->capturing) {
    return Fail(TESSERA_INVALID, "graph_end: the stream is not being recorded; begin that first");
  }
  tessera_context* context = stream->context();
  GraphHandle recording;
  int code = context->MakeCurrent();
  if (code == TESSERA_OK) {
    code = context->Check(Cu().cuStreamEndCapture(stream->get(), recording.out()),
                          "cuStreamEndCapture");
  }
  stream->capturing = false;
  context->OnCaptureEnd();
  AddToThreadCaptures(-1);
  auto recorded = std::make_unique<tessera_graph>();
  recorded->modules_ = std::exchange(stream->captured_modules, {});
  std::sort(recorded->modules_.begin(), recorded->modules_.end());
  recorded->modules_.erase(std::unique(recorded->modules_.begin(), recorded->modules_.end()),
                           recorded->modules_.end());
  TESSERA_CUDA_TRY(code);
  TESSERA_CUDA_TRY(context->Check(
      Cu().cuGraphInstantiateWithFlags(recorded->exec_.out(), recording.get(), /*flags=*/0),
      "cuGraphInstantiate"));
  *graph = recorded.release();
  return TESSERA_OK;
}

int tessera_graph::Launch(tessera_stream* stream) {
  tessera_context* context = stream->context();
  TESSERA_CUDA_TRY(context->MakeCurrent());
  TESSERA_CUDA_TRY(context->Check(Cu().cuGraphLaunch(exec_.get(), stream->get()), "cuGraphLaunch"));
  if (stream->capturing) {
    stream->captured_modules.insert(stream->captured_modules.end(), modules_.begin(),
                                    modules_.end());
  }
  return TESSERA_OK;
}
