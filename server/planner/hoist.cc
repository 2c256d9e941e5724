// The pass that moves collectives out of loops. MakePlan calls it on the partitioned device
// program, up to twice: with all collectives, and if the result needs too much memory, without
// gathers.
#include "server/planner/hoist.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/status_exception.h"
#include "ir/builder.h"
#include "ir/derive/computation_graph.h"
#include "ir/derive/factors.h"
#include "ir/op_def.h"
#include "ir/transform/transform.h"

namespace tessera::server::planner {
namespace {

using ir::Attrs;
using ir::Builder;
using ir::DataFlow;
using ir::DataFlowEdge;
using ir::Function;
using ir::FunctionRef;
using ir::Op;
using ir::Value;
using ir::ValueId;

// ---- Which ops may move. ------------------------------------------------------------------------

bool HasExchange(const Function& f);
// Returns whether the op, or an op in its planned regions, sends data to other devices.
bool IsExchange(const Function& f, const Op& op) {
  if (op.def->lowering == ir::Lowering::kCollective)
    return !op.operands.empty() && f.scope.mesh.SizeOf(op.attrs.Strings("axes")) > 1;
  return op.def->data_flow && std::any_of(op.regions.begin(), op.regions.end(),
                                          [](const FunctionRef& r) { return HasExchange(*r); });
}
bool HasExchange(const Function& f) {
  return std::any_of(f.ops.begin(), f.ops.end(), [&](const Op& op) { return IsExchange(f, op); });
}

// Returns whether the op may move out of a loop if its operands are the same in every iteration.
bool MayMove(const Function& f, const Op& op) {
  if (op.def->lowering == ir::Lowering::kHost || op.def->lowering == ir::Lowering::kBarrier)
    return false;
  if (!op.def->data_flow) return true;
  return ir::DataFlowOf(f, op).trip_count != ir::kUnknownTripCount &&
         std::all_of(op.regions.begin(), op.regions.end(), [](const FunctionRef& region) {
           return std::all_of(region->ops.begin(), region->ops.end(),
                              [&](const Op& inner) { return MayMove(*region, inner); });
         });
}

// Returns whether the results of the op have no more bytes than its operands.
bool HasNoLargerResults(const Function& f, const Op& op) {
  double in = 0, out = 0;
  for (const ValueId v : op.operands) in += static_cast<double>(f.types[v].num_bytes());
  for (const ValueId v : op.results) out += static_cast<double>(f.types[v].num_bytes());
  return out <= in;
}

// The ops that leave a region (the body of a loop). An op that a hoisted exchange needs leaves the
// region too. If the rest of the region also reads the op's result, the op stays in the region as
// well: it is computed once more, so that its result need not live as long as the loop runs.
struct HoistedOps {
  std::vector<size_t> ops;         // indices of the ops, in order
  std::vector<ValueId> constants;  // results of hoisted exchanges that the rest of the region reads
};
// Finds the ops that leave the region. `fixed` says which params are the same in every iteration.
// First finds the exchanges whose operands are fixed. Then walks backwards twice: first to find
// which results of these exchanges the rest of the region reads, then to collect the ops that those
// results need.
HoistedOps FindHoistedOps(const Function& f, std::vector<bool> fixed, Hoisting which) {
  fixed.resize(f.types.size(), false);
  std::vector<bool> leaves(f.ops.size(), false);
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const Op& op = f.ops[i];
    if (!MayMove(f, op) ||
        !std::all_of(op.operands.begin(), op.operands.end(), [&](ValueId v) { return fixed[v]; }))
      continue;
    for (const ValueId v : op.results) fixed[v] = true;
    leaves[i] = IsExchange(f, op) && (which == Hoisting::kAll || HasNoLargerResults(f, op));
  }
  HoistedOps out;
  const auto any_of_results = [&](size_t i, const std::vector<bool>& in) {
    return std::any_of(f.ops[i].results.begin(), f.ops[i].results.end(),
                       [&](ValueId v) { return in[v]; });
  };
  std::vector<bool> read(f.types.size(), false), needed(f.types.size(), false);
  for (const ValueId v : f.results) read[v] = true;
  for (size_t i = f.ops.size(); i-- > 0;) {
    if (!any_of_results(i, read)) continue;
    if (!leaves[i]) {
      for (const ValueId v : f.ops[i].operands) read[v] = true;
      continue;
    }
    for (const ValueId v : f.ops[i].results)
      if (read[v]) {
        needed[v] = true;
        out.constants.push_back(v);
      }
  }
  for (size_t i = f.ops.size(); i-- > 0;) {
    if (!any_of_results(i, needed)) continue;
    for (const ValueId v : f.ops[i].operands) needed[v] = true;
    out.ops.push_back(i);
  }
  std::reverse(out.ops.begin(), out.ops.end());
  std::sort(out.constants.begin(), out.constants.end());
  return out;
}

// Returns for each operand of a loop whether its value changes between iterations. A carry that the
// body hands on unchanged counts as a constant.
std::vector<bool> VaryingOperands(const Op& op, const DataFlow& flow,
                                  const std::vector<FunctionRef>& regions) {
  std::vector<bool> varies(op.operands.size(), false);
  for (size_t k = 0; k < flow.regions.size(); ++k)
    for (const DataFlowEdge& edge : flow.regions[k].operands)
      for (const auto& [param, result] : flow.regions[k].carries)
        if (param == edge.inner && regions[k]->results[result] != param) varies[edge.outer] = true;
  return varies;
}

// ---- Rewriting regions. -------------------------------------------------------------------------

std::vector<Value> ParamsLike(Builder& b, const Function& f) {
  std::vector<Value> params;
  for (int p = 0; p < f.num_params; ++p) params.push_back(b.Param(f.types[p]));
  return params;
}

bool IsCallWithExchange(const Function& f, const Op& op) {
  return op.def->data_flow && IsExchange(f, op) && ir::IsCall(*op.def, ir::DataFlowOf(f, op));
}

// Copies `f` into `b`, and inlines the calls that exchange something.
std::vector<Value> InlineCalls(Builder& b, const Function& f, std::vector<Value> env) {
  env.resize(f.types.size());
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const Op& op = f.ops[i];
    ir::SiteScope site(b, f.sites[i]);
    const std::vector<Value> in = ir::ElementsAt(env, op.operands);
    std::vector<Value> out;
    if (IsCallWithExchange(f, op)) {
      const ir::RegionDataFlow edges = ir::DataFlowOf(f, op).regions[0];
      std::vector<Value> args(op.regions[0]->num_params);
      for (const DataFlowEdge& e : edges.operands) args[e.inner] = in[e.outer];
      const std::vector<Value> results = InlineCalls(b, *op.regions[0], std::move(args));
      out.resize(op.results.size());
      for (const DataFlowEdge& e : edges.results) out[e.outer] = results[e.inner];
    } else {
      out = b.Emit(*op.def, in, op.attrs, op.regions);
    }
    for (size_t r = 0; r < out.size(); ++r) env[op.results[r]] = out[r];
  }
  return ir::ElementsAt(env, f.results);
}

