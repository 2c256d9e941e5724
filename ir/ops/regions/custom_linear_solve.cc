// The op custom_linear_solve finds the x of A x = b by a solver that the user gives. The derivative
// dx follows from dA x + A dx = db, without differentiating the solver. Reference: JAX's
// lax.custom_linear_solve.
//
// The operands are constants, which all regions take first, then b. The regions are solve (b to x),
// which is the one that runs, and matvec (x to A x). For reverse mode there may be two more
// regions, solve and matvec for the transpose of A.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/ops/regions/region.h"
#include "ir/ops/rules/batch_dim.h"
#include "ir/ops/rules/dims.h"
#include "ir/ops/rules/refused.h"
#include "ir/transform/apply_rule.h"
#include "ir/transform/transform.h"

namespace tessera::ir {
namespace ops {
namespace {

enum Region : size_t { kSolve, kMatvec, kTransposeSolve, kTransposeMatvec };
constexpr const char* kRegionNames[] = {"solve", "matvec", "transpose_solve", "transpose_matvec"};

int NumConsts(const RuleContext& c) { return static_cast<int>(c.attrs.Int("num_consts")); }

// ---- Types: x, b and the results of all regions have the types of b. ----

std::vector<Type> RuleParams(const InferContext& c, size_t) { return {c.in.begin(), c.in.end()}; }

// The types of the results are those of solve. Checks what differentiation relies on: every region
// maps values of the types of b to values of these types, and b consists of floats.
absl::StatusOr<std::vector<Type>> InferSolve(const InferContext& c) {
  TESSERA_ASSIGN_OR_RETURN(const int num_consts, CheckedNumConsts(c));
  if (c.regions.size() != 2 && c.regions.size() != 4)
    return ValueError(
        c, "has ", c.regions.size(),
        " regions; expected solve and matvec, and perhaps transpose_solve and transpose_matvec");
  TESSERA_RETURN_IF_ERROR(InferCall(c).status());
  for (size_t k = kMatvec; k < c.regions.size(); ++k)
    TESSERA_RETURN_IF_ERROR(CheckRuleParams(c, k, kRegionNames[k]));
  const std::vector<Type> b(c.in.begin() + num_consts, c.in.end());
  for (size_t i = 0; i < b.size(); ++i)
    if (!IsInexact(b[i].dtype))
      return TypeError(c, "b has a value of type ", b[i].ToString(), "; expected a float");
  for (size_t k = 0; k < c.regions.size(); ++k) {
    const std::vector<Type> got = c.regions[k]->result_types();
    if (got.size() != b.size())
      return TypeError(c, kRegionNames[k], "() output must match b, got ", got.size(),
                       " values and ", b.size());
    for (size_t i = 0; i < b.size(); ++i)
      if (!EqualButWeak(got[i], b[i]))
        return TypeError(c, kRegionNames[k], "() output types must match b, got ",
                         got[i].ToString(), " and ", b[i].ToString(),
                         PcastHint(b[i], got[i], absl::StrCat("value ", i, " of b")));
  }
  return c.regions[kSolve]->result_types();
}

// ---- Differentiation. ----

// Returns the tangents dA x that A x has if x is held fixed. They are absent if no constant of
// matvec has a tangent.
std::vector<Value> MatvecTangents(const RuleContext& c, Values const_tangents, Values x) {
  std::vector<bool> active = AreValid(const_tangents);
  active.resize(c.in.size(), false);
  const JvpResult jvp = ValueOrThrow(Jvp(*c.regions[kMatvec], active));
  const std::vector<Value> consts = Part(c.in, 0, NumConsts(c));
  const std::vector<Value> primals = Concat(consts, x);
  const std::vector<Value> all = SpreadTangents(
      Inline(c.b, *jvp.fn, Concat(primals, DropAbsent(const_tangents))), jvp.out_active);
  return {all.begin() + static_cast<int64_t>(x.size()), all.end()};
}

// Computes dx = A^-1 (db - dA x) by running the solver again.
std::vector<Value> SolveJvp(const RuleContext& c, Values tangents) {
  const int n = NumConsts(c);
  const std::vector<Value> x = c.b.Emit(c.def, c.in, c.attrs, {c.regions.begin(), c.regions.end()});
  std::vector<Value> rhs(tangents.begin() + n, tangents.end());
  const std::vector<Value> matvec_tangents = MatvecTangents(c, tangents.subspan(0, n), x);
  for (size_t i = 0; i < rhs.size(); ++i) {
    const Type& type = c.in[n + i].type();
    if (matvec_tangents[i]) rhs[i] = rhs[i] ? rhs[i] - matvec_tangents[i] : -matvec_tangents[i];
    rhs[i] = walk::MatchTangent(rhs[i], type);
  }
  if (DropAbsent(rhs).empty()) return Concat(x, std::vector<Value>(x.size()));
  for (size_t i = 0; i < rhs.size(); ++i)
    if (!rhs[i]) rhs[i] = Zeros(c.b, c.in[n + i].type());
  const std::vector<Value> operands = Concat(Part(c.in, 0, n), rhs);
  return Concat(x, c.b.Emit(c.def, operands, c.attrs, {c.regions.begin(), c.regions.end()}));
}

// The cotangent of b is the solution of the transposed equation.
std::vector<Value> SolveTranspose(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (c.regions.size() <= kTransposeSolve)
    Throw(MakeError(
        ErrorKind::kTypeError,
        absl::StrCat("transpose_solve required for backwards mode automatic "
                     "differentiation of custom_linear_solve",
                     c.b.site().valid() ? absl::StrCat(" (", c.b.site().ToString(), ")") : "")));
  const int n = NumConsts(c);
  std::vector<Value> operands;
  for (int i = 0; i < n; ++i) operands.push_back(NonLinearOperand(c, i));
  for (size_t i = 0; i < cts.size(); ++i)
    operands.push_back(cts[i] ? cts[i] : Zeros(c.b, CotangentType(c.out_types[i])));
  return Concat(std::vector<Value>(n),
                c.b.Emit(c.def, operands, c.attrs,
                         {c.regions[kTransposeSolve], c.regions[kTransposeMatvec],
                          c.regions[kSolve], c.regions[kMatvec]}));
}

// ---- Batching: x and b have the batch dim in front as soon as any operand is batched. ----

Batched SolveBatch(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  const int n = NumConsts(c);
  std::vector<Value> operands = c.in;
  std::vector<int> in(dims.begin(), dims.end());
  for (size_t i = n; i < in.size(); ++i) {
    operands[i] = in[i] < 0   ? walk::WithBatchDim(c.batch, c.in[i], 0)
                  : in[i] > 0 ? MoveDim(c.in[i], in[i], 0)
                              : c.in[i];
    in[i] = 0;
  }
  const std::vector<int> out(c.out_types.size(), 0);
  std::vector<FunctionRef> regions;
  for (const FunctionRef& region : c.regions)
    regions.push_back(ValueOrThrow(Batch(*region, in, c.batch, out)).fn);
  return {c.b.Emit(c.def, operands, c.attrs, std::move(regions)), out};
}

constexpr RegionRole kRegions[] = {RegionRole::kBody, RegionRole::kRule};
constexpr AttrSpec kAttrs[] = {{"num_consts", AttrKind::kInt}};

}  // namespace

const OpDef kCustomLinearSolve = Checked({.name = "custom_linear_solve",
                                          .lax_name = "custom_linear_solve",
                                          .family = Family::kControlFlow,
                                          .num_operands = kAnyNumber,
                                          .regions = kRegions,
                                          .repeats_region = true,
                                          .attrs = kAttrs,
                                          .lowering = Lowering::kRegion,
                                          .infer = InferSolve,
                                          .factors = CallFactors,
                                          .sharding = KeepInferredTypes,
                                          .varying = KeepInferredTypes,
                                          .jvp = SolveJvp,
                                          .jvp_emits_primals = true,
                                          .transpose = SolveTranspose,
                                          .batch = SolveBatch,
                                          .partition = Refused{"the planner enters regions itself"},
                                          .partial_eval = KeepUnknown,
                                          .data_flow = CallDataFlow,
                                          .rule_params = RuleParams,
                                          .cost = CallCost,
                                          .eval_shards = EvalCall});

}  // namespace ops

std::vector<Value> CustomLinearSolve(Builder& b, const LinearSolveFns& fns, Values operands,
                                     int num_consts) {
  std::vector<FunctionRef> regions = {fns.solve, fns.matvec};
  if (fns.transpose_solve) {
    regions.push_back(fns.transpose_solve);
    regions.push_back(fns.transpose_matvec);
  }
  return b.Emit(ops::kCustomLinearSolve, operands, {{"num_consts", int64_t{num_consts}}},
                std::move(regions));
}

}  // namespace tessera::ir
