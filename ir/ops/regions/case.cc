// The op case (lax.cond, lax.switch), which runs one of several branches, chosen by an index.
//
// Operand 0 is the index, an s32 that is clamped to the numbers of the branches, 0 to n - 1. The
// other operands are the params of every branch.
#include <algorithm>
#include <map>
#include <utility>

#include "ir/derive/factors.h"
#include "ir/eval/eval.h"
#include "ir/ops/regions/region.h"
#include "ir/ops/rules/batch_dim.h"
#include "ir/ops/rules/dims.h"
#include "ir/ops/rules/refused.h"
#include "ir/transform/transform.h"
#include "ir/walk.h"

namespace tessera::ir {
namespace ops {
namespace {

template <class T>
absl::Span<const T> WithoutIndex(const std::vector<T>& operands) {
  return absl::MakeConstSpan(operands).subspan(1);
}
std::vector<bool> WithoutIndex(const std::vector<bool>& operands) {
  return {operands.begin() + 1, operands.end()};
}
std::vector<Value> WithIndex(Value index, Values args) {
  return Concat(std::vector<Value>{index}, args);
}

// ---- Types. ----

// Checks that all branches take the operands and return the same types. A result is weak only if it
// is weak in every branch. The errors hint at a cast if types differ only in the axes over which
// they vary.
absl::StatusOr<std::vector<Type>> InferCase(const InferContext& c) {
  if (c.in.empty() || c.in[0].rank() != 0 || c.in[0].dtype != DType::kS32)
    return TypeError(c, "the index of the branch is ",
                     c.in.empty() ? "missing" : c.in[0].ToString(), "; expected s32[]");
  const absl::Span<const Type> args = c.in.subspan(1);
  for (size_t k = 0; k < c.regions.size(); ++k) {
    TESSERA_RETURN_IF_ERROR(CheckRegion(c, k, c.scope, args.size()));
    for (size_t i = 0; i < args.size(); ++i)
      if (!EqualButWeak(args[i], c.regions[k]->types[i]))
        return TypeError(c, "operand ", i, " has type ", args[i].ToString(), "; branch ", k,
                         " takes ", c.regions[k]->types[i].ToString());
  }
  std::vector<Type> out = c.regions[0]->result_types();
  for (size_t k = 1; k < c.regions.size(); ++k) {
    const std::vector<Type> other = c.regions[k]->result_types();
    if (other.size() != out.size())
      return TypeError(c, "branches must return equal numbers of values: branch 0 returns ",
                       out.size(), ", branch ", k, " returns ", other.size());
    for (size_t r = 0; r < out.size(); ++r) {
      if (!EqualButWeak(out[r], other[r]))
        return TypeError(c, "branches must have equal output types but they differ: result ", r,
                         " is ", out[r].ToString(), " in branch 0 and ", other[r].ToString(),
                         " in branch ", k,
                         PcastHint(out[r], other[r], absl::StrCat("result ", r, " of branch 0")),
                         PcastHint(other[r], out[r], absl::StrCat("result ", r, " of branch ", k)));
      out[r].weak = out[r].weak && other[r].weak;
    }
  }
  return out;
}

Signature CaseFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s;
  for (const Type& t : c.in) s.operands.push_back(AddFactors(&s, t, FactorKind::kPassThrough));
  for (const Type& t : out) s.results.push_back(AddFactors(&s, t, FactorKind::kPassThrough));
  return s;
}

// Returns the cost of the most expensive branch.
Cost CaseCost(const InferContext& c, absl::Span<const Type>) {
  Cost most;
  for (const FunctionRef& branch : c.regions) {
    const Cost cost = TotalCost(*branch);
    most = {std::max(most.flops, cost.flops), std::max(most.bytes, cost.bytes)};
  }
  return most;
}

// ---- Differentiation. ----

std::vector<Value> CaseJvp(const RuleContext& c, Values tangents) {
  const std::vector<bool> active = AreValid(tangents.subspan(1));
  std::vector<bool> out_active(c.out_types.size());
  for (const FunctionRef& branch : c.regions) {
    const JvpResult jvp = ValueOrThrow(Jvp(*branch, active));
    for (size_t r = 0; r < out_active.size(); ++r)
      if (jvp.out_active[r]) out_active[r] = true;
  }
  std::vector<FunctionRef> branches;
  for (const FunctionRef& branch : c.regions)
    branches.push_back(ValueOrThrow(JvpWithOutputs(*branch, active, out_active)).fn);
  return SpreadTangents(
      c.b.Emit(c.def, Concat(c.in, DropAbsent(tangents)), c.attrs, std::move(branches)),
      out_active);
}

// The residuals of all branches, the values that the known part of a branch passes to its unknown
// part. They share one list, because all branches of the unknown op take the same operands.
// Residuals that are the same operand, or the same result, of the op are one entry. Other residuals
// are shared by type: each branch fills as many entries of a type as it needs, and fills the rest
// with zeros.
class Residuals {
 public:
  // Returns the index in all() for each residual of the branch.
  std::vector<int> Add(const DedupedResiduals& branch) {
    std::vector<int> slots;
    std::map<int, int> own;  // keyed by result of the branch's known part
    for (const DedupedResiduals::Source& s : branch.sources) {
      if (s.is_param || s.index < num_out_) {
        slots.push_back(FindOrAdd({s.is_param, s.index, -1}));
        continue;
      }
      auto [at, is_new] = own.try_emplace(s.index, -1);
      if (is_new)
        at->second = NextFreeSlot(branch.known->types[branch.known->results[s.index]], own);
      slots.push_back(at->second);
    }
    return slots;
  }

