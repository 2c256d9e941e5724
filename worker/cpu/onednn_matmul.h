// Batched matmuls by oneDNN, whose types appear in no other file.
//
// A call runs on the calling thread alone; tiling over threads is ours. Compiled primitives are
// kept, the most recent few hundred, by shape, strides and dtypes. Thread-safe.
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

  // False if oneDNN cannot do it on this machine (bf16 without the instructions for it, say); `c`
  // is then untouched. Requires: no dimension is 0.
  bool Run(const MatmulShape& shape, const void* a, const void* b, void* c);
  // Whether it can, for matmuls of these dtypes.
  bool Supports(ir::DType in, ir::DType out);
  // What a call allocates while it runs.
  int64_t ScratchBytes(const MatmulShape& shape);

 private:
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace tessera::worker
