// Recognises comparators that order by keys. SortBy emits the op `sort` instead of `sort_by` for
// these: backends have code for it, while a comparator has to be evaluated on the host.
#include "ir/ops/rules/comparator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "ir/op_def.h"
#include "ir/ops.h"

namespace tessera::ir::ops {
namespace {

// A scalar of the comparator that stands for one of its params in a comparison. It is the param
// itself, possibly converted, or with -0 and +0, or all NaNs, made equal.
struct Side {
  int param = 0;
  bool zeros_alike = false, nans_alike = false;

  int operand() const { return param / 2; }
  bool is_left() const { return param % 2 == 0; }
};

// A comparison of the left and the right side of an operand. `is_total_order` says that it is by
// IEEE's total order, and `as_numbers` that it compares floats as numbers.
struct Comparison {
  int operand = 0;
  std::string direction;  // with the left side first
  bool is_total_order = false, as_numbers = false;
};

// Matches the ops of a comparator, from its result back to its params.
class ComparatorMatcher {
 public:
  explicit ComparatorMatcher(const Function& f) : f_(f), producers_(f.types.size(), nullptr) {
    for (const Op& op : f.ops)
      for (const ValueId v : op.results) producers_[v] = &op;
  }

  // Matches (x0 < y0) | (x0 == y0 & ((x1 < y1) | ...)), where the operands of each `|` and `&` may
  // stand in either order. All comparisons must have the same direction, and no operand may occur
  // twice.
  std::optional<KeyOrder> Match() const {
    KeyOrder order;
    std::optional<std::string> direction;
    for (ValueId v = f_.results[0];;) {
      const Op* const or_op = OpOf(v, kOr);
      std::optional<Comparison> first = ComparisonOf(or_op ? or_op->operands[0] : v);
      ValueId rest = or_op ? or_op->operands[1] : v;
      if (or_op && !first) {
        first = ComparisonOf(rest);
        rest = or_op->operands[0];
      }
      if (!first || (first->direction != "LT" && first->direction != "GT") ||
          (direction && *direction != first->direction) ||
          std::find(order.keys.begin(), order.keys.end(), first->operand) != order.keys.end())
        return std::nullopt;
      direction = first->direction;
      order.keys.push_back(first->operand);
      order.leaves_nans_open = order.leaves_nans_open || first->as_numbers;
      if (!or_op) break;
      const Op* const and_op = OpOf(rest, kAnd);
      if (!and_op) return std::nullopt;
      const bool equals_first = IsEqualityOf(and_op->operands[0], *first);
      if (!equals_first && !IsEqualityOf(and_op->operands[1], *first)) return std::nullopt;
      v = and_op->operands[equals_first ? 1 : 0];
    }
    order.descending = *direction == "GT";
    return order;
  }

 private:
  const Op* OpOf(ValueId v, const OpDef& def) const {
    return producers_[v] != nullptr && producers_[v]->def == &def ? producers_[v] : nullptr;
  }
  DType DTypeOf(ValueId v) const { return f_.types[v].dtype; }

  std::optional<double> LiteralOf(ValueId v) const {
    const Op* const op = OpOf(v, kConstant);
    if (!op || f_.types[v].rank() != 0) return std::nullopt;
    return op->attrs.Literal("value").At(0);
  }
  // Returns whether converting from `from` to `to` keeps order and equality.
  static bool KeepsOrder(DType to, DType from) {
    if (BitWidth(to) <= BitWidth(from)) return false;
    if (IsFloat(from)) return to == DType::kF32 || to == DType::kF64;
    return IsInteger(to) && (IsSignedInt(to) || !IsSignedInt(from));
  }
  bool MatchCompare(ValueId v, const char* direction, ValueId* a, ValueId* b) const {
    const Op* const op = OpOf(v, kCompare);
    if (!op || op->attrs.Has("compare_type") || op->attrs.Str("direction") != direction)
      return false;
    *a = op->operands[0];
    *b = op->operands[1];
    return true;
  }
  bool IsSideOf(ValueId v, int param, int depth) const {
    const std::optional<Side> side = SideOf(v, depth);
    return side && side->param == param;
  }

