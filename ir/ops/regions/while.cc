// The op while (lax.while_loop), which runs its body on the carries as long as the predicate holds.
//
// The predicate takes (its constants, carries) and returns a bool. The body takes (its constants,
// carries) and returns the carries. The operands are the predicate's constants, the body's
// constants and the carries.
#include <algorithm>
#include <utility>

#include "ir/derive/factors.h"
#include "ir/eval/eval.h"
#include "ir/ops/regions/region.h"
#include "ir/ops/rules/batch_dim.h"
#include "ir/ops/rules/dims.h"
#include "ir/transform/transform.h"
#include "ir/walk.h"

namespace tessera::ir {
namespace ops {
namespace {

// The numbers of operands of each kind, which come in this order.
struct Layout {
  int num_predicate_consts, num_body_consts, num_carry;

  Layout(const Attrs& attrs, size_t num_operands)
      : num_predicate_consts(static_cast<int>(attrs.Int("num_predicate_consts"))),
        num_body_consts(static_cast<int>(attrs.Int("num_body_consts"))),
        num_carry(static_cast<int>(num_operands) - num_predicate_consts - num_body_consts) {}
  explicit Layout(const RuleContext& c) : Layout(c.attrs, c.in_types.size()) {}

  int body0() const { return num_predicate_consts; }
  int carry0() const { return num_predicate_consts + num_body_consts; }
  // The operands that a region takes as params, in order.
  std::vector<int> PredicateOperands() const { return Join(0, num_predicate_consts); }
  std::vector<int> BodyOperands() const { return Join(body0(), num_body_consts); }