FunctionRef WithoutCalls(const FunctionRef& f) {
  if (!std::any_of(f->ops.begin(), f->ops.end(),
                   [&](const Op& op) { return IsCallWithExchange(*f, op); }))
    return f;
  Builder b(f->scope, f->name);
  std::vector<Value> params = ParamsLike(b, *f);
  return b.Build(InlineCalls(b, *f, std::move(params)));
}

// Returns the region without the ops that have left it. The results of those ops are params from
// `at` on.
FunctionRef WithoutHoistedOps(const Function& f, const HoistedOps& hoisted, int at) {
  Builder b(f.scope, f.name);
  std::vector<Value> env(f.types.size());
  for (int p = 0; p <= f.num_params; ++p) {
    if (p == at)
      for (const ValueId v : hoisted.constants) env[v] = b.Param(f.types[v]);
    if (p < f.num_params) env[p] = b.Param(f.types[p]);
  }
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const Op& op = f.ops[i];
    if (std::all_of(op.results.begin(), op.results.end(),
                    [&](ValueId v) { return env[v].valid(); }))
      continue;
    ir::SiteScope site(b, f.sites[i]);
    const std::vector<Value> out =
        b.Emit(*op.def, ir::ElementsAt(env, op.operands), op.attrs, op.regions);
    for (size_t r = 0; r < out.size(); ++r)
      if (!env[op.results[r]].valid()) env[op.results[r]] = out[r];
  }
  return b.Build(ir::ElementsAt(env, f.results));
}

// ---- Rewriting functions. -----------------------------------------------------------------------

class Hoister {
 public:
  explicit Hoister(Hoisting which) : which_(which) {}

  FunctionRef Run(const FunctionRef& f) {
    std::map<size_t, Change> changes;
    for (size_t i = 0; i < f->ops.size(); ++i)
      if (f->ops[i].def->data_flow)
        if (Change c = PlanChange(*f, f->ops[i]); c.is_changed) changes.emplace(i, std::move(c));
    if (changes.empty()) return f;

    Builder b(f->scope, f->name);
    std::vector<Value> env = ParamsLike(b, *f);
    env.resize(f->types.size());
    EmittedOps emitted;
    for (size_t i = 0; i < f->ops.size(); ++i) {
      const Op& op = f->ops[i];
      ir::SiteScope site(b, f->sites[i]);
      const std::vector<Value> in = ir::ElementsAt(env, op.operands);
      const auto change = changes.find(i);
      const std::vector<Value> out = change == changes.end()
                                         ? EmitOnce(b, op, in, &emitted)
                                         : EmitLoop(b, *f, op, in, change->second, &emitted);
      for (size_t r = 0; r < out.size(); ++r) env[op.results[r]] = out[r];
    }
    return b.Build(ir::ElementsAt(env, f->results));
  }

