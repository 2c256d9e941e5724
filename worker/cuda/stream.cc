// Streams and events of the plugin's table.
#include "worker/cuda/stream.h"

#include "worker/cuda/capture_mode.h"
#include "worker/cuda/error.h"

// NOLINTNEXTLINE(google-build-using-namespace): the types of the C API are in no namespace.
using namespace tessera::worker::cuda;

int tessera_stream::Create(tessera_context* context, bool high_priority, tessera_stream** stream) {
  TESSERA_CUDA_TRY(context->MakeCurrent());
  // Destroys the resources that the device has finished with.
  context->Reap();
  int least = 0, greatest = 0;
  TESSERA_CUDA_TRY(context->Check(Cu().cuCtxGetStreamPriorityRange(&least, &greatest),
                                  "cuCtxGetStreamPriorityRange"));
  std::unique_ptr<tessera_stream> created(new tessera_stream(context));
  TESSERA_CUDA_TRY(
      context->Check(Cu().cuStreamCreateWithPriority(created->stream_.out(), CU_STREAM_NON_BLOCKING,
                                                     high_priority ? greatest : least),
                     "cuStreamCreateWithPriority"));
  context->AddStream(created->get());
  *stream = created.release();
  return TESSERA_OK;
}

tessera_stream::~tessera_stream() {
  if (stream_.get() == nullptr || context_->MakeCurrent() != TESSERA_OK) return;
  if (capturing) {
    // The stream is destroyed during a capture, so the captured graph is discarded.
    GraphHandle graph;
    Cu().cuStreamEndCapture(get(), graph.out());
    AddToThreadCaptures(-1);
    context_->OnCaptureEnd();
  }
  context_->RemoveStream(get());
}

int tessera_event::Create(tessera_context* context, tessera_event** event) {
  TESSERA_CUDA_TRY(context->MakeCurrent());
  std::unique_ptr<tessera_event> created(new tessera_event(context));
  TESSERA_CUDA_TRY(context->Check(
      Cu().cuEventCreate(created->event_.out(), CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  *event = created.release();
  return TESSERA_OK;
}

int tessera_event::Record(tessera_stream* stream) {
  TESSERA_CUDA_TRY(context_->MakeCurrent());
  return context_->Check(Cu().cuEventRecord(event_.get(), stream->get()), "cuEventRecord");
}

int tessera_event::MakeStreamWait(tessera_stream* stream) {
  TESSERA_CUDA_TRY(context_->MakeCurrent());
  return context_->Check(Cu().cuStreamWaitEvent(stream->get(), event_.get(), /*flags=*/0),
                         "cuStreamWaitEvent");
}

int tessera_event::Query() {
  TESSERA_CUDA_TRY(context_->MakeCurrent());
  // Without this, cuEventQuery is forbidden during a capture.
  const RelaxedCapture relaxed;
  return context_->Check(Cu().cuEventQuery(event_.get()), "cuEventQuery");
}