 private:
  std::vector<int> Join(int begin, int count) const {
    std::vector<int> out;
    for (int i = 0; i < count; ++i) out.push_back(begin + i);
    for (int k = 0; k < num_carry; ++k) out.push_back(carry0() + k);
    return out;
  }
};

// ---- Types. ----

// Checks both regions against the operands, in lax's words. The body must return each carry with
// the type that it takes, because the next iteration gets it as its param.
absl::StatusOr<std::vector<Type>> InferWhile(const InferContext& c) {
  const int64_t n = c.attrs.Int("num_predicate_consts"), m = c.attrs.Int("num_body_consts");
  const auto operands = static_cast<int64_t>(c.in.size());
  if (n < 0 || m < 0 || n > operands || m > operands - n)
    return ValueError(c, "num_predicate_consts=", n, " and num_body_consts=", m, " do not fit ",
                      operands, " operands");
  const Layout l(c.attrs, c.in.size());
  const std::vector<int> of[] = {l.PredicateOperands(), l.BodyOperands()};
  const char* const names[] = {"the predicate", "the body"};
  for (size_t k = 0; k < 2; ++k) {
    TESSERA_RETURN_IF_ERROR(CheckRegion(c, k, c.scope, of[k].size()));
    for (size_t i = 0; i < of[k].size(); ++i)
      if (!EqualButWeak(c.in[of[k][i]], c.regions[k]->types[i]))
        return TypeError(c, "operand ", of[k][i], " has type ", c.in[of[k][i]].ToString(), "; ",
                         names[k], " takes ", c.regions[k]->types[i].ToString());
  }
  const std::vector<Type> pred = c.regions[0]->result_types();
  if (pred.size() != 1 || pred[0].rank() != 0 || pred[0].dtype != DType::kBool)
    return TypeError(c, "cond_fun must return a boolean scalar, but got ",
                     pred.size() == 1 ? pred[0].ToString() : absl::StrCat(pred.size(), " values"));
  std::vector<Type> out = c.regions[1]->result_types();
  if (static_cast<int>(out.size()) != l.num_carry)
    return TypeError(c, "body_fun must return the ", l.num_carry, " carries, but returns ",
                     out.size(), " values");
  for (int k = 0; k < l.num_carry; ++k) {
    const Type& in = c.regions[1]->types[l.num_body_consts + k];
    if (!EqualButWeak(in, out[k])) return CarryMismatchError("while_loop body", k, in, out[k]);
  }
  return out;
}

// A carry shares its factors between operand and result.
Signature WhileFactors(const InferContext& c, absl::Span<const Type> out) {
  const Layout l(c.attrs, c.in.size());
  Signature s;
  for (const Type& t : c.in) s.operands.push_back(AddFactors(&s, t, FactorKind::kPassThrough));
  for (size_t r = 0; r < out.size(); ++r) s.results.push_back(s.operands[l.carry0() + r]);
  return s;
}

// Returns the cost of one iteration, because the number of iterations is not known.
Cost WhileCost(const InferContext& c, absl::Span<const Type>) {
  const Cost a = TotalCost(*c.regions[0]), b = TotalCost(*c.regions[1]);
  return {a.flops + b.flops, a.bytes + b.bytes};
}

// ---- Differentiation. ----

// Returns `f` with unused params of these types added at the end.
FunctionRef WithUnusedParams(const Function& f, absl::Span<const Type> types) {
  Builder b(f.scope, f.name);
  std::vector<Value> params;
  for (const Type& t : f.param_types()) params.push_back(b.Param(t));
  for (const Type& t : types) b.Param(t);
  return b.Build(Inline(b, f, params));
}

// Emits one loop whose carries are the primals and their tangents. The predicate gets the tangents
// as params too, which it ignores: both regions of a while take all carries.
std::vector<Value> WhileJvp(const RuleContext& c, Values tangents) {
  const Layout l(c);
  const Function& body = *c.regions[1];
  std::vector<bool> active = ElementsAt(AreValid(tangents), l.BodyOperands());
  const JvpResult jvp = JvpOfBody(body, l.num_body_consts, l.num_carry, &active);

  // The body takes (constants, their tangents, carries, their tangents), in this order.
  std::vector<Value> const_tangents, carry_tangents;
  std::vector<int> const_positions, carry_positions;
  int next = body.num_params;
  for (int i = 0; i < body.num_params; ++i) {
    if (!active[i]) continue;
    const bool is_const = i < l.num_body_consts;
    const int operand = l.BodyOperands()[i];
    const Value t = tangents[operand] ? tangents[operand] : Zeros(c.b, c.in[operand].type());
    (is_const ? const_tangents : carry_tangents).push_back(t);
    (is_const ? const_positions : carry_positions).push_back(next++);
  }
  std::vector<int> params = walk::Iota(l.num_body_consts);
  params.insert(params.end(), const_positions.begin(), const_positions.end());
  for (int k = 0; k < l.num_carry; ++k) params.push_back(l.num_body_consts + k);
  params.insert(params.end(), carry_positions.begin(), carry_positions.end());

  const FunctionRef new_body =
      walk::Reorder(*jvp.fn, params, walk::Iota(static_cast<int>(jvp.fn->results.size())));
  const FunctionRef predicate = WithUnusedParams(*c.regions[0], TypesOf(carry_tangents));
  std::vector<Value> operands = Part(c.in, 0, l.carry0());
  operands = Concat(std::move(operands), const_tangents);
  operands = Concat(std::move(operands), Part(c.in, l.carry0(), l.num_carry));
  operands = Concat(std::move(operands), carry_tangents);
  return SpreadTangents(While(c.b, predicate, new_body, operands, l.num_predicate_consts,
                              l.num_body_consts + static_cast<int>(const_tangents.size())),
                        jvp.out_active);
}

// ---- Partial evaluation. ----

// If the predicate is known, the known side runs the loop on the known carries. The unknown side
// runs the whole loop again, as under a checkpoint. Reference: JAX's _while_partial_eval.
void WhilePartialEval(PartialEvalContext& c) {
  const Layout l(c.op.attrs, c.in_types.size());
  const Function &predicate = *c.op.regions[0], &body = *c.op.regions[1];
  const auto [known, pe] =
      SplitBody(body, l.num_body_consts, l.num_carry, ElementsAt(c.known, l.BodyOperands()));
  std::vector<bool> predicate_known = Part(c.known, 0, l.num_predicate_consts);
  for (int k = 0; k < l.num_carry; ++k) predicate_known.push_back(known[l.num_body_consts + k]);
  const PartialEvalResult pred = ValueOrThrow(PartialEval(predicate, predicate_known));
  const std::vector<int> known_carries = walk::Where(pe.out_known);
  if (!pred.out_known[0] || known_carries.empty()) return KeepUnknown(c);

  const FunctionRef known_predicate =
      walk::Reorder(*pred.known, walk::Iota(pred.known->num_params), {0});
  const FunctionRef known_body = walk::Reorder(*pe.known, walk::Iota(pe.known->num_params),
                                               walk::Iota(static_cast<int>(known_carries.size())));
  std::vector<Value> operands;
  for (int i = 0; i < l.carry0(); ++i)
    if (c.known[i]) operands.push_back(c.known_in[i]);
  const auto count = [&](int begin, int n) {
    return static_cast<int>(std::count(c.known.begin() + begin, c.known.begin() + begin + n, true));
  };
  for (int k : known_carries) operands.push_back(c.known_in[l.carry0() + k]);
  const std::vector<Value> got =
      While(c.known_b, known_predicate, known_body, operands, count(0, l.num_predicate_consts),
            count(l.body0(), l.num_body_consts));
  for (size_t k = 0; k < known_carries.size(); ++k) c.known_out[known_carries[k]] = got[k];
  if (static_cast<int>(known_carries.size()) == l.num_carry) return;

  std::vector<Value> all;
  for (size_t i = 0; i < c.known.size(); ++i) all.push_back(c.unknown_in(static_cast<int>(i)));
  const std::vector<Value> again = c.unknown_b.Emit(
      *c.op.def, all, c.op.attrs, {DropEffects(c.op.regions[0]), DropEffects(c.op.regions[1])});
  for (int k : walk::Where(pe.out_known, false)) c.unknown_out[k] = again[k];
}

// ---- Batching. ----

// Returns the predicate for a batch: whether it holds for any member.
FunctionRef AnyHolds(const Function& batched_predicate) {
  return WithMappedResults(batched_predicate, [](int, Value v) { return ReduceOr(v, {0}); });
}

// Returns the body for a batch whose members end in different iterations. It runs for all members,
// and the members that have ended keep their carries. The params are the predicate's constants, the
// body's constants and the carries.
FunctionRef BodyKeepingEnded(const Function& predicate, const Function& body,
                             int num_predicate_consts, int num_body_consts) {
  Builder b(body.scope, body.name);
  std::vector<Value> predicate_args, args;
  for (int i = 0; i < num_predicate_consts; ++i)
    predicate_args.push_back(b.Param(predicate.types[i]));
  for (int i = 0; i < body.num_params; ++i) args.push_back(b.Param(body.types[i]));
  const std::vector<Value> carries(args.begin() + num_body_consts, args.end());
  const Value holds = Inline(b, predicate, Concat(predicate_args, carries))[0];
  std::vector<Value> out = Inline(b, body, args);
  for (size_t k = 0; k < out.size(); ++k)
    out[k] = Select(BroadcastLike(holds, out[k].type(), {0}), out[k], carries[k]);
  return b.Build(out);
}

// Batches predicate and body until the set of batched carries no longer grows. If the predicate
// stays unbatched, all members end together and the loop needs nothing else. Otherwise the loop
// runs until the last member has ended, and the body evaluates the predicate again to find out
// which members go on.
Batched WhileBatch(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  const Layout l(c);
  const Function &predicate = *c.regions[0], &body = *c.regions[1];
  const std::vector<int> all(dims.begin(), dims.end());
  const std::vector<int> predicate_consts = Part(all, 0, l.num_predicate_consts);
  std::vector<int> body_dims = Part(all, l.body0(), l.num_body_consts);
  for (int k = 0; k < l.num_carry; ++k) body_dims.push_back(dims[l.carry0() + k] >= 0 ? 0 : -1);
  // A carry is batched if any iteration makes it batched. If the predicate is batched, all carries
  // are batched.
  BatchResult batched_predicate, batched_body;
  bool ends_apart = false;
  for (bool grew = true; grew;) {
    std::vector<int> carries = Part(body_dims, l.num_body_consts, l.num_carry);
    std::vector<int> predicate_dims = predicate_consts;
    predicate_dims.insert(predicate_dims.end(), carries.begin(), carries.end());
    batched_predicate = ValueOrThrow(Batch(predicate, predicate_dims, c.batch));
    ends_apart = batched_predicate.out_dims[0] >= 0;
    std::vector<int> force;
    for (int dim : carries) force.push_back(dim >= 0 || ends_apart ? 0 : -2);
    batched_body = ValueOrThrow(Batch(body, body_dims, c.batch, force));
    grew = false;
    for (int k = 0; k < l.num_carry; ++k)
      if (batched_body.out_dims[k] >= 0 && carries[k] < 0) {
        body_dims[l.num_body_consts + k] = 0;
        grew = true;
      }
  }
  std::vector<Value> operands = Part(c.in, 0, l.carry0()), carries;
  for (int k = 0; k < l.num_carry; ++k) {
    const Value& x = c.in[l.carry0() + k];
    const int dim = dims[l.carry0() + k];
    carries.push_back(body_dims[l.num_body_consts + k] < 0 ? x
                      : dim < 0                            ? walk::WithBatchDim(c.batch, x, 0)
                      : dim > 0                            ? MoveDim(x, dim, 0)
                                                           : x);
  }
  std::vector<int> out_dims = batched_body.out_dims;
  if (!ends_apart)
    return {While(c.b, batched_predicate.fn, batched_body.fn, Concat(operands, carries),
                  l.num_predicate_consts, l.num_body_consts),
            out_dims};
  // The body evaluates the predicate too, so it also takes the constants of the predicate.
  operands.insert(operands.begin() + l.body0(), c.in.begin(), c.in.begin() + l.body0());
  return {While(c.b, AnyHolds(*batched_predicate.fn),
                BodyKeepingEnded(*batched_predicate.fn, *batched_body.fn, l.num_predicate_consts,
                                 l.num_body_consts),
                Concat(operands, carries), l.num_predicate_consts,
                l.num_predicate_consts + l.num_body_consts),
          out_dims};
}

// ---- Reference semantics. ----

absl::StatusOr<std::vector<Shards>> EvalWhile(const EvalContext& c, absl::Span<const Shards> in) {
  const Layout l(c.attrs, in.size());
  std::vector<Shards> predicate_args(in.begin(), in.begin() + l.num_predicate_consts);
  std::vector<Shards> body_args(in.begin() + l.body0(), in.begin() + l.carry0());
  std::vector<Shards> carry(in.begin() + l.carry0(), in.end());
  std::vector<int> running = walk::Iota(static_cast<int>(c.evaluator.shard_devices().size()));
  for (;;) {
    if (const auto& check = c.evaluator.options().check_cancel) TESSERA_RETURN_IF_ERROR(check());
    std::vector<Shards> args = predicate_args;
    args.insert(args.end(), carry.begin(), carry.end());
    std::vector<Shards> holds(1, Shards(c.evaluator.shard_devices().size()));
    TESSERA_RETURN_IF_ERROR(RunOnShards(c.evaluator, *c.regions[0], args, running, &holds));
    std::erase_if(running, [&](int shard) { return holds[0][shard].As<uint8_t>()[0] == 0; });
    if (running.empty()) return carry;
    args = body_args;
    args.insert(args.end(), carry.begin(), carry.end());
    TESSERA_RETURN_IF_ERROR(RunOnShards(c.evaluator, *c.regions[1], args, running, &carry));
  }
}

DataFlow WhileDataFlow(const InferContext& c) {
  const Layout l(c.attrs, c.in.size());
  RegionDataFlow predicate, body = EdgesOf(*c.regions[1], 0);
  for (int i = 0; i < c.regions[0]->num_params; ++i)
    predicate.operands.push_back({l.PredicateOperands()[i], i});
  for (DataFlowEdge& e : body.operands) e.outer = l.BodyOperands()[e.inner];
  for (int k = 0; k < l.num_carry; ++k) body.carries.push_back({l.num_body_consts + k, k});
  DataFlow flow;
  flow.regions = {std::move(predicate), std::move(body)};
  flow.trip_count = kUnknownTripCount;
  return flow;
}

Attrs KeepWhile(const Attrs& attrs, const std::vector<bool>& operands, const std::vector<bool>&) {
  const auto predicate = attrs.Int("num_predicate_consts"), body = attrs.Int("num_body_consts");
  const auto kept = [&](int64_t begin, int64_t count) {
    return std::count(operands.begin() + begin, operands.begin() + begin + count, true);
  };
  return {{"num_predicate_consts", int64_t{kept(0, predicate)}},
          {"num_body_consts", int64_t{kept(predicate, body)}}};
}

AddedConstant AddWhileConstant(const Attrs& attrs, size_t k) {
  const auto predicate = static_cast<int>(attrs.Int("num_predicate_consts"));
  const auto body = static_cast<int>(attrs.Int("num_body_consts"));
  return {{{"num_predicate_consts", int64_t{predicate + (k == 0)}},
           {"num_body_consts", int64_t{body + (k == 1)}}},
          k == 0 ? predicate : predicate + body,
          k == 0 ? predicate : body};
}

constexpr RegionRole kWhileRegions[] = {RegionRole::kPredicate, RegionRole::kBody};
constexpr AttrSpec kWhileAttrs[] = {{"num_predicate_consts", AttrKind::kInt},
                                    {"num_body_consts", AttrKind::kInt}};

}  // namespace

// The transpose is refused in JAX's words: the number of iterations, and so the size of the
// residuals, is not known before the loop runs.
const OpDef kWhile = Checked(
    {.name = "while",
     .lax_name = "while_loop",
     .family = Family::kControlFlow,
     .num_operands = kAnyNumber,
     .regions = kWhileRegions,
     .attrs = kWhileAttrs,
     .lowering = Lowering::kRegion,
     .infer = InferWhile,
     .factors = WhileFactors,
     .sharding = KeepInferredTypes,
     .varying = KeepInferredTypes,
     .jvp = WhileJvp,
     .jvp_emits_primals = true,
     .transpose =
         Refused{"Reverse-mode differentiation does not work for lax.while_loop or lax.fori_loop "
                 "with dynamic start/stop values. Try using lax.scan, or using fori_loop with "
                 "static start/stop"},
     .batch = WhileBatch,
     .partition = Refused{"the planner enters regions itself"},
     .partial_eval = WhilePartialEval,
     .data_flow = WhileDataFlow,
     .keep = KeepWhile,
     .add_constant = AddWhileConstant,
     .cost = WhileCost,
     .eval_shards = EvalWhile});

}  // namespace ops

std::vector<Value> While(Builder& b, FunctionRef predicate, FunctionRef body, Values operands,
                         int num_predicate_consts, int num_body_consts) {
  return b.Emit(ops::kWhile, operands,
                {{"num_predicate_consts", int64_t{num_predicate_consts}},
                 {"num_body_consts", int64_t{num_body_consts}}},
                {std::move(predicate), std::move(body)});
}

}  // namespace tessera::ir