  // Returns the side that `v` stands for, or nullopt if it stands for none. A depth of 3 is enough
  // for one conversion, one select of zeros and one select of NaNs, in any order.
  std::optional<Side> SideOf(ValueId v, int depth = 3) const {
    if (v < f_.num_params) return Side{static_cast<int>(v)};
    if (depth == 0) return std::nullopt;
    if (const Op* const convert = OpOf(v, kConvert)) {
      const ValueId x = convert->operands[0];
      return KeepsOrder(DTypeOf(v), DTypeOf(x)) ? SideOf(x, depth - 1) : std::nullopt;
    }
    const Op* const select = OpOf(v, kSelect);
    if (!select || !IsFloat(DTypeOf(v))) return std::nullopt;
    const std::optional<double> literal = LiteralOf(select->operands[1]);
    std::optional<Side> side = SideOf(select->operands[2], depth - 1);
    if (!literal || !side || std::signbit(*literal)) return std::nullopt;
    ValueId a, b;
    if (*literal == 0 && MatchCompare(select->operands[0], "EQ", &a, &b)) {
      const bool compares_with_zero =
          (LiteralOf(b) == 0.0 && IsSideOf(a, side->param, depth - 1)) ||
          (LiteralOf(a) == 0.0 && IsSideOf(b, side->param, depth - 1));
      if (!compares_with_zero) return std::nullopt;
      side->zeros_alike = true;
      return side;
    }
    if (std::isnan(*literal) && MatchCompare(select->operands[0], "NE", &a, &b) && a == b &&
        IsSideOf(a, side->param, depth - 1)) {
      side->nans_alike = true;
      return side;
    }
    return std::nullopt;
  }

  // Returns the comparison of the two sides of an operand that `v` is the result of, if any. A
  // comparison of the right side with the left one is turned around. A comparison in the total
  // order counts only if zeros and NaNs were made equal before.
  std::optional<Comparison> ComparisonOf(ValueId v) const {
    const Op* const op = OpOf(v, kCompare);
    if (!op) return std::nullopt;
    const std::optional<Side> a = SideOf(op->operands[0]), b = SideOf(op->operands[1]);
    if (!a || !b || a->operand() != b->operand() || a->is_left() == b->is_left())
      return std::nullopt;
    const DType dtype = DTypeOf(op->operands[0]);
    if (IsComplex(dtype)) return std::nullopt;
    Comparison found{a->operand(), op->attrs.Str("direction"), op->attrs.Has("compare_type")};
    if (found.is_total_order) {
      // In the total order alone, -0 and 0 differ, and so do NaNs.
      if (!a->zeros_alike || !a->nans_alike || !b->zeros_alike || !b->nans_alike)
        return std::nullopt;
    } else {
      found.as_numbers = IsFloat(dtype);
    }
    if (!a->is_left()) {
      if (found.direction == "LT") {
        found.direction = "GT";
      } else if (found.direction == "GT") {
        found.direction = "LT";
      }
    }
    return found;
  }
  bool IsEqualityOf(ValueId v, const Comparison& first) const {
    const std::optional<Comparison> c = ComparisonOf(v);
    return c && c->direction == "EQ" && c->operand == first.operand &&
           c->is_total_order == first.is_total_order;
  }

  const Function& f_;
  // for each value, the op whose result it is, or null if it is a param
  std::vector<const Op*> producers_;
};

}  // namespace

std::optional<KeyOrder> OrderOf(const Function& comparator) {
  if (comparator.results.size() != 1 || comparator.num_params % 2 != 0) return std::nullopt;
  return ComparatorMatcher(comparator).Match();
}

}  // namespace tessera::ir::ops
