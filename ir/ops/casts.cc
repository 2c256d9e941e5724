// Casts between the states of a value along a Manual axis: equal on all devices (invarying),
// different (varying), the summands of a pending sum (unreduced), or equal with a cotangent that is
// unreduced (reduced). A cast moves no data. It only decides, by its transpose, what is done with
// the cotangent. Harmonize inserts these ops, and users call them through pcast.
//
// Reference: JAX's pvary, preduced, vary_unreduced_cast and reduced_vary_cast.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "ir/eval/eval.h"
#include "ir/ops/rules/axes.h"

namespace tessera::ir {
namespace ops {
namespace {

absl::StatusOr<std::vector<Type>> InferCast(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckAxes(c));
  if (const AxisList mapped = MappedAxesAmong(c.scope, AxesOf(c.attrs)); !mapped.empty())
    return ValueError(
        c, "axis '", mapped[0],
        "' is the axis of a vmap, along which types are not tracked; expected axes of the mesh");
  return std::vector<Type>{c.in[0]};
}

// The member of Type that holds the axes in a state. Null stands for invarying.
using State = AxisSet Type::*;
std::string_view NameOf(State state) {
  return state == nullptr            ? "invarying"
         : state == &Type::varying   ? "varying"
         : state == &Type::unreduced ? "unreduced"
                                     : "reduced";
}
State StateOf(const Type& t, const std::string& axis) {
  for (const State s : {&Type::varying, &Type::unreduced, &Type::reduced})
    if ((t.*s).contains(axis)) return s;
  return nullptr;
}

absl::Status CastStates(const InferContext& c, State from, State to, std::vector<Type>* out) {
  TESSERA_RETURN_IF_ERROR(SameVmaAsFirst(c, out));
  for (const std::string& a : AxesOf(c.attrs)) {
    if (const State have = StateOf(c.in[0], a); have != from)
      return ValueError(c, "Unsupported pcast from=", ToAbsl(NameOf(have)),
                        ", to=", ToAbsl(NameOf(to)), " over axis '", a, "' of ", c.in[0].ToString(),
                        "; expected an operand that is ", ToAbsl(NameOf(from)), " there");
    if (from) ((*out)[0].*from).erase(a);
    ((*out)[0].*to).insert(a);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Array>> EvalCast(const EvalContext&, absl::Span<const Array> in) {
  return std::vector<Array>{in[0]};
}

// Completes the OpDef of a cast. `d` holds its names, its typing rule and its transpose.
consteval OpDef CastOp(OpDef d) {
  d.family = Family::kCast;
  d.num_operands = 1;
  d.attrs = kAxesAttrs;
  d.lowering = Lowering::kAlias;
  d.infer = InferCast;
  d.factors = PointwiseFactors;
  d.sharding = Derived{};
  d.jvp = Derived{};
  d.batch = BatchSameOp;
  d.partition = Refused{"a cast is already a per-shard op"};
  d.cost = NoCost;
  d.eval = EvalCast;
  return Checked(d);
}

AxisSet SetOf(const AxisList& axes) { return {axes.begin(), axes.end()}; }

// ---- pvary: from invarying to varying, with a psum as its transpose. ----

absl::Status PvaryStates(const InferContext& c, std::vector<Type>* out) {
  return CastStates(c, nullptr, &Type::varying, out);
}
std::vector<Value> TransposePvary(const RuleContext& c, Values ct, const std::vector<bool>&) {
  return {c.b.scope().check_vma ? Psum(ct[0], AxesOf(c.attrs)) : ct[0]};
}

// ---- preduced: from invarying to reduced. The transpose adds up the cotangent's summands. ----

absl::Status PreducedStates(const InferContext& c, std::vector<Type>* out) {
  return CastStates(c, nullptr, &Type::reduced, out);
}

// ---- vary_unreduced_cast: from varying to unreduced. The result is a pending sum. ----

absl::Status VaryUnreducedStates(const InferContext& c, std::vector<Type>* out) {
  return CastStates(c, &Type::varying, &Type::unreduced, out);
}
std::vector<Value> TransposeVaryUnreduced(const RuleContext& c, Values ct,
                                          const std::vector<bool>&) {
  return {ReducedVaryCast(ct[0], SetOf(AxesOf(c.attrs)))};
}

// ---- reduced_vary_cast: from reduced to varying. The transpose makes cotangents unreduced. ----

absl::Status ReducedVaryStates(const InferContext& c, std::vector<Type>* out) {
  return CastStates(c, &Type::reduced, &Type::varying, out);
}
std::vector<Value> TransposeReducedVary(const RuleContext& c, Values ct, const std::vector<bool>&) {
  return {VaryUnreducedCast(ct[0], SetOf(AxesOf(c.attrs)))};
}

}  // namespace

const OpDef kPvary = CastOp(
    {.name = "pvary", .lax_name = "pvary", .varying = PvaryStates, .transpose = TransposePvary});
const OpDef kPreduced = CastOp({.name = "preduced",
                                .lax_name = "preduced",
                                .varying = PreducedStates,
                                .transpose = TransposePvary});
const OpDef kVaryUnreducedCast = CastOp({.name = "vary_unreduced_cast",
                                         .lax_name = "vary_unreduced_cast",
                                         .varying = VaryUnreducedStates,
                                         .transpose = TransposeVaryUnreduced});
const OpDef kReducedVaryCast = CastOp({.name = "reduced_vary_cast",
                                       .lax_name = "reduced_vary_cast",
                                       .varying = ReducedVaryStates,
                                       .transpose = TransposeReducedVary});

}  // namespace ops

namespace {

Value EmitCast(const OpDef& def, Value x, const AxisSet& axes) {
  if (axes.empty() || !x.builder().scope().check_vma) return x;
  return x.builder().Emit1(def, {x}, {{"axes", AxisList(axes.begin(), axes.end())}});
}

}  // namespace

Value Pvary(Value x, const AxisSet& axes) { return EmitCast(ops::kPvary, x, axes); }
Value Preduced(Value x, const AxisSet& axes) { return EmitCast(ops::kPreduced, x, axes); }
Value VaryUnreducedCast(Value x, const AxisSet& axes) {
  return EmitCast(ops::kVaryUnreducedCast, x, axes);
}
Value ReducedVaryCast(Value x, const AxisSet& axes) {
  return EmitCast(ops::kReducedVaryCast, x, axes);
}

}  // namespace tessera::ir
