// Work recorded once and launched as one unit.
//
// A recording is begun and ended by the same thread. The graph keeps the code that it launches;
// memory, and the plans of matmuls, are the caller's to keep.
#pragma once
#include <memory>
#include <vector>

#include "worker/cuda/stream.h"

struct tessera_graph {
 public:
  static int Begin(tessera_stream* stream);
  static int End(tessera_stream* stream, tessera_graph** graph);

  int Launch(tessera_stream* stream);

 private:
  // The graph goes before the code. The driver frees one that runs when it has ended.
  std::vector<std::shared_ptr<const void>> modules_;
  tessera::worker::cuda::GraphExecHandle exec_;
};
