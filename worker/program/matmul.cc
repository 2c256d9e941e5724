// Finds out whether an operand of a contraction has a layout that a library's matmul accepts.
// MatmulOperands (matmul_operands.cc) asks this before and after views are fused into the operand.
#include "worker/program/matmul.h"

namespace tessera::worker::program {
namespace {

// A run of dims, merged into one.
struct MergedDim {
  int64_t size = 1, stride = 1;
};

// Merges dims [begin, end). Returns nullopt if they cannot be walked in order with a single stride.
std::optional<MergedDim> Merge(absl::Span<const int64_t> box, absl::Span<const int64_t> strides,
                               int begin, int end) {
  MergedDim merged;
  bool first = true;
  for (int d = end - 1; d >= begin; --d) {
    if (box[d] == 1) continue;
    if (first) {
      merged = {box[d], strides[d]};
      first = false;
    } else if (strides[d] == merged.size * merged.stride) {
      merged.size *= box[d];
    } else {
      return std::nullopt;
    }
  }
  return merged;
}

}  // namespace

std::optional<Matrices> AsMatrices(absl::Span<const int64_t> box, absl::Span<const int64_t> strides,
                                   int num_batch, int num_rows) {
  const int end = static_cast<int>(box.size());
  const std::optional<MergedDim> batch = Merge(box, strides, 0, num_batch);
  std::optional<MergedDim> rows = Merge(box, strides, num_batch, num_batch + num_rows);
  std::optional<MergedDim> columns = Merge(box, strides, num_batch + num_rows, end);
  if (!batch || !rows || !columns) return std::nullopt;
  // The stride of a dim of size 1 has no effect. It is set as in a dense operand, so that equal
  // matmuls compare equal.
  if (columns->size == 1) columns->stride = rows->stride == 1 && rows->size > 1 ? rows->size : 1;
  if (rows->size == 1) rows->stride = columns->stride == 1 ? columns->size : 1;
  const bool by_rows = columns->stride == 1 && rows->stride >= columns->size;
  const bool by_columns = rows->stride == 1 && columns->stride >= rows->size;
  if (!by_rows && !by_columns) return std::nullopt;
  const int64_t matrix = rows->size * columns->size;
  const int64_t step = batch->size == 1 ? matrix : batch->stride;
  if (step < 0) return std::nullopt;
  return Matrices{{batch->size, rows->size, columns->size}, {step, rows->stride, columns->stride}};
}

}  // namespace tessera::worker::program
