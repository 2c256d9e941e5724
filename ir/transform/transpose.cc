// The backward pass: cotangents flow from the results of a linear function to its params. Reverse
// mode transposes the linear part that Linearize returns.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_exception.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/ops/rules/refused.h"
#include "ir/transform/apply_rule.h"
#include "ir/transform/memo.h"
#include "ir/transform/transform.h"
#include "ir/walk.h"

namespace tessera::ir {
namespace {

// Returns which values of `f` depend on a linear param.
std::vector<bool> LinearValues(const Function& f, const std::vector<bool>& linear) {
  std::vector<bool> out(f.types.size(), false);
  std::copy(linear.begin(), linear.end(), out.begin());
  for (const Op& op : f.ops)
    if (std::any_of(op.operands.begin(), op.operands.end(), [&](ValueId v) { return out[v]; }))
      for (ValueId r : op.results) out[r] = true;
  return out;
}

// Returns whether some op with regions has both linear and other operands. The non-linear part of
// its regions must then be split off before the op can be transposed.
bool NeedsSplit(const Function& f, const std::vector<bool>& linear) {
  const std::vector<bool> is_linear = LinearValues(f, linear);
  return std::any_of(f.ops.begin(), f.ops.end(), [&](const Op& op) {
    int n = 0;
    for (ValueId v : op.operands) n += is_linear[v];
    return op.def->partial_eval && n > 0 && n < static_cast<int>(op.operands.size());
  });
}

class BackwardPass {
 public:
  // `args` are values of `b` for the params that are not linear. The entries of linear params are
  // absent.
  BackwardPass(Builder& b, const Function& f, const std::vector<bool>& linear, Values args)
      : b_(b), f_(f), linear_(LinearValues(f, linear)), env_(f.types.size()), ct_(f.types.size()) {
    std::copy(args.begin(), args.end(), env_.begin());
  }

  // Returns one cotangent per param. An absent cotangent is zero.
  std::vector<Value> Run(Values cotangents) {
    for (size_t i = 0; i < f_.ops.size(); ++i) {
      const Op& op = f_.ops[i];
      if (IsLinear(op)) continue;
      SiteScope site(b_, f_.sites[i]);
      const std::vector<Value> out = walk::EmitPlain(b_, op, ElementsAt(env_, op.operands));
      for (size_t r = 0; r < out.size(); ++r) env_[op.results[r]] = out[r];
    }
    for (size_t r = 0; r < f_.results.size(); ++r) Accumulate(f_.results[r], cotangents[r]);
    for (int i = static_cast<int>(f_.ops.size()) - 1; i >= 0; --i) {
      if (!IsLinear(f_.ops[i])) continue;
      SiteScope site(b_, f_.sites[i]);
      Visit(f_.ops[i], f_.sites[i]);
    }
    return {ct_.begin(), ct_.begin() + f_.num_params};
  }

 private:
  bool IsLinear(const Op& op) const {
    return std::any_of(op.operands.begin(), op.operands.end(),
                       [&](ValueId v) { return linear_[v]; });
  }

  void Accumulate(ValueId v, Value ct) {
    if (!ct || !linear_[v]) return;
    ct = walk::MatchCotangent(ct, f_.types[v]);
    ct_[v] = ct_[v] ? Add(ct_[v], ct) : ct;
  }

  void Visit(const Op& op, const Site& site) {
    const std::vector<Value> ct = ElementsAt(ct_, op.results);
    if (std::none_of(ct.begin(), ct.end(), [](const Value& v) { return v.valid(); })) return;
    if (!op.def->transpose.written())
      ThrowRefused("Transpose rule (for reverse-mode differentiation)", *op.def,
                   op.def->transpose.reason, site);
    const RuleContext c = walk::RuleContextOf(b_, f_, op, ElementsAt(env_, op.operands),
                                              std::vector<Value>(op.results.size()));
    const std::vector<Value> out = op.def->transpose.fn(c, ct, ElementsAt(linear_, op.operands));
    TESSERA_CHECK_EQ(out.size(), op.operands.size());
    for (size_t k = 0; k < out.size(); ++k) Accumulate(op.operands[k], out[k]);
    // The cotangents of these results are not read again.
    for (ValueId r : op.results) ct_[r] = Value();
  }

  Builder& b_;
  const Function& f_;
  std::vector<bool> linear_;
  std::vector<Value> env_, ct_;
};

// Builds the transposed function. If an op with regions mixes linear and other operands, f is split
// first by partial evaluation: the known part is inlined, and the backward pass runs on the unknown
// part, whose params are residuals and linear params. Linear params that no cotangent reaches get
// zeros.
FunctionRef Transposed(const Function& f, const std::vector<bool>& linear) {
  TESSERA_CHECK_EQ(static_cast<int>(linear.size()), f.num_params);
  Builder b(f.scope, f.name);
  std::vector<Value> args(f.num_params), others, cotangents;
  for (int i = 0; i < f.num_params; ++i)
    if (!linear[i]) others.push_back(args[i] = b.Param(f.types[i]));
  for (ValueId r : f.results) cotangents.push_back(b.Param(CotangentType(f.types[r])));

  std::vector<Value> ct;
  if (!NeedsSplit(f, linear)) {
    ct = BackwardPass(b, f, linear, args).Run(cotangents);
  } else {
    std::vector<bool> known;
    for (bool l : linear) known.push_back(!l);
    const PartialEvalResult pe = ValueOrThrow(PartialEval(f, known));
    const std::vector<Value> known_out = Inline(b, *pe.known, others);
    std::vector<Value> unknown_args(known_out.end() - pe.num_residuals, known_out.end());
    unknown_args.resize(pe.unknown->num_params);
    std::vector<bool> unknown_linear(pe.unknown->num_params, true);
    std::fill_n(unknown_linear.begin(), pe.num_residuals, false);
    std::vector<Value> unknown_ct;
    for (int r : walk::Where(pe.out_known, false)) unknown_ct.push_back(cotangents[r]);
    std::vector<Value> got =
        BackwardPass(b, *pe.unknown, unknown_linear, unknown_args).Run(unknown_ct);
    ct.resize(f.num_params);
    const std::vector<int> where = walk::Where(linear);
    for (size_t k = 0; k < where.size(); ++k) ct[where[k]] = got[pe.num_residuals + k];
  }
  std::vector<Value> results;
  for (int i : walk::Where(linear))
    results.push_back(ct[i] ? ct[i] : Zeros(b, CotangentType(f.types[i])));
  return b.Build(results);
}

}  // namespace

absl::StatusOr<FunctionRef> TransposeFunction(const Function& f, const std::vector<bool>& linear) {
  struct Tag {};
  return walk::Memoized<Tag, FunctionRef>(
      f, linear, [&] { return CatchStatusOr([&] { return Transposed(f, linear); }); });
}

}  // namespace tessera::ir
