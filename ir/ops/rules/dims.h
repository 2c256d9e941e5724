// Arithmetic on dims, batch dims and partition specs, shared by the ops that change shapes.
// Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "ir/ops/rules/family.h"

namespace tessera::ir::ops {

using DimList = std::vector<int64_t>;

bool Contains(absl::Span<const int64_t> dims, int64_t dim);
// Returns the dims 0 .. rank-1 that are neither in `a` nor in `b`, ascending.
DimList DimsExcept(int rank, absl::Span<const int64_t> a, absl::Span<const int64_t> b = {});
DimList InversePermutation(absl::Span<const int64_t> permutation);
// Checks that `dims` are distinct dims of an operand of `rank`. `what` is the attribute's name.
absl::Status CheckDistinctDims(const InferContext& c, std::string_view what,
                               absl::Span<const int64_t> dims, int rank);

// Checks that the attribute `dimension` is a dim of operand 0.
absl::Status CheckDimension(const InferContext& c);

// ---- Explicit shardings. ----
// If the op has the attribute out_sharding, writes the sharding of its dims to `out` and returns
// true. The attribute may name unreduced and reduced axes only if `allow_unreduced` is set; they
// are checked, but not written to `out`.
absl::StatusOr<bool> ApplyOutSharding(const InferContext& c, Type* out,
                                      bool allow_unreduced = false);
// Gives the result the sharding of operand 0. A dim whose size changes keeps its axes too, so its
// new size must be divisible by the number of shards along them. A result of a single element is
// not sharded, unless operand 0 has one element too. `doing` is the name that JAX's error text
// gives to the op, such as "slicing".
absl::Status KeepShardingIfDivisible(const InferContext& c, std::string_view doing, Type* out);
// Gives the result the sharding of operand 0.
absl::Status SameShardingAsFirst(const InferContext& c, std::vector<Type>* out);
// Returns `x`, resharded if its dims are not sharded as those of `like`. The axes along which `x`
// is unreduced or reduced stay the same.
Value ShardedLike(Value x, Type like);
// Returns `x`, resharded if the Explicit axes along which it is unreduced and reduced are not
// exactly the Explicit axes in `unreduced` and in `reduced`.
Value WithStates(Value x, const AxisSet& unreduced, const AxisSet& reduced);
// Returns `x` broadcast to the shape and sharding of `like`. Dim i of `x` becomes dim `dims[i]`.
Value BroadcastLike(Value x, const Type& like, DimList dims);
// Sets the attribute out_sharding to the sharding of `like`'s dims, if they are sharded. It also
// names the Explicit axes along which `x` is unreduced or reduced, so that the op's result is so
// along the same axes.
void SetOutSharding(Attrs* attrs, const Type& like, Value x);

// ---- Batching. ----
// Returns the index that dim `dim` of an unbatched operand has after a batch dim was inserted at
// `batch`.
inline int64_t PastBatch(int64_t dim, int batch) { return dim < batch ? dim : dim + 1; }
DimList PastBatch(absl::Span<const int64_t> dims, int batch);
template <class T>
std::vector<T> WithInserted(std::vector<T> list, int at, T value) {
  list.insert(list.begin() + at, std::move(value));
  return list;
}
// Returns the axes that shard the dim over which vmap maps. They are the same in all batched
// operands.
AxisList BatchAxes(const RuleContext& c, absl::Span<const int> dims);
// Returns operand `i` with the batch dim in front. An operand without a batch dim is broadcast.
Value BatchInFront(const RuleContext& c, absl::Span<const int> dims, size_t i, int64_t size);
// Returns `attrs`. If it has an out_sharding, a new dim `at`, sharded by `axes`, is inserted in it.
Attrs WithBatchSharding(Attrs attrs, int at, const AxisList& axes);

// Returns `x`, converted to the dtype of `like` if `x` is weakly typed.
Value ConvertIfWeak(Value x, Value like);
// Returns the number of elements, or an error if a dim is negative or the number does not fit in 64
// bits.
absl::StatusOr<int64_t> CountElements(const InferContext& c, const Dims& shape);

// ---- Partition. ----
// Returns the op's attributes for shards: `shape` is the local shape, and there is no out_sharding.
Attrs LocalShapeAttrs(const RuleContext& c, const PartitionContext& p);
// Returns the dtype for indices along a dim of `n` elements.
DType IndexDTypeFor(int64_t n);
// Extends `x`, this shard's block of a dim that is cut by `axes`, with the `low` elements before it
// and the `high` elements after it, which are exchanged with the neighbouring shards. Beyond the
// ends of the dim the elements are zeros. A negative `low` or `high` instead leaves out that many
// elements at the beginning or the end of the block. Requires: 0 < x.dim(dim).
Value WithHalo(Value x, int dim, const AxisList& axes, int64_t low, int64_t high);
// Returns the index at which this shard's block begins, in a dim that is cut by `axes` into blocks
// of `size` elements.
Value BlockBegin(Builder& b, const AxisList& axes, int64_t size, DType index = DType::kS32);

}  // namespace tessera::ir::ops
