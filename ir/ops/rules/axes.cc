// Checks of the axis names of collectives and casts. The inference rules in collectives.cc and
// casts.cc call them, so that a wrong name becomes an error at the user's line.
#include "ir/ops/rules/axes.h"

#include <algorithm>

#include "absl/strings/str_join.h"

namespace tessera::ir::ops {
namespace {

absl::Status UnboundAxisError(std::string_view op, const Mesh& mesh, std::string_view axis) {
  const std::string hint = mesh.Has(axis) ? absl::StrCat(" (the mesh has axis '", ToAbsl(axis),
                                                         "', but it is not manual here)")
                                          : "";
  return MakeError(
      ErrorKind::kNameError,
      absl::StrCat(
          "Found an unbound axis name: ", ToAbsl(axis), ". To fix this, please call ", ToAbsl(op),
          " under tessera::shard_map (jax.shard_map) over an axis of that name, or under a "
          "vmap or pmap with this axis_name",
          hint));
}

}  // namespace

AxisList MeshAxesAmong(const Scope& scope, AxisList axes) {
  std::erase_if(axes, [&](const std::string& a) { return scope.FindMapped(a) != nullptr; });
  return axes;
}
AxisList MappedAxesAmong(const Scope& scope, AxisList axes) {
  std::erase_if(axes, [&](const std::string& a) { return scope.FindMapped(a) == nullptr; });
  return axes;
}

absl::Status CheckAxesAreBound(std::string_view op, const Scope& scope, const AxisList& axes) {
  AxisSet seen;
  for (const std::string& a : axes) {
    if (!scope.IsBound(a)) return UnboundAxisError(op, scope.mesh, a);
    if (!seen.insert(a).second)
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat(ToAbsl(op), ": axis '", a, "' is named twice"));
  }
  return absl::OkStatus();
}

absl::Status CheckAxes(const InferContext& c) {
  if (AxesOf(c.attrs).empty()) return ValueError(c, "needs at least one axis name");
  return CheckAxesAreBound(c.def.lax_name, c.scope, AxesOf(c.attrs));
}

bool ContainsAll(const AxisSet& set, const AxisList& axes) {
  return std::all_of(axes.begin(), axes.end(),
                     [&](const std::string& a) { return set.contains(a); });
}
bool Disjoint(const AxisSet& set, const AxisList& axes) {
  return std::none_of(axes.begin(), axes.end(),
                      [&](const std::string& a) { return set.contains(a); });
}

std::string MixedStatesMessage(std::string_view op, const Type& t, const AxisList& axes) {
  return absl::StrCat(
      ToAbsl(op),
      " can only accept axis_name which corresponds to one of varying, "
      "unreduced, reduced or invarying state of the input; it got ",
      t.ToString(), " over axes (", absl::StrJoin(axes, ","),
      "); apply pcast(..., to='varying') to the axes on which it is invarying first");
}

Batched BatchSameOp(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  return {c.b.Emit(c.def, c.in, c.attrs), {dims[0]}};
}

}  // namespace tessera::ir::ops
