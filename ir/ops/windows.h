// What gather and the scatters share: windows of an operand at positions that index vectors say.
// Internal to ir/ops. Stateless; thread-safe.
//
// All share a geometry. `indices` has an index vector at each of its positions, and each vector
// says where a window of the operand begins. A block, which is gather's result or a scatter's
// updates, has the windows of all positions: its dims are those of a window, and those of the
// positions. The attributes are StableHLO's; `mode` is lax's GatherScatterMode: what becomes of a
// window that is not within the operand. `clip` moves it inside, `fill_or_drop` reads the fill
// value and writes nothing, and after `promise_in_bounds` there is none (if there is, it is as for
// `clip`).
//
// Reference: StableHLO's gather and scatter; JAX's lax/slicing.py.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/ops/dims.h"

namespace tessera::ir::ops {

// The dimension numbers, by their names in gather and in the scatters.
struct Names {
  std::string_view window, collapsed, batching, indices_batching, index_map;
};
constexpr Names kGatherNames = {"offset_dims", "collapsed_slice_dims", "operand_batching_dims",
                                "start_indices_batching_dims", "start_index_map"};
constexpr Names kScatterNames = {"update_window_dims", "inserted_window_dims",
                                 "input_batching_dims", "scatter_indices_batching_dims",
                                 "scatter_dims_to_operand_dims"};

// The dimension numbers of one op.
struct WindowDims {
  DimList window;            // of the block: the dims of a window, in the operand's order
  DimList collapsed;         // of the operand: windows have one element there, and the block no dim
  DimList batching;          // of the operand: as collapsed, but the position says which element
  DimList indices_batching;  // of indices: the dims that say so
  DimList index_map;         // which operand dim each entry of an index vector is of
  int64_t index_vector_dim = 0;  // of indices; its rank: the vectors are its elements

  WindowDims(const Attrs& attrs, const Names& names)
      : window(attrs.Ints(names.window)),
        collapsed(attrs.Ints(names.collapsed)),
        batching(attrs.Ints(names.batching)),
        indices_batching(attrs.Ints(names.indices_batching)),
        index_map(attrs.Ints(names.index_map)),
        index_vector_dim(attrs.Int("index_vector_dim")) {}
  void WriteTo(Attrs* attrs, const Names& names) const {
    attrs->Set(names.window, window);
    attrs->Set(names.collapsed, collapsed);
    attrs->Set(names.batching, batching);
    attrs->Set(names.indices_batching, indices_batching);
    attrs->Set(names.index_map, index_map);
    attrs->Set("index_vector_dim", index_vector_dim);
  }
};

// How the dims of operand, indices and block belong together; -1 where a dim has no counterpart.
struct Geometry {
  DimList vector_of;           // per operand dim: its entry in an index vector
  DimList operand_to_block;    // per operand dim: the block's dim of its windows
  DimList operand_to_indices;  // per operand dim: the dim of indices it is batched with
  DimList indices_to_block;    // per dim of indices: the block's dim of positions
  int block_rank = 0;

