// The helpers of region.h. The rules of control.cc, scan.cc, while.cc, case.cc and the other ops
// with regions call them when such an op is inferred, transformed or evaluated.
#include "ir/ops/regions/region.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/log.h"
#include "ir/derive/factors.h"
#include "ir/eval/eval.h"
#include "ir/ops/rules/dims.h"
#include "ir/walk.h"

namespace tessera::ir::ops {

absl::Status CheckRegion(const InferContext& c, size_t k, const Scope& scope, size_t num_params) {
  const Function& f = *c.regions[k];
  const std::string which = c.regions.size() == 1 ? "the region" : absl::StrCat("region ", k);
  if (!(f.scope == scope))
    return MakeError(
        ErrorKind::kMalformedProgram,
        absl::StrCat(ToAbsl(c.def.lax_name), ": ", which, " stands in mesh ",
                     f.scope.mesh.ToString(), ", check_vma=", f.scope.check_vma, "; expected ",
                     scope.mesh.ToString(), ", check_vma=", scope.check_vma));
  if (static_cast<size_t>(f.num_params) != num_params)
    return MakeError(ErrorKind::kMalformedProgram,
                     absl::StrCat(ToAbsl(c.def.lax_name), ": ", which, " takes ", f.num_params,
                                  " params, the op has ", num_params, " operands for it"));
  return absl::OkStatus();
}

std::string PcastHint(const Type& have, const Type& other, std::string_view what) {
  AxisList missing;
  for (const std::string& a : other.varying)
    if (!have.varying.contains(a)) missing.push_back(a);
  Type a = have, b = other;
  a.varying.insert(other.varying.begin(), other.varying.end());
  b.varying = a.varying;
  if (missing.empty() || !EqualButWeak(a, b)) return "";
  return absl::StrCat(". This might be fixed by applying pcast(..., ('",
                      absl::StrJoin(missing, "', '"), missing.size() == 1 ? "',)" : "')",
                      ", to='varying') to ", ToAbsl(what));
}

absl::Status CarryMismatchError(std::string_view function, int k, const Type& in, const Type& out) {
  std::string hint =
      PcastHint(in, out, absl::StrCat("the initial carry value corresponding to carry[", k, "]"));
  // A carry that varies over more axes on input than on output cannot be cast back.
  if (!std::includes(out.varying.begin(), out.varying.end(), in.varying.begin(), in.varying.end()))
    hint.clear();
  if (!hint.empty()) hint = absl::StrCat(", so the varying manual axes do not match", hint);
  return MakeError(
      ErrorKind::kTypeError,
      absl::StrCat(ToAbsl(function),
                   " function carry input and carry output must have equal types, but they differ: "
                   "carry[",
                   k, "] has type ", in.ToString(), " on input and ", out.ToString(), " on output",
                   hint));
}

namespace {

// Returns `scope` with axis types taken from `other`, for the axes that are Auto or Explicit in
// both scopes.
Scope WithAxisTypesOf(Scope scope, const Scope& other) {
  for (MeshAxis& a : scope.mesh.axes)
    if (a.type != AxisType::kManual && other.mesh.Has(a.name) && !other.mesh.IsManual(a.name))
      a.type = other.mesh.TypeOf(a.name);
  return scope;
}

// Returns the type without the axes that have different types in the two meshes.
Type OnCommonAxes(Type t, const Mesh& a, const Mesh& b) {
  for (AxisList& axes : t.sharding)
    std::erase_if(axes, [&](const std::string& axis) { return a.TypeOf(axis) != b.TypeOf(axis); });
  Normalize(&t);
  return t;
}

}  // namespace

// Axes that are Explicit in this scope may be Auto in the region, or the other way round. An axis
// of this kind occurs in the types on one side only, so the comparison leaves it out.
absl::StatusOr<std::vector<Type>> InferCall(const InferContext& c) {
  const Function& f = *c.regions[0];
  TESSERA_RETURN_IF_ERROR(CheckRegion(c, 0, WithAxisTypesOf(c.scope, f.scope), c.in.size()));
  const Mesh &here = c.scope.mesh, &there = f.scope.mesh;
  for (int i = 0; i < f.num_params; ++i)
    if (!EqualButWeak(OnCommonAxes(c.in[i], here, there), OnCommonAxes(f.types[i], here, there)))
      return TypeError(c, "argument ", i, " has type ", c.in[i].ToString(), "; function ", f.name,
                       " takes ", f.types[i].ToString());
  std::vector<Type> out;
  for (const Type& t : f.result_types()) out.push_back(OnCommonAxes(t, here, there));
  return out;
}

Signature CallFactors(const InferContext& c, absl::Span<const Type> out) {
  const Function& f = *c.regions[0];
  Signature s;
  auto fresh = [&](const Type& t) { return AddFactors(&s, t, FactorKind::kPassThrough); };
  for (const Type& t : c.in) s.operands.push_back(fresh(t));
  for (size_t r = 0; r < out.size(); ++r)
    s.results.push_back(f.results[r] < f.num_params ? s.operands[f.results[r]] : fresh(out[r]));
  return s;
}

Cost CallCost(const InferContext& c, absl::Span<const Type>) { return TotalCost(*c.regions[0]); }

absl::StatusOr<std::vector<Shards>> EvalCall(const EvalContext& c, absl::Span<const Shards> in) {
  return c.evaluator.RunShards(*c.regions[0], {in.begin(), in.end()});
}

std::vector<Value> TransposeCall(const RuleContext& c, Values cts, const std::vector<bool>& linear,
                                 const OpDef& as, const Attrs& attrs) {
  const Function& f = *c.regions[0];
  const FunctionRef wanted = walk::Reorder(f, walk::Iota(f.num_params), walk::Where(AreValid(cts)));
  const FunctionRef transposed = ValueOrThrow(TransposeFunction(*wanted, linear));
  const std::vector<Value> args =
      Concat(ElementsAt(c.in, walk::Where(linear, false)), DropAbsent(cts));
  std::vector<Value> out = ScatterByMask(c.b.Emit(as, args, attrs, {transposed}), linear);
  // Axes that are Auto in the region have no place in its types, so the cotangents are resharded
  // like the operands.
  if (f.scope != c.b.scope())
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i]) out[i] = ShardedLike(out[i], c.in_types[i]);
  return out;
}

