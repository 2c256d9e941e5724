// The ops custom_jvp_call and custom_vjp_call, which are functions whose derivatives the user
// gives. The derivative of a custom_vjp_call is the op custom_lin, a linear map of tangents of
// which only the transpose is known.
//
// The first region of a call is the function, and the others are derivative rules. The operands are
// the constants, which stand for the values that the user's functions capture, and then the
// arguments. All regions of the calls take the constants first. Rules have tangents for floats and
// complex numbers only. Reference: docs/decisions/0015.
#include <algorithm>
#include <utility>

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

// ---- Shared by both calls. ----

int NumConsts(const RuleContext& c) { return static_cast<int>(c.attrs.Int("num_consts")); }

template <class T>
std::vector<T> ArgsOf(const std::vector<T>& operands, int num_consts) {
  return {operands.begin() + num_consts, operands.end()};
}
template <class T>
std::vector<T> InexactOf(const std::vector<T>& values, absl::Span<const Type> types) {
  return ElementsAt(values, walk::Where(AreInexact(types)));
}
std::vector<Type> InexactOf(const std::vector<Type>& types) { return InexactOf(types, types); }

std::vector<Type> CotangentTypes(const std::vector<Type>& types) {
  std::vector<Type> out;
  for (const Type& t : types) out.push_back(CotangentType(t));
  return out;
}

// Returns whether the rule's terms for absent tangents are left out.
bool DropsAbsent(const RuleContext& c) {
  return c.attrs.Has("symbolic_zeros") && c.attrs.Bool("symbolic_zeros");
}

// Returns the tangents that a rule takes, with zeros for absent ones. A captured value must not
// have a tangent. The error for it names the rules that the user would have to adapt by the text
// `rules`.
std::vector<Value> RuleTangents(const RuleContext& c, Values tangents, std::string_view rules) {
  const int num_consts = NumConsts(c);
  // All operands are constants and the rule drops absent tangents: WithoutTangent made this
  // function, which has no derivatives.
  if (num_consts == static_cast<int>(c.in.size()) && DropsAbsent(c))
    Throw(ErrorKind::kNotImplemented,
          absl::StrCat("Differentiation rule for '", c.regions[0]->name, "' not implemented",
                       c.b.site().valid() ? absl::StrCat(" (", c.b.site().ToString(), ")") : ""));
  for (int i = 0; i < num_consts; ++i)
    if (tangents[i]) {
      const absl::string_view name = ToAbsl(c.def.lax_name);
      Throw(ErrorKind::kNotImplemented,
            absl::StrCat(
                "Detected differentiation of a ", name,
                " function with respect to a closed-over value. That isn't supported because the ",
                name == "custom_jvp" ? "custom JVP" : "custom VJP",
                " rule only specifies how to differentiate the ", name,
                " function with respect to explicit input parameters. Try passing the closed-over "
                "value into the ",
                name, " function as an argument, and adapting the ", ToAbsl(rules), ".",
                c.b.site().valid() ? absl::StrCat(" (", c.b.site().ToString(), ")") : ""));
    }
  std::vector<Value> out;
  for (size_t i = num_consts; i < c.in.size(); ++i)
    if (IsInexact(c.in[i].dtype()))
      out.push_back(tangents[i] ? tangents[i] : Zeros(c.b, c.in[i].type()));
  return out;
}

// The transpose rule of the calls. It applies to a call that is transposed without being
// differentiated first (linear_transpose), and transposes the function itself.
std::vector<Value> TransposeOwnFunction(const RuleContext& c, Values cts,
                                        const std::vector<bool>& linear) {
  return TransposeCall(c, cts, linear, kCall, {});
}

// Returns the dims that Batch is to force on results, given the batch dims of the results in
// several functions: 0 for a result that has a batch dim in any of them, else -2, which leaves the
// choice to Batch.
std::vector<int> ForcedDims(std::initializer_list<std::vector<int>> dims) {
  std::vector<int> out(dims.begin()->size(), -2);
  for (const std::vector<int>& function_dims : dims)
    for (size_t r = 0; r < out.size(); ++r)
      if (function_dims[r] >= 0) out[r] = 0;
  return out;
}

consteval OpDef CustomCall(OpDef d) {
  d.family = Family::kControlFlow;
  d.num_operands = kAnyNumber;
  d.lowering = Lowering::kRegion;
  d.factors = CallFactors;
  d.sharding = KeepInferredTypes;
  d.varying = KeepInferredTypes;
  d.jvp_emits_primals = true;
  d.transpose = TransposeOwnFunction;
  d.partition = Refused{"the planner enters regions itself"};
  d.partial_eval = KeepUnknown;  // the rules are for the op as a whole
  d.data_flow = CallDataFlow;
  d.cost = CallCost;
  d.eval_shards = EvalCall;
  return Checked(d);
}

