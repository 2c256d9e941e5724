// The errors of rules that an op does not have. Stateless; thread-safe.
#pragma once
#include <string_view>

#include "base/site.h"
#include "ir/op_def.h"

namespace tessera::ir {

// Throws the error of an unsupported rule, such as "Differentiation rule for 'pmax' not
// implemented: <reason> (model.cc:41)".
[[noreturn]] void ThrowRefused(std::string_view what, const OpDef& def, std::string_view reason,
                               const Site& site);
// Returns operand i, for a transpose rule that reads it. Throws if the operand is linear too, as in
// x * x: the op is then not linear in its operands.
Value NonLinearOperand(const RuleContext& c, int i);

}  // namespace tessera::ir
