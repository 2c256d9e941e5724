// The helpers of the generic walks: the transforms, the builder and Dce call them. Functions are
// renumbered and regions rescoped here, so that each walk only has to say what it does to one op.
#include "ir/transform/walk.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "base/log.h"
#include "ir/ops.h"
#include "ir/ops/rules/dims.h"

namespace tessera::ir::walk {
namespace {

AxisSet Minus(const AxisSet& a, const AxisSet& b) {
  AxisSet out;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::inserter(out, out.end()));
  return out;
}

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

RuleContext Context(Builder& b, const Function& f, const Op& op, std::vector<Value> in,
                    std::vector<Value> out) {
  return RuleContext{b,
                     *op.def,
                     op.attrs,
                     op.regions,
                     std::move(in),
                     std::move(out),
                     ElementsAt(f.types, op.operands),
                     ElementsAt(f.types, op.results)};
}

std::vector<Value> EmitPlain(Builder& b, const Op& op, Values in) {
  return b.Emit(*op.def, in, op.attrs, op.regions);
}

Value MatchTangent(Value v, const Type& want) {
  if (!v || !v.builder().scope().check_vma) return v;
  AxisSet terms;
  for (const std::string& a : want.unreduced)
    if (v.type().varying.contains(a)) terms.insert(a);
  v = ops::WithStates(VaryUnreducedCast(v, terms), want.unreduced, want.reduced);
  if (v.type().unreduced != want.unreduced || v.type().reduced != want.reduced)
    Throw(
        ErrorKind::kNotImplemented,
        absl::StrCat("a derivative has type ", v.type().ToString(), " where type ", want.ToString(),
                     " is needed, and no cast exists between these states; pcast the "
                     "differentiated value to varying first"));
  if (AxisSet spare = Minus(v.type().varying, want.varying); !spare.empty())
    v = Psum(v, AxisList(spare.begin(), spare.end()));
  if (AxisSet missing = Minus(want.varying, v.type().varying); !missing.empty())
    v = Pvary(v, missing);
  return v;
}

Value MatchCotangent(Value v, const Type& primal) { return MatchTangent(v, CotangentType(primal)); }

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
    out->effects |= HasEffects(op);
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
  const bool computes = !def.regions.empty() && def.RoleOf(0) == RegionRole::kComputation;
  for (FunctionRef& region : regions) {
    if (computes || region->scope.mapped == mapped) continue;
    auto copy = std::make_shared<Function>(*region);
    copy->scope.mapped = mapped;
    for (Op& op : copy->ops) op.regions = RegionsUnder(*op.def, std::move(op.regions), mapped);
    region = std::move(copy);
  }
  return regions;
}

AxisSet CutMissing(const MappedAxis& axis, Value v) {
  AxisSet out;
  for (const std::string& a : axis.spmd)
    if (v.builder().mesh().IsManual(a) && !v.type().varying.contains(a)) out.insert(a);
  return out;
}

Value WithBatchDim(const MappedAxis& axis, Value v, int dim) {
  v = Pvary(v, CutMissing(axis, v));
  if (axis.sharding.empty()) return BroadcastNewDim(v, dim, axis.size);
  Type like = InsertDim(v.type(), dim, axis.size);
  like.set_axes_of(dim, axis.sharding);
  std::vector<int64_t> dims;
  for (int d = 0; d <= v.rank(); ++d)
    if (d != dim) dims.push_back(d);
  return ops::BroadcastLike(v, like, std::move(dims));
}

Value SumOfBatch(const MappedAxis& axis, Value v, int dim) {
  AxisList cut;
  for (const std::string& a : axis.spmd)
    if (v.builder().mesh().IsManual(a)) cut.push_back(a);
  return Psum(ReduceSum(v, {dim}), cut);
}

}  // namespace tessera::ir::walk
