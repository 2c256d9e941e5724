// Copies between strided arrays of elements of any width, and copies of subarrays. Stateless;
// thread-safe. The caller owns the memory.
#pragma once
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "ir/array.h"

namespace tessera::ir {

// Copies dst[sum(i_d * dst_strides_d)] = src[sum(i_d * src_strides_d)] for every index i below
// `shape`. Strides count elements of `width` bytes and may be zero or negative. src and dst must
// not overlap.
void CopyStrided(int64_t width, const Dims& shape, const std::byte* src, const Dims& src_strides,
                 std::byte* dst, const Dims& dst_strides);
// Returns the dense array whose element i is x[offset + sum(i_d * strides_d)].
Array ReadStrided(const Array& x, int64_t offset, const Dims& strides, Dims shape);
// Returns `x` with its dims in the order of `permutation`, as a dense array.
Array Permuted(const Array& x, absl::Span<const int64_t> permutation);
// SliceBlock returns the subarray of `global` that starts at `starts` and has `shape`. WriteBlock
// is the inverse: it overwrites such a subarray of `*global`. Requires: the subarray is within
// bounds.
Array SliceBlock(const Array& global, const Dims& starts, const Dims& shape);
void WriteBlock(Array* global, const Dims& starts, const Array& block);

}  // namespace tessera::ir