  Geometry(const WindowDims& w, int operand_rank, int indices_rank);
};

// Checks all but the sizes of windows.
absl::Status CheckDimensionNumbers(const InferContext& c, const WindowDims& w, const Names& names);
// Checks windows of `sizes` along the operand's dims.
absl::Status CheckWindow(const InferContext& c, const WindowDims& w, const Dims& sizes);
absl::Status CheckMode(const InferContext& c);
GatherScatterMode ModeOf(const Attrs& attrs);
std::string NameOf(GatherScatterMode mode);

inline constexpr AttrSpec kOutSharding = {"out_sharding", AttrKind::kSpec, /*required=*/false};
void SetOptions(const GatherScatterOptions& options, Attrs* attrs);
// Copies the mode and what the caller has promised of the indices.
Attrs WithOptionsOf(const Attrs& other);
Value EmitMatched(const OpDef& def, std::vector<Value> in, Attrs attrs);

// ---- Factors and shardings, of an operand, its indices and a block. ----

struct WindowFactors {
  Signature s;  // without operands and results
  TensorFactors operand, indices, block;
};
// Dims that windows take whole and dims of positions with which the operand is batched pass
// through. The other positions are `positions` factors; dims of the operand in which the index
// vectors pick single elements are `indexed` factors.
struct WindowFactorKinds {
  FactorKind positions, indexed;
};
WindowFactors FactorsOf(const Geometry& g, const Type& x, const Type& indices, const Type& block,
                        WindowFactorKinds kinds);
// The axes that two batched dims share: one may be unsharded.
std::optional<AxisList> Resolved(const AxisList& a, const AxisList& b);
bool NamesAxisTwice(const Type& t);
// The error of a sharding that the operands leave open. `method`: of `.at[...]`.
absl::Status AskForOutSharding(const InferContext& c, std::string_view method);

// ---- Batching: the mapped dim comes first everywhere. ----

// The dimension numbers with one more dim, of which operand and block have one, or indices and
// block, or all.
WindowDims BatchedDims(WindowDims w, bool operand, bool indices);

// ---- Partition. ----

// Index vectors for the block of an operand that a shard has. If indexed dims are cut, entries
// along them count from the beginning of the block, and the mode is fill_or_drop: what lies in
// another shard's block is out of bounds.
struct LocalIndices {
  AxisList axes;  // by which indexed dims are cut; empty: `indices` are as they were
  Value indices;
  Value in_bounds;  // of the whole operand, per entry; only for fill_or_drop, and if cut
};
// `c` is at shards, its in_types are those of whole arrays; operand 1 has the indices.
LocalIndices LocalIndicesOf(const RuleContext& c, const PartitionContext& p, const WindowDims& w,
                            const Dims& window);
// Zeros that change nothing when they are added: -0 for floats.
Value AddedZeros(Value like);

// ---- Reference semantics. ----

// An index as a signed number: what does not fit is beyond every array.
int64_t IndexAt(const Array& indices, int64_t at);

// Calls f(operand, block) for each position, row-major, with the flat elements at which its window
// begins in the operand (-1: it is out of bounds, and the mode is fill_or_drop) and in the block.
template <class F>
void ForEachWindow(const WindowDims& w, const Geometry& g, GatherScatterMode mode,
                   const Dims& operand, const Dims& window, const Array& indices, const Dims& block,
                   const F& f) {
  const Dims operand_strides = StridesOf(operand), block_strides = StridesOf(block);
  const Dims index_strides = StridesOf(indices.shape());
  const bool has_vector_dim = w.index_vector_dim < indices.rank();
  const int64_t entry_stride = has_vector_dim ? index_strides[w.index_vector_dim] : 0;
  Dims counts = indices.shape();
  if (has_vector_dim) counts[w.index_vector_dim] = 1;
  int64_t positions = 1;
  for (int64_t n : counts) positions *= n;
  Dims at(counts.size(), 0);
  for (int64_t p = 0; p < positions; ++p) {
    int64_t vector = 0, from = 0, to = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      vector += at[d] * index_strides[d];
      if (g.indices_to_block[d] >= 0) to += at[d] * block_strides[g.indices_to_block[d]];
    }
    for (size_t d = 0; d < operand.size() && from >= 0; ++d) {
      int64_t start = 0;
      if (g.operand_to_indices[d] >= 0) {
        start = at[g.operand_to_indices[d]];
      } else if (g.vector_of[d] >= 0) {
        const int64_t last = operand[d] - window[d];
        start = IndexAt(indices, vector + g.vector_of[d] * entry_stride);
        if (mode == GatherScatterMode::kFillOrDrop && (start < 0 || start > last)) from = -1;
        start = std::clamp<int64_t>(start, 0, last);
      }
      if (from >= 0) from += start * operand_strides[d];
    }
    f(from, to);
    for (int d = static_cast<int>(at.size()) - 1; d >= 0 && ++at[d] == counts[d]; --d) at[d] = 0;
  }
}

// The elements of a window, relative to its first one: runs of `length` that lie densely in both.
struct WindowRuns {
  int64_t length = 1;
  std::vector<int64_t> operand, block;  // where each run begins

  WindowRuns(const Geometry& g, const Dims& operand_shape, const Dims& window,
             const Dims& block_shape);
};

}  // namespace tessera::ir::ops
