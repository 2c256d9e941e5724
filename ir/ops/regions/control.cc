// The ops call, checkpoint, optimization_barrier and sharding_constraint.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/log.h"
#include "ir/inspected.h"
#include "ir/ops.h"
#include "ir/ops/regions/region.h"
#include "ir/spec.h"
#include "ir/transform/apply_rule.h"
#include "ir/transform/transform.h"
#include "ir/walk.h"

namespace tessera::ir {
namespace ops {
namespace {

// ---- call and checkpoint. ----

std::vector<Value> CallJvp(const RuleContext& c, Values tangents) {
  const JvpResult jvp = ValueOrThrow(Jvp(*c.regions[0], AreValid(tangents)));
  return SpreadTangents(c.b.Emit(c.def, Concat(c.in, DropAbsent(tangents)), c.attrs, {jvp.fn}),
                        jvp.out_active);
}

void CallPartialEval(PartialEvalContext& c) {
  const PartialEvalResult pe = ValueOrThrow(PartialEval(*c.op.regions[0], c.known, {}, c.options));
  const std::vector<int> known_out = walk::Where(pe.out_known);
  const DedupedResiduals deduped = DedupeResiduals(*pe.known, static_cast<int>(known_out.size()));
  const std::vector<Value> args = DropAbsent(c.known_in);
  std::vector<Value> known;
  if (!deduped.known->results.empty() || deduped.known->has_effects)
    known = c.known_b.Emit(*c.op.def, args, c.op.attrs, {deduped.known});
  for (size_t k = 0; k < known_out.size(); ++k) c.known_out[known_out[k]] = known[k];

  if (pe.unknown->results.empty() && !pe.unknown->has_effects) return;
  std::vector<Value> unknown_args;
  for (const DedupedResiduals::Source& s : deduped.sources)
    unknown_args.push_back(c.residual(s.is_param ? args[s.index] : known[s.index]));
  for (int i : walk::Where(c.known, false)) unknown_args.push_back(c.unknown_in(i));
  std::vector<bool> unknown_out = pe.out_known;
  unknown_out.flip();
  c.unknown_out = ScatterByMask(c.unknown_b.Emit(*c.op.def, unknown_args, c.op.attrs, {pe.unknown}),
                                unknown_out);
}

// The names of policies in programs, in the order of CheckpointPolicy::Kind.
constexpr const char* kPolicyNames[] = {
    "nothing", "everything", "dots", "dots_without_batch", "names", "other_names", "except_names"};
CheckpointPolicy::Kind PolicyOf(const Attrs& attrs) {
  if (!attrs.Has("policy")) return CheckpointPolicy::kNothing;
  const auto* const at =
      std::find(std::begin(kPolicyNames), std::end(kPolicyNames), attrs.Str("policy"));
  return static_cast<CheckpointPolicy::Kind>(at - std::begin(kPolicyNames));
}

bool IsContraction(const Op& op) { return op.def->family == Family::kContraction; }
bool HasBatch(const Function& f, const Op& op) {
  if (!op.def->contraction_map) return true;
  std::vector<Type> in = ElementsAt(f.types, op.operands), out = ElementsAt(f.types, op.results);
  const InferContext c{*op.def, f.scope, in, op.attrs, op.regions};
  return !op.def->contraction_map(c, out).batch.empty();
}
// Returns whether the policy keeps the results of an op of the body.
bool IsKept(const Attrs& policy, const Function& f, const Op& op) {
  const bool named = op.def == &kCheckpointName && !IsInspected(op.attrs.Str("name"));
  const auto has_name = [&] {
    const std::vector<std::string>& names = policy.Strings("names");
    return std::find(names.begin(), names.end(), op.attrs.Str("name")) != names.end();
  };
  switch (PolicyOf(policy)) {
    case CheckpointPolicy::kNothing:
      return false;
    case CheckpointPolicy::kEverything:
      return true;
    case CheckpointPolicy::kDots:
      return IsContraction(op);
    case CheckpointPolicy::kDotsWithoutBatch:
      return IsContraction(op) && !HasBatch(f, op);
    case CheckpointPolicy::kNames:
      return named && has_name();
    case CheckpointPolicy::kOtherNames:
      return named && !has_name();
    case CheckpointPolicy::kExceptNames:
      return !named || !has_name();
  }
  return false;
}

// Returns the values of the body that are kept. They are results of ops whose operands are all
// known.
std::vector<ValueId> KeptValues(const Attrs& policy, const Function& body,
                                const std::vector<bool>& known_in) {
  std::vector<ValueId> kept;
  if (PolicyOf(policy) == CheckpointPolicy::kNothing) return kept;
  std::vector<bool> known = known_in;
  known.resize(body.types.size(), false);
  for (const Op& op : body.ops) {
    const bool all_known =
        std::all_of(op.operands.begin(), op.operands.end(), [&](ValueId v) { return known[v]; });
    for (const ValueId v : op.results) {
      known[v] = all_known;
      if (all_known && !op.operands.empty() && IsKept(policy, body, op)) kept.push_back(v);
    }
  }
  return kept;
}

// Returns a function that computes the values `results` of the body. The params of that function
// are the params of the body, followed by the values `kept`, which it does not compute again.
FunctionRef RecomputationOf(const Function& body, const std::vector<ValueId>& kept,
                            const std::vector<ValueId>& results) {
  std::vector<bool> needed(body.types.size(), false), given(body.types.size(), false);
  for (const ValueId v : results) needed[v] = true;
  for (const ValueId v : kept) given[v] = true;
  std::vector<bool> runs(body.ops.size(), false);
  for (size_t i = body.ops.size(); i-- > 0;) {
    const Op& op = body.ops[i];
    runs[i] = std::any_of(op.results.begin(), op.results.end(),
                          [&](ValueId v) { return needed[v] && !given[v]; });
    if (!runs[i]) continue;
    for (const ValueId v : op.operands) needed[v] = true;
  }
  Builder b(body.scope, body.name);
  std::vector<Value> env(body.types.size());
  for (int i = 0; i < body.num_params; ++i) env[i] = b.Param(body.types[i]);
  for (const ValueId v : kept) env[v] = b.Param(body.types[v]);
  for (size_t i = 0; i < body.ops.size(); ++i) {
    if (!runs[i]) continue;
    const Op& op = body.ops[i];
    SiteScope site(b, body.sites[i]);
    const std::vector<Value> out = walk::EmitPlain(b, op, ElementsAt(env, op.operands));
    for (size_t r = 0; r < out.size(); ++r)
      if (!given[op.results[r]]) env[op.results[r]] = out[r];
  }
  return b.Build(ElementsAt(env, results));
}

// The known side computes the known results, and keeps the values that the policy names. The
// unknown side computes the rest of the body again, from the operands and the values that were
// kept.
void CheckpointPartialEval(PartialEvalContext& c) {
  // With hold_effects, ops with effects go to the unknown side, which runs them with values that
  // the known side has computed. No op is computed a second time.
  if (c.options.hold_effects) return CallPartialEval(c);
  const Function& body = *c.op.regions[0];
  const std::vector<ValueId> kept = KeptValues(c.op.attrs, body, c.known);
  const auto with_kept = std::make_shared<Function>(body);
  with_kept->results.insert(with_kept->results.end(), kept.begin(), kept.end());
  const PartialEvalResult pe = ValueOrThrow(PartialEval(*with_kept, c.known, {}, c.options));
  const std::vector<bool> result_known(pe.out_known.begin(),
                                       pe.out_known.begin() + body.results.size());
  const std::vector<int> known_out = walk::Where(result_known);
  const std::vector<int> unknown_out = walk::Where(result_known, false);

  std::vector<bool> used;
  const FunctionRef recompute =
      DropEffects(RecomputationOf(body, kept, ElementsAt(body.results, unknown_out)));
  const FunctionRef rest = Dce(*recompute, /*keep_params=*/false, &used);
  // The known side returns the known results of the body, then the values that are kept and used.
  std::vector<int> keep = walk::Iota(static_cast<int>(known_out.size()));
  for (size_t k = 0; k < kept.size(); ++k)
    if (used[body.num_params + k]) keep.push_back(static_cast<int>(known_out.size() + k));
  std::vector<Value> saved;
  if (!keep.empty() || pe.known->has_effects) {
    const FunctionRef primal = walk::Reorder(*pe.known, walk::Iota(pe.known->num_params), keep);
    const std::vector<Value> out =
        c.known_b.Emit(*c.op.def, DropAbsent(c.known_in), c.op.attrs, {primal});
    for (size_t k = 0; k < known_out.size(); ++k) c.known_out[known_out[k]] = out[k];
    saved.assign(out.begin() + static_cast<int64_t>(known_out.size()), out.end());
  }
  if (unknown_out.empty()) return;
  std::vector<Value> args;
  for (int i = 0; i < body.num_params; ++i)
    if (used[i]) args.push_back(c.known[i] ? c.residual(c.known_in[i]) : c.unknown_in(i));
  for (const Value& value : saved) args.push_back(c.residual(value));
  const std::vector<Value> out = c.unknown_b.Emit(*c.op.def, args, c.op.attrs, {rest});
  for (size_t k = 0; k < unknown_out.size(); ++k) c.unknown_out[unknown_out[k]] = out[k];
}

std::vector<Value> CallTranspose(const RuleContext& c, Values cts,
                                 const std::vector<bool>& linear) {
  return TransposeCall(c, cts, linear, c.def, c.attrs);
}

// Emits a barrier around the values that are present.
std::vector<Value> EmitBarrier(Builder& b, Values values) {
  const std::vector<Value> present = DropAbsent(values);
  if (present.empty()) return {values.begin(), values.end()};
  return ScatterByMask(OptimizationBarrier(b, present), AreValid(values));
}

// The barrier makes the second computation of the body wait for the cotangents. Without the
// barrier, the second computation could run together with the first one. The values of
// the second computation would then be kept until the cotangents arrive, and the checkpoint would
// save no memory.
std::vector<Value> CheckpointTranspose(const RuleContext& c, Values cts,
                                       const std::vector<bool>& linear) {
  std::vector<Value> residuals = c.in;
  for (size_t i = 0; i < residuals.size(); ++i)
    if (linear[i]) residuals[i] = Value();
  std::vector<Value> in =
      EmitBarrier(c.b, Concat(residuals, std::vector<Value>(cts.begin(), cts.end())));
  RuleContext behind_barrier = c;
  behind_barrier.in.assign(in.begin(), in.begin() + residuals.size());
  in.erase(in.begin(), in.begin() + residuals.size());
  return TransposeCall(behind_barrier, in, linear, c.def, c.attrs);
}

Batched CallBatch(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  const BatchResult batched =
      ValueOrThrow(Batch(*c.regions[0], {dims.begin(), dims.end()}, c.batch));
  return {c.b.Emit(c.def, c.in, c.attrs, {batched.fn}), batched.out_dims};
}

// ---- optimization_barrier. ----

absl::StatusOr<std::vector<Type>> InferBarrier(const InferContext& c) {
  return std::vector<Type>(c.in.begin(), c.in.end());
}

Signature BarrierFactors(const InferContext& c, absl::Span<const Type>) {
  Signature s;
  for (const Type& t : c.in) s.operands.push_back(AddFactors(&s, t, FactorKind::kPassThrough));
  s.results = s.operands;
  return s;
}

std::vector<Value> BarrierJvp(const RuleContext& c, Values tangents) {
  return EmitBarrier(c.b, tangents);
}
std::vector<Value> BarrierTranspose(const RuleContext& c, Values cts, const std::vector<bool>&) {
  return EmitBarrier(c.b, cts);
}
void BarrierPartialEval(PartialEvalContext& c) {
  std::vector<Value> unknown(c.known.size());
  for (int i : walk::Where(c.known, false)) unknown[i] = c.unknown_in(i);
  c.known_out = EmitBarrier(c.known_b, c.known_in);
  c.unknown_out = EmitBarrier(c.unknown_b, unknown);
}
Batched BarrierBatch(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  return {c.b.Emit(c.def, c.in), {dims.begin(), dims.end()}};
}
std::vector<Value> BarrierPartition(const RuleContext& c, const PartitionContext&) {
  return c.b.Emit(c.def, c.in);
}
absl::StatusOr<std::vector<Array>> EvalIdentity(const EvalContext&, absl::Span<const Array> in) {
  return std::vector<Array>(in.begin(), in.end());
}

// ---- sharding_constraint. ----

// Checks a constraint in JAX's words. FindSpecFault finds the faults that any spec may have.
// Manual, unreduced and reduced axes are refused here, because other specs may name them.
absl::Status CheckSpec(const InferContext& c, const PartitionSpec& spec) {
  const Type& x = c.in[0];
  const Mesh& mesh = c.scope.mesh;
  const std::optional<SpecFault> fault = FindSpecFault(spec, mesh, x.shape);
  if (fault && fault->kind == SpecFault::kTooLong)
    return ValueError(c, "the sharding ", spec.ToString(), " has ", spec.dims.size(),
                      " entries, which is too long for a value of rank ", x.rank());
  if (fault && fault->kind == SpecFault::kUnknownAxis)
    return MakeError(ErrorKind::kUnknownAxis,
                     absl::StrCat("sharding_constraint: Resource axis: ", fault->axis, " of ",
                                  spec.ToString(), " is not found in mesh ", mesh.ToString()));
  if (fault && fault->kind == SpecFault::kAxisTwice)
    return ValueError(c, "the sharding ", spec.ToString(), " names axis '", fault->axis, "' twice");
  for (const AxisList& axes : spec.dims)
    for (const std::string& a : axes)
      if (mesh.IsManual(a))
        return ValueError(c, "the sharding ", spec.ToString(), " contains a manual axes '", a,
                          "' of mesh ", mesh.ToString(),
                          "; inside shard_map only the other axes may be constrained");
  if (!spec.unreduced.empty() || !spec.reduced.empty())
    return MakeError(ErrorKind::kNotImplemented,
                     absl::StrCat("sharding_constraint: unreduced and reduced axes are not "
                                  "accepted, got ",
                                  spec.ToString(), "; state the dims only"));
  if (fault)
    return MakeError(
        ErrorKind::kIndivisible,
        absl::StrCat("sharding_constraint: the sharding ", spec.ToString(), " of dim ", fault->dim,
                     " of ", x.ToString(), " should evenly divide the shape: size ",
                     x.shape[fault->dim], ", shards ", fault->shards));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Type>> InferConstraint(const InferContext& c) {
  const PartitionSpec& spec = c.attrs.Spec("sharding");
  TESSERA_RETURN_IF_ERROR(CheckSpec(c, spec));
  const Type& x = c.in[0];
  const Mesh& mesh = c.scope.mesh;
  for (int d = 0; d < x.rank(); ++d) {
    const AxisList axes = d < static_cast<int>(spec.dims.size()) ? spec.dims[d] : AxisList{};
    if (spec.IsOpen(d)) continue;
    AxisList explicit_axes;
    for (const std::string& a : axes)
      if (mesh.TypeOf(a) == AxisType::kExplicit) explicit_axes.push_back(a);
    if (explicit_axes != x.axes_of(d))
      return ShardingError(
          c, "`with_sharding_constraint` acts as an assert when all axes of the mesh are ",
          "of type Explicit: the value is ", x.ToString(), ", the constraint says ",
          spec.ToString(), "; reshard the value to move it");
  }
  return std::vector<Type>{x};
}

std::vector<Value> ConstraintTranspose(const RuleContext& c, Values cts, const std::vector<bool>&) {
  return {c.b.Emit1(c.def, {cts[0]}, c.attrs)};
}

// The batch dim is cut over vmap's spmd_axis_name. Without spmd_axis_name it is left open for the
// planner.
Batched ConstraintBatch(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  PartitionSpec spec = c.attrs.Spec("sharding");
  const AxisList& spmd = c.batch.spmd;
  for (const std::string& a : spmd)
    if (spec.Mentions(a))
      Throw(ErrorKind::kValueError,
            absl::StrCat("vmap spmd_axis_name ('", absl::StrJoin(spmd, "','"),
                         "') cannot appear in with_sharding_constraint spec, but got spec ",
                         spec.ToString()));
  spec.dims.resize(c.in_types[0].rank());
  spec.open.resize(c.in_types[0].rank(), false);
  spec.dims.insert(spec.dims.begin() + dims[0], spmd);
  spec.open.insert(spec.open.begin() + dims[0], spmd.empty());
  return {c.b.Emit(c.def, c.in, {{"sharding", spec}}), {dims[0]}};
}

// Returns the operand, which the planner has already resharded as the constraint says.
std::vector<Value> ConstraintPartition(const RuleContext& c, const PartitionContext&) {
  return {c.in[0]};
}

// ---- The ops. ----

constexpr AttrSpec kCallAttrs[] = {{"name", AttrKind::kString, /*required=*/false}};
constexpr AttrSpec kCheckpointAttrs[] = {{"policy", AttrKind::kString, /*required=*/false},
                                         {"names", AttrKind::kStrings, /*required=*/false}};
constexpr AttrSpec kConstraintAttrs[] = {{"sharding", AttrKind::kSpec}};

const PartitionSpec* FixedSharding(const Attrs& attrs) { return &attrs.Spec("sharding"); }

absl::StatusOr<std::vector<Type>> InferCheckpoint(const InferContext& c) {
  if (c.attrs.Has("policy")) {
    const std::string& policy = c.attrs.Str("policy");
    if (std::find(std::begin(kPolicyNames), std::end(kPolicyNames), policy) ==
        std::end(kPolicyNames))
      return ValueError(c, "policy is \"", policy, "\"; expected one of ",
                        absl::StrJoin(kPolicyNames, ", "));
    const bool by_names = PolicyOf(c.attrs) >= CheckpointPolicy::kNames;
    if (by_names != c.attrs.Has("names"))
      return ValueError(c, "policy \"", policy, "\" ", by_names ? "needs" : "takes no", " names");
  } else if (c.attrs.Has("names")) {
    return ValueError(c, "has names and no policy");
  }
  return InferCall(c);
}

// Completes the OpDef of an op that calls its region. `d` has the fields that differ between these
// ops.
consteval OpDef CallLike(OpDef d) {
  d.family = Family::kControlFlow;
  d.num_operands = kAnyNumber;
  d.regions = kOneBody;
  d.lowering = Lowering::kRegion;
  if (d.infer == nullptr) d.infer = InferCall;
  d.factors = CallFactors;
  d.sharding = KeepInferredTypes;
  d.varying = KeepInferredTypes;
  d.jvp = CallJvp;
  d.jvp_emits_primals = true;
  if (d.transpose.kind == Rule<TransposeFn>::kUnset) d.transpose = CallTranspose;
  d.batch = CallBatch;
  d.partition = Refused{"the planner enters regions itself"};
  d.data_flow = CallDataFlow;
  d.cost = CallCost;
  d.eval_shards = EvalCall;
  return Checked(d);
}

}  // namespace

const OpDef kCall = CallLike(
    {.name = "call", .lax_name = "jit", .attrs = kCallAttrs, .partial_eval = CallPartialEval});
const OpDef kCheckpoint = CallLike({.name = "checkpoint",
                                    .lax_name = "checkpoint",
                                    .attrs = kCheckpointAttrs,
                                    .infer = InferCheckpoint,
                                    .transpose = CheckpointTranspose,
                                    .partial_eval = CheckpointPartialEval});

const OpDef kOptimizationBarrier = Checked({.name = "optimization_barrier",
                                            .lax_name = "optimization_barrier",
                                            .family = Family::kControlFlow,
                                            .num_operands = kAnyNumber,
                                            .lowering = Lowering::kBarrier,
                                            .infer = InferBarrier,
                                            .factors = BarrierFactors,
                                            .sharding = KeepInferredTypes,
                                            .varying = KeepInferredTypes,
                                            .jvp = BarrierJvp,
                                            .transpose = BarrierTranspose,
                                            .batch = BarrierBatch,
                                            .partition = BarrierPartition,
                                            .partial_eval = BarrierPartialEval,
                                            .cost = NoCost,
                                            .eval = EvalIdentity});

const OpDef kShardingConstraint = Checked({.name = "sharding_constraint",
                                           .lax_name = "sharding_constraint",
                                           .family = Family::kControlFlow,
                                           .num_operands = 1,
                                           .attrs = kConstraintAttrs,
                                           .lowering = Lowering::kAlias,
                                           .infer = InferConstraint,
                                           .factors = PointwiseFactors,
                                           .sharding = KeepInferredTypes,
                                           .varying = KeepInferredTypes,
                                           .jvp = Derived{},
                                           .transpose = ConstraintTranspose,
                                           .batch = ConstraintBatch,
                                           .partition = ConstraintPartition,
                                           .fixed_sharding = FixedSharding,
                                           .cost = NoCost,
                                           .eval = EvalIdentity});

}  // namespace ops

std::vector<Value> Call(Builder& b, FunctionRef f, Values args, std::string_view name) {
  Attrs attrs;
  if (!name.empty()) attrs.Set("name", std::string(name));
  return b.Emit(ops::kCall, args, std::move(attrs), {std::move(f)});
}

std::vector<Value> Checkpoint(Builder& b, FunctionRef f, Values args,
                              const CheckpointPolicy& policy) {
  Attrs attrs;
  if (policy.kind != CheckpointPolicy::kNothing)
    attrs.Set("policy", std::string(ops::kPolicyNames[policy.kind]));
  if (policy.kind >= CheckpointPolicy::kNames) attrs.Set("names", policy.names);
  return b.Emit(ops::kCheckpoint, args, std::move(attrs), {std::move(f)});
}

std::vector<Value> OptimizationBarrier(Builder& b, Values xs) {
  return b.Emit(ops::kOptimizationBarrier, xs);
}

Value ShardingConstraint(Value x, PartitionSpec spec) {
  return x.builder().Emit1(ops::kShardingConstraint, {x}, {{"sharding", std::move(spec)}});
}

}  // namespace tessera::ir
