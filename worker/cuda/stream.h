// Streams and events: queues of work for a device, and points in them. The callers of Create own
// them. If a stream with pending work is destroyed, the work still finishes.
#pragma once
#include <memory>
#include <vector>

#include "worker/cuda/context.h"
#include "worker/cuda/handle.h"

struct tessera_stream {
 public:
  static int Create(tessera_context* context, bool high_priority, tessera_stream** stream);
  ~tessera_stream();

  tessera_context* context() const { return context_; }
  tessera::worker::cuda::CUstream get() const { return stream_.get(); }

  // Whether the stream is between graph_begin and graph_end.
  bool capturing = false;
  // The code that the graph being captured launches. The graph will keep it loaded.
  std::vector<std::shared_ptr<const void>> captured_modules;

 private:
  explicit tessera_stream(tessera_context* context) : context_(context) {}

  tessera_context* const context_;
  tessera::worker::cuda::StreamHandle stream_;
};

struct tessera_event {
 public:
  static int Create(tessera_context* context, tessera_event** event);

  int Record(tessera_stream* stream);
  // Makes later work on `stream` wait for the point that was last recorded.
  int MakeStreamWait(tessera_stream* stream);
  // Any thread may call this.
  int Query();

 private:
  explicit tessera_event(tessera_context* context) : context_(context) {}

  tessera_context* const context_;
  tessera::worker::cuda::EventHandle event_;
};