constexpr AttrSpec kNumConsts[] = {{"num_consts", AttrKind::kInt}};
constexpr AttrSpec kCustomJvpAttrs[] = {{"num_consts", AttrKind::kInt},
                                        {"symbolic_zeros", AttrKind::kBool, /*required=*/false}};

// ---- custom_jvp_call: the function, and (consts, args, tangents) -> (results, tangents). ----

std::vector<Type> JvpRuleParams(const InferContext& c, size_t) {
  const std::vector<Type> operands(c.in.begin(), c.in.end());
  return Concat<Type>(operands,
                      InexactOf(ArgsOf(operands, static_cast<int>(c.attrs.Int("num_consts")))));
}

absl::StatusOr<std::vector<Type>> InferCustomJvp(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckedNumConsts(c).status());
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Type> out, InferCall(c));
  TESSERA_RETURN_IF_ERROR(CheckRuleParams(c, 1, "the JVP rule"));
  const std::vector<Type> got = c.regions[1]->result_types(), inexact = InexactOf(out);
  if (got.size() != out.size() + inexact.size())
    return TypeError(c, "Custom JVP rule must produce the ", out.size(), " results and ",
                     inexact.size(), " tangents, but got ", got.size(), " values");
  for (size_t r = 0; r < out.size(); ++r)
    if (!EqualButWeak(out[r], got[r]))
      return TypeError(c,
                       "Custom JVP rule must produce primal outputs of the function's types. "
                       "Expected ",
                       out[r].ToString(), " for result ", r, " but got ", got[r].ToString(),
                       PcastHint(got[r], out[r], absl::StrCat("result ", r, " of the rule")));
  for (size_t k = 0; k < inexact.size(); ++k)
    if (const Type& tangent = got[out.size() + k]; !EqualButWeak(inexact[k], tangent))
      return TypeError(c,
                       "Custom JVP rule must produce primal and tangent outputs with corresponding "
                       "shapes and dtypes. Expected ",
                       inexact[k].ToString(), " for tangent ", k, " but got ", tangent.ToString(),
                       PcastHint(tangent, inexact[k], absl::StrCat("tangent ", k, " of the rule")));
  return out;
}

// Returns the rule's results, and its tangents without the terms for absent tangents, which may be
// infinite or have no derivatives. A rule is linear in the tangents. The terms for the present ones
// are therefore the rule's own derivative with respect to these tangents.
std::vector<Value> RuleWithoutAbsentTerms(const RuleContext& c, Values tangents,
                                          std::vector<Value> rule_tangents) {
  const Function& rule = *c.regions[1];
  std::vector<bool> active(c.in.size(), false);
  for (size_t i = NumConsts(c); i < c.in.size(); ++i)
    if (IsInexact(c.in[i].dtype())) active.push_back(tangents[i].valid());
  const auto num_results = static_cast<int>(c.out_types.size());
  const auto num_tangents = static_cast<int>(rule.result_types().size()) - num_results;
  std::vector<bool> want(num_results, false);
  want.resize(num_results + num_tangents, true);
  const FunctionRef jvp = ValueOrThrow(JvpWithOutputs(rule, active, want)).fn;
  std::vector<int> results = walk::Iota(num_results);
  for (int k = 0; k < num_tangents; ++k) results.push_back(num_results + num_tangents + k);
  const FunctionRef terms = walk::Reorder(*jvp, walk::Iota(jvp->num_params), results);
  return Inline(c.b, *terms, Concat(Concat(c.in, rule_tangents), DropAbsent(tangents)));
}

std::vector<Value> CustomJvpJvp(const RuleContext& c, Values tangents) {
  const std::vector<Value> rule_tangents = RuleTangents(c, tangents, "custom_jvp rule");
  if (DropsAbsent(c))
    return SpreadTangents(RuleWithoutAbsentTerms(c, tangents, rule_tangents),
                          AreInexact(c.out_types));
  return SpreadTangents(Inline(c.b, *c.regions[1], Concat(c.in, rule_tangents)),
                        AreInexact(c.out_types));
}

