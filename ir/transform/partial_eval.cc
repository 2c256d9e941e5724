// Splits a function into the part that the known params determine and the rest. Linearize splits a
// jvp with it.
//
// A value reaches the unknown side as a residual, which is made once, on first use. Constants are
// computed again on the unknown side instead.
#include "ir/transform/partial_eval.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "base/status_exception.h"
#include "ir/builder.h"
#include "ir/derive/factors.h"
#include "ir/op_def.h"
#include "ir/transform/apply_rule.h"
#include "ir/transform/memo.h"
#include "ir/transform/transform.h"
#include "ir/walk.h"

namespace tessera::ir {
namespace {

class Splitter {
 public:
  Splitter(const Function& f, const std::vector<bool>& known_in, PartialEvalOptions options)
      : f_(f),
        options_(options),
        known_b_(f.scope, f.name),
        unknown_b_(f.scope, f.name),
        known_(f.types.size()),
        unknown_(f.types.size()) {
    TESSERA_CHECK_EQ(static_cast<int>(known_in.size()), f.num_params);
    for (int i = 0; i < f.num_params; ++i) {
      if (known_in[i]) {
        known_[i] = known_b_.Param(f.types[i]);
      } else {
        unknown_[i] = unknown_b_.Param(f.types[i]);
        ++num_unknown_params_;
      }
    }
  }

  // Visits all ops and then assembles both functions. The order of residuals is the order of their
  // first use, and residuals that turn out to be unused are dropped. The residuals are put before
  // the unknown params at the end, because their number is not known earlier.
  PartialEvalResult Run(const std::vector<bool>& force_unknown_out) {
    for (size_t i = 0; i < f_.ops.size(); ++i) {
      SiteScope known_site(known_b_, f_.sites[i]), unknown_site(unknown_b_, f_.sites[i]);
      Visit(f_.ops[i]);
    }
    PartialEvalResult out;
    std::vector<Value> known_results, unknown_results;
    for (size_t r = 0; r < f_.results.size(); ++r) {
      const ValueId v = f_.results[r];
      const bool known = known_[v].valid() && !(force_unknown_out.size() && force_unknown_out[r]);
      out.out_known.push_back(known);
      if (known)
        known_results.push_back(known_[v]);
      else
        unknown_results.push_back(OnUnknownSide(v));
    }
    // In unknown_b_ the unknown params come first and the residuals after them, in the order of
    // their first use. Reorder puts the residuals first and drops those that are unused.
    FunctionRef unknown = unknown_b_.Build(unknown_results);
    const std::vector<bool> used = walk::UsedParams(*unknown);
    std::vector<int> order;
    for (size_t k = 0; k < residuals_.size(); ++k) {
      const int param = residual_params_[k];
      if (!used[param]) continue;
      order.push_back(param);
      known_results.push_back(residuals_[k]);
    }
    out.num_residuals = static_cast<int>(order.size());
    for (int p = 0; p < num_unknown_params_; ++p) order.push_back(p);
    out.unknown =
        walk::Reorder(*unknown, order, walk::Iota(static_cast<int>(unknown->results.size())));
    out.known = known_b_.Build(known_results);
    return out;
  }

 private:
  bool IsLoop(const Op& op) const {
    if (!op.def->data_flow) return false;
    const DataFlow flow = DataFlowOf(f_, op);
    return flow.trip_count != 1 ||
           std::any_of(flow.regions.begin(), flow.regions.end(),
                       [](const RegionDataFlow& region) { return !region.carries.empty(); });
  }

  void Visit(const Op& op) {
    std::vector<bool> known;
    for (ValueId v : op.operands) known.push_back(known_[v].valid());
    const auto num_known = std::count(known.begin(), known.end(), true);
    const bool held = options_.hold_effects && HasEffects(op);
    if (!held && num_known == static_cast<int64_t>(known.size())) {
      Bind(op, walk::EmitPlain(known_b_, op, ElementsAt(known_, op.operands)), &known_);
    } else if ((held || num_known > 0) && op.def->partial_eval &&
               (options_.split_loops || !IsLoop(op))) {
      Split(op, std::move(known));
    } else {
      std::vector<Value> in;
      for (ValueId v : op.operands) in.push_back(OnUnknownSide(v));
      Bind(op, walk::EmitPlain(unknown_b_, op, in), &unknown_);
    }
  }

