// The part of auto_axes and explicit_axes that is no template: traces the body in a scope with
// other axis types, and emits a call of the traced function.
#include "client/transform/axis_types.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/apply/reshard.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

ir::Scope ScopeInside(const AxisTypesFlat& call, const ir::Scope& outer, const Site& site) {
  if (outer.mesh.empty()) {
    ThrowError(ErrorKind::kValueError, site, ToAbsl(call.name),
               ": the context mesh cannot be empty. Use set_mesh");
  }
  ir::Scope inside = outer;
  for (const std::string& axis : call.axes) {
    if (!outer.mesh.Has(axis)) {
      ThrowError(ErrorKind::kValueError, site, ToAbsl(call.name), ": axes {",
                 absl::StrJoin(call.axes, ","), "} are not all of the mesh ", outer.mesh.ToString(),
                 ", which has no '", axis, "'");
    }
  }
  for (ir::MeshAxis& a : inside.mesh.axes) {
    const bool named = std::find(call.axes.begin(), call.axes.end(), a.name) != call.axes.end();
    if (named && a.type == AxisType::kManual) {
      ThrowError(ErrorKind::kNotImplemented, site,
                 "Going from Manual AxisType to Auto or Explicit AxisType is not allowed: ",
                 ToAbsl(call.name), " names axis '", a.name, "' of mesh ", outer.mesh.ToString());
    }
    if (named || (call.axes.empty() && a.type != AxisType::kManual)) a.type = call.type;
  }
  return inside;
}

// Returns the type that an argument of type `outer` has in the body, where the mesh is `inside`:
// only axes that are Explicit there remain in the sharding.
Type TypeInside(const Type& outer, const ir::Mesh& inside) {
  Type type = outer;
  for (ir::AxisList& axes : type.sharding) {
    std::erase_if(
        axes, [&](const std::string& axis) { return inside.TypeOf(axis) != AxisType::kExplicit; });
  }
  ir::Normalize(&type);
  return type;
}

}  // namespace

std::vector<Array> RunWithAxisTypes(const AxisTypesFlat& call, const Site& site, FlatBody body,
                                    absl::FunctionRef<std::vector<PartitionSpec>()> out_specs) {
  return InProgram(call.name, site, call.args.leaves, [&] {
    const ir::Scope inside = ScopeInside(call, CurrentScope(), site);
    std::vector<Type> params;
    for (const Array& a : call.args.leaves) params.push_back(TypeInside(a.type(), inside.mesh));
    const TracedFunction n =
        TraceFlat(inside, params, std::string(call.name), site, [&](std::vector<Array> in) {
          for (size_t i = 0; i < call.in_specs.size(); ++i) {
            in[i] = Apply1(call.name, site, {in[i]}, [&](auto&, auto v) {
              return Resharded(call.name, v[0], call.in_specs[i], site);
            });
          }
          return body(in);
        });
    const std::vector<PartitionSpec> specs = out_specs();
    return Apply(call.name, site, Concat(call.args.leaves, n.captures),
                 [&](ir::Builder& b, std::vector<ir::Value> in) {
                   std::vector<ir::Value> out = ir::Call(b, n.fn, in, call.name);
                   for (size_t r = 0; r < specs.size(); ++r)
                     out[r] = Resharded(call.name, out[r], specs[r], site);
                   return out;
                 });
  });
}

}  // namespace tessera::internal
