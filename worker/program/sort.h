// The shape of a sort: which rows of which operands are put in which order. A value type.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/dtype.h"
#include "ir/type.h"

namespace tessera::worker {

// The operands have outer x n x inner elements, and a row is n elements that are `inner` apart.
// Rows are put in the order of ir::SortRule by the first `num_keys` operands. The results have the
// first `kept` elements of each sorted row: outer x kept x inner.
struct SortShape {
  // Sort routines count the elements of a row in 32 bits.
  static constexpr int64_t kRowMax = (int64_t{1} << 31) - 1;

  int64_t outer = 1, n = 0, inner = 1;
  int64_t kept = 0;               // from 1 to n
  std::vector<ir::DType> dtypes;  // the operands' own dtypes, not CarrierOf these; keys are real
  int num_keys = 1;
  bool descending = false;
  // Whether there is one more result, of dtype s32: the index that each element had in its row
  // before the sort.
  bool has_indices = false;

  int64_t rows() const { return outer * inner; }
  ir::Type operand(size_t i) const { return ir::MakeType(dtypes[i], {outer, n, inner}); }
  size_t num_results() const { return dtypes.size() + (has_indices ? 1 : 0); }
  ir::Type result(size_t i) const {
    const ir::DType dtype = i < dtypes.size() ? dtypes[i] : ir::DType::kS32;
    return ir::MakeType(dtype, {outer, kept, inner});
  }
};

}  // namespace tessera::worker