Batched CustomJvpBatch(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  const std::vector<int> in(dims.begin(), dims.end());
  const std::vector<int> rule_in =
      Concat<int>(in, InexactOf(ArgsOf(in, NumConsts(c)), ArgsOf(c.in_types, NumConsts(c))));
  const std::vector<int> of_function = ValueOrThrow(Batch(*c.regions[0], in, c.batch)).out_dims;
  const std::vector<int> of_rule = ValueOrThrow(Batch(*c.regions[1], rule_in, c.batch)).out_dims;
  // A result has a batch dim if it, or its tangent, has one in the function or in the rule.
  const auto n = static_cast<int>(of_function.size());
  std::vector<int> of_tangents(n, -1);
  int next = n;
  for (int r : walk::Where(AreInexact(c.out_types))) of_tangents[r] = of_rule[next++];
  const std::vector<int> force = ForcedDims({of_function, Part(of_rule, 0, n), of_tangents});
  const BatchResult function = ValueOrThrow(Batch(*c.regions[0], in, c.batch, force));
  const BatchResult rule = ValueOrThrow(
      Batch(*c.regions[1], rule_in, c.batch, Concat<int>(force, InexactOf(force, c.out_types))));
  return {c.b.Emit(c.def, c.in, c.attrs, {function.fn, rule.fn}), function.out_dims};
}

constexpr RegionRole kJvpRegions[] = {RegionRole::kBody, RegionRole::kRule};

// ---- custom_vjp_call: the regions are the function, (consts, args) -> (results, residuals), and
// (consts, residuals, cotangents of results) -> cotangents of args. ----

std::vector<Type> VjpRuleParams(const InferContext& c, size_t region) {
  const std::vector<Type> operands(c.in.begin(), c.in.end());
  if (region == 1) return operands;
  const auto num_consts = static_cast<int>(c.attrs.Int("num_consts"));
  const std::vector<Type> out = c.regions[0]->result_types();
  const std::vector<Type> forward = c.regions[1]->result_types();
  const std::vector<Type> residuals(forward.begin() + static_cast<int64_t>(out.size()),
                                    forward.end());
  return Concat<Type>(Concat<Type>(Part(operands, 0, num_consts), residuals),
                      CotangentTypes(InexactOf(out)));
}

absl::Status CheckForward(const InferContext& c, const std::vector<Type>& out) {
  TESSERA_RETURN_IF_ERROR(CheckRuleParams(c, 1, "the fwd rule"));
  const std::vector<Type> got = c.regions[1]->result_types();
  if (got.size() < out.size())
    return TypeError(c, "Custom VJP fwd rule must produce the ", out.size(),
                     " results, then residuals, but got ", got.size(), " values");
  for (size_t r = 0; r < out.size(); ++r)
    if (!EqualButWeak(out[r], got[r]))
      return TypeError(c,
                       "Custom VJP fwd rule must produce primal outputs of the function's types. "
                       "Expected ",
                       out[r].ToString(), " for result ", r, " but got ", got[r].ToString(),
                       PcastHint(got[r], out[r], absl::StrCat("result ", r, " of the fwd rule")));
  return absl::OkStatus();
}

absl::Status CheckBackward(const InferContext& c, int num_consts) {
  TESSERA_RETURN_IF_ERROR(CheckRuleParams(c, 2, "the bwd rule"));
  const std::vector<Type> args =
      InexactOf(ArgsOf(std::vector<Type>(c.in.begin(), c.in.end()), num_consts));
  const std::vector<Type> want = CotangentTypes(args), got = c.regions[2]->result_types();
  if (got.size() != want.size())
    return TypeError(c, "Custom VJP bwd rule must produce the ", want.size(),
                     " cotangents of the args, but got ", got.size(), " values");
  for (size_t i = 0; i < want.size(); ++i)
    if (!EqualButWeak(want[i], got[i]))
      return ValueError(c,
                        "Custom VJP bwd rule must produce an output with the same type as the args "
                        "tuple of the primal function, but at output ",
                        i, " the bwd rule produced an output of type ", got[i].ToString(),
                        " corresponding to an input of type ", args[i].ToString(),
                        PcastHint(got[i], want[i], absl::StrCat("output ", i, " of the bwd rule")));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Type>> InferCustomVjp(const InferContext& c) {
  TESSERA_ASSIGN_OR_RETURN(const int num_consts, CheckedNumConsts(c));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Type> out, InferCall(c));
  TESSERA_RETURN_IF_ERROR(CheckForward(c, out));
  TESSERA_RETURN_IF_ERROR(CheckBackward(c, num_consts));
  return out;
}

// Emits custom_lin on the residuals and the tangents. `bwd` takes the residuals and the cotangents
// of the results.
std::vector<Value> EmitCustomLin(Builder& b, FunctionRef bwd, Values residuals, Values tangents) {
  return b.Emit(kCustomLin, Concat({residuals.begin(), residuals.end()}, tangents),
                {{"num_residuals", static_cast<int64_t>(residuals.size())}}, {std::move(bwd)});
}

