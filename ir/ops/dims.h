// Arithmetic on dims, batch positions and specs that the shape-changing op files share.
//
// Pure functions; any thread may call them.
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
DimList Others(int rank, absl::Span<const int64_t> a, absl::Span<const int64_t> b = {});
DimList InversePermutation(absl::Span<const int64_t> permutation);
// Every entry names another dim of an operand of `rank`; `what` is the attribute, for the error.
absl::Status CheckDistinctDims(const InferContext& c, std::string_view what,
                               absl::Span<const int64_t> dims, int rank);

// ---- Explicit shardings. ----
// When the op has an out_sharding, writes it to `out` and returns true.
absl::StatusOr<bool> TakeOutSharding(const InferContext& c, Type* out);
// The result keeps operand 0's sharding, also on dims whose size changes where the new size
// divides; `doing` names the op as JAX's error does ("slicing").
absl::Status KeepWhereDivisible(const InferContext& c, std::string_view doing, Type* out);
// The sharding of operand 0 as it is.
absl::Status ShardingOfFirst(const InferContext& c, std::vector<Type>* out);
// `x`, resharded where its sharding is not `like`'s.
Value ShardedLike(Value x, Type like);
// Adds out_sharding = the spec of `type` when it is sharded.
void SetOutSharding(Attrs* attrs, const Type& type);

// ---- Batching. ----
// A dim of the unbatched operand after a batch dim was inserted at `batch`.
inline int64_t Shifted(int64_t dim, int batch) { return dim < batch ? dim : dim + 1; }
DimList Shifted(absl::Span<const int64_t> dims, int batch);
template <class T>
std::vector<T> WithInserted(std::vector<T> list, int at, T value) {
  list.insert(list.begin() + at, std::move(value));
  return list;
}
// The axes that shard the mapped dim, which every batched operand shares.
AxisList BatchAxes(const RuleContext& c, absl::Span<const int> dims);
// Operand `i` with the batch dim in front, made of copies when it has none.
Value BatchInFront(const RuleContext& c, absl::Span<const int> dims, size_t i, int64_t size);
// `attrs` whose out_sharding, if any, has `axes` inserted at dim `at`.
Attrs WithBatchSharding(Attrs attrs, int at, const AxisList& axes);

// `x`, in `like`'s dtype when it is only weakly typed.
Value WeakTo(Value x, Value like);
// The number of elements, or an error for a negative dim or a count beyond 64 bits.
absl::StatusOr<int64_t> CountElements(const InferContext& c, const Dims& shape);

// ---- Partition. ----
// The attributes on local blocks: `shape` is the local one, no out_sharding.
Attrs LocalShape(const RuleContext& c, const PartitionContext& p);

}  // namespace tessera::ir::ops
