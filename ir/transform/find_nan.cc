// Makes functions that search for NaNs. WithNanFlag looks only at a function's results;
// FirstNanSearch also looks at its params and at the results of each op. The client runs these
// functions for debug_nans (client/trace/debug.cc).
#include <numeric>
#include <utility>

#include "ir/builder.h"
#include "ir/ops.h"
#include "ir/transform/transform.h"

namespace tessera::ir {
namespace {

// Returns a bool scalar: whether any element of x is a NaN. If x's dtype has no NaN, returns an
// absent value.
Value HasNan(Value x) {
  if (!IsInexact(x.dtype())) return {};
  const Value numbers =
      IsComplex(x.dtype()) || IsComputable(x.dtype()) ? x : Convert(x, DType::kF32);
  const Value is_nan = Compare(numbers, numbers, "NE");
  std::vector<int64_t> dims(x.rank());
  std::iota(dims.begin(), dims.end(), 0);
  return dims.empty() ? is_nan : ReduceOr(is_nan, dims);
}
Value OrIfPresent(Value a, Value b) { return !a ? b : !b ? a : Or(a, b); }

Value AnyOf(const std::vector<Value>& flags, const std::vector<ValueId>& which) {
  Value any;
  for (const ValueId v : which) any = OrIfPresent(any, flags[v]);
  return any;
}
std::vector<Value> AddParams(Builder& b, const Function& f) {
  std::vector<Value> params;
  for (const Type& t : f.param_types()) params.push_back(b.Param(t));
  return params;
}

}  // namespace

FunctionRef WithNanFlag(const Function& f) {
  Builder b(f.scope, f.name);
  std::vector<Value> results = Inline(b, f, AddParams(b, f));
  Value any;
  for (const Value result : results) any = OrIfPresent(any, HasNan(result));
  results.push_back(any ? any : Constant(b, DType::kBool, 0));
  return b.Build(results);
}

// Copies f op by op and keeps, for each value, whether it has a NaN. An op is to blame if a result
// has a NaN and no operand has one. The search is itself a function of ops, so it runs where f runs
// and only two numbers come back.
FunctionRef FirstNanSearch(const Function& f) {
  Builder b(f.scope, f.name);
  const Value none = Constant(b, DType::kS32, -1);
  // Returns `index` if `flag` is true and `first`, the first index so far, is none. Otherwise
  // returns `first`.
  const auto updated_first = [&](Value first, Value flag, size_t index) {
    if (!flag) return first;
    const Value this_index = Constant(b, DType::kS32, static_cast<double>(index));
    const Value is_first = And(Compare(first, none, "EQ"), flag);
    return Select(is_first, this_index, first);
  };
  std::vector<Value> env = AddParams(b, f), flags;
  Value first_op = none, first_param = none;
  for (size_t i = 0; i < env.size(); ++i) {
    flags.push_back(HasNan(env[i]));
    first_param = updated_first(first_param, flags[i], i);
  }
  env.resize(f.types.size());
  flags.resize(f.types.size());
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const Op& op = f.ops[i];
    SiteScope site(b, f.sites[i]);
    const std::vector<Value> out =
        b.Emit(*op.def, ElementsAt(env, op.operands), op.attrs, op.regions);
    for (size_t r = 0; r < out.size(); ++r) {
      env[op.results[r]] = out[r];
      flags[op.results[r]] = HasNan(out[r]);
    }
    Value has_nan = AnyOf(flags, op.results);
    const Value operand_has_nan = AnyOf(flags, op.operands);
    if (has_nan && operand_has_nan) has_nan = And(has_nan, Not(operand_has_nan));
    first_op = updated_first(first_op, has_nan, i);
  }
  return b.Build({first_op, first_param});
}

}  // namespace tessera::ir
