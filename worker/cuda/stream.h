// Streams and events: queues of work for a device, and points in them. Owned by their callers.
// Destroying one with pending work lets the work finish.
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

  // True between graph_begin and graph_end.
  bool capturing = false;
  // Code that the graph being captured launches, and keeps loaded.
  std::vector<std::shared_ptr<const void>> captured;

 private:
  explicit tessera_stream(tessera_context* context) : context_(context) {}

  tessera_context* const context_;
  tessera::worker::cuda::StreamHandle stream_;
};

struct tessera_event {
 public:
  static int Create(tessera_context* context, tessera_event** event);

  int Record(tessera_stream* stream);
  // Makes later work on `stream` wait for the last recorded point.
  int MakeStreamWait(tessera_stream* stream);
  // Any thread.
  int Query();

 private:
  explicit tessera_event(tessera_context* context) : context_(context) {}

  tessera_context* const context_;
  tessera::worker::cuda::EventHandle event_;
};
