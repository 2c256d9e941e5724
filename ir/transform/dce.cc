// Dead-code elimination in functions and their regions. If a result of an op with planned regions
// is unused, everything inside that only this result needs goes with it: operands, carries, stacked
// slices. An op with derivative rules stays whole, because the rules rely on all of its operands
// and results.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "ir/derive/factors.h"
#include "ir/op_def.h"
#include "ir/transform/transform.h"
#include "ir/walk.h"

namespace tessera::ir {
namespace {

using Mask = std::vector<bool>;

template <class T>
std::vector<T> Kept(const std::vector<T>& list, const Mask& mask) {
  std::vector<T> out;
  for (size_t i = 0; i < list.size(); ++i)
    if (mask[i]) out.push_back(list[i]);
  return out;
}

// Records which values of a function and of its regions are live. The sets only grow, and a region
// is visited again only when more of its results are wanted. The cost of a nest is therefore
// bounded by the number of its values.
class Liveness {
 public:
  explicit Liveness(const Function& f) : f_(f), live_(f.types.size(), false) {
    for (size_t i = 0; i < f.ops.size(); ++i)
      if (f.ops[i].def->data_flow && !f.ops[i].def->has_rules()) ops_.try_emplace(i, f, f.ops[i]);
  }

  // Marks a value as live. Returns whether it was not live before.
  bool Mark(ValueId v) {
    if (live_[v]) return false;
    return live_[v] = true;
  }
  bool IsLive(ValueId v) const { return live_[v]; }

  // Marks the values that the live values need.
  void Sweep() {
    swept_ = true;
    for (size_t i = f_.ops.size(); i-- > 0;) {
      const Op& op = f_.ops[i];
      if (!IsLiveOp(op)) continue;
      const auto regions = ops_.find(i);
      if (regions != ops_.end()) regions->second.Sweep(op, live_);
      for (size_t k = 0; k < op.operands.size(); ++k)
        if (regions == ops_.end() || regions->second.operands[k]) live_[op.operands[k]] = true;
    }
  }
  bool swept() const { return swept_; }

  // Returns the live part of the function, with these params and results.
  FunctionRef Build(absl::Span<const ValueId> params, absl::Span<const ValueId> results) const {
    Function g = f_;
    for (const auto& [i, state] : ops_)
      if (IsLiveOp(f_.ops[i])) state.RemoveDead(&g.ops[i]);
    return walk::Extract(std::move(g), params, results);
  }

 private:
  // The state of an op with regions: which of its operands and results are kept.
  struct OpWithRegions {
    OpWithRegions(const Function& f, const Op& op)
        : flow(DataFlowOf(f, op)),
          operands(op.operands.size(), false),
          results(op.results.size(), false) {
      if (flow.branch_index >= 0) operands[flow.branch_index] = true;
      for (size_t k = 0; k < op.regions.size(); ++k) {
        const Function& region = *op.regions[k];
        inner.emplace_back(region);
        operand_of.emplace_back(region.num_params, -1);
        result_of.emplace_back(region.results.size(), -1);
        for (const DataFlowEdge& e : flow.regions[k].operands) operand_of[k][e.inner] = e.outer;
        for (const DataFlowEdge& e : flow.regions[k].results) result_of[k][e.inner] = e.outer;
      }
    }

    // A result of a region that is not a result of the op belongs to a predicate, and is always
    // needed.
    bool NeedsResult(size_t k, size_t r) const {
      return result_of[k][r] < 0 || results[result_of[k][r]];
    }

    // Spreads liveness through the op. `live` are the values of the function around the op.
    void Sweep(const Op& op, const Mask& live) {
      for (size_t r = 0; r < results.size(); ++r)
        if (live[op.results[r]]) results[r] = true;
      for (bool grew = true; grew;) {
        grew = false;
        for (size_t k = 0; k < inner.size(); ++k) {
          const Function& region = *op.regions[k];
          bool needs_sweep = !inner[k].swept();
          for (size_t r = 0; r < region.results.size(); ++r)
            if (NeedsResult(k, r) && inner[k].Mark(region.results[r])) needs_sweep = true;
          if (needs_sweep) inner[k].Sweep();
          for (int p = 0; p < region.num_params; ++p)
            if (inner[k].IsLive(p) && operand_of[k][p] >= 0) operands[operand_of[k][p]] = true;
          for (const auto& [param, result] : flow.regions[k].carries) {
            const int in = operand_of[k][param], out = result_of[k][result];
            if (operands[in] == results[out]) continue;
            operands[in] = results[out] = grew = true;
          }
        }
      }
    }

    void RemoveDead(Op* op) const {
      for (size_t k = 0; k < inner.size(); ++k) {
        const Function& region = *op->regions[k];
        std::vector<ValueId> params, kept;
        for (int p = 0; p < region.num_params; ++p)
          if (operand_of[k][p] >= 0 && operands[operand_of[k][p]]) params.push_back(p);
        for (size_t r = 0; r < region.results.size(); ++r)
          if (NeedsResult(k, r)) kept.push_back(region.results[r]);
        op->regions[k] = inner[k].Build(params, kept);
      }
      if (op->def->keep) op->attrs = op->def->keep(op->attrs, operands, results);
      op->operands = Kept(op->operands, operands);
      op->results = Kept(op->results, results);
    }

    DataFlow flow;
    Mask operands, results;
    std::vector<Liveness> inner;  // one for each region
    // For each region: the op's operand for each param, and the op's result for each result; -1 for
    // none.
    std::vector<std::vector<int>> operand_of, result_of;
  };

  bool IsLiveOp(const Op& op) const {
    return HasEffects(op) ||
           std::any_of(op.results.begin(), op.results.end(), [&](ValueId r) { return live_[r]; });
  }

  const Function& f_;
  Mask live_;
  bool swept_ = false;
  // The ops with regions, by their index.
  std::map<size_t, OpWithRegions> ops_;
};

}  // namespace

FunctionRef Dce(const Function& f, bool keep_params, std::vector<bool>* kept) {
  Liveness live(f);
  for (ValueId v : f.results) live.Mark(v);
  live.Sweep();
  std::vector<ValueId> params;
  if (kept) kept->clear();
  for (int p = 0; p < f.num_params; ++p) {
    const bool is_kept = keep_params || live.IsLive(p);
    if (is_kept) params.push_back(p);
    if (kept) kept->push_back(is_kept);
  }
  return live.Build(params, f.results);
}

FunctionRef DropEffects(FunctionRef f) {
  if (!f->has_effects) return f;
  const auto out = std::make_shared<Function>(*f);
  out->ops.clear();
  out->sites.clear();
  for (size_t i = 0; i < f->ops.size(); ++i) {
    if (f->ops[i].def->has_effect) continue;
    Op& op = out->ops.emplace_back(f->ops[i]);
    for (FunctionRef& region : op.regions) region = DropEffects(std::move(region));
    out->sites.push_back(f->sites[i]);
  }
  out->has_effects = false;
  return out;
}

}  // namespace tessera::ir
