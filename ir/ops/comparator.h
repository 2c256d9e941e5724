// What a comparator of sort_by sorts by. Internal to ir/ and its tests; stateless; thread-safe.
#pragma once
#include <optional>
#include <vector>

#include "ir/program.h"

namespace tessera::ir::ops {

// An order by keys, each of which decides between those that are equal by the keys before it.
struct KeyOrder {
  std::vector<int> keys;    // operands
  bool descending = false;  // by all keys
  // A key compares its floats as numbers, which orders no NaN: StableHLO leaves open where the
  // elements end, and so may whoever runs the sort.
  bool leaves_nans_open = false;
};

// Of a comparator of (left, right) pairs of scalars, one for each operand of a sort: the keys, if
// it is an order of `sort`, which has -0 as +0 and NaNs alike, after all numbers; nullopt of every
// other. Knows the comparators of lax.sort and the single comparison.
std::optional<KeyOrder> OrderOf(const Function& comparator);

}  // namespace tessera::ir::ops
