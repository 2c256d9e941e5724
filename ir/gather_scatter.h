// The dimension numbers and modes of gathers and scatters. They are those of lax and of StableHLO.
// Reference: jax.lax.GatherDimensionNumbers, ScatterDimensionNumbers.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/spec.h"

namespace tessera::ir {

// Says what happens to a window that is not within the operand. kClip moves the window inside. With
// kFillOrDrop a gather reads the fill value for it, and a scatter drops its update. With
// kPromiseInBounds the caller promises that there is no such window; if there is one, it is treated
// as by kClip.
enum class GatherScatterMode : uint8_t { kClip, kFillOrDrop, kPromiseInBounds };

struct GatherScatterOptions {
  GatherScatterMode mode = GatherScatterMode::kFillOrDrop;
  // Promises of the caller: the index vectors ascend; no element is read, or written, twice.
  bool indices_are_sorted = false, unique_indices = false;
  const PartitionSpec* out_sharding = nullptr;  // resolves an ambiguity of Explicit shardings
};

// An index vector lies along the last dim of the indices and says where a window begins. The other
// dims of the indices are called positions.
struct GatherDimensionNumbers {
  std::vector<int64_t> offset_dims;           // the dims of the result that are dims of a window
  std::vector<int64_t> collapsed_slice_dims;  // the dims of the operand that the result lacks
  std::vector<int64_t> start_index_map;       // the operand's dim for each entry of an index vector
  // Dims of the operand that are not indexed. Each is paired with a dim of the positions.
  std::vector<int64_t> operand_batching_dims = {}, start_indices_batching_dims = {};
};

struct ScatterDimensionNumbers {
  std::vector<int64_t> update_window_dims;    // the dims of the updates that are dims of a window
  std::vector<int64_t> inserted_window_dims;  // the dims of the operand that the updates lack
  // the operand's dim for each entry of an index vector
  std::vector<int64_t> scatter_dims_to_operand_dims;
  std::vector<int64_t> operand_batching_dims = {}, scatter_indices_batching_dims = {};
};

}  // namespace tessera::ir
