// How gathers and scatters are told what they index: lax's dimension numbers and modes, which are
// also StableHLO's. Reference: jax.lax.GatherDimensionNumbers, ScatterDimensionNumbers.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/spec.h"

namespace tessera::ir {

// What becomes of a window that is not within the operand: it is moved inside (kClip); it is read
// as the fill value, and its update is dropped (kFillOrDrop); or the caller promises that there is
// none (if there is, as for kClip).
enum class GatherScatterMode : uint8_t { kClip, kFillOrDrop, kPromiseInBounds };

struct GatherScatterOptions {
  GatherScatterMode mode = GatherScatterMode::kFillOrDrop;
  // Promises: that index vectors ascend; that no element is read, or written, twice.
  bool indices_are_sorted = false, unique_indices = false;
  const PartitionSpec* out_sharding = nullptr;  // decides an Explicit ambiguity
};

// The index vectors lie along the last dim of the indices; the others are positions.
struct GatherDimensionNumbers {
  std::vector<int64_t> offset_dims;           // of the result: the dims of a window
  std::vector<int64_t> collapsed_slice_dims;  // of the operand: the result has none for them
  std::vector<int64_t> start_index_map;       // the operand's dim of each entry of a vector
  // Dims of the operand that are not indexed: each goes along with a dim of the positions.
  std::vector<int64_t> operand_batching_dims = {}, start_indices_batching_dims = {};
};

struct ScatterDimensionNumbers {
  std::vector<int64_t> update_window_dims;    // of the updates: the dims of a window
  std::vector<int64_t> inserted_window_dims;  // of the operand: the updates have none for them
  std::vector<int64_t> scatter_dims_to_operand_dims;  // the operand's dim of each entry of a vector
  std::vector<int64_t> operand_batching_dims = {}, scatter_indices_batching_dims = {};
};

}  // namespace tessera::ir
