// The typing rule that select, gather, the scatters and similar ops share for unreduced operands.
// The `varying` rules of these ops call it during inference.
#include "ir/ops/rules/states.h"

namespace tessera::ir::ops {

// The data operands [first, last) must be unreduced along the same axes, and reduced along the same
// axes. The results are then so too. The other operands decide where elements go. If such an
// operand were unreduced, each shard would move its elements elsewhere before the summands are
// added up, so it is refused.
absl::Status SameStatesAs(const InferContext& c, size_t first, size_t last, std::string_view what,
                          std::vector<Type>* out) {
  TESSERA_RETURN_IF_ERROR(derive::CheckVaryingEqual(c));
  const Type& data = c.in[first];
  for (size_t i = 0; i < c.in.size(); ++i) {
    const Type& t = c.in[i];
    if (i >= first && i < last) {
      if (t.unreduced == data.unreduced && t.reduced == data.reduced) continue;
      return ShardingError(c, ToAbsl(what), ". Got ", TypesToString(c.in),
                           "; add up the unreduced operand, or cast the other one as well");
    }
    if (!t.unreduced.empty())
      return MakeError(
          ErrorKind::kNotImplemented,
          absl::StrCat("unreduced rule for ", ToAbsl(c.def.lax_name), " is not implemented for ",
                       t.ToString(),
                       ", an operand that decides where elements go: ", TypesToString(c.in),
                       "; add the operand up first, by psum inside shard_map and reshard outside"));
  }
  for (Type& t : *out) {
    t.varying = data.varying;
    t.unreduced = data.unreduced;
    t.reduced = data.reduced;
  }
  return absl::OkStatus();
}

}  // namespace tessera::ir::ops
