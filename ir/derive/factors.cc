// Translates between the shardings of dims and the factors of ops. The planner uses it to propagate
// shardings and to divide ops among devices; the derived rules and the partition rules of ops use
// it, too.
#include "ir/derive/factors.h"

#include <algorithm>

namespace tessera::ir {

std::optional<std::vector<AxisList>> SplitAxes(const AxisList& axes, const FactorList& dim,
                                               const Signature& signature, const Mesh& mesh) {
  std::vector<AxisList> out(dim.size());
  size_t k = 0;
  int64_t remaining = dim.empty() ? 1 : signature.factors[dim[0]].size;
  for (const std::string& axis : axes) {
    const int64_t n = mesh.SizeOf(axis);
    while (remaining == 1 && k + 1 < dim.size()) remaining = signature.factors[dim[++k]].size;
    if (k >= dim.size() || remaining % n != 0) return std::nullopt;
    out[k].push_back(axis);
    remaining /= n;
  }
  return out;
}

DimAxes JoinAxes(const TensorFactors& dims, const std::vector<AxisList>& factor_axes) {
  DimAxes out(dims.size());
  for (size_t d = 0; d < dims.size(); ++d)
    for (int f : dims[d]) out[d].insert(out[d].end(), factor_axes[f].begin(), factor_axes[f].end());
  return out;
}

Type LocalType(const Type& global, const DimAxes& sharding, const Mesh& mesh) {
  Type t = MakeType(global.dtype, global.shape);
  for (size_t d = 0; d < sharding.size(); ++d) t.shape[d] /= mesh.SizeOf(sharding[d]);
  return t;
}

Signature SignatureOf(const Function& f, const Op& op) {
  const std::vector<Type> in = ElementsAt(f.types, op.operands);
  return op.def->factors({*op.def, f.scope, in, op.attrs, op.regions},
                         ElementsAt(f.types, op.results));
}

Cost CostOf(const Function& f, const Op& op) {
  if (op.def->cost.refused()) return {};
  const std::vector<Type> in = ElementsAt(f.types, op.operands),
                          out = ElementsAt(f.types, op.results);
  const InferContext c{*op.def, f.scope, in, op.attrs, op.regions};
  return op.def->cost.derived() ? derive::CostByFactors(c, out) : op.def->cost.fn(c, out);
}

Cost TotalCost(const Function& f) {
  Cost total;
  for (const Op& op : f.ops) {
    const Cost one = CostOf(f, op);
    total.flops += one.flops;
    total.bytes += one.bytes;
  }
  return total;
}

DataFlow DataFlowOf(const Function& f, const Op& op) {
  const std::vector<Type> in = ElementsAt(f.types, op.operands);
  return op.def->data_flow({*op.def, f.scope, in, op.attrs, op.regions});
}

bool HasKernels(const ScalarGraph& graph) {
  for (const ScalarNode& node : graph.nodes) {
    if (IsComplex(node.dtype)) return false;
    if (node.prim == ScalarPrim::kInput || node.prim == ScalarPrim::kSelect) continue;
    if (!IsComputable(node.dtype)) return false;
    for (int arg : node.args)
      if (!IsComputable(graph.nodes[arg].dtype)) return false;
  }
  return true;
}

bool IsLinear(const ScalarGraph& graph) {
  return std::all_of(graph.nodes.begin(), graph.nodes.end(), [&](const ScalarNode& node) {
    switch (node.prim) {
      case ScalarPrim::kInput:
      case ScalarPrim::kAdd:
      case ScalarPrim::kSub:
        return true;
      // -(a + b) and (-a) + (-b) differ if the sum is 0: the first is -0.
      case ScalarPrim::kNeg:
        return !IsFloat(node.dtype);
      case ScalarPrim::kConvert:
        return IsFloat(node.dtype) && IsFloat(graph.nodes[node.args[0]].dtype);
      default:
        return false;
    }
  });
}

namespace derive {

AxisList SummedAxes(const Signature& signature, const std::vector<AxisList>& factor_axes) {
  AxisList axes;
  if (signature.reduce != ReduceKind::kSum) return axes;
  for (size_t f = 0; f < factor_axes.size(); ++f)
    if (signature.factors[f].kind == FactorKind::kReduction)
      axes.insert(axes.end(), factor_axes[f].begin(), factor_axes[f].end());
  return axes;
}

Cost CostByFactors(const InferContext& c, absl::Span<const Type> out) {
  const Signature s = c.def.factors(c, out);
  Cost cost;
  const bool moves =
      c.def.lowering == Lowering::kIndexMap || c.def.lowering == Lowering::kDynamicIndex;
  cost.flops = c.def.family == Family::kContraction ? 2 : moves ? 0 : 1;
  for (const Factor& f : s.factors) cost.flops *= static_cast<double>(f.size);
  for (const Type& t : c.in) cost.bytes += static_cast<double>(t.num_bytes());
  for (const Type& t : out) cost.bytes += static_cast<double>(t.num_bytes());
  return cost;
}

}  // namespace derive
}  // namespace tessera::ir
