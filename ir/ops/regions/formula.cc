// Emits the ops of formulas (formula.h) in the order in which they are written, and builds loops
// and functions with custom derivatives from C++ functions. client/ and the rules of special
// functions write their composites with it.
#include "ir/formula.h"

#include <utility>

namespace tessera::ir {

Value Formula::value() const {
  if (!node_->value) {
    node_->value = node_->emit();
    // Release the emitter and with it the operands that it holds.
    node_->emit = nullptr;
  }
  return node_->value;
}
Value Formula::ValueLike(Value like) const {
  return is_number() ? FullLike(like, node_->number) : value();
}

namespace {

// Emits two formulas from left to right. Requires: at most one of them is a number. The number
// takes the type and shape of the other formula.
std::pair<Value, Value> EmitBoth(const Formula& x, const Formula& y) {
  if (x.is_number()) {
    const Value right = y.value();
    return {x.ValueLike(right), right};
  }
  const Value left = x.value();
  return {left, y.ValueLike(left)};
}

}  // namespace

Formula Apply(Value (*op)(Value), Formula x) {
  return Formula([op, x = std::move(x)] { return op(x.value()); });
}
Formula Apply(Value (*op)(Value, Value), Formula x, Formula y) {
  return Formula([op, x = std::move(x), y = std::move(y)] {
    const auto [left, right] = EmitBoth(x, y);
    return op(left, right);
  });
}
Formula CompareFormulas(Formula x, Formula y, const char* direction) {
  return Formula([x = std::move(x), y = std::move(y), direction] {
    const auto [left, right] = EmitBoth(x, y);
    return Compare(left, right, direction);
  });
}
Formula Where(Formula condition, Formula on_true, Formula on_false) {
  return Formula([condition = std::move(condition), on_true = std::move(on_true),
                  on_false = std::move(on_false)] {
    const Value where = condition.value();
    const auto [left, right] = EmitBoth(on_true, on_false);
    return Select(where, left, right);
  });
}
Formula Like(const Formula& like, double number) {
  return Formula([like, number] { return FullLike(like.value(), number); });
}

Value AnyOf(Value bools) {
  std::vector<int64_t> dims;
  for (int d = 0; d < bools.rank(); ++d) dims.push_back(d);
  return dims.empty() ? bools : ReduceOr(bools, dims);
}

// Builds a `while` op. The predicate and the body are traced by calling `holds` and `step` on
// params; both get all of `consts`, so that neither has to say which ones it reads. The types are
// matched first, because a carry must have the same varying axes before and after a step.
std::vector<Value> Loop(
    std::vector<Value> carry, std::vector<Value> consts,
    const std::function<Value(Values carry, Values consts)>& holds,
    const std::function<std::vector<Value>(Values carry, Values consts)>& step) {
  Builder& b = carry.front().builder();
  const size_t num_carry = carry.size(), num_consts = consts.size();
  std::vector<Value> all = std::move(carry);
  all.insert(all.end(), consts.begin(), consts.end());
  all = MatchVarying(std::move(all));
  const auto function = [&](const char* name, const auto& body) {
    Builder inner(b.scope(), name);
    inner.SetSite(b.site());
    std::vector<Value> params;
    for (size_t i = 0; i < num_consts; ++i)
      params.push_back(inner.Param(all[num_carry + i].type()));
    for (size_t i = 0; i < num_carry; ++i) params.push_back(inner.Param(all[i].type()));
    const Values in = params;
    return inner.Build(body(in.subspan(num_consts), in.subspan(0, num_consts)));
  };
  const FunctionRef predicate =
      function("holds", [&](Values c, Values k) { return std::vector<Value>{AnyOf(holds(c, k))}; });
  const FunctionRef body = function("step", step);
  std::vector<Value> operands(all.begin() + num_carry, all.end());
  operands.insert(operands.end(), all.begin() + num_carry, all.end());
  operands.insert(operands.end(), all.begin(), all.begin() + num_carry);
  return While(b, predicate, body, operands, static_cast<int>(num_consts),
               static_cast<int>(num_consts));
}

namespace {

// Traces `body` as a function whose params have the types of `operands`.
FunctionRef TraceFunction(Values operands, const char* name,
                          const std::function<std::vector<Value>(Builder&, Values)>& body) {
  const Builder& b = operands.front().builder();
  Builder inner(b.scope(), name);
  inner.SetSite(b.site());
  std::vector<Value> params;
  for (const Value& v : operands) params.push_back(inner.Param(v.type()));
  return inner.Build(body(inner, params));
}
Value CustomJvp(const std::vector<Value>& operands, FunctionRef f, FunctionRef rule, int num_consts,
                bool symbolic_zeros) {
  Attrs attrs = {{"num_consts", int64_t{num_consts}}};
  if (symbolic_zeros) attrs.Set("symbolic_zeros", true);
  return operands.front().builder().Emit(ops::kCustomJvpCall, operands, attrs,
                                         {std::move(f), std::move(rule)})[0];
}

}  // namespace

Value WithTangent(std::vector<Value> operands, const std::function<Value(Values operands)>& f,
                  const TangentFn& tangent, const TangentOptions& options) {
  operands = MatchVarying(std::move(operands));
  FunctionRef plain = TraceFunction(operands, "function",
                                    [&](Builder&, Values in) { return std::vector<Value>{f(in)}; });
  FunctionRef rule = TraceFunction(operands, "rule", [&](Builder& inner, Values in) {
    std::vector<Value> tangents;
    for (size_t i = options.num_consts; i < in.size(); ++i)
      if (IsInexact(in[i].dtype())) tangents.push_back(inner.Param(in[i].type()));
    TangentOptions next = options;
    --next.rules;
    const Value result =
        next.rules == 0 ? f(in) : WithTangent({in.begin(), in.end()}, f, tangent, next);
    return std::vector<Value>{result, tangent(in, result, tangents)};
  });
  return CustomJvp(operands, std::move(plain), std::move(rule), options.num_consts,
                   options.by_operand);
}
Value WithoutTangent(std::vector<Value> operands, const std::function<Value(Values operands)>& f,
                     const char* name) {
  operands = MatchVarying(std::move(operands));
  FunctionRef plain =
      TraceFunction(operands, name, [&](Builder&, Values in) { return std::vector<Value>{f(in)}; });
  FunctionRef rule = TraceFunction(operands, "rule", [&](Builder&, Values in) {
    const Value result = f(in);
    return std::vector<Value>{result, FullLike(result, 0)};
  });
  return CustomJvp(operands, std::move(plain), std::move(rule), static_cast<int>(operands.size()),
                   /*symbolic_zeros=*/true);
}

}  // namespace tessera::ir
