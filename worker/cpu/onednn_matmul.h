// Batched matrix products by oneDNN: the one place that knows it.
//
// A call runs on the calling thread alone; tiling over threads is ours. Compiled primitives are
// kept, the most recent few hundred, by shape, strides and dtypes. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>

#include "ir/dtype.h"

namespace tessera::worker {

// C[b] = A[b] B[b]: A is batch x m x k, B is batch x k x n, C is dense. Strides in elements; one of
// the last two of each operand is 1.
struct MatmulShape {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t a_strides[3] = {}, b_strides[3] = {};
  ir::DType in = ir::DType::kF32;
  ir::DType out = ir::DType::kF32;
  auto operator<=>(const MatmulShape&) const = default;
};

class OneDnnMatmul {
 public:
  OneDnnMatmul();
  ~OneDnnMatmul();

  // False if oneDNN cannot do it on this machine (bf16 without the instructions for it, say); `c`
  // is then untouched. Requires: no dimension is 0.
  bool Run(const MatmulShape& shape, const void* a, const void* b, void* c);

 private:
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace tessera::worker
