// Shared by gather and the scatters, which read or write windows of an operand. Index vectors say
// where the windows begin. Internal to ir/ops. Stateless; thread-safe.
//
// All of these ops have the same geometry. The array `indices` consists of index vectors. Each
// vector has a position in `indices`, and one window: the vector says where in the operand the
// window begins. A block holds the windows of all positions; it is the result of gather and the
// updates of a scatter. The dims of a block are the dims of a window and the dims of the positions.
// The attributes are StableHLO's. `mode` is lax's GatherScatterMode, which decides about windows
// that are not within the operand. `clip` moves such a window inside. `fill_or_drop` reads it as
// the fill value and drops its updates. `promise_in_bounds` promises that there is no such window;
// if there is one nevertheless, it is treated as with `clip`.
//
// Reference: StableHLO's gather and scatter; JAX's lax/slicing.py.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/ops/rules/dims.h"

namespace tessera::ir::ops {

// The attribute names of the dimension numbers, which differ between gather and the scatters.
struct WindowAttrNames {
  std::string_view window, collapsed, batching, indices_batching, index_map;
};
constexpr WindowAttrNames kGatherNames = {"offset_dims", "collapsed_slice_dims",
                                          "operand_batching_dims", "start_indices_batching_dims",
                                          "start_index_map"};
constexpr WindowAttrNames kScatterNames = {"update_window_dims", "inserted_window_dims",
                                           "input_batching_dims", "scatter_indices_batching_dims",
                                           "scatter_dims_to_operand_dims"};

// The dimension numbers of one op.
struct WindowDims {
  DimList window;  // dims of the block that are dims of a window, in the operand's order
  // Dims of the operand along which a window has one element. The block has no dim for them.
  DimList collapsed;
  // Dims of the operand along which a window has one element too. The index of a window along such
  // a dim is the index of the position along the corresponding dim in `indices_batching`.
  DimList batching;
  DimList indices_batching;  // dims of `indices` that belong to the `batching` dims
  DimList index_map;         // the operand dim for each entry of an index vector
  // The dim of `indices` along which the vectors lie. If it is the rank of `indices`, each element
  // of `indices` is a vector of one entry.
  int64_t index_vector_dim = 0;

  WindowDims(const Attrs& attrs, const WindowAttrNames& names)
      : window(attrs.Ints(names.window)),
        collapsed(attrs.Ints(names.collapsed)),
        batching(attrs.Ints(names.batching)),
        indices_batching(attrs.Ints(names.indices_batching)),
        index_map(attrs.Ints(names.index_map)),
        index_vector_dim(attrs.Int("index_vector_dim")) {}
  void WriteTo(Attrs* attrs, const WindowAttrNames& names) const {
    attrs->Set(names.window, window);
    attrs->Set(names.collapsed, collapsed);
    attrs->Set(names.batching, batching);
    attrs->Set(names.indices_batching, indices_batching);
    attrs->Set(names.index_map, index_map);
    attrs->Set("index_vector_dim", index_vector_dim);
  }
};

// The correspondence between the dims of operand, indices and block. An entry is -1 if the dim has
// no counterpart.
struct Geometry {
  DimList operand_to_entry;    // per operand dim: the entry of an index vector for it
  DimList operand_to_block;    // per operand dim: the block's dim for it, a dim of the windows
  DimList operand_to_indices;  // per operand dim: the dim of `indices` with which it is batched
  DimList indices_to_block;  // per dim of `indices`: the block's dim for it, a dim of the positions
  int block_rank = 0;

