// Shared by the ops that scatter: they write updates into an operand, or combine them with its
// elements, in windows that begin where index vectors say (windows.h). The functions see one
// operand, the indices and the operand's updates, in this order. Internal to ir/ops. Stateless;
// thread-safe.
#pragma once
#include <vector>

#include "ir/ops/rules/windows.h"

namespace tessera::ir::ops {

inline constexpr AttrSpec kScatteringAttrs[] = {
    {"update_window_dims", AttrKind::kInts},
    {"inserted_window_dims", AttrKind::kInts},
    {"input_batching_dims", AttrKind::kInts},
    {"scatter_indices_batching_dims", AttrKind::kInts},
    {"scatter_dims_to_operand_dims", AttrKind::kInts},
    {"index_vector_dim", AttrKind::kInt},
    {"mode", AttrKind::kString},
    {"indices_are_sorted", AttrKind::kBool, /*required=*/false},
    {"unique_indices", AttrKind::kBool, /*required=*/false},
    kOutSharding};
// Returns the attributes of a scatter for the functions of ops.h.
Attrs ScatterAttrs(Value indices, const ScatterDimensionNumbers& dims,
                   const GatherScatterOptions& options);
WindowDims ScatterDimsOf(const Attrs& attrs);
// Returns the size of a window along each dim of the operand, derived from the shape of the
// updates.
Dims ScatterWindow(const Geometry& g, const Dims& updates);

absl::StatusOr<std::vector<Type>> InferScatter(const InferContext& c);
Signature FactorsOfScatter(const InferContext& c, absl::Span<const Type> out);
absl::Status ScatterSharding(const InferContext& c, std::vector<Type>* out);
ScatterMap MapScatter(const InferContext& c);
Cost ScatterCost(const InferContext& c, absl::Span<const Type> out);
// Returns the attributes of the op on shards, given the index vectors for a shard's block.
Attrs LocalScatterAttrs(const RuleContext& c, const LocalIndices& local);

}  // namespace tessera::ir::ops