  void Split(const Op& op, std::vector<bool> known) {
    PartialEvalContext c{known_b_,
                         unknown_b_,
                         op,
                         ElementsAt(f_.types, op.operands),
                         ElementsAt(f_.types, op.results),
                         std::move(known),
                         ElementsAt(known_, op.operands),
                         [&](int operand) { return OnUnknownSide(op.operands[operand]); },
                         [&](Value v) { return ResidualParam(v); },
                         options_,
                         std::vector<Value>(op.results.size()),
                         std::vector<Value>(op.results.size())};
    op.def->partial_eval(c);
    for (size_t r = 0; r < op.results.size(); ++r) {
      TESSERA_CHECK(c.known_out[r].valid() != c.unknown_out[r].valid())
          << std::string(op.def->name) << ": result " << r << " must be on one side";
    }
    Bind(op, c.known_out, &known_);
    Bind(op, c.unknown_out, &unknown_);
  }

  static void Bind(const Op& op, Values values, std::vector<Value>* env) {
    for (size_t r = 0; r < op.results.size(); ++r) (*env)[op.results[r]] = values[r];
  }

  Value OnUnknownSide(ValueId v) { return known_[v] ? ResidualParam(known_[v]) : unknown_[v]; }

  Value ResidualParam(Value v) {
    if (auto it = counterparts_.find(v.id()); it != counterparts_.end()) return it->second;
    if (IsConstant(v)) return Rematerialize(v);
    const Value param = unknown_b_.Param(v.type());
    residuals_.push_back(v);
    residual_params_.push_back(last_unknown_param());
    return counterparts_[v.id()] = param;
  }
  int last_unknown_param() const {
    return num_unknown_params_ + static_cast<int>(residuals_.size()) - 1;
  }

  Value Rematerialize(Value v) {
    const Op& op = *known_b_.DefiningOp(v);
    std::vector<Value> in;
    for (ValueId o : op.operands) in.push_back(ResidualParam(Value(&known_b_, o)));
    const std::vector<Value> out = walk::EmitPlain(unknown_b_, op, in);
    for (size_t r = 0; r < out.size(); ++r) counterparts_[op.results[r]] = out[r];
    return counterparts_.at(v.id());
  }

  // Returns whether `v` is made of constants by cheap ops, so that it is better computed again than
  // stored.
  bool IsConstant(Value v) {
    if (auto it = constant_.find(v.id()); it != constant_.end()) return it->second;
    const Op* op = known_b_.DefiningOp(v);
    bool constant = op && op->regions.empty() &&
                    (op->operands.empty() || op->def->family == Family::kElementwise ||
                     op->def->family == Family::kDataMovement || op->def->family == Family::kCast);
    if (constant)
      constant = std::all_of(op->operands.begin(), op->operands.end(),
                             [&](ValueId o) { return IsConstant(Value(&known_b_, o)); });
    return constant_[v.id()] = constant;
  }

  const Function& f_;
  const PartialEvalOptions options_;
  Builder known_b_, unknown_b_;
  // The counterparts of each source value. A value may be on both sides.
  std::vector<Value> known_, unknown_;
  int num_unknown_params_ = 0;
  std::vector<Value> residuals_;      // values of known_b_
  std::vector<int> residual_params_;  // their positions among the params of unknown_b_
  // Maps values of known_b_ to values of unknown_b_.
  std::unordered_map<ValueId, Value> counterparts_;
  std::unordered_map<ValueId, bool> constant_;
};

}  // namespace

absl::StatusOr<PartialEvalResult> PartialEval(const Function& f, const std::vector<bool>& known_in,
                                              const std::vector<bool>& force_unknown_out,
                                              PartialEvalOptions options) {
  struct Tag {};
  const auto key = std::tuple(known_in, force_unknown_out, options);
  return walk::Memoized<Tag, PartialEvalResult>(f, key, [&] {
    return CatchStatusOr([&] {
      TESSERA_CHECK(force_unknown_out.empty() || force_unknown_out.size() == f.results.size());
      return Splitter(f, known_in, options).Run(force_unknown_out);
    });
  });
}

}  // namespace tessera::ir
