// The manual axes types of ops that move or select elements, where an operand may be unreduced (its
// shards are terms of a sum). Stateless; thread-safe.
#pragma once
#include <string_view>
#include <vector>

#include "ir/ops/family.h"

namespace tessera::ir::ops {

// Gives the results the manual axes type of operands [first, last), the operands whose elements the
// op moves or selects. If these operands are terms of a sum, the results are terms too. All of them
// must be unreduced and reduced along the same axes; `what` is the text of the error if they are
// not. The other operands say which elements go where and must not be unreduced.
absl::Status SameStatesAs(const InferContext& c, size_t first, size_t last, std::string_view what,
                          std::vector<Type>* out);

}  // namespace tessera::ir::ops
