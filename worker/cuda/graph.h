// Work captured once and launched as one unit.
//
// A capture is begun and ended by the same thread. The graph keeps the code that it launches
// loaded; the caller keeps the memory and the matmul plans.
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
  // Declared first, so that the graph is destroyed before the code that it launches. The driver
  // frees a running graph when it has ended.
  std::vector<std::shared_ptr<const void>> modules_;
  tessera::worker::cuda::GraphExecHandle exec_;
};