 private:
  // The planned change of an op with regions.
  struct Change {
    bool is_changed = false;           // whether the op is changed at all
    std::vector<FunctionRef> regions;  // rewritten regions, still with the ops that leave them
    std::vector<HoistedOps> hoisted;   // for each region, the ops that leave it
  };
  // The results of the collectives that a function contains so far, and of the ops that were moved
  // into the function. The key is op and operands; equal ops with equal attributes are emitted only
  // once.
  using EmittedOps = std::map<std::pair<const ir::OpDef*, std::vector<ValueId>>,
                              std::vector<std::pair<Attrs, std::vector<Value>>>>;

  // Decides how the op and its regions change.
  Change PlanChange(const Function& f, const Op& op) {
    Change out;
    for (const FunctionRef& region : op.regions) out.regions.push_back(Run(region));
    out.is_changed = out.regions != op.regions;
    out.hoisted.resize(op.regions.size());
    const DataFlow flow = ir::DataFlowOf(f, op);
    const bool repeats = flow.trip_count == ir::kUnknownTripCount || flow.trip_count > 1;
    if (!repeats || op.def->add_constant == nullptr) return out;
    const std::vector<bool> varies = VaryingOperands(op, flow, out.regions);
    for (size_t k = 0; k < op.regions.size(); ++k) {
      if (!HasExchange(*out.regions[k])) continue;
      const FunctionRef flat = WithoutCalls(out.regions[k]);
      std::vector<bool> fixed(flat->num_params, false);
      for (const DataFlowEdge& edge : flow.regions[k].operands)
        fixed[edge.inner] = !edge.leading_dim && !varies[edge.outer];
      out.hoisted[k] = FindHoistedOps(*flat, std::move(fixed), which_);
      if (out.hoisted[k].constants.empty()) continue;
      out.regions[k] = flat;
      out.is_changed = true;
    }
    return out;
  }

  // Emits the op, unless it is a collective or a moved op and an equal op has been emitted already.
  // Returns the results of the one or the other.
  static std::vector<Value> EmitOnce(Builder& b, const Op& op, ir::Values in, EmittedOps* emitted,
                                     bool is_moved = false) {
    if (!op.regions.empty() || (!is_moved && op.def->lowering != ir::Lowering::kCollective))
      return b.Emit(*op.def, in, op.attrs, op.regions);
    std::vector<ValueId> ids;
    for (const Value& v : in) ids.push_back(v.id());
    auto& equal_ops = (*emitted)[{op.def, std::move(ids)}];
    for (const auto& [attrs, results] : equal_ops)
      if (attrs == op.attrs) return results;
    return equal_ops.emplace_back(op.attrs, b.Emit(*op.def, in, op.attrs)).second;
  }

  // Emits the ops that leave the loop, then the loop with their results as new constants. A new
  // constant changes the loop's operands and may change its attributes, so the op table adds the
  // constants one by one (add_constant). WithoutHoistedOps inserts the params of all constants
  // where the param of the first constant is.
  static std::vector<Value> EmitLoop(Builder& b, const Function& f, const Op& op, ir::Values in,
                                     const Change& change, EmittedOps* emitted) {
    const DataFlow flow = ir::DataFlowOf(f, op);
    std::vector<Value> operands(in.begin(), in.end());
    Attrs attrs = op.attrs;
    std::vector<FunctionRef> regions = change.regions;
    for (size_t k = 0; k < regions.size(); ++k) {
      const HoistedOps& hoisted = change.hoisted[k];
      if (hoisted.constants.empty()) continue;
      const Function& region = *change.regions[k];
      std::vector<Value> env(region.types.size());
      for (const DataFlowEdge& edge : flow.regions[k].operands) env[edge.inner] = in[edge.outer];
      for (const size_t i : hoisted.ops) {
        ir::SiteScope site(b, region.sites[i]);
        const std::vector<Value> out =
            EmitOnce(b, region.ops[i], ir::ElementsAt(env, region.ops[i].operands), emitted,
                     /*is_moved=*/true);
        for (size_t r = 0; r < out.size(); ++r) env[region.ops[i].results[r]] = out[r];
      }
      int at = -1;
      for (const ValueId v : hoisted.constants) {
        ir::AddedConstant added = op.def->add_constant(attrs, k);
        if (at < 0) at = added.param;
        operands.insert(operands.begin() + added.operand, env[v]);
        attrs = std::move(added.attrs);
      }
      regions[k] = WithoutHoistedOps(region, hoisted, at);
    }
    return b.Emit(*op.def, operands, std::move(attrs), std::move(regions));
  }

  const Hoisting which_;
};

}  // namespace

absl::StatusOr<FunctionRef> HoistCollectives(const FunctionRef& f, Hoisting which) {
  return CatchStatusOr([&]() -> FunctionRef {
    const FunctionRef out = Hoister(which).Run(f);
    // Drops constants of loops that only the ops that left have read.
    return out == f ? f : ir::Dce(*out);
  });
}

}  // namespace tessera::server::planner