DataFlow CallDataFlow(const InferContext& c) {
  DataFlow flow;
  flow.regions = {EdgesOf(*c.regions[0], 0)};
  return flow;
}

absl::Status CheckRuleParams(const InferContext& c, size_t k, std::string_view name) {
  const std::vector<Type> want = c.def.rule_params(c, k);
  TESSERA_RETURN_IF_ERROR(CheckRegion(c, k, c.scope, want.size()));
  for (size_t i = 0; i < want.size(); ++i)
    if (!EqualButWeak(want[i], c.regions[k]->types[i]))
      return TypeError(c, "param ", i, " of ", ToAbsl(name), " has type ",
                       c.regions[k]->types[i].ToString(), "; expected ", want[i].ToString());
  return absl::OkStatus();
}

absl::StatusOr<int> CheckedNumConsts(const InferContext& c) {
  const int64_t n = c.attrs.Int("num_consts");
  const auto operands = static_cast<int64_t>(c.in.size());
  if (n < 0 || n > operands)
    return ValueError(c, "num_consts=", n, " does not fit ", operands, " operands");
  return static_cast<int>(n);
}

RegionDataFlow EdgesOf(const Function& region, int first_operand) {
  RegionDataFlow edges;
  for (int i = 0; i < region.num_params; ++i) edges.operands.push_back({first_operand + i, i});
  for (int i = 0; i < static_cast<int>(region.results.size()); ++i) edges.results.push_back({i, i});
  return edges;
}

std::vector<bool> AreValid(Values values) {
  std::vector<bool> out;
  for (const Value& v : values) out.push_back(v.valid());
  return out;
}

std::vector<bool> AreInexact(absl::Span<const Type> types) {
  std::vector<bool> out;
  for (const Type& t : types) out.push_back(IsInexact(t.dtype));
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

FunctionRef WithMappedResults(const Function& f, absl::FunctionRef<Value(int, Value)> map) {
  Builder b(f.scope, f.name);
  std::vector<Value> params;
  for (int i = 0; i < f.num_params; ++i) params.push_back(b.Param(f.types[i]));
  std::vector<Value> out = Inline(b, f, params);
  for (size_t r = 0; r < out.size(); ++r) out[r] = map(static_cast<int>(r), out[r]);
  return b.Build(out);
}

std::vector<bool> Flipped(std::vector<bool> mask) {
  mask.flip();
  return mask;
}

void KeepUnknown(PartialEvalContext& c) {
  std::vector<Value> in;
  for (size_t i = 0; i < c.known.size(); ++i) in.push_back(c.unknown_in(static_cast<int>(i)));
  c.unknown_out = c.unknown_b.Emit(*c.op.def, in, c.op.attrs, c.op.regions);
}

absl::Status RunOnShards(Evaluator& evaluator, const Function& f, absl::Span<const Shards> in,
                         const std::vector<int>& shards, std::vector<Shards>* out) {
  std::vector<int64_t> devices;
  for (int shard : shards) devices.push_back(evaluator.shard_devices()[shard]);
  std::vector<Shards> args(in.size());
  for (size_t i = 0; i < in.size(); ++i)
    for (int shard : shards) args[i].push_back(in[i][shard]);
  TESSERA_ASSIGN_OR_RETURN(std::vector<Shards> got,
                           evaluator.RunOnDevices(std::move(devices), f, std::move(args)));
  for (size_t r = 0; r < got.size(); ++r)
    for (size_t k = 0; k < shards.size(); ++k) (*out)[r][shards[k]] = std::move(got[r][k]);
  return absl::OkStatus();
}

std::vector<Value> SpreadTangents(std::vector<Value> out, const std::vector<bool>& active) {
  const std::vector<Value> tangents(out.begin() + active.size(), out.end());
  out.resize(active.size());
  return Concat(std::move(out), ScatterByMask(tangents, active));
}

JvpResult JvpOfBody(const Function& body, int carry0, int num_carry, std::vector<bool>* active) {
  std::vector<bool> out_active;
  for (bool grew = true; grew;) {
    out_active = ValueOrThrow(Jvp(body, *active)).out_active;
    grew = false;
    for (int k = 0; k < num_carry; ++k)
      if (out_active[k] && !(*active)[carry0 + k]) (*active)[carry0 + k] = grew = true;
  }
  for (int k = 0; k < num_carry; ++k) out_active[k] = (*active)[carry0 + k];
  return ValueOrThrow(JvpWithOutputs(body, *active, out_active));
}

BodySplit SplitBody(const Function& body, int carry0, int num_carry, std::vector<bool> known,
                    PartialEvalOptions options) {
  for (;;) {
    std::vector<bool> force(body.results.size(), false);
    for (int k = 0; k < num_carry; ++k) force[k] = !known[carry0 + k];
    PartialEvalResult pe = ValueOrThrow(PartialEval(body, known, force, options));
    bool shrank = false;
    for (int k = 0; k < num_carry; ++k)
      if (known[carry0 + k] && !pe.out_known[k]) {
        known[carry0 + k] = false;
        shrank = true;
      }
    if (!shrank) return {std::move(known), std::move(pe)};
  }
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
