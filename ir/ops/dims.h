// Arithmetic on dims, batch dims and specs that the shape-changing op files share. Stateless;
// thread-safe.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "ir/ops/family.h"

namespace tessera::ir::ops {

using DimList = std::vector<int64_t>;

bool Contains(absl::Span<const int64_t> dims, int64_t dim);
// 0 .. rank-1 without those in `a` or `b`, ascending.
DimList DimsExcept(int rank, absl::Span<const int64_t> a, absl::Span<const int64_t> b = {});
DimList InversePermutation(absl::Span<const int64_t> permutation);
// Checks that entries are distinct dims of an operand of `rank`; `what` is the attribute's name.
absl::Status CheckDistinctDims(const InferContext& c, std::string_view what,
                               absl::Span<const int64_t> dims, int rank);

// Checks that the attribute `dimension` is a dim of operand 0.
absl::Status CheckDimension(const InferContext& c);

// ---- Explicit shardings. ----
// If the op has an out_sharding, writes its dims to `out` and returns true. It may name unreduced
// and reduced axes if the op `takes_terms`.
absl::StatusOr<bool> ApplyOutSharding(const InferContext& c, Type* out, bool takes_terms = false);
// The result keeps operand 0's sharding, also on dims whose size changes where the new size
// divides; `doing` names the op as JAX's error does ("slicing").
absl::Status KeepWhereDivisible(const InferContext& c, std::string_view doing, Type* out);
// Gives the result the sharding of operand 0.
absl::Status ShardingOfFirst(const InferContext& c, std::vector<Type>* out);
// `x`, resharded if its dims are not sharded as `like`'s. What it is unreduced or reduced along
// stays.
Value ShardedLike(Value x, Type like);
// `x`, resharded if it is not unreduced and reduced along exactly these of the Explicit axes.
Value WithStates(Value x, const AxisSet& unreduced, const AxisSet& reduced);
// `x` broadcast to the shape and sharding of `like`; its dim i becomes dim `dims[i]`.
Value BroadcastLike(Value x, const Type& like, DimList dims);
// Adds out_sharding = how `like`'s dims are sharded, if they are, for an op that leaves `x`
// unreduced and reduced where it is.
void SetOutSharding(Attrs* attrs, const Type& like, Value x);

// ---- Batching. ----
// The index of an unbatched operand's dim after a batch dim was inserted at `batch`.
inline int64_t PastBatch(int64_t dim, int batch) { return dim < batch ? dim : dim + 1; }
DimList PastBatch(absl::Span<const int64_t> dims, int batch);
template <class T>
std::vector<T> WithInserted(std::vector<T> list, int at, T value) {
  list.insert(list.begin() + at, std::move(value));
  return list;
}
// The axes that shard the mapped dim, which every batched operand shares.
AxisList BatchAxes(const RuleContext& c, absl::Span<const int> dims);
// Operand `i` with the batch dim in front; broadcast if it has none.
Value BatchInFront(const RuleContext& c, absl::Span<const int> dims, size_t i, int64_t size);
// `attrs` whose out_sharding, if any, has `axes` inserted at dim `at`.
Attrs WithBatchSharding(Attrs attrs, int at, const AxisList& axes);

// `x`, in `like`'s dtype when it is only weakly typed.
Value ConvertIfWeak(Value x, Value like);
// The number of elements; an error for a negative dim or a count beyond 64 bits.
absl::StatusOr<int64_t> CountElements(const InferContext& c, const Dims& shape);

// ---- Partition. ----
// The attributes on shards: `shape` is the shard's, and there is no out_sharding.
Attrs LocalShape(const RuleContext& c, const PartitionContext& p);
// The dtype of indices along a dim of `n` elements.
DType IndexTypeFor(int64_t n);
// `x`, this shard's block of a dim that is cut by `axes`, with `low` elements of the blocks before
// it and `high` of those after it; zeros where there are none. A negative number leaves elements of
// the block out. Requires: 0 < x.dim(dim).
Value WithHalo(Value x, int dim, const AxisList& axes, int64_t low, int64_t high);
// Where the block of this shard begins in a dim that is cut by `axes` into blocks of `size`.
Value BlockBegin(Builder& b, const AxisList& axes, int64_t size, DType index = DType::kS32);

}  // namespace tessera::ir::ops
