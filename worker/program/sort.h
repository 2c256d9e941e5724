// The shape of a sort: which rows of which operands are put in which order. Values.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/dtype.h"
#include "ir/type.h"

namespace tessera::worker {

// Operands of outer x n x inner elements: a row is n elements that are `inner` apart. They are put
// in the order of ir::SortRule by the first `num_keys` operands. Results have the first `kept`
// elements of each sorted row: outer x kept x inner.
struct SortShape {
  // Routines count the elements of a row in 32 bits.
  static constexpr int64_t kRowMax = (int64_t{1} << 31) - 1;

  int64_t outer = 1, n = 0, inner = 1;
  int64_t kept = 0;               // from 1 to n
  std::vector<ir::DType> dtypes;  // of the operands, as the program has them; keys are real
  int num_keys = 1;
  bool descending = false;
  bool indices = false;  // a last result, of s32: where each element stood in its row

  int64_t rows() const { return outer * inner; }
  ir::Type operand(size_t i) const { return ir::MakeType(dtypes[i], {outer, n, inner}); }
  size_t num_results() const { return dtypes.size() + (indices ? 1 : 0); }
  ir::Type result(size_t i) const {
    const ir::DType dtype = i < dtypes.size() ? dtypes[i] : ir::DType::kS32;
    return ir::MakeType(dtype, {outer, kept, inner});
  }
};

}  // namespace tessera::worker
