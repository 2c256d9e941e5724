// The copies behind slices, transposes, broadcasts and index maps on the host, and behind transfers
// of shards. The evaluator, the contraction rule and the client's buffers call them.
#include "ir/strided.h"

#include <cstring>
#include <numeric>

namespace tessera::ir {
namespace {

template <int kWidth>
void CopyRow(int64_t n, const std::byte* src, int64_t src_step, std::byte* dst, int64_t dst_step) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(dst + i * dst_step, src + i * src_step, kWidth);
}

// Copies the n elements of one row. The steps from element to element are in bytes.
void CopyRow(int64_t width, int64_t n, const std::byte* src, int64_t src_step, std::byte* dst,
             int64_t dst_step) {
  if (src_step == width && dst_step == width) {
    std::memcpy(dst, src, n * width);
    return;
  }
  switch (width) {
    case 1:
      return CopyRow<1>(n, src, src_step, dst, dst_step);
    case 2:
      return CopyRow<2>(n, src, src_step, dst, dst_step);
    case 4:
      return CopyRow<4>(n, src, src_step, dst, dst_step);
    case 8:
      return CopyRow<8>(n, src, src_step, dst, dst_step);
    default:
      return CopyRow<16>(n, src, src_step, dst, dst_step);
  }
}

// Returns the offset of the element at `index` in an array with these strides.
int64_t OffsetOf(const Dims& index, const Dims& strides) {
  return std::inner_product(index.begin(), index.end(), strides.begin(), int64_t{0});
}

}  // namespace

// Walks all indices but the last like an odometer and copies the last dim as one row. Rows are
// copied by CopyRow, which has a loop for each element width and uses memcpy for contiguous rows;
// most of the time is spent there.
void CopyStrided(int64_t width, const Dims& shape, const std::byte* src, const Dims& src_strides,
                 std::byte* dst, const Dims& dst_strides) {
  const int rank = static_cast<int>(shape.size());
  for (int64_t n : shape)
    if (n == 0) return;
  if (rank == 0) {
    std::memcpy(dst, src, width);
    return;
  }
  const int last = rank - 1;
  Dims index(rank, 0);
  // Flat offsets, in elements.
  int64_t from = 0, to = 0;
  while (true) {
    CopyRow(width, shape[last], src + from * width, src_strides[last] * width, dst + to * width,
            dst_strides[last] * width);
    int d = last - 1;
    for (; d >= 0; --d) {
      from += src_strides[d];
      to += dst_strides[d];
      if (++index[d] < shape[d]) break;
      from -= shape[d] * src_strides[d];
      to -= shape[d] * dst_strides[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

Array ReadStrided(const Array& x, int64_t offset, const Dims& strides, Dims shape) {
  Array out(x.dtype(), std::move(shape));
  if (out.num_elements() == 0) return out;
  const int64_t width = ByteWidth(x.dtype());
  CopyStrided(width, out.shape(), x.data() + offset * width, strides, out.MutableData(),
              StridesOf(out.shape()));
  return out;
}

Array Permuted(const Array& x, absl::Span<const int64_t> permutation) {
  Dims identity(x.rank());
  std::iota(identity.begin(), identity.end(), 0);
  if (permutation == absl::MakeConstSpan(identity)) return x;
  const Dims from = StridesOf(x.shape());
  Dims strides, shape;
  for (int64_t d : permutation) {
    strides.push_back(from[d]);
    shape.push_back(x.shape()[d]);
  }
  return ReadStrided(x, 0, strides, shape);
}

Array SliceBlock(const Array& global, const Dims& starts, const Dims& shape) {
  const Dims strides = StridesOf(global.shape());
  return ReadStrided(global, OffsetOf(starts, strides), strides, shape);
}

void WriteBlock(Array* global, const Dims& starts, const Array& block) {
  const int64_t width = ByteWidth(global->dtype());
  const Dims strides = StridesOf(global->shape());
  CopyStrided(width, block.shape(), block.data(), StridesOf(block.shape()),
              global->MutableData() + OffsetOf(starts, strides) * width, strides);
}

}  // namespace tessera::ir
