// The op debug_print, which makes the evaluator print its operands. Only functions inside the
// client contain it: before the client sends a program, it splits off the ops that print and
// evaluates them itself. Reference: jax.debug.print; docs/decisions/0026.
#include "ir/debug_print.h"

#include <algorithm>
#include <utility>

#include "ir/eval/eval.h"
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/ops/rules/batch_dim.h"
#include "ir/ops/rules/family.h"
#include "ir/strided.h"

namespace tessera::ir {
namespace ops {
namespace {

absl::StatusOr<std::vector<Type>> InferNothing(const InferContext&) { return std::vector<Type>{}; }

Signature UnsharedFactors(const InferContext& c, absl::Span<const Type>) {
  Signature s;
  for (const Type& t : c.in) s.operands.push_back(AddFactors(&s, t, FactorKind::kPassThrough));
  return s;
}

// Puts the new batch dim in front of every operand, before the batch dims that it has already.
Batched BatchPrint(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  std::vector<Value> in = c.in;
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = dims[i] < 0 ? walk::WithBatchDim(c.batch, in[i], 0) : MoveDim(in[i], dims[i], 0);
  c.b.Emit(
      c.def, in,
      {{"format", c.attrs.Str("format")}, {"num_batch_dims", c.attrs.Int("num_batch_dims") + 1}});
  return {};
}

// One call for each member of the batch.
int64_t PrintCalls(const InferContext& c) {
  int64_t members = 1;
  for (int64_t d = 0; d < c.attrs.Int("num_batch_dims") && !c.in.empty(); ++d)
    members *= c.in[0].shape[d];
  return members;
}

// Calls the evaluator's print hook once for each member of the batch, in row-major order, with the
// operands' elements for that member. Without a hook nothing is printed.
absl::StatusOr<std::vector<Array>> EvalPrint(const EvalContext& c, absl::Span<const Array> in) {
  const auto& print = c.evaluator.options().print;
  if (!print) return std::vector<Array>{};
  const auto num_batch_dims = static_cast<size_t>(c.attrs.Int("num_batch_dims"));
  const Dims batch = in.empty()
                         ? Dims{}
                         : Dims(in[0].shape().begin(),
                                in[0].shape().begin() + static_cast<int64_t>(num_batch_dims));
  Dims at(batch.size(), 0);
  int64_t members = 1;
  for (int64_t n : batch) members *= n;
  for (int64_t member = 0; member < members; ++member) {
    std::vector<Array> values;
    for (const Array& a : in) {
      Dims starts(a.shape().size(), 0), shape = a.shape();
      std::copy(at.begin(), at.end(), starts.begin());
      std::fill_n(shape.begin(), num_batch_dims, 1);
      values.push_back(
          SliceBlock(a, starts, shape)
              .Reshaped(Dims(shape.begin() + static_cast<int64_t>(num_batch_dims), shape.end())));
    }
    print(c.attrs.Str("format"), values);
    for (size_t d = batch.size(); d-- > 0;) {
      if (++at[d] < batch[d]) break;
      at[d] = 0;
    }
  }
  return std::vector<Array>{};
}

constexpr AttrSpec kDebugPrintAttrs[] = {{"format", AttrKind::kString},
                                         {"num_batch_dims", AttrKind::kInt}};
constexpr OpDef kDebugPrint =
    Checked({.name = "debug_print",
             .lax_name = "debug_print",
             .family = Family::kControlFlow,
             .num_operands = kAnyNumber,
             .attrs = kDebugPrintAttrs,
             .lowering = Lowering::kHost,
             .infer = InferNothing,
             .factors = UnsharedFactors,
             .sharding = KeepInferredTypes,
             .varying = KeepInferredTypes,
             .jvp = Refused{"it has no results"},
             .transpose = Refused{"it has no results"},
             .batch = BatchPrint,
             .partition = Refused{"the client prints; programs that are sent have no debug_print"},
             .cost = NoCost,
             .eval = EvalPrint,
             .has_effect = true,
             .num_calls = PrintCalls});

}  // namespace
}  // namespace ops

void DebugPrint(Builder& b, std::string format, Values values) {
  b.Emit(ops::kDebugPrint, values, {{"format", std::move(format)}, {"num_batch_dims", int64_t{0}}});
}

}  // namespace tessera::ir
