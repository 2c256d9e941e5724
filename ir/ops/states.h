// What ops that move elements make of terms of sums. Stateless; thread-safe.
#pragma once
#include <string_view>
#include <vector>

#include "ir/ops/family.h"

namespace tessera::ir::ops {

// Gives the results the manual axes type of operands [first, last), of which the op moves or
// selects elements, so that of terms it gives terms: they must be unreduced and reduced along the
// same axes, as `what` tells. The other operands, which say what goes where, may be no terms.
absl::Status SameStatesAs(const InferContext& c, size_t first, size_t last, std::string_view what,
                          std::vector<Type>* out);

}  // namespace tessera::ir::ops
