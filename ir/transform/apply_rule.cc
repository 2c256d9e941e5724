// Prepares the call of an op's rule, and casts the values that a derivative rule returns. Jvp,
// TransposeFunction and Batch call these functions for each op that they visit. The rules that walk
// a function themselves call them, too.
#include "ir/transform/apply_rule.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/ops.h"
#include "ir/ops/rules/dims.h"

namespace tessera::ir::walk {
namespace {

AxisSet Minus(const AxisSet& a, const AxisSet& b) {
  AxisSet out;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::inserter(out, out.end()));
  return out;
}

}  // namespace

RuleContext RuleContextOf(Builder& b, const Function& f, const Op& op, std::vector<Value> in,
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
  AxisSet cast_axes;
  for (const std::string& a : want.unreduced)
    if (v.type().varying.contains(a)) cast_axes.insert(a);
  v = ops::WithStates(VaryUnreducedCast(v, cast_axes), want.unreduced, want.reduced);
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

}  // namespace tessera::ir::walk
