#include "ir/ops/region.h"

#include <algorithm>

#include "base/log.h"
#include "ir/transform/walk.h"

namespace tessera::ir::ops {

Cost CostOf(const Function& f) {
  Cost total;
  for (const Op& op : f.ops) {
    const std::vector<Type> in = ElementsAt(f.types, op.operands),
                            out = ElementsAt(f.types, op.results);
    const InferContext c{*op.def, f.scope, in, op.attrs, op.regions};
    if (op.def->cost.refused()) continue;
    const Cost one =
        op.def->cost.derived() ? derive::CostByFactors(c, out) : op.def->cost.fn(c, out);
    total.flops += one.flops;
    total.bytes += one.bytes;
  }
  return total;
}

absl::Status CheckRegion(const InferContext& c, const Scope& scope) {
  const Function& f = *c.regions[0];
  if (!(f.scope == scope))
    return MakeError(
        ErrorKind::kMalformedProgram,
        absl::StrCat(ToAbsl(c.def.lax_name), ": the region stands in mesh ",
                     f.scope.mesh.ToString(), ", check_vma=", f.scope.check_vma, "; expected ",
                     scope.mesh.ToString(), ", check_vma=", scope.check_vma));
  if (f.num_params != static_cast<int>(c.in.size()))
    return MakeError(ErrorKind::kMalformedProgram,
                     absl::StrCat(ToAbsl(c.def.lax_name), ": the region takes ", f.num_params,
                                  " params, the op has ", c.in.size(), " operands"));
  return absl::OkStatus();
}

std::vector<bool> IsValid(Values values) {
  std::vector<bool> out;
  for (const Value& v : values) out.push_back(v.valid());
  return out;
}

std::vector<Value> DropAbsent(Values values) {
  std::vector<Value> out;
  for (const Value& v : values)
    if (v) out.push_back(v);
  return out;
}

std::vector<Value> ScatterByMask(Values values, const std::vector<bool>& mask) {
  TESSERA_CHECK_EQ(std::count(mask.begin(), mask.end(), true), static_cast<int64_t>(values.size()));
  std::vector<Value> out(mask.size());
  size_t next = 0;
  for (size_t i = 0; i < mask.size(); ++i)
    if (mask[i]) out[i] = values[next++];
  return out;
}

std::vector<Value> SpreadTangents(std::vector<Value> out, const std::vector<bool>& active) {
  const std::vector<Value> tangents(out.begin() + active.size(), out.end());
  out.resize(active.size());
  return Concat(std::move(out), ScatterByMask(tangents, active));
}

DedupedResiduals DedupeResiduals(const Function& known, int num_out, bool search_results) {
  DedupedResiduals out;
  std::vector<int> kept = walk::Iota(num_out);
  const int num_searched = search_results ? num_out : 0;
  for (size_t r = num_out; r < known.results.size(); ++r) {
    const ValueId v = known.results[r];
    const auto same = std::find(known.results.begin(), known.results.begin() + num_searched, v);
    if (v < known.num_params) {
      out.sources.push_back({true, v});
    } else if (same != known.results.begin() + num_searched) {
      out.sources.push_back({false, static_cast<int>(same - known.results.begin())});
    } else {
      out.sources.push_back({false, static_cast<int>(kept.size())});
      kept.push_back(static_cast<int>(r));
    }
  }
  out.known = walk::Reorder(known, walk::Iota(known.num_params), kept);
  return out;
}

}  // namespace tessera::ir::ops
