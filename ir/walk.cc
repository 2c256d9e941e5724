// The helpers of the generic walks that emit no ops: the builder, the transforms and the rules of
// ops with regions call them. Functions are renumbered here and regions get other mapped axes, so
// that each walk only has to say what it does to one op.
#include "ir/walk.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "ir/op_def.h"

namespace tessera::ir::walk {
namespace {

// The ops and values that the results depend on.
struct Liveness {
  std::vector<bool> ops, values;
};
Liveness LiveFor(const Function& f, absl::Span<const ValueId> results) {
  Liveness live{std::vector<bool>(f.ops.size()), std::vector<bool>(f.types.size())};
  for (ValueId v : results) live.values[v] = true;
  for (int i = static_cast<int>(f.ops.size()) - 1; i >= 0; --i) {
    const Op& op = f.ops[i];
    live.ops[i] = HasEffects(op) || std::any_of(op.results.begin(), op.results.end(),
                                                [&](ValueId r) { return live.values[r]; });
    if (!live.ops[i]) continue;
    for (ValueId v : op.operands) live.values[v] = true;
  }
  return live;
}

}  // namespace

// Drops dead ops and renumbers the values in one pass: params first, then the results of each op.
// It takes f by value and moves ops and types out, because Builder::Build calls it for every
// function. A param that is used but not listed is our own bug and fails a CHECK.
FunctionRef Extract(Function f, absl::Span<const ValueId> params,
                    absl::Span<const ValueId> results) {
  const Liveness live = LiveFor(f, results);
  auto out = std::make_shared<Function>();
  out->num_params = static_cast<int>(params.size());
  std::vector<ValueId> renamed(f.types.size(), -1);
  auto add = [&](ValueId old) {
    TESSERA_CHECK(renamed[old] < 0) << f.name << ": a param is listed twice";
    out->types.push_back(std::move(f.types[old]));
    return renamed[old] = static_cast<ValueId>(out->types.size()) - 1;
  };
  for (ValueId p : params) add(p);
  for (size_t i = 0; i < f.ops.size(); ++i) {
    if (!live.ops[i]) continue;
    Op& op = f.ops[i];
    for (ValueId& v : op.operands) {
      v = renamed[v];
      TESSERA_CHECK(v >= 0) << f.name << ": a param that is used is left out";
    }
    for (ValueId& v : op.results) v = add(v);
    out->has_effects |= HasEffects(op);
    out->ops.push_back(std::move(op));
    out->sites.push_back(f.sites[i]);
  }
  for (ValueId v : results) {
    TESSERA_CHECK(renamed[v] >= 0) << f.name << ": a param that is a result is left out";
    out->results.push_back(renamed[v]);
  }
  out->name = std::move(f.name);
  out->scope = std::move(f.scope);
  return out;
}

FunctionRef Reorder(const Function& f, absl::Span<const int> params,
                    absl::Span<const int> results) {
  return Extract(f, params, ElementsAt(f.results, results));
}

std::vector<bool> UsedParams(const Function& f) {
  const Liveness live = LiveFor(f, f.results);
  return {live.values.begin(), live.values.begin() + f.num_params};
}

std::vector<int> Iota(int n) {
  std::vector<int> out(n);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

std::vector<int> Where(const std::vector<bool>& mask, bool value) {
  std::vector<int> out;
  for (size_t i = 0; i < mask.size(); ++i)
    if (mask[i] == value) out.push_back(static_cast<int>(i));
  return out;
}

Type InsertDim(Type type, int dim, int64_t size) {
  type.shape.insert(type.shape.begin() + dim, size);
  if (type.is_sharded()) type.sharding.insert(type.sharding.begin() + dim, AxisList{});
  return type;
}

Type DropDim(Type type, int dim) {
  type.shape.erase(type.shape.begin() + dim);
  if (type.is_sharded()) type.sharding.erase(type.sharding.begin() + dim);
  Normalize(&type);
  return type;
}

std::vector<FunctionRef> RegionsUnder(const OpDef& def, std::vector<FunctionRef> regions,
                                      const std::vector<MappedAxis>& mapped) {
  const bool has_computations = !def.regions.empty() && def.RoleOf(0) == RegionRole::kComputation;
  for (FunctionRef& region : regions) {
    if (has_computations || region->scope.mapped == mapped) continue;
    auto copy = std::make_shared<Function>(*region);
    copy->scope.mapped = mapped;
    for (Op& op : copy->ops) op.regions = RegionsUnder(*op.def, std::move(op.regions), mapped);
    region = std::move(copy);
  }
  return regions;
}

}  // namespace tessera::ir::walk
