// The rule for the manual axes type (the varying, unreduced and reduced axes) of ops that move or
// select elements. An operand of these ops may be unreduced, which means that it is a pending sum.
// Stateless; thread-safe.
#pragma once
#include <string_view>
#include <vector>

#include "ir/ops/rules/family.h"

namespace tessera::ir::ops {

// Gives the results the manual axes type of operands [first, last), the operands whose elements the
// op moves or selects. If these operands are pending sums, so are the results. All of these
// operands must be unreduced along the same axes, and reduced along the same axes. `what` is the
// beginning of the error text if they are not. The other operands decide which element goes where,
// and must not be unreduced.
absl::Status SameStatesAs(const InferContext& c, size_t first, size_t last, std::string_view what,
                          std::vector<Type>* out);

}  // namespace tessera::ir::ops
