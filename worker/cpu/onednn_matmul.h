// Batched matmuls by oneDNN, whose types are used in no other file.
//
// A call runs on the calling thread only, and the caller splits work over threads. The most recent
// few hundred compiled primitives are cached by shape, strides and dtypes. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>

#include "ir/dtype.h"
#include "worker/program/matmul.h"

namespace tessera::worker {

class OneDnnMatmul {
 public:
  OneDnnMatmul();
  ~OneDnnMatmul();

  // Returns false and leaves `c` untouched if oneDNN does not support the product on this machine
  // (for example bf16 on a CPU without instructions for bf16). Requires that no dimension is 0.
  bool Run(const MatmulShape& shape, const void* a, const void* b, void* c);
  // Returns whether matmuls of these dtypes are supported.
  bool Supports(ir::DType in, ir::DType out);
  // Returns the number of bytes that a call allocates while it runs.
  int64_t ScratchBytes(const MatmulShape& shape);

 private:
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace tessera::worker
