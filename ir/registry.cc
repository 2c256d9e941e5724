// The table of all ops, and the errors of rules that an op does not have. Readers of programs find
// ops by their wire name here.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/op_def.h"
#include "ir/ops.h"

namespace tessera::ir {
namespace {

// The list is written out. If each op registered itself, the linker of a static library could drop
// ops to which nothing else refers.
constexpr const OpDef* kAllOps[] = {
#define TESSERA_OP(Symbol, wire, lax) &ops::k##Symbol,
#define TESSERA_UNARY TESSERA_OP
#define TESSERA_BINARY TESSERA_OP
#include "ir/ops.def"
#undef TESSERA_UNARY
#undef TESSERA_BINARY
#undef TESSERA_OP
};

}  // namespace

absl::Span<const OpDef* const> AllOps() { return kAllOps; }

const OpDef* FindOp(std::string_view wire_name) {
  for (const OpDef* op : kAllOps)
    if (op->name == wire_name) return op;
  return nullptr;
}

void ThrowRefused(std::string_view what, const OpDef& def, std::string_view reason,
                  const Site& site) {
  std::string text = absl::StrCat(ToAbsl(what), " for '", ToAbsl(def.lax_name),
                                  "' not implemented: ", ToAbsl(reason));
  if (site.valid()) absl::StrAppend(&text, " (", site.ToString(), ")");
  Throw(MakeError(ErrorKind::kNotImplemented, text));
}

Value NonLinearOperand(const RuleContext& c, int i) {
  if (!c.in[i])
    ThrowRefused("Transpose rule (for reverse-mode differentiation)", c.def,
                 absl::StrCat("it is not linear in operand ", i, " together with the others"),
                 c.b.site());
  return c.in[i];
}

std::string_view ReduceKindName(ReduceKind kind) {
  constexpr std::string_view kNames[] = {"none", "sum", "prod",   "max",   "min",
                                         "and",  "or",  "argmax", "argmin"};
  const auto i = static_cast<size_t>(kind);
  // A peer may have sent an unknown kind.
  return i < std::size(kNames) ? kNames[i] : "?";
}

}  // namespace tessera::ir
