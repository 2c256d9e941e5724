// The errors of rules that an op does not have, with the text of JAX. The transforms throw them
// when they reach such an op, and so do transpose rules.
#include "ir/ops/rules/refused.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/builder.h"

namespace tessera::ir {

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

}  // namespace tessera::ir
