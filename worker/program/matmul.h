// The shape of a batched matmul as libraries accept it, and how the operands of a contraction fit
// it. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "ir/dtype.h"
#include "ir/type.h"

namespace tessera::worker {

// C[b] = A[b] B[b], where A is batch x m x k, B is batch x k x n, and C is dense. Strides are in
// elements, and one of the last two strides of each operand is 1. The stride of the batch may be 0,
// which means that all products use the same matrix. With `allow_tf32`, a device may round the
// operands of a product of f32 to f32 to TF32.
struct MatmulShape {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t a_strides[3] = {}, b_strides[3] = {};
  ir::DType in = ir::DType::kF32;
  ir::DType out = ir::DType::kF32;
  bool allow_tf32 = false;
  auto operator<=>(const MatmulShape&) const = default;
};

namespace program {

// The sizes and strides of an operand that is seen as batch x rows x columns.
struct Matrices {
  int64_t sizes[3] = {1, 1, 1};
  int64_t strides[3] = {0, 0, 1};
};

// Merges dims [0, num_batch) of the box to the batch, the next num_rows dims to the rows, and the
// others to the columns. Returns nullopt if the strides of the box cannot be merged to three
// strides that a library accepts; the operand must then be packed first.
std::optional<Matrices> AsMatrices(absl::Span<const int64_t> box, absl::Span<const int64_t> strides,
                                   int num_batch, int num_rows);

}  // namespace program
}  // namespace tessera::worker
