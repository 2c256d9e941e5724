// The elementwise family: constructors that turn a lambda and a derivative into an op, and adapters
// that let a rule be written as its formula. Included by op files only; everything here is pure.
#pragma once
#include <vector>

#include "ir/ops/rules/dims.h"
#include "ir/ops/rules/family.h"
#include "ir/ops/rules/refused.h"
#include "ir/ops/rules/scalar_eval.h"

namespace tessera::ir::ops {

using scalar::Domain;

// ---- Checks, with lax's error texts. -----------------------------------------------------------
// Checks that every operand's dtype is in `domain` and has kernels.
absl::Status CheckDomain(const InferContext& c, int domain);
// CheckSameDType checks that all `types` have the same dtype, CheckSameShape that they have the
// same shape.
absl::Status CheckSameDType(const InferContext& c, absl::Span<const Type> types);
absl::Status CheckSameShape(const InferContext& c, absl::Span<const Type> types);
// Formats dims as Python prints tuples, such as (3,) and (2, 3).
std::string TupleOf(const Dims& dims);

// Infers a result of the operands' dtype and shape. All operands must have the same dtype, which is
// in `domain`, and the same shape.
absl::StatusOr<std::vector<Type>> InferSame(const InferContext& c, int domain);
template <int kDomain>
absl::StatusOr<std::vector<Type>> InferPointwise(const InferContext& c) {
  return InferSame(c, kDomain);
}
// Like InferPointwise, but the result is of dtype bool.
template <int kDomain>
absl::StatusOr<std::vector<Type>> InferPredicate(const InferContext& c) {
  absl::StatusOr<std::vector<Type>> types = InferSame(c, kDomain);
  if (types.ok()) types->front() = MakeType(DType::kBool, types->front().shape);
  return types;
}

// Returns the value at w of the polynomial with these coefficients, highest power first.
template <class X, class C, size_t kN>
X Horner(const C (&coefficients)[kN], X w) {
  X p = Like(w, coefficients[0]);
  for (size_t i = 1; i < kN; ++i) p = coefficients[i] + p * w;
  return p;
}

// ---- Reference semantics. ----------------------------------------------------------------------
// A body is a generic lambda on scalars (scalar_eval.h). Each op states once, in another generic
// lambda, which body it runs for which dtypes:
//
//   [](const Attrs&, DType operand, DType result, auto run) {
//     ... run.template Call<kResult, kOperands...>(body);
//   }
//
// kResult and kOperands are the dtypes in which the body computes (ComputeDType). Called with a
// LoopRunner as `run`, the lambda computes elements. Called with a GraphRecorder, it records the
// op's scalar graph.
struct LoopRunner {
  scalar::Elements elements;
  template <DType kOut, DType... kIn, class Body>
  void Call(const Body& body) const {
    scalar::Loop<kOut, kIn...>(body, elements);
  }
};
struct GraphRecorder {
  ScalarGraph* graph;
  DType operand, result;
  template <DType kOut, DType... kIn, class Body>
  void Call(const Body& body) const {
    *graph = scalar::Record<kOut, kIn...>(body, operand, result);
  }
};
template <auto kRun>
void EvalFrom(const Attrs& attrs, DType operand, DType result, const void* const* in,
              void* const* out, int64_t n) {
  kRun(attrs, operand, result, LoopRunner{{operand, result, in, out, n}});
}
template <auto kRun>
ScalarGraph RecordFrom(const Attrs& attrs, DType operand, DType result) {
  ScalarGraph graph;
  kRun(attrs, operand, result, GraphRecorder{&graph, operand, result});
  return graph;
}
template <auto kRun>
constexpr Scalar kScalarFrom = {EvalFrom<kRun>, RecordFrom<kRun>};

// Runs a body whose operands and results have one dtype.
template <int kDomain, int kArity, class Body, class Run>
void RunSame(DType dtype, const Body& body, const Run& run) {
  scalar::DispatchCompute<kDomain>(dtype, [&]<DType kD>(DTypeTag<kD>) {
    [&]<size_t... kI>(std::index_sequence<kI...>) {
      run.template Call<kD, (static_cast<void>(kI), kD)...>(body);
    }
    (std::make_index_sequence<kArity>());
  });
}
// SameDType is a class rather than a lambda. When a lambda inside a template depends on the
// template's parameters and is itself a template argument, clang 14 treats the lambdas of different
// template arguments as one.
template <int kDomain, int kArity, auto kBody>
struct SameDType {
  template <class Run>
  void operator()(const Attrs&, DType operand, DType, const Run& run) const {
    RunSame<kDomain, kArity>(operand, kBody, run);
  }
};
template <int kDomain, int kArity, auto kBody>
constexpr Scalar kScalarOf = kScalarFrom<SameDType<kDomain, kArity, kBody>{}>;

// ---- OpDefs. -----------------------------------------------------------------------------------
inline constexpr Refused kNotLinear{"it is not linear"};
struct AutodiffRules {
  Rule<JvpFn> jvp;
  Rule<TransposeFn> transpose = kNotLinear;
  Rule<TypeFn> varying = Derived{};
};

consteval OpDef Elementwise(std::string_view wire, std::string_view lax, int num_operands,
                            InferFn infer, Scalar scalar, AutodiffRules rules,
                            absl::Span<const AttrSpec> attrs = {}) {
  OpDef d;
  d.name = wire;
  d.lax_name = lax;
  d.family = Family::kElementwise;
  d.num_operands = num_operands;
  d.attrs = attrs;
  d.lowering = Lowering::kScalar;
  d.infer = infer;
  d.factors = PointwiseFactors;
  d.sharding = Derived{};
  d.varying = rules.varying;
  d.jvp = rules.jvp;
  d.transpose = rules.transpose;
  d.batch = Derived{};
  d.partition = Derived{};
  d.cost = Derived{};
  d.scalar = scalar;
  return Checked(d);
}
template <int kDomain, auto kBody>
consteval OpDef Unary(std::string_view wire, std::string_view lax, AutodiffRules rules) {
  return Elementwise(wire, lax, 1, InferPointwise<kDomain>, kScalarOf<kDomain, 1, kBody>, rules);
}
template <int kDomain, auto kBody>
consteval OpDef Binary(std::string_view wire, std::string_view lax, AutodiffRules rules) {
  return Elementwise(wire, lax, 2, InferPointwise<kDomain>, kScalarOf<kDomain, 2, kBody>, rules);
}

// ---- Rules as formulas. ------------------------------------------------------------------------
// A literal takes the shape and type of the value beside it.
inline Value operator*(double a, Value x) { return FullLike(x, a) * x; }
inline Value operator+(double a, Value x) { return FullLike(x, a) + x; }
inline Value operator-(double a, Value x) { return FullLike(x, a) - x; }
inline Value operator/(double a, Value x) { return FullLike(x, a) / x; }
// The jvp rule of ops whose results are locally constant in every operand, or have no tangents.
std::vector<Value> ZeroTangents(const RuleContext& c, Values tangents);
// Returns a + b, where an absent value counts as zero. The sum is sharded like `type`, the type of
// the result.
Value AddTangents(Value a, Value b, const Type& type);

// The chain rule of y = f(x), which computes dy from dx, x and y.
using Formula1 = Value (*)(Value dx, Value x, Value y);
template <Formula1 kFormula>
std::vector<Value> Chain(const RuleContext& c, Values d) {
  return {d[0] ? kFormula(d[0], c.in[0], c.out[0]) : Value()};
}
// One summand in the chain rule of z = f(x, y): the part of dz that comes from one operand, whose
// tangent is `d`.
using Formula2 = Value (*)(Value d, Value x, Value y, Value z);
template <Formula2 kFromX, Formula2 kFromY>
std::vector<Value> Chain(const RuleContext& c, Values d) {
  const Value a = d[0] ? kFromX(d[0], c.in[0], c.in[1], c.out[0]) : Value();
  const Value b = d[1] ? kFromY(d[1], c.in[0], c.in[1], c.out[0]) : Value();
  return {AddTangents(a, b, c.out_types[0])};
}
// Returns the cotangent of one operand, given the result's cotangent `ct`. For an operand in which
// the op is not linear, nullptr stands in place of the rule.
using AdjointRule = Value (*)(const RuleContext& c, Value ct);
template <AdjointRule... kAdjoints>
std::vector<Value> Adjoints(const RuleContext& c, Values ct, const std::vector<bool>& linear) {
  constexpr AdjointRule kAll[] = {kAdjoints...};
  std::vector<Value> out(c.in_types.size());
  for (size_t i = 0; i < out.size(); ++i) {
    if (!ct[0] || !linear[i]) continue;
    if (!kAll[i])
      ThrowRefused("Transpose rule (for reverse-mode differentiation)", c.def,
                   "it is not linear in this operand", c.b.site());
    out[i] = ShardedLike(kAll[i](c, ct[0]), c.in_types[i]);
  }
  return out;
}

}  // namespace tessera::ir::ops