  Geometry(const WindowDims& w, int operand_rank, int indices_rank);
};

// Checks the dimension numbers. The sizes of the windows are checked by CheckWindow.
absl::Status CheckDimensionNumbers(const InferContext& c, const WindowDims& w,
                                   const WindowAttrNames& names);
// Checks the window sizes, one for each dim of the operand.
absl::Status CheckWindow(const InferContext& c, const WindowDims& w, const Dims& sizes);
absl::Status CheckMode(const InferContext& c);
GatherScatterMode ModeOf(const Attrs& attrs);
std::string NameOf(GatherScatterMode mode);

inline constexpr AttrSpec kOutSharding = {"out_sharding", AttrKind::kSpec, /*required=*/false};
void SetOptions(const GatherScatterOptions& options, Attrs* attrs);
// Returns new attributes with the mode of `other` and its promises about the indices (that they are
// sorted, or unique).
Attrs WithOptionsOf(const Attrs& other);
// Emits the op after making all operands vary along the same axes. Returns its only result.
Value EmitMatched(const OpDef& def, std::vector<Value> in, Attrs attrs);

// ---- Factors and shardings of an operand, its indices and a block. ----

struct WindowFactors {
  Signature s;  // the factors; its lists of operands and results are empty
  TensorFactors operand, indices, block;
};
// The kinds of the factors that differ between the ops. Dims that windows take whole pass through,
// and so do dims of positions with which the operand is batched. The other dims of positions have
// factors of kind `positions`. Dims of the operand along which the index vectors pick single
// elements are called indexed, and have factors of kind `indexed`. All other dims need replication.
struct WindowFactorKinds {
  FactorKind positions, indexed;
};
WindowFactors FactorsOf(const Geometry& g, const Type& x, const Type& indices, const Type& block,
                        WindowFactorKinds kinds);
// Returns the axes for two dims that must be sharded alike, given the axes of each. Either dim may
// be unsharded. Returns nullopt if both are sharded and differ.
std::optional<AxisList> AgreedAxes(const AxisList& a, const AxisList& b);
// Returns whether an axis occurs twice in the sharding of `t`.
bool NamesAxisTwice(const Type& t);
// Returns the error for a result whose sharding does not follow from the operands. `method` is the
// method of JAX's `x.at[...]` that the error recommends, such as "get".
absl::Status OutShardingNeededError(const InferContext& c, std::string_view method);

// ---- Batching: the mapped dim comes first everywhere. ----

// Returns the dimension numbers with one more dim in front of the block, and of the operand and the
// indices if these flags are set.
WindowDims BatchedDims(WindowDims w, bool is_operand_batched, bool are_indices_batched);

// ---- Partition. ----

// Index vectors for the block of an operand that one shard has. If indexed dims are cut, the
// entries along them count from the beginning of the block, and the op on the shard must use the
// mode fill_or_drop: windows in the block of another shard are out of bounds there.
struct LocalIndices {
  // The axes by which indexed dims are cut. If there are none, `indices` are unchanged.
  AxisList axes;
  Value indices;
  // Whether each entry is within the bounds of the whole operand. Set for fill_or_drop if indexed
  // dims are cut.
  Value in_bounds;
};
// `c.in` are shards, but `c.in_types` are the types of whole arrays. Operand 1 holds the indices.
LocalIndices LocalIndicesOf(const RuleContext& c, const PartitionContext& p, const WindowDims& w,
                            const Dims& window);
// Returns zeros that change nothing when they are added: -0 for floats.
Value AdditiveIdentity(Value like);

// ---- Reference semantics. ----

// Returns an index as a signed number. An unsigned index that does not fit is returned as a number
// beyond every array.
int64_t IndexAt(const Array& indices, int64_t at);

// Calls f(operand, block) for each position, in row-major order. The arguments are the flat indices
// at which the position's window begins in the operand and in the block. The first argument is -1
// if the window is out of bounds and the mode is fill_or_drop.
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
      } else if (g.operand_to_entry[d] >= 0) {
        const int64_t last = operand[d] - window[d];
        start = IndexAt(indices, vector + g.operand_to_entry[d] * entry_stride);
        if (mode == GatherScatterMode::kFillOrDrop && (start < 0 || start > last)) from = -1;
        start = std::clamp<int64_t>(start, 0, last);
      }
      if (from >= 0) from += start * operand_strides[d];
    }
    f(from, to);
    for (int d = static_cast<int>(at.size()) - 1; d >= 0 && ++at[d] == counts[d]; --d) at[d] = 0;
  }
}

// The elements of a window as runs of `length` elements that are contiguous in the operand and in
// the block.
struct WindowRuns {
  int64_t length = 1;
  std::vector<int64_t> operand, block;  // flat index where each run begins, relative to the window

  WindowRuns(const Geometry& g, const Dims& operand_shape, const Dims& window,
             const Dims& block_shape);
};

}  // namespace tessera::ir::ops