  struct Residual {
    bool is_param;
    // The index of a param or a result of the known part. It is -1 for a residual of a branch's
    // own.
    int index;
    int own;  // index in own_types() for a branch's own residual; else -1
  };
  explicit Residuals(int num_out) : num_out_(num_out) {}
  const std::vector<Residual>& all() const { return all_; }
  const std::vector<Type>& own_types() const { return own_types_; }

 private:
  int FindOrAdd(Residual r) {
    for (size_t i = 0; i < all_.size(); ++i)
      if (all_[i].is_param == r.is_param && all_[i].index == r.index && all_[i].own == r.own)
        return static_cast<int>(i);
    all_.push_back(r);
    return static_cast<int>(all_.size()) - 1;
  }
  // Returns the slot of the first own residual of this type that the branch has not filled yet.
  int NextFreeSlot(const Type& type, const std::map<int, int>& taken) {
    for (size_t t = 0; t <= own_types_.size(); ++t) {
      if (t == own_types_.size()) own_types_.push_back(type);
      const int slot = own_types_[t] == type ? FindOrAdd({false, -1, static_cast<int>(t)}) : -1;
      if (slot >= 0 && std::none_of(taken.begin(), taken.end(),
                                    [&](const auto& other) { return other.second == slot; }))
        return slot;
    }
    return -1;  // not reached, because the last type is new
  }

