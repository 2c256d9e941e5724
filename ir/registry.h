// The table of all ops. Constant; thread-safe.
#pragma once
#include <string_view>

#include "absl/types/span.h"
#include "ir/program.h"

namespace tessera::ir {

// Returns every op of ops.def in order.
absl::Span<const OpDef* const> AllOps();
// Returns the op with this wire name, or null if there is none.
const OpDef* FindOp(std::string_view wire_name);

}  // namespace tessera::ir
