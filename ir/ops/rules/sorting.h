// Shared by the ops that sort rows: sort and sort_by put the rows of several operands of one shape
// in one order along the attribute `dimension`. Internal to ir/ops. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/ops/rules/family.h"

namespace tessera::ir::ops {

// Returns the dim along which the op sorts.
inline int SortedDim(const Attrs& attrs) { return static_cast<int>(attrs.Int("dimension")); }
// Returns the elements of `x` along `dim` that `indices` names, like lax's take_along_axis. All
// other dims of both must agree.
Value TakeAlong(Value x, Value indices, int dim);

// Checks the operands of sort and sort_by, and returns the types of the results.
absl::StatusOr<std::vector<Type>> InferSortedRows(const InferContext& c);
Signature SortFactors(const InferContext& c, absl::Span<const Type> out);
absl::Status SortSharding(const InferContext& c, std::vector<Type>* out);
std::vector<Value> SortJvp(const RuleContext& c, Values tangents);
Batched BatchSort(const RuleContext& c, absl::Span<const int> dims, int64_t size);
std::vector<Value> PartitionSort(const RuleContext& c, const PartitionContext& p);
// Counts one comparison for each element and each level of a merge sort.
Cost SortCost(const InferContext& c, absl::Span<const Type> out);

// Fills in the fields that sort and sort_by share.
consteval OpDef Sorting(OpDef d) {
  d.family = Family::kReduction;
  d.num_operands = kAnyNumber;
  d.factors = SortFactors;
  d.sharding = SortSharding;
  d.varying = Derived{};
  d.jvp = SortJvp;
  d.transpose = Refused{"it is not linear"};
  d.batch = BatchSort;
  d.partition = PartitionSort;
  return Checked(d);
}

}  // namespace tessera::ir::ops
