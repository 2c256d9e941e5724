// Finds out which order a comparator of sort_by describes. Internal to ir/ and its tests;
// stateless; thread-safe.
#pragma once
#include <optional>
#include <vector>

#include "ir/program.h"

namespace tessera::ir::ops {

// An order by keys. Each key decides among elements that are equal by the keys before it.
struct KeyOrder {
  std::vector<int> keys;    // operand numbers, the most significant first
  bool descending = false;  // whether all keys descend; otherwise all ascend
  // Whether some key compares floats as numbers, which gives NaNs no place in the order. If there
  // are NaNs, StableHLO then does not define the order of the elements, and a backend may choose
  // any.
  bool leaves_nans_open = false;
};

// Returns the keys by which a comparator orders, if its order is one that the op `sort` has: -0
// equal to +0, and all NaNs equal and after all numbers. Returns nullopt for every other
// comparator. The comparator takes (left, right) pairs of scalars, one pair for each operand of the
// sort. The comparators of lax.sort and single comparisons are recognised.
std::optional<KeyOrder> OrderOf(const Function& comparator);

}  // namespace tessera::ir::ops