  int num_out_;
  std::vector<Residual> all_;
  std::vector<Type> own_types_;
};

// Splits every branch at the same operands and results, because the known and the unknown op each
// have one signature. If the index is unknown, the whole op is unknown. The branches have different
// residuals, and the op returns all of them: a branch fills the residuals of other branches with
// zeros, and its unknown part ignores them.
void CasePartialEval(PartialEvalContext& c) {
  const std::vector<FunctionRef>& branches = c.op.regions;
  if (!c.known[0]) return KeepUnknown(c);
  const std::vector<bool> known = WithoutIndex(c.known);
  // A result is known if all branches know it.
  std::vector<bool> force(c.out_types.size());
  for (const FunctionRef& branch : branches) {
    const PartialEvalResult pe = ValueOrThrow(PartialEval(*branch, known, {}, c.options));
    for (size_t r = 0; r < force.size(); ++r)
      if (!pe.out_known[r]) force[r] = true;
  }
  const int num_known = static_cast<int>(std::count(force.begin(), force.end(), false));
  std::vector<PartialEvalResult> split;
  std::vector<DedupedResiduals> deduped;
  std::vector<std::vector<int>> slots;
  Residuals residuals(num_known);
  for (const FunctionRef& branch : branches) {
    split.push_back(ValueOrThrow(PartialEval(*branch, known, force, c.options)));
    deduped.push_back(DedupeResiduals(*split.back().known, num_known));
    slots.push_back(residuals.Add(deduped.back()));
  }

  // The known part returns the known results, then the branches' own residuals.
  const std::vector<Type>& own = residuals.own_types();
  std::vector<FunctionRef> known_branches;
  for (size_t k = 0; k < branches.size(); ++k) {
    const Function& f = *deduped[k].known;
    Builder b(f.scope, f.name);
    std::vector<Value> params;
    for (const Type& t : f.param_types()) params.push_back(b.Param(t));
    const std::vector<Value> got = Inline(b, f, params);
    std::vector<Value> results(got.begin(), got.begin() + num_known), filled(own.size());
    for (size_t s = 0; s < slots[k].size(); ++s) {
      const Residuals::Residual& r = residuals.all()[slots[k][s]];
      if (r.own >= 0) filled[r.own] = got[deduped[k].sources[s].index];
    }
    for (size_t t = 0; t < own.size(); ++t)
      results.push_back(filled[t] ? filled[t] : Zeros(b, own[t]));
    known_branches.push_back(b.Build(results));
  }
  const Value index = c.known_in[0];
  const std::vector<Value> args = DropAbsent(absl::MakeConstSpan(c.known_in).subspan(1));
  std::vector<Value> got;
  if (num_known + own.size() > 0 ||
      std::any_of(known_branches.begin(), known_branches.end(),
                  [](const FunctionRef& f) { return f->has_effects; }))
    got = c.known_b.Emit(*c.op.def, WithIndex(index, args), c.op.attrs, known_branches);
  c.known_out = ScatterByMask(absl::MakeConstSpan(got).subspan(0, num_known), Flipped(force));
  const bool has_effects = std::any_of(split.begin(), split.end(), [](const PartialEvalResult& pe) {
    return pe.unknown->has_effects;
  });
  if (num_known == static_cast<int>(force.size()) && !has_effects) return;

  // The unknown part takes all residuals, then the unknown operands.
  std::vector<Value> unknown_args = {c.residual(index)};
  for (const Residuals::Residual& r : residuals.all())
    unknown_args.push_back(c.residual(r.is_param   ? args[r.index]
                                      : r.own >= 0 ? got[num_known + r.own]
                                                   : got[r.index]));
  const std::vector<int> unknown_operands = walk::Where(c.known, false);
  for (int i : unknown_operands) unknown_args.push_back(c.unknown_in(i));
  std::vector<FunctionRef> unknown_branches;
  for (size_t k = 0; k < branches.size(); ++k) {
    const Function& f = *split[k].unknown;
    Builder b(f.scope, f.name);
    std::vector<Value> params, inner;
    for (const Value& v : absl::MakeConstSpan(unknown_args).subspan(1))
      params.push_back(b.Param(v.type()));
    for (int slot : slots[k]) inner.push_back(params[slot]);
    inner.insert(inner.end(), params.begin() + residuals.all().size(), params.end());
    unknown_branches.push_back(b.Build(Inline(b, f, inner)));
  }
  c.unknown_out =
      ScatterByMask(c.unknown_b.Emit(*c.op.def, unknown_args, c.op.attrs, unknown_branches), force);
}

std::vector<Value> CaseTranspose(const RuleContext& c, Values cts,
                                 const std::vector<bool>& linear) {
  NonLinearOperand(c, 0);
  const std::vector<bool> inner = WithoutIndex(linear);
  std::vector<FunctionRef> branches;
  for (const FunctionRef& branch : c.regions) {
    const FunctionRef wanted =
        walk::Reorder(*branch, walk::Iota(branch->num_params), walk::Where(AreValid(cts)));
    branches.push_back(ValueOrThrow(TransposeFunction(*wanted, inner)));
  }
  const std::vector<Value> args =
      Concat(ElementsAt(c.in, walk::Where(linear, false)), DropAbsent(cts));
  return ScatterByMask(c.b.Emit(c.def, args, c.attrs, std::move(branches)), linear);
}

// ---- Batching. ----

// If each member of the batch has its own index, every branch is run, and its results are selected.
// The operands of a branch pass through a select too, so that no derivative comes out of a branch
// that a member does not take. Reference: JAX's _cond_batching_rule.
Batched BatchWithIndexPerMember(const RuleContext& c, absl::Span<const int> dims) {
  const int last = static_cast<int>(c.regions.size()) - 1;
  Value index = dims[0] == 0 ? c.in[0] : MoveDim(c.in[0], dims[0], 0);
  const Value lowest = FullLike(index, 0), highest = FullLike(index, last);
  index = Clamp(lowest, index, highest);
  const auto chosen = [&](int k, const Value& like) {
    return BroadcastLike(Compare(index, FullLike(index, k), "EQ"), like.type(), {0});
  };
  std::vector<Value> args;
  std::vector<int> arg_dims;
  for (size_t i = 1; i < c.in.size(); ++i) {
    const bool inexact = IsInexact(c.in[i].dtype());
    if (dims[i] < 0 && !inexact) {
      args.push_back(c.in[i]);
      arg_dims.push_back(-1);
      continue;
    }
    args.push_back(dims[i] < 0    ? walk::WithBatchDim(c.batch, c.in[i], 0)
                   : dims[i] == 0 ? c.in[i]
                                  : MoveDim(c.in[i], dims[i], 0));
    arg_dims.push_back(0);
  }
  std::vector<Value> out;
  for (int k = last; k >= 0; --k) {
    std::vector<Value> in = args;
    for (Value& x : in) {
      if (!IsInexact(x.dtype())) continue;
      const Value is_chosen = chosen(k, x);
      x = Select(is_chosen, x, StopGradient(x));
    }
    const BatchResult batched = ValueOrThrow(
        Batch(*c.regions[k], arg_dims, c.batch, std::vector<int>(c.out_types.size(), 0)));
    const std::vector<Value> got = Inline(c.b, *batched.fn, in);
    if (out.empty()) {
      out = got;
      continue;
    }
    for (size_t r = 0; r < out.size(); ++r) out[r] = Select(chosen(k, got[r]), got[r], out[r]);
  }
  return {out, std::vector<int>(out.size(), 0)};
}

Batched CaseBatch(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  if (dims[0] >= 0) return BatchWithIndexPerMember(c, dims);
  const std::vector<int> inner(dims.begin() + 1, dims.end());
  // A result is batched if some branch makes it batched.
  std::vector<int> out_dims(c.out_types.size(), -1);
  for (const FunctionRef& branch : c.regions) {
    const BatchResult batched = ValueOrThrow(Batch(*branch, inner, c.batch));
    for (size_t r = 0; r < out_dims.size(); ++r)
      if (batched.out_dims[r] >= 0) out_dims[r] = 0;
  }
  std::vector<FunctionRef> branches;
  for (const FunctionRef& branch : c.regions)
    branches.push_back(ValueOrThrow(Batch(*branch, inner, c.batch, out_dims)).fn);
  return {c.b.Emit(c.def, c.in, c.attrs, std::move(branches)), out_dims};
}

// ---- Reference semantics. ----

absl::StatusOr<std::vector<Shards>> EvalCase(const EvalContext& c, absl::Span<const Shards> in) {
  const auto last = static_cast<int64_t>(c.regions.size()) - 1;
  std::map<int64_t, std::vector<int>> shards_of;  // keyed by branch
  for (size_t shard = 0; shard < in[0].size(); ++shard)
    shards_of[std::clamp<int64_t>(in[0][shard].As<int32_t>()[0], 0, last)].push_back(
        static_cast<int>(shard));
  std::vector<Shards> out(c.out_types.size(), Shards(in[0].size()));
  for (const auto& [branch, shards] : shards_of)
    TESSERA_RETURN_IF_ERROR(
        RunOnShards(c.evaluator, *c.regions[branch], in.subspan(1), shards, &out));
  return out;
}

DataFlow CaseDataFlow(const InferContext& c) {
  DataFlow flow;
  for (const FunctionRef& branch : c.regions)
    flow.regions.push_back(EdgesOf(*branch, /*first_operand=*/1));
  flow.branch_index = 0;
  return flow;
}

constexpr RegionRole kBranches[] = {RegionRole::kBranch};

}  // namespace

const OpDef kCase = Checked({.name = "case",
                             .lax_name = "cond",
                             .family = Family::kControlFlow,
                             .num_operands = kAnyNumber,
                             .regions = kBranches,
                             .repeats_region = true,
                             .lowering = Lowering::kRegion,
                             .infer = InferCase,
                             .factors = CaseFactors,
                             .sharding = KeepInferredTypes,
                             .varying = KeepInferredTypes,
                             .jvp = CaseJvp,
                             .jvp_emits_primals = true,
                             .transpose = CaseTranspose,
                             .batch = CaseBatch,
                             .partition = Refused{"the planner enters regions itself"},
                             .partial_eval = CasePartialEval,
                             .data_flow = CaseDataFlow,
                             .cost = CaseCost,
                             .eval_shards = EvalCase});

}  // namespace ops

std::vector<Value> Case(Value index, std::vector<FunctionRef> branches, Values operands) {
  return index.builder().Emit(ops::kCase, ops::Concat(std::vector<Value>{index}, operands), {},
                              std::move(branches));
}

}  // namespace tessera::ir
