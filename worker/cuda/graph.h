// Work that is captured once and launched as one unit.
//
// The thread that begins a capture must end it. The graph keeps the code that it launches loaded.
// The caller must keep the memory and the matmul plans.
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
  // This member comes first, so that exec_ is destroyed before the code that it launches. If the
  // graph is still running then, the driver frees it when it has ended.
  std::vector<std::shared_ptr<const void>> modules_;
  tessera::worker::cuda::GraphExecHandle exec_;
};
