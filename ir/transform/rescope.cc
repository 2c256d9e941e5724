// Infers the types of a function again in another scope, also in the regions of its ops. A region's
// params get their new types from the operands that they stand for. In a derivative rule they get
// them from the op's function `rule_params`. Computations of scalars do not depend on the scope and
// stay as they are. MapComputation uses Rescope to apply a computation to whole arrays.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_exception.h"
#include "ir/builder.h"
#include "ir/derive/factors.h"
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/transform/transform.h"

namespace tessera::ir {
namespace {

FunctionRef Rescoped(const Function& f, const Scope& scope, const std::vector<Type>& params);

// Returns the new scope of a region that has the scope `old_scope`, when the function around it
// moves from the scope `from` to the scope `to`. An axis that the region itself made Manual stays
// Manual.
Scope NewRegionScope(const Scope& old_scope, const Scope& from, const Scope& to) {
  Scope out = to;
  for (MeshAxis& a : out.mesh.axes)
    if (old_scope.mesh.Has(a.name) && from.mesh.Has(a.name) &&
        old_scope.mesh.TypeOf(a.name) != from.mesh.TypeOf(a.name))
      a.type = old_scope.mesh.TypeOf(a.name);
  if (old_scope.check_vma != from.check_vma) out.check_vma = old_scope.check_vma;
  return out;
}

// Returns the new type of a region's param that has the type `old`, when the region's scope changes
// from `old_scope` to `new_scope` and the function around it had the scope `from`. The type has the
// old shape and those shardings whose axes are still Explicit. The varying, unreduced and reduced
// axes are those of the new operand, and those of `old` that the region itself made Manual.
Type NewParamType(const Type& old, const Scope& old_scope, const Scope& new_scope,
                  const Scope& from, const Type& operand) {
  Type t = old;
  for (AxisList& axes : t.sharding)
    std::erase_if(axes, [&](const std::string& a) {
      return !new_scope.mesh.Has(a) || new_scope.mesh.TypeOf(a) != AxisType::kExplicit;
    });
  auto states = [&](const AxisSet& was, const AxisSet& now) {
    AxisSet out = now;
    for (const std::string& a : was)
      if (old_scope.mesh.IsManual(a) && !from.mesh.IsManual(a)) out.insert(a);
    return out;
  };
  t.varying = states(old.varying, operand.varying);
  t.unreduced = states(old.unreduced, operand.unreduced);
  t.reduced = states(old.reduced, operand.reduced);
  Normalize(&t);
  return t;
}

std::vector<FunctionRef> RescopedRegions(const Function& f, const Op& op, const Scope& to,
                                         Values in) {
  if (!op.regions.empty() && op.def->RoleOf(0) == RegionRole::kComputation) return op.regions;
  const DataFlow flow = op.def->data_flow ? DataFlowOf(f, op) : DataFlow{};
  const std::vector<Type> types = TypesOf(in);
  std::vector<FunctionRef> out = op.regions;
  for (size_t k = 0; k < op.regions.size(); ++k) {
    const Function& region = *op.regions[k];
    const Scope scope = NewRegionScope(region.scope, f.scope, to);
    std::vector<Type> params = region.param_types();
    if (op.def->RoleOf(k) == RegionRole::kRule)
      params = op.def->rule_params({*op.def, to, types, op.attrs, out}, k);
    else if (op.def->data_flow)
      for (const DataFlowEdge& edge : flow.regions[k].operands)
        params[edge.inner] =
            NewParamType(params[edge.inner], region.scope, scope, f.scope, in[edge.outer].type());
    out[k] = Rescoped(region, scope, params);
  }
  return out;
}

// Emits every op again in the new scope. Ordinary ops get the casts that ops.h would insert, since
// operands that agreed before may vary differently now. Params that do not fit are our own error,
// because callers derive them from f.
FunctionRef Rescoped(const Function& f, const Scope& scope, const std::vector<Type>& params) {
  if (static_cast<int>(params.size()) != f.num_params)
    Throw(ErrorKind::kInternal, absl::StrCat("rescope of ", f.name, ": ", params.size(),
                                             " types for ", f.num_params, " params"));
  Builder b(scope, f.name);
  std::vector<Value> env(f.types.size());
  for (int i = 0; i < f.num_params; ++i) {
    if (!SameShapeAndDType(params[i], f.types[i]))
      Throw(ErrorKind::kInternal,
            absl::StrCat("rescope of ", f.name, ": param ", i, " is ", params[i].ToString(),
                         "; expected the shape of ", f.types[i].ToString()));
    env[i] = b.Param(params[i]);
  }
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const Op& op = f.ops[i];
    SiteScope site(b, f.sites[i]);
    std::vector<Value> in = ElementsAt(env, op.operands);
    // Operands may disagree along axes that have become Manual: insert the implicit casts of ops.h.
    const bool is_ordinary = !op.def->has_planned_regions() &&
                             op.def->family != Family::kCollective &&
                             op.def->family != Family::kCast;
    if (is_ordinary && scope.check_vma && in.size() > 1) in = MatchVarying(std::move(in));
    const std::vector<Value> out = b.Emit(*op.def, in, op.attrs, RescopedRegions(f, op, scope, in));
    for (size_t r = 0; r < out.size(); ++r) env[op.results[r]] = out[r];
  }
  return b.Build(ElementsAt(env, f.results));
}

}  // namespace

absl::StatusOr<FunctionRef> Rescope(const Function& f, const Scope& scope,
                                    const std::vector<Type>& params) {
  return CatchStatusOr([&] { return Rescoped(f, scope, params); });
}

}  // namespace tessera::ir