// Runs fwd. The tangents become a custom_lin, because only the transpose of their linear map is
// known, which is bwd.
std::vector<Value> CustomVjpJvp(const RuleContext& c, Values tangents) {
  const std::vector<Value> rule_tangents =
      RuleTangents(c, tangents, "custom_vjp fwd and bwd rules");
  std::vector<Value> out = Inline(c.b, *c.regions[1], c.in);
  const auto n = static_cast<int>(c.out_types.size());
  const std::vector<Value> residuals =
      Concat(Part(c.in, 0, NumConsts(c)), Part(out, n, static_cast<int>(out.size()) - n));
  out.resize(n);
  const std::vector<Value> out_tangents =
      EmitCustomLin(c.b, c.regions[2], residuals, rule_tangents);
  return SpreadTangents(Concat(std::move(out), out_tangents), AreInexact(c.out_types));
}

// Returns the backward rule for a batch. If the whole batch shares an argument, its cotangent is
// the sum of the cotangents of all members.
FunctionRef BatchedBackward(const Function& bwd, const std::vector<int>& in,
                            const std::vector<int>& arg_dims, const MappedAxis& axis) {
  std::vector<int> force;
  for (int dim : arg_dims) force.push_back(dim < 0 ? -2 : dim);
  const BatchResult batched = ValueOrThrow(Batch(bwd, in, axis, force));
  return WithMappedResults(*batched.fn, [&](int i, Value v) {
    return arg_dims[i] < 0 && batched.out_dims[i] >= 0
               ? walk::SumOfBatch(axis, v, batched.out_dims[i])
               : v;
  });
}

Batched CustomVjpBatch(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  const std::vector<int> in(dims.begin(), dims.end());
  const int num_consts = NumConsts(c);
  const std::vector<int> of_function = ValueOrThrow(Batch(*c.regions[0], in, c.batch)).out_dims;
  const std::vector<int> of_fwd = ValueOrThrow(Batch(*c.regions[1], in, c.batch)).out_dims;
  const auto n = static_cast<int>(of_function.size());
  const std::vector<int> force = ForcedDims({of_function, Part(of_fwd, 0, n)});
  std::vector<int> fwd_force = force;
  fwd_force.resize(of_fwd.size(), -2);
  const BatchResult function = ValueOrThrow(Batch(*c.regions[0], in, c.batch, force));
  const BatchResult fwd = ValueOrThrow(Batch(*c.regions[1], in, c.batch, fwd_force));
  std::vector<int> bwd_in = Part(in, 0, num_consts);
  bwd_in.insert(bwd_in.end(), fwd.out_dims.begin() + n, fwd.out_dims.end());
  bwd_in = Concat<int>(bwd_in, InexactOf(function.out_dims, c.out_types));
  const FunctionRef bwd =
      BatchedBackward(*c.regions[2], bwd_in,
                      InexactOf(ArgsOf(in, num_consts), ArgsOf(c.in_types, num_consts)), c.batch);
  return {c.b.Emit(c.def, c.in, c.attrs, {function.fn, fwd.fn, bwd}), function.out_dims};
}

constexpr RegionRole kVjpRegions[] = {RegionRole::kBody, RegionRole::kRule, RegionRole::kRule};

// ---- custom_lin: the linear map of tangents whose transpose is the region. ----

constexpr std::string_view kOnlyTransposed =
    "can't apply forward-mode differentiation (jvp) to a custom_vjp function.";

// The residuals have the types of the operands. The cotangents have the types of the region's own
// params.
std::vector<Type> LinRuleParams(const InferContext& c, size_t) {
  const auto num_residuals = c.attrs.Int("num_residuals");
  std::vector<Type> out = c.regions[0]->param_types();
  std::copy(c.in.begin(), c.in.begin() + num_residuals, out.begin());
  return out;
}

absl::StatusOr<std::vector<Type>> InferLin(const InferContext& c) {
  const int64_t n = c.attrs.Int("num_residuals");
  const auto operands = static_cast<int64_t>(c.in.size());
  const Function& bwd = *c.regions[0];
  if (n < 0 || n > operands || n > bwd.num_params)
    return ValueError(c, "num_residuals=", n, " does not fit ", operands, " operands and ",
                      bwd.num_params, " params of the region");
  TESSERA_RETURN_IF_ERROR(CheckRuleParams(c, 0, "the region"));
  const std::vector<Type> tangents(c.in.begin() + n, c.in.end()), got = bwd.result_types();
  if (got.size() != tangents.size())
    return TypeError(c, "the region returns ", got.size(), " values for ", tangents.size(),
                     " tangents");
  for (size_t i = 0; i < got.size(); ++i)
    if (!IsInexact(tangents[i].dtype) || !EqualButWeak(CotangentType(tangents[i]), got[i]))
      return TypeError(c, "the region returns ", got[i].ToString(), " for tangent ", i, " of type ",
                       tangents[i].ToString(), "; expected a cotangent for a float of that type");
  std::vector<Type> out = CotangentTypes(ArgsOf(bwd.param_types(), static_cast<int>(n)));
  for (const Type& t : out)
    if (!IsInexact(t.dtype))
      return TypeError(c, "the region takes a cotangent of type ", t.ToString(),
                       "; expected a float");
  return out;
}

