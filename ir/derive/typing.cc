// The derived type rules: the sharding of an op's results follows from its factor signature, and
// their manual axes type from that of the operands. The builder calls them for every op whose row
// leaves `sharding` or `varying` as Derived{}.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "ir/derive/factors.h"
#include "ir/op_def.h"

namespace tessera::ir::derive {
namespace {

template <class... Parts>
absl::Status ShardingError(const InferContext& c, const Parts&... parts) {
  return MakeError(ErrorKind::kShardingTypeError, absl::StrCat(ToAbsl(c.def.lax_name), parts...));
}

// Returns the axes that shard each factor of an op in its operands, or an error where two operands
// disagree.
absl::StatusOr<std::vector<AxisList>> UnifyFactors(const InferContext& c, const Signature& s) {
  std::vector<AxisList> axes(s.factors.size());
  for (size_t i = 0; i < c.in.size(); ++i) {
    for (int d = 0; d < c.in[i].rank(); ++d) {
      if (c.in[i].axes_of(d).empty()) continue;
      auto split = SplitAxes(c.in[i].axes_of(d), s.operands[i][d], s, c.scope.mesh);
      if (!split)
        return ShardingError(c, ": operand ", i, " of type ", c.in[i].ToString(),
                             " is sharded on dim ", d,
                             " in a way the op cannot keep; reshard it first");
      for (size_t k = 0; k < split->size(); ++k) {
        AxisList& have = axes[s.operands[i][d][k]];
        const AxisList& want = (*split)[k];
        if (want.empty() || have == want) continue;
        if (!have.empty())
          return ShardingError(c, " got incompatible shardings for broadcasting: ",
                               TypesToString(c.in), "; reshard one operand");
        have = want;
      }
    }
  }
  return axes;
}

}  // namespace

absl::Status ShardingByFactors(const InferContext& c, std::vector<Type>* out) {
  const Signature s = c.def.factors(c, *out);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<AxisList> axes, UnifyFactors(c, s));
  for (size_t f = 0; f < axes.size(); ++f)
    if (s.factors[f].kind == FactorKind::kReplicated && !axes[f].empty())
      return ShardingError(c, ": a dim that must be whole is sharded over {",
                           absl::StrJoin(axes[f], ","), "}: ", TypesToString(c.in),
                           "; reshard the operand to leave it unsharded");
  for (size_t r = 0; r < out->size(); ++r) {
    Type& t = (*out)[r];
    AxisSet seen;
    t.sharding.assign(t.rank(), {});
    for (int d = 0; d < t.rank(); ++d)
      for (int f : s.results[r][d])
        for (const std::string& a : axes[f]) {
          if (!seen.insert(a).second)
            return ShardingError(c, " operation with inputs: ", TypesToString(c.in),
                                 " produces an illegally sharded result: axis '", a,
                                 "' would shard two dims; reshard one operand");
          t.sharding[d].push_back(a);
        }
    Normalize(&t);
  }
  return absl::OkStatus();
}

absl::Status CheckVaryingEqual(const InferContext& c) {
  for (const Type& t : c.in)
    if (t.varying != c.in[0].varying)
      return MakeError(
          ErrorKind::kValueError,
          absl::StrCat("Primitive ", ToAbsl(c.def.lax_name),
                       " requires varying manual axes to match, but got [", TypesToString(c.in),
                       "]; cast with pcast(x, axes, to='varying')"));
  return absl::OkStatus();
}

// Finds the reduced axes of the operands and checks that every operand can take part: along such an
// axis it is reduced or unreduced itself. The error distinguishes operands that are cut along the
// axis from those that are replicated, because the user resolves the two cases differently. The
// words are JAX's.
absl::StatusOr<AxisSet> CommonReducedAxes(const InferContext& c) {
  AxisSet reduced;
  for (const Type& t : c.in) {
    if (t.reduced.empty() || t.reduced == reduced) continue;
    if (!reduced.empty())
      return ShardingError(c, ": All inputs should be reduced across the same mesh axes, but got ",
                           TypesToString(c.in), "; reshard or pcast one of them");
    reduced = t.reduced;
  }
  for (const Type& t : c.in)
    for (const std::string& axis : reduced) {
      if (t.reduced.contains(axis) || t.unreduced.contains(axis)) continue;
      const bool is_cut = t.varying.contains(axis) ||
                          std::any_of(t.sharding.begin(), t.sharding.end(), [&](const AxisList& d) {
                            return std::find(d.begin(), d.end(), axis) != d.end();
                          });
      return ShardingError(
          c,
          is_cut ? ": Inputs cannot be sharded/varying on the same axes that another input is "
                   "reduced on. Reshard the input which is reduced to be sharded on the mesh "
                   "axes it is reduced on via `reshard(inp, P(...))`. Got input type: "
                 : ": Inputs cannot be replicated on the same axes that another input is "
                   "reduced on; reshard it to reduced={...} as well. Got input type: ",
          t.ToString(), " and reduced spec: ", AxesToString(reduced));
    }
  return reduced;
}

namespace {

// Returns whether the op can be applied to pending sums: applied to summands of its operands, it
// must give summands of its results. This holds if it is linear in all operands at once.
bool AcceptsPendingSums(const InferContext& c, const std::vector<Type>& out) {
  const DType dtype = c.in[0].dtype;
  for (const Type& t : c.in)
    if (t.dtype != dtype || t.unreduced != c.in[0].unreduced) return false;
  for (const Type& t : out)
    if (t.dtype != dtype) return false;
  return c.def.lowering == Lowering::kScalar
             ? ir::IsLinear(c.def.scalar.record(c.attrs, dtype, dtype))
             : c.def.jvp.derived();
}

}  // namespace

absl::Status VaryingAllEqual(const InferContext& c, std::vector<Type>* out) {
  if (c.in.empty()) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(CheckVaryingEqual(c));
  TESSERA_ASSIGN_OR_RETURN(const AxisSet reduced, CommonReducedAxes(c));
  const bool unreduced =
      std::any_of(c.in.begin(), c.in.end(), [](const Type& t) { return !t.unreduced.empty(); });
  if (unreduced && !AcceptsPendingSums(c, *out))
    return MakeError(
        ErrorKind::kNotImplemented,
        absl::StrCat("unreduced rule for ", ToAbsl(c.def.lax_name),
                     " is not implemented: ", TypesToString(c.in),
                     "; add up the operand first, by psum inside shard_map and reshard outside"));
  for (Type& t : *out) {
    t.varying = c.in[0].varying;
    t.reduced = reduced;
    if (unreduced) t.unreduced = c.in[0].unreduced;
  }
  return absl::OkStatus();
}

}  // namespace tessera::ir::derive