Signature LinFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s;
  for (const Type& t : c.in) s.operands.push_back(AddFactors(&s, t, FactorKind::kPassThrough));
  for (const Type& t : out) s.results.push_back(AddFactors(&s, t, FactorKind::kPassThrough));
  return s;
}

std::vector<Value> LinTranspose(const RuleContext& c, Values cts, const std::vector<bool>&) {
  const auto n = static_cast<int>(c.attrs.Int("num_residuals"));
  std::vector<Value> args;
  for (int i = 0; i < n; ++i) args.push_back(NonLinearOperand(c, i));
  for (size_t r = 0; r < cts.size(); ++r)
    args.push_back(cts[r] ? cts[r] : Zeros(c.b, CotangentType(c.out_types[r])));
  return Concat(std::vector<Value>(n), Inline(c.b, *c.regions[0], args));
}

// Evaluates the op as the transpose of its region. This is for the evaluator alone: a plan never
// contains the op.
absl::StatusOr<std::vector<Array>> EvalLin(const EvalContext& c, absl::Span<const Array> in) {
  const Function& bwd = *c.regions[0];
  std::vector<bool> linear(bwd.num_params, true);
  std::fill_n(linear.begin(), c.attrs.Int("num_residuals"), false);
  TESSERA_ASSIGN_OR_RETURN(const FunctionRef forward, TransposeFunction(bwd, linear));
  return Evaluate(*forward, in);
}

constexpr RegionRole kLinRegions[] = {RegionRole::kRule};
constexpr AttrSpec kLinAttrs[] = {{"num_residuals", AttrKind::kInt}};

}  // namespace

const OpDef kCustomJvpCall = CustomCall({.name = "custom_jvp_call",
                                         .lax_name = "custom_jvp",
                                         .regions = kJvpRegions,
                                         .attrs = kCustomJvpAttrs,
                                         .infer = InferCustomJvp,
                                         .jvp = CustomJvpJvp,
                                         .batch = CustomJvpBatch,
                                         .rule_params = JvpRuleParams});
const OpDef kCustomVjpCall = CustomCall({.name = "custom_vjp_call",
                                         .lax_name = "custom_vjp",
                                         .regions = kVjpRegions,
                                         .attrs = kNumConsts,
                                         .infer = InferCustomVjp,
                                         .jvp = CustomVjpJvp,
                                         .batch = CustomVjpBatch,
                                         .rule_params = VjpRuleParams});
const OpDef kCustomLin = Checked({.name = "custom_lin",
                                  .lax_name = "custom_lin",
                                  .family = Family::kControlFlow,
                                  .num_operands = kAnyNumber,
                                  .regions = kLinRegions,
                                  .attrs = kLinAttrs,
                                  .lowering = Lowering::kHost,
                                  .infer = InferLin,
                                  .factors = LinFactors,
                                  .sharding = KeepInferredTypes,
                                  .varying = KeepInferredTypes,
                                  .jvp = Refused{kOnlyTransposed},
                                  .transpose = LinTranspose,
                                  .batch = Refused{kOnlyTransposed},
                                  .partition = Refused{kOnlyTransposed},
                                  .rule_params = LinRuleParams,
                                  .cost = CallCost,
                                  .eval = EvalLin});

}  // namespace ops

std::vector<Value> CustomJvpCall(Builder& b, FunctionRef f, FunctionRef rule, Values operands,
                                 int num_consts) {
  return b.Emit(ops::kCustomJvpCall, operands, {{"num_consts", int64_t{num_consts}}},
                {std::move(f), std::move(rule)});
}

std::vector<Value> CustomVjpCall(Builder& b, FunctionRef f, FunctionRef fwd, FunctionRef bwd,
                                 Values operands, int num_consts) {
  return b.Emit(ops::kCustomVjpCall, operands, {{"num_consts", int64_t{num_consts}}},
                {std::move(f), std::move(fwd), std::move(bwd)});
}

}  // namespace tessera::ir
